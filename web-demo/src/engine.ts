import { Router, ZenEdgeError, type LoadOptions } from "zen-edge";

/** What the page's views share: the router that runs now. */
export class Engine {
  router: Router | null = null;
  private readonly ready = new Set<(router: Router) => void>();

  /** Calls back for the router that runs, and for each that takes its place. */
  onReady(callback: (router: Router) => void): void {
    this.ready.add(callback);
    if (this.router) callback(this.router);
  }

  /** Loads a router and, once it stands, puts it in the place of the one before. */
  async load(options: LoadOptions): Promise<void> {
    const router = await Router.load(options);
    const before = this.router;
    this.router = router;
    for (const callback of this.ready) callback(router);
    await before?.close();
  }
}

/** An error in words for a person. */
export function told(error: unknown): string {
  if (error instanceof ZenEdgeError) return error.message;
  return error instanceof Error ? error.message : String(error);
}

/** Whether the work was only overtaken or given up. */
export function dropped(error: unknown): boolean {
  return error instanceof ZenEdgeError && (error.code === "superseded" || error.code === "aborted" || error.code === "closed");
}
