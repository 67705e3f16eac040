// The longest tasks of a page's own thread, by the browser's trace: what blocks a page is a task.

/**
 * Starts a trace of `page`; `stop` gives the tasks of its main thread, the longest first, from its first script's
 * `performance.mark("begin")` on, in milliseconds of `wall` and of `cpu`, and the milliseconds that its workers ran.
 */
export async function longest(context, page) {
  const session = await context.newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  await session.send("Tracing.start", {
    transferMode: "ReportEvents",
    traceConfig: { includedCategories: ["toplevel", "blink.user_timing"], excludedCategories: ["*"] },
  });
  return {
    async stop() {
      const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
      await session.send("Tracing.end");
      await complete;
      await session.detach();
      const begin = Math.min(...events.filter((e) => e.name === "begin" && e.cat.includes("user_timing")).map((e) => e.ts));
      if (!Number.isFinite(begin)) throw new Error("the page marked no beginning");
      const of = (name) => {
        const threads = new Set(events.filter((e) => e.name === "thread_name" && e.args?.name?.startsWith(name)).map((e) => `${e.pid}:${e.tid}`));
        return events.filter((e) => e.ts >= begin && e.ph === "X" && e.name.endsWith("RunTask") && threads.has(`${e.pid}:${e.tid}`));
      };
      const tasks = of("CrRendererMain")
        .map((e) => ({ wall: e.dur / 1e3, cpu: (e.tdur ?? 0) / 1e3, from: e.args?.src_func }))
        .sort((a, b) => b.wall - a.wall);
      return { tasks, workers: of("DedicatedWorker").reduce((sum, e) => sum + (e.tdur ?? 0) / 1e3, 0) };
    },
  };
}
