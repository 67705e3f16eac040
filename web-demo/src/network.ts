import { by } from "./dom";

/**
 * Counts the requests since the router was ready: those that the service worker sent out for this page and its worker, and
 * where no service worker is in charge, those that the browser's own list of resources shows.
 */
export function watchNetwork(): { start(): void } {
  const line = by("network");
  const seen: string[] = [];
  let counting = false;
  const show = () => {
    line.classList.toggle("some", seen.length > 0);
    const last = seen.at(-1);
    const strong = document.createElement("strong");
    strong.textContent = String(seen.length);
    line.replaceChildren("Requests since the router was ready: ", strong, last ? ` (the last one: ${last})` : ". Open the network panel and see.");
  };
  const add = (url: string) => {
    if (!counting) return;
    seen.push(new URL(url, location.href).pathname.split("/").pop() || "the page");
    show();
  };
  navigator.serviceWorker?.addEventListener("message", (event: MessageEvent<{ network?: string }>) => {
    if (event.data.network) add(event.data.network);
  });
  new PerformanceObserver((list) => {
    if (navigator.serviceWorker?.controller) return;
    for (const entry of list.getEntries()) if (!entry.name.startsWith("blob:") && !entry.name.startsWith("data:")) add(entry.name);
  }).observe({ type: "resource", buffered: false });
  return {
    start() {
      counting = true;
      seen.length = 0;
      show();
    },
  };
}
