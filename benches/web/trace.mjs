// The longest tasks of a page's own thread, by the browser's trace: what blocks a page is a task.

/**
 * Starts a trace of `page`; `stop` gives the longest tasks of its main thread from its first script's
 * `performance.mark("begin")` on, milliseconds of `wall` and of `cpu`.
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
      const mains = new Set(
        events.filter((e) => e.name === "thread_name" && e.args?.name === "CrRendererMain").map((e) => `${e.pid}:${e.tid}`),
      );
      const begin = Math.min(...events.filter((e) => e.name === "begin" && e.cat.includes("user_timing")).map((e) => e.ts));
      if (!Number.isFinite(begin)) throw new Error("the page marked no beginning");
      return events
        .filter((e) => e.ts >= begin && e.ph === "X" && e.name.endsWith("RunTask") && mains.has(`${e.pid}:${e.tid}`))
        .map((e) => ({ wall: e.dur / 1e3, cpu: (e.tdur ?? 0) / 1e3, from: e.args?.src_func ?? e.args?.task?.posted_from?.function_name }))
        .sort((a, b) => b.wall - a.wall)
        .slice(0, 8);
    },
  };
}
