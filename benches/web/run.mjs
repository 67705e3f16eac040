// Prefill in headless Chromium: zen-edge beside wllama, in turn, on the same file.
//
//   npm ci && node run.mjs --model qwen3-0.6b-rand-q4_k_m.gguf --heads FOLDER [--rounds 5] [--sizes 16 64 128] [--out FILE.json]
//
// Each engine has a browser of its own, all loaded at once; then every round asks every engine for every length, one after
// the other, so that what else the machine does falls on all alike. Only ratios within one run count.
import { chromium } from "playwright-core";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { ISOLATED, serve } from "../../wasm/npm/test/server.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const { values: args } = parseArgs({
  options: {
    model: { type: "string" },
    heads: { type: "string" },
    rounds: { type: "string", default: "5" },
    sizes: { type: "string", multiple: true, default: ["16", "64", "128"] },
    engines: { type: "string", default: "" },
    out: { type: "string", default: path.join(here, "../records/web.json") },
  },
});
if (!args.model || !args.heads) throw new Error("--model FILE.gguf and --heads FOLDER are needed");
const sizes = args.sizes.map(Number);
const rounds = Number(args.rounds);
const hardware = os.availableParallelism();

const WORDS = "the of and to in is that for it was on are as with his they at be this from have or by one had not but what all were".split(" ");
/** A prompt of about `n` tokens; no two begin alike. */
const prompt = (n, seed) => Array.from({ length: n }, (_, i) => WORDS[(i * 7 + seed * 13 + (i >> 3) * seed) % WORDS.length]).join(" ");

const OURS = `import { Router } from "/zen-edge/index.js";
window.load = async (options) => {
  const start = performance.now();
  window.router = await Router.load({ ...options, model: "/model/" + options.file, heads: "/heads/", cacheBytes: 0, prefixBytes: 0, file: undefined });
  return { ms: performance.now() - start, about: router.about };
};
window.unload = () => router.close();
window.ask = async (text) => {
  const start = performance.now();
  const { tokens } = await router.embed(text);
  return { ms: performance.now() - start, tokens };
};
window.ready = true;`;
const WLLAMA = `import { Wllama } from "/wllama/index.js";
window.load = async ({ file, threads }) => {
  const start = performance.now();
  window.wllama = new Wllama({ default: "/wllama/wasm/wllama.wasm" }, { suppressNativeLog: true });
  await wllama.loadModelFromUrl(location.origin + "/model/" + file, { n_threads: threads, n_ctx: 1024, n_batch: 512, n_ubatch: 512, n_gpu_layers: 0, embeddings: true, pooling_type: "last" });
  return { ms: performance.now() - start, about: { threads: wllama.getNumThreads?.() ?? threads } };
};
window.unload = () => wllama.exit();
window.ask = async (text) => {
  const start = performance.now();
  const answer = await wllama.createEmbedding({ input: text });
  return { ms: performance.now() - start, tokens: answer.usage?.prompt_tokens ?? null };
};
window.ready = true;`;

const ours = (isa, threads) => ({ name: `zen-edge ${isa}`, threads, script: OURS, options: { isa, threads } });
const theirs = (threads) => ({ name: "wllama 3.13.0", threads, script: WLLAMA, options: { threads } });
let engines = [ours("relaxed-simd", 1), theirs(1), ours("simd128", 1)];
if (hardware > 1) engines.push(ours("relaxed-simd", 2), theirs(2), ours("simd128", 2));
const built = (e) => e.script !== OURS || fs.existsSync(path.join(here, `../../wasm/npm/dist/${e.options.isa}${e.threads > 1 ? "-threads" : ""}.wasm`));
engines = engines.filter(built).filter((e) => `${e.name} ${e.threads}`.includes(args.engines));

/** The processes by their parents. */
function processes() {
  const parents = new Map();
  for (const pid of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      parents.set(Number(pid), Number(/\) \S (\d+)/.exec(fs.readFileSync(`/proc/${pid}/stat`, "utf8"))[1]));
    } catch {
      // It has ended.
    }
  }
  return parents;
}

/** Bytes of a browser's largest renderer now, shared pages divided: a page with its workers lives in one of them. */
function memory(browser) {
  const parents = processes();
  let most = 0;
  for (const pid of parents.keys()) {
    try {
      if (!fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--type=renderer")) continue;
      let up = pid;
      while (up && up !== browser) up = parents.get(up);
      if (up !== browser) continue;
      most = Math.max(most, 1024 * Number(/^Pss:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))[1]));
    } catch {
      // It has ended.
    }
  }
  return most;
}

const site = await serve({
  "/zen-edge/": path.join(here, "../../wasm/npm/dist"),
  "/wllama/": path.join(here, "node_modules/@wllama/wllama/esm"),
  "/model/": path.dirname(args.model),
  "/heads/": args.heads,
});
site.headers = ISOLATED;
site.pages = { "/ours.js": OURS, "/wllama.js": WLLAMA };
for (const [i, engine] of engines.entries()) {
  site.pages[`/${i}`] = `<!doctype html><script type="module" src="/${engine.script === OURS ? "ours" : "wllama"}.js"></script>`;
}

for (const [i, engine] of engines.entries()) {
  const before = processes();
  engine.browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-renderer-backgrounding"],
  });
  engine.pid = [...processes()].find(([pid, parent]) => parent === process.pid && !before.has(pid))?.[0];
  engine.peak = 0;
  engine.context = await engine.browser.newContext();
  const visit = async () => {
    const page = await engine.context.newPage();
    await page.goto(`${site.origin}/${i}`);
    await page.waitForFunction(() => window.ready);
    return page;
  };
  const watch = setInterval(() => (engine.peak = Math.max(engine.peak, memory(engine.pid))), 100);
  let page = await visit();
  const load = (page) => page.evaluate((options) => load(options), { ...engine.options, file: path.basename(args.model) });
  const cold = await load(page);
  engine.cold = cold.ms;
  engine.about = cold.about;
  await page.evaluate(() => unload());
  await page.close();
  engine.page = page = await visit();
  engine.stored = (await load(page)).ms;
  engine.first = (await page.evaluate((text) => ask(text), prompt(64, 99))).ms;
  engine.loaded = memory(engine.pid);
  clearInterval(watch);
  engine.times = Object.fromEntries(sizes.map((n) => [n, []]));
  console.error(`${engine.name}, ${engine.threads} threads: cold ${engine.cold.toFixed(0)} ms, stored ${engine.stored.toFixed(0)} ms, first ${engine.first.toFixed(0)} ms`);
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/** Writes what is known after so many rounds: a run that is cut short leaves a record too. */
function record(done) {
  const result = {
    date: new Date().toISOString().slice(0, 10),
    machine: { cpu: os.cpus()[0]?.model, threads: hardware },
    browser: engines[0]?.browser.version(),
    model: { file: path.basename(args.model), bytes: fs.statSync(args.model).size },
    rounds: done,
    engines: engines.map(({ name, threads, about, cold, stored, first, loaded, peak, times }) => ({
      name,
      threads,
      build: about.build,
      load_cold_ms: cold,
      load_stored_ms: stored,
      first_64_tokens_ms: first,
      memory_loaded: loaded,
      memory_peak: peak,
      engine_memory: about.memory,
      times,
      median_ms: Object.fromEntries(sizes.map((n) => [n, median(times[n].map((t) => t.ms))])),
      tokens_per_second: Object.fromEntries(sizes.map((n) => [n, median(times[n].map((t) => (1000 * t.tokens) / t.ms))])),
    })),
  };
  fs.writeFileSync(args.out, `${JSON.stringify(result, null, 1)}\n`);

  const mb = (bytes) => `${Math.round(bytes / 1e6)}`;
  const lines = [
    "# Prefill in a browser",
    "",
    `${result.date}, ${result.machine.cpu}, ${hardware} threads, headless Chromium ${result.browser}; ${result.model.file} (${mb(result.model.bytes)} MB); medians of ${done} interleaved rounds. Written by benches/web/run.mjs; the raw times are in the JSON beside.`,
    "",
    `| engine | threads | ${sizes.map((n) => `tok/s at ${n}`).join(" | ")} | load cold, s | from storage, s | renderer's memory, peak, MB |`,
    `|---|---|${sizes.map(() => "---").join("|")}|---|---|---|`,
    ...result.engines.map((e) => `| ${e.name} | ${e.threads} | ${sizes.map((n) => e.tokens_per_second[n].toFixed(1)).join(" | ")} | ${(e.load_cold_ms / 1e3).toFixed(1)} | ${(e.load_stored_ms / 1e3).toFixed(1)} | ${mb(e.memory_peak)} |`),
    "",
  ];
  fs.writeFileSync(args.out.replace(/\.json$/, ".md"), lines.join("\n"));
  return lines.join("\n");
}

let text = "";
for (let round = 0; round < rounds; round++) {
  for (const n of sizes) {
    for (const engine of engines) {
      const watch = setInterval(() => (engine.peak = Math.max(engine.peak, memory(engine.pid))), 200);
      const { ms, tokens } = await engine.page.evaluate((text) => ask(text), prompt(n, round + 1));
      clearInterval(watch);
      engine.times[n].push({ ms, tokens: tokens ?? n });
    }
  }
  text = record(round + 1);
  console.error(`round ${round + 1} of ${rounds}`);
}

for (const engine of engines) await engine.browser.close();
await site.stop();
console.log(text);
