// A second visit in headless Chromium, with the server gone: how long until the first answer, and what the page's own thread did meanwhile.
//
//   node visit.mjs [--model FILE.gguf] [--visits 5] [--isa simd128] [--threads N] [--out FILE.json]
//
// Without a model, the default pack. The first visit downloads and routes; a service worker of a few lines keeps the page's
// own files. Then the browser is started anew on the same profile for every visit. A task of the page's thread is what blocks it:
// the longest one is taken from the browser's own trace, as it passed (wall) and as the thread ran (cpu).
import { chromium } from "playwright-core";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { ISOLATED, serve } from "../../wasm/npm/test/server.mjs";
import { heads, hiddenSize } from "./heads.mjs";
import { memory, renderers } from "./memory.mjs";
import { longest } from "../../wasm/npm/test/trace.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const { values: args } = parseArgs({
  options: {
    model: { type: "string" },
    visits: { type: "string", default: "5" },
    isa: { type: "string", default: "relaxed-simd" },
    threads: { type: "string" },
    out: { type: "string", default: path.join(here, "../records/web-visit.json") },
  },
});

const SW = `
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  if (/^\\/(model|heads)\\//.test(new URL(event.request.url).pathname)) return;
  event.respondWith((async () => {
    const cache = await caches.open("page");
    const kept = await cache.match(event.request);
    if (kept) return kept;
    const fresh = await fetch(event.request);
    if (fresh.ok) await cache.put(event.request, fresh.clone());
    return fresh;
  })());
});`;
const PAGE = `import { Router } from "/zen-edge/index.js";
window.go = async (options, prompt) => {
  const marks = { called: performance.now() };
  const router = (window.router = await Router.load({ ...options, onProgress: ({ stage, loaded, total }) => (marks[stage + (loaded === total ? "" : "...")] ??= performance.now()) }));
  marks.loaded = performance.now();
  const { tokens } = await router.route(prompt);
  marks.routed = performance.now();
  return { marks, tokens, about: router.about };
};
window.more = async (prompts) => {
  for (const prompt of prompts) await router.route(prompt);
};
window.ready = navigator.serviceWorker.register("/sw.js").then(() => navigator.serviceWorker.ready);
window.done = ready.then(() => true);`;

const site = await serve({
  "/zen-edge/": path.join(here, "../../wasm/npm/dist"),
  "/model/": path.dirname(path.resolve(args.model ?? ".")),
});
site.headers = ISOLATED;
site.pages = { "/": `<!doctype html><title>visit</title><script>performance.mark("begin")</script><script type="module" src="/page.js"></script>`, "/page.js": PAGE, "/sw.js": SW };
if (args.model) Object.assign(site.pages, heads(hiddenSize(args.model)));

const profile = fs.mkdtempSync(path.join(os.tmpdir(), "zen-edge-visit-"));
const options = {
  isa: args.isa,
  ...(args.threads ? { threads: Number(args.threads) } : {}),
  ...(args.model ? { model: `/model/${path.basename(args.model)}`, heads: "/heads/" } : {}),
};
const launch = () =>
  chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-renderer-backgrounding"],
  });
const open = async (context) => {
  const page = context.pages()[0] ?? (await context.newPage());
  await page.goto(`${site.origin}/`);
  await page.waitForFunction(() => window.done);
  return page;
};

const run = {
  date: new Date().toISOString().slice(0, 16),
  machine: { cpu: os.cpus()[0]?.model, threads: os.availableParallelism(), load: os.loadavg()[0] },
  model: args.model ? path.basename(args.model) : "default pack",
  visits: [],
};
let context = await launch();
let page = await open(context);
await page.reload(); // Now the service worker has the page, and keeps what it loads.
await page.waitForFunction(() => window.done);
let first = await page.evaluate(([options]) => go(options, "hello"), [options]);
run.first = first.marks;
await page.evaluate((prompts) => more(prompts), Array.from({ length: args.model ? 3 : 40 }, (_, i) => `write a python function number ${i} that reverses a linked list`));
await page.waitForTimeout(2500); // The browser writes its cache of compiled code when it is idle.
await context.close();
await site.stop();

for (let i = 0; i < Number(args.visits); i++) {
  context = await launch();
  run.browser ??= context.browser()?.version();
  page = context.pages()[0] ?? (await context.newPage());
  const tracer = await longest(context, page);
  await page.goto(`${site.origin}/`);
  await page.waitForFunction(() => window.go);
  const pids = context.browser() ? await renderers(context.browser()) : [];
  let peak = 0;
  const watch = setInterval(() => (peak = Math.max(peak, memory(pids))), 50);
  const { marks, tokens, about } = await page.evaluate(([options]) => go(options, "Write a short poem about the sea and the wind in the old harbour"), [options]);
  clearInterval(watch);
  const tasks = (await tracer.stop()).tasks.slice(0, 8);
  const settled = memory(pids);
  run.visits.push({ marks, tokens, build: about.build, threads: about.threads, source: about.source, stored: about.stored, engine_memory: about.memory, memory: settled, peak, tasks });
  await context.close();
  const since = (name) => Math.round(marks[name] - marks.called);
  console.log(`${about.build}, ${about.threads} threads: loaded ${since("loaded")} ms, routed ${since("routed")} ms after the call (${Math.round(marks.routed)} after navigation), ${Math.round(settled / 1e6)} MB, engine ${Math.round(about.memory / 1e6)} MB; longest tasks ${JSON.stringify(tasks.slice(0, 3))}`);
  console.log(Object.entries(marks).map(([name, at]) => `${name} ${Math.round(at - marks.called)}`).join(", "));
}
fs.rmSync(profile, { recursive: true, force: true });
const before = fs.existsSync(args.out) ? JSON.parse(fs.readFileSync(args.out, "utf8")) : { runs: [] };
fs.writeFileSync(args.out, `${JSON.stringify({ runs: [...before.runs, run] }, null, 1)}\n`);
