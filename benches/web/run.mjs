// Prefill in headless Chromium: zen-edge beside wllama and onnxruntime-web, in turn, on models of the same shapes.
//
//   npm ci && pip install -r requirements.txt && python make_onnx.py qwen3-0.6b FOLDER
//   node run.mjs --model qwen3-0.6b-rand-q4_k_m.gguf --onnx FOLDER --threads 1 [--sizes 16,64,128] [--rounds 3] [--engines WORD] [--out FILE.json]
//
// Each engine has a browser of its own, all loaded at once; then every round asks every engine for every length, one after
// the other, so that what else the machine does falls on all alike. Only ratios within one run count. A run is added to those
// that the record has, so that one may be split: other lengths, other threads. With two threads we run on one too.
import { chromium } from "playwright-core";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { ISOLATED, serve } from "../../wasm/npm/test/server.mjs";
import { heads, hiddenSize } from "./heads.mjs";
import { memory, renderers } from "./memory.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const { values: args } = parseArgs({
  options: {
    model: { type: "string" },
    onnx: { type: "string" },
    threads: { type: "string", default: "1" },
    rounds: { type: "string", default: "3" },
    sizes: { type: "string", multiple: true, default: ["16,64,128"] },
    engines: { type: "string", default: "" },
    out: { type: "string", default: path.join(here, "../records/web.json") },
  },
});
if (!args.model) throw new Error("--model FILE.gguf is needed");
const sizes = args.sizes.flatMap((list) => list.split(",")).map(Number);
const rounds = Number(args.rounds);
const threads = Number(args.threads);

const WORDS = "the of and to in is that for it was on are as with his they at be this from have or by one had not but what all were".split(" ");
/** A prompt of about `n` tokens; no two begin alike. */
const prompt = (n, seed) => Array.from({ length: n }, (_, i) => WORDS[(i * 7 + seed * 13 + (i >> 3) * seed) % WORDS.length]).join(" ");

const OURS = `import { Router } from "/zen-edge/index.js";
window.load = async ({ file, ...options }) => {
  const start = performance.now();
  window.router = await Router.load({ ...options, model: "/model/" + file, heads: "/heads/", cacheBytes: 0, prefixBytes: 0 });
  return { ms: performance.now() - start, about: router.about };
};
window.unload = () => router.close();
window.ask = async (text) => {
  const start = performance.now();
  const { tokens } = await router.route(text);
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
// Files in the Cache API, as transformers.js keeps them. It has no tokenizer: it is given ids.
const ONNX = `import * as ort from "/ort/ort.wasm.bundle.min.mjs";
ort.env.wasm.wasmPaths = "/ort/";
const bytes = async (url) => {
  const cache = await caches.open("models");
  let found = await cache.match(url);
  if (!found) {
    await cache.add(url);
    found = await cache.match(url);
  }
  return new Uint8Array(await found.arrayBuffer());
};
window.load = async ({ threads }) => {
  const start = performance.now();
  ort.env.wasm.numThreads = threads;
  const [model, data] = [await bytes("/onnx/model.onnx"), await bytes("/onnx/model.onnx_data")];
  window.session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"], externalData: [{ path: "model.onnx_data", data }] });
  return { ms: performance.now() - start, about: { threads: ort.env.wasm.numThreads } };
};
window.unload = () => session.release();
window.ask = async (text) => {
  const start = performance.now();
  const words = text.split(" ");
  const ids = BigInt64Array.from(words, (word, i) => BigInt(word.charCodeAt(0) * 101 + word.length * 7 + i));
  const { hidden } = await session.run({ input_ids: new ort.Tensor("int64", ids, [1, ids.length]) });
  if (!Number.isFinite(hidden.data[0])) throw new Error("no number");
  return { ms: performance.now() - start, tokens: ids.length };
};
window.ready = true;`;

const ours = (isa, threads) => ({ name: `zen-edge ${isa}`, threads, script: "ours", options: { isa, threads } });
const version = (name) => JSON.parse(fs.readFileSync(path.join(here, `node_modules/${name}/package.json`), "utf8")).version;
let engines = [ours("relaxed-simd", threads), { name: `wllama ${version("@wllama/wllama")}`, threads, script: "wllama", options: { threads } }];
engines.push(ours("simd128", threads));
if (args.onnx) engines.push({ name: `onnxruntime-web ${version("onnxruntime-web")}`, threads, script: "onnx", options: { threads } });
if (threads > 1) engines.push(ours("relaxed-simd", 1), ours("simd128", 1));
engines = engines.filter((e) => e.name.includes(args.engines));

const hidden = hiddenSize(args.model);
const site = await serve({
  "/zen-edge/": path.join(here, "../../wasm/npm/dist"),
  "/wllama/": path.join(here, "node_modules/@wllama/wllama/esm"),
  "/ort/": path.join(here, "node_modules/onnxruntime-web/dist"),
  "/model/": path.dirname(path.resolve(args.model)),
  "/onnx/": path.resolve(args.onnx ?? "."),
});
site.headers = ISOLATED;
site.pages = { "/ours.js": OURS, "/wllama.js": WLLAMA, "/onnx.js": ONNX, ...heads(hidden) };
for (const [i, engine] of engines.entries()) {
  site.pages[`/${i}`] = `<!doctype html><script type="module" src="/${engine.script}.js"></script>`;
}

const run = {
  date: new Date().toISOString().slice(0, 16),
  machine: { cpu: os.cpus()[0]?.model, threads: os.availableParallelism(), load: os.loadavg()[0] },
  model: { file: path.basename(args.model), bytes: fs.statSync(args.model).size },
  engines: [],
};
if (args.onnx) run.onnx = { bytes: fs.readdirSync(args.onnx).filter((f) => /^model\.onnx(_data)?$/.test(f)).reduce((sum, f) => sum + fs.statSync(path.join(args.onnx, f)).size, 0) };

for (const [i, engine] of engines.entries()) {
  // A profile on the disk, as a user's is: a private one keeps its files in memory.
  engine.profile = fs.mkdtempSync(path.join(os.tmpdir(), "zen-edge-run-"));
  engine.context = await chromium.launchPersistentContext(engine.profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-renderer-backgrounding"],
  });
  engine.peak = 0;
  engine.browser = engine.context.browser();
  const visit = async () => {
    const page = await engine.context.newPage();
    await page.goto(`${site.origin}/${i}`);
    await page.waitForFunction(() => window.ready);
    return page;
  };
  const load = (page) => page.evaluate((options) => load(options), { ...engine.options, file: path.basename(args.model) });
  const watched = async (work) => {
    engine.pids = await renderers(engine.browser);
    const watch = setInterval(() => (engine.peak = Math.max(engine.peak, memory(engine.pids))), 50);
    const value = await work();
    clearInterval(watch);
    engine.loaded = memory(engine.pids);
    engine.peak = Math.max(engine.peak, engine.loaded);
    return value;
  };
  let page = await visit();
  const cold = await watched(() => load(page));
  await page.evaluate(() => unload());
  await page.close();
  engine.page = page = await visit();
  const stored = await watched(() => load(page));
  const first = await watched(() => page.evaluate((text) => ask(text), prompt(16, 99)));
  engine.record = {
    name: engine.name,
    threads: engine.threads,
    build: stored.about.build,
    load_cold_ms: cold.ms,
    load_stored_ms: stored.ms,
    first_16_tokens_ms: first.ms,
    memory_loaded: engine.loaded,
    memory_peak: engine.peak,
    engine_memory: stored.about.memory,
    times: Object.fromEntries(sizes.map((n) => [n, []])),
  };
  run.browser = engine.browser.version();
  run.engines.push(engine.record);
  console.error(`${engine.name}, ${engine.threads} threads: cold ${cold.ms.toFixed(0)} ms, stored ${stored.ms.toFixed(0)} ms, first ${first.ms.toFixed(0)} ms, peak ${Math.round(engine.peak / 1e6)} MB`);
}

// A record of an older form, of one run, gives way.
const before = { runs: (fs.existsSync(args.out) && JSON.parse(fs.readFileSync(args.out, "utf8")).runs) || [] };
for (let round = 0; round < rounds; round++) {
  for (const n of sizes) {
    for (const engine of engines) {
      const { ms, tokens } = await engine.page.evaluate((text) => ask(text), prompt(n, round + 1));
      engine.record.memory_peak = Math.max(engine.record.memory_peak, memory(engine.pids));
      engine.record.times[n].push({ ms, tokens: tokens ?? n });
    }
  }
  // What is known after so many rounds: a run that is cut short leaves a record too.
  const result = { runs: [...before.runs, { ...run, rounds: round + 1 }] };
  fs.writeFileSync(args.out, `${JSON.stringify(result, null, 1)}\n`);
  console.error(`round ${round + 1} of ${rounds}`);
}
for (const engine of engines) {
  await engine.context.close();
  fs.rmSync(engine.profile, { recursive: true, force: true });
}
await site.stop();
