// What a page's renderer has in memory: a page and its workers live in one process. Linux only.
import * as fs from "node:fs";

/** The processes of a browser's pages: ask again after a navigation. */
export async function renderers(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  return processInfo.filter(({ type }) => type === "renderer").map(({ id }) => id);
}

/** Bytes of the largest one's memory now that are no file's: its heaps, and the shared memory of threads. */
export function memory(pids) {
  const of = (pid) => {
    try {
      const status = fs.readFileSync(`/proc/${pid}/status`, "utf8");
      return ["RssAnon", "RssShmem"].reduce((sum, name) => sum + 1024 * Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0), 0);
    } catch {
      return 0; // It has ended.
    }
  };
  return Math.max(0, ...pids.map(of));
}
