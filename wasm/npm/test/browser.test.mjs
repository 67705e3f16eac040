// In headless Chromium. The browser is found by CHROMIUM, else at the place where Debian puts it.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { ISOLATED, serve } from "./server.mjs";
import { longest } from "./trace.mjs";
import { CHOICES, CONTEXT, LONG, PROMPTS, TEXTS, bare, built, dist, native, nativeChoice, nativeText, sameChoices } from "./support.mjs";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const ARGS = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const PAGE = `<!doctype html><meta charset="utf-8"><title>zen-edge</title>
<script type="module" src="/page.js"></script>`;
const SCRIPT = `import * as zen from "/dist/index.js"; window.zen = zen;
window.attempt = async (body) => { try { return { value: await body() } } catch (e) { return { code: e.code, message: e.message, name: e.name } } };
window.ready = true;`;
const MODEL = path.join(dist, "pack/model.gguf");
/** What the native program says of the prompt that most tests ask. */
const TASK = native().routes[1].task;
const SHA = createHash("sha256").update(fs.readFileSync(MODEL)).digest("hex");

let browser;
let site;

before(async () => {
  browser = await chromium.launch({ executablePath, args: ARGS });
});
after(async () => {
  await browser?.close();
});

/** A page of a fresh profile on a fresh server (a fresh origin: nothing is stored). */
async function page(t, { isolated = false, headers = {}, init } = {}) {
  site = await serve({ "/dist/": dist });
  site.pages = { "/": PAGE, "/page.js": SCRIPT };
  site.headers = { ...(isolated ? ISOLATED : {}), ...headers };
  const context = await browser.newContext();
  if (init) await context.addInitScript(init);
  const open = async () => {
    const tab = await context.newPage();
    tab.on("pageerror", (error) => t.diagnostic(`page: ${error.message}`));
    await tab.goto(`${site.origin}/`);
    await tab.waitForFunction(() => window.ready);
    return tab;
  };
  const here = site;
  t.after(async () => {
    await context.close();
    await here.stop();
  });
  return { tab: await open(), open, context, site };
}

/** Loads, asks, closes: what came, or the code. */
const once = (tab, options = {}, prompt = PROMPTS[1]) =>
  tab.evaluate(
    ([options, prompt]) =>
      attempt(async () => {
        const router = await zen.Router.load(options);
        const outcome = await router.route(prompt);
        await router.close();
        return { about: router.about, outcome };
      }),
    [options, prompt],
  );

for (const build of built) {
  const threads = build.endsWith("threads") ? 2 : 1;
  const isa = build.startsWith("relaxed") ? "relaxed-simd" : "simd128";
  test(`${build}: vectors and decisions are the native program's, bit for bit`, async (t) => {
    const { tab } = await page(t, { isolated: threads > 1 });
    const { about, answers } = await tab.evaluate(
      async ([options, prompts, context]) => {
        const router = await zen.Router.load(options);
        const answers = [];
        for (const prompt of prompts) {
          const outcome = await router.route(prompt, { context });
          answers.push({ outcome, vector: [...(await router.embed(prompt)).embedding] });
        }
        await router.close();
        return { about: router.about, answers };
      },
      [{ isa, threads }, PROMPTS, CONTEXT],
    );
    assert.equal(about.build, build);
    assert.equal(about.threads, threads);
    assert.deepEqual(about.warnings, []);
    const { routes, vectors } = native();
    answers.forEach(({ outcome, vector }, i) => {
      assert.deepEqual(bare(outcome), routes[i]);
      assert.deepEqual(Float32Array.from(vector), Float32Array.from(vectors[i]));
    });
  });
}

for (const build of built) {
  const threads = build.endsWith("threads") ? 2 : 1;
  const isa = build.startsWith("relaxed") ? "relaxed-simd" : "simd128";
  test(`${build}: a text comes in pieces and is the native program's, and options are as probable`, async (t) => {
    const { tab } = await page(t, { isolated: threads > 1 });
    const { texts, choices } = await tab.evaluate(
      async ([load, texts, choices]) => {
        const router = await zen.Router.load(load);
        const out = { texts: [], choices: [] };
        for (const { prompt, options } of texts) {
          const generation = router.generate(prompt, options);
          let pieces = "";
          for await (const piece of generation) pieces += piece;
          out.texts.push({ pieces, result: await generation.result });
        }
        for (const { prompt, options, how } of choices) out.choices.push(await router.choose(prompt, options, how));
        await router.close();
        return out;
      },
      [{ isa, threads }, TEXTS, CHOICES],
    );
    for (const [i, { prompt, options }] of TEXTS.entries()) {
      assert.deepEqual(texts[i].result, nativeText(prompt, options));
      assert.equal(texts[i].pieces, texts[i].result.text);
    }
    for (const [i, { prompt, options, how }] of CHOICES.entries()) {
      const expected = nativeChoice(prompt, options, how);
      assert.ok(sameChoices(choices[i], expected), JSON.stringify([choices[i], expected]));
    }
  });
}

test("the work is the worker's: no task of the page is a twentieth of it, while it loads and while it routes", async (t) => {
  const { tab, context } = await page(t);
  const trace = await longest(context, tab);
  await tab.evaluate(() => performance.mark("begin"));
  const tokens = await tab.evaluate(async (long) => {
    const router = await zen.Router.load({ cacheBytes: 0, prefixBytes: 0 });
    let tokens = 0;
    for (let i = 0; i < 10; i++) tokens += (await router.route(`${i} ${long}`)).tokens;
    await router.close();
    return tokens;
  }, LONG);
  assert.ok(tokens > 5000, `${tokens}`);
  const { tasks, workers } = await trace.stop();
  // By the processor's time, which does not depend on what else the machine does.
  const most = Math.max(...tasks.map(({ cpu }) => cpu));
  t.diagnostic(`the longest task took ${most} ms of the processor, the workers ${workers} ms`);
  assert.ok(most > 0 && 20 * most < workers, `${most} of ${workers} ms`);
});

test("a folder without a catalog is a folder without one offline too", async (t) => {
  const { tab, site } = await page(t);
  site.pages["/model.gguf"] = fs.readFileSync(MODEL);
  site.pages["/heads/heads.safetensors"] = fs.readFileSync(path.join(dist, "pack/heads.safetensors"));
  site.pages["/heads/router_config.json"] = fs.readFileSync(path.join(dist, "pack/router_config.json"));
  const options = { model: "/model.gguf", heads: "/heads/" };
  const online = await once(tab, options);
  assert.ok(online.value, online.message);
  assert.ok(site.log.some(({ path }) => path === "/heads/catalog.yaml"));
  await tab.route(/\/(heads|model)/, (route) => route.abort());
  await tab.context().route(/\/(heads|model)/, (route) => route.abort());
  const offline = await once(tab, options);
  assert.deepEqual(bare(offline.value?.outcome ?? offline), bare(online.value.outcome));
  // What was never asked for is not taken for absent.
  const other = await once(tab, { ...options, heads: "/heads/?other" });
  assert.equal(other.value, undefined);
});

test("a loop over a text that is left, and one that is aborted in the prompt, leave the worker to others", async (t) => {
  const { tab } = await page(t);
  const result = await tab.evaluate(async (long) => {
    const router = await zen.Router.load();
    const left = router.generate("The sea", { maxTokens: 4000 });
    let text = "";
    for await (const piece of left) {
      text = piece;
      break;
    }
    const ended = await left.result;
    const start = performance.now();
    await router.generate(long, { maxTokens: 1 }).result;
    const whole = performance.now() - start;
    const controller = new AbortController();
    setTimeout(() => controller.abort(), whole / 10);
    const heard = [];
    const aborted = await attempt(async () => {
      for await (const piece of router.generate(long, { signal: controller.signal })) heard.push(piece);
    });
    const from = performance.now();
    const next = await router.route("and on");
    const waited = performance.now() - from;
    const dead = router.generate("The sea", { maxTokens: 4000 });
    const loop = attempt(async () => {
      for await (const _ of dead);
    });
    await router.close();
    return { text, ended, whole, heard, aborted, next: next.tokens, waited, loop: (await loop).code };
  }, LONG.repeat(4));
  assert.equal(result.ended.endedBy, "cancelled");
  assert.ok(result.text !== "" && result.ended.text.startsWith(result.text) && result.ended.tokens < 2000, JSON.stringify(result.ended));
  assert.deepEqual([result.aborted.code, result.aborted.name, result.heard], ["aborted", "AbortError", []]);
  assert.ok(result.next > 0 && result.waited < result.whole / 2, JSON.stringify([result.waited, result.whole]));
  assert.equal(result.loop, "closed");
});

test("e5_i17_without_isolation_one_thread_runs_and_says_what_headers_would_give", async (t) => {
  const { tab } = await page(t);
  const { value } = await once(tab, { threads: 2 });
  assert.equal(value.about.threads, 1);
  assert.ok(!value.about.build.endsWith("threads"));
  const hardware = await tab.evaluate(() => navigator.hardwareConcurrency);
  if (hardware > 1) assert.match(value.about.hints.join(), /Cross-Origin-Opener-Policy/);
});

test("e7_without_relaxed_simd_the_other_build_is_picked_and_without_simd_a_code_says_so", async (t) => {
  const hide = `{ const validate = WebAssembly.validate;
    WebAssembly.validate = (bytes) => (bytes.length === HIDDEN ? false : validate(bytes)); }`;
  const { tab } = await page(t, { init: hide.replace("HIDDEN", "40") });
  const { value } = await once(tab);
  assert.equal(value.about.build, "simd128");
  assert.match(value.about.hints.join(), /relaxed SIMD/);
  const old = await page(t, { init: hide.replace("bytes.length === HIDDEN", "true") });
  assert.equal((await once(old.tab)).code, "no_simd");
});

test("e3_i15_threads_that_do_not_start_leave_one_that_does", { skip: !built.some((build) => build.endsWith("threads")) && "no build with threads" }, async (t) => {
  // The page's workers get a script that cannot start others.
  const { tab, site } = await page(t, { isolated: true });
  site.pages["/dist/worker.js"] = `self.Worker = class { constructor() { throw new Error("refused"); } };\n${fs.readFileSync(path.join(dist, "worker.js"), "utf8")}`;
  const { value } = await once(tab, { threads: 2 });
  assert.equal(value.about.threads, 1);
  assert.match(value.about.warnings.join(), /one thread runs/);
});

test("i22_a content security policy with wasm-unsafe-eval alone is enough, and without it a code says so", async (t) => {
  const policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'";
  const { tab } = await page(t, { headers: { "content-security-policy": policy } });
  assert.equal((await once(tab)).value?.outcome.task, TASK);
  const strict = await page(t, { headers: { "content-security-policy": "default-src 'self'; script-src 'self'" } });
  const { code, message } = await once(strict.tab);
  assert.equal(code, "no_wasm");
  assert.match(message, /wasm-unsafe-eval/);
});

test("an abort ends a long prompt in the middle, the next is answered, and the page is never held up", async (t) => {
  const { tab } = await page(t);
  const result = await tab.evaluate(async (long) => {
    const router = await zen.Router.load({ cacheBytes: 0, prefixBytes: 0 });
    await router.route("warm");
    // Twenty prompts at work; the page counts how late its timers are.
    let last = performance.now();
    const gaps = [];
    const probe = new MessageChannel();
    let on = true;
    const tick = () => {
      const now = performance.now();
      gaps.push(now - last);
      last = now;
      if (on) setTimeout(tick, 0);
    };
    setTimeout(tick, 0);
    await Promise.all(Array.from({ length: 10 }, (_, i) => router.route(`${i} ${long}`)));
    on = false;
    const controller = new AbortController();
    const calls = Array.from({ length: 20 }, (_, i) => router.route(`a${i} ${long}`, { signal: controller.signal }));
    const before = (await Promise.race([calls[0], new Promise((r) => setTimeout(r, 5))]))?.tokens ?? null;
    const start = performance.now();
    controller.abort();
    const ends = await Promise.allSettled(calls);
    const next = await router.route("and on");
    const waited = performance.now() - start;
    const stats = await router.stats();
    await router.close();
    gaps.sort((a, b) => a - b);
    return { codes: ends.map((e) => e.reason?.code ?? "answered"), next: next.tokens, waited, stats, p95: gaps[Math.floor(gaps.length * 0.95)], gaps: gaps.length };
  }, LONG);
  assert.ok(result.codes.filter((code) => code === "aborted").length >= 19, result.codes.join());
  assert.ok(result.next > 0 && result.stats.routed <= 14, JSON.stringify(result));
  t.diagnostic(`next answer ${result.waited.toFixed(1)} ms after the abort; 95 % of ${result.gaps} timers within ${result.p95.toFixed(1)} ms`);
  assert.ok(result.p95 < 16, `the page's timers were ${result.p95} ms apart`);
});

test("f1_i1_i19_an_interrupted_download_is_gone_on_with_by_range_and_never_used_before_it_is_whole", async (t) => {
  const { tab, site } = await page(t);
  const size = fs.statSync(MODEL).size;
  // Twice broken within one load: mended there.
  site.faults["/dist/pack/model.gguf"] = (n) => (n < 2 ? { breakAfter: 1_000_000 } : {});
  const mended = await once(tab, { model: `${site.origin}/dist/pack/model.gguf`, heads: "default" });
  assert.equal(mended.value?.outcome.task, TASK, JSON.stringify(mended));
  const ranges = site.log.filter((r) => r.path.endsWith("model.gguf")).map((r) => r.range);
  assert.equal(ranges[0], null);
  assert.ok(ranges[1] !== null && ranges[2] !== null, ranges.join());
  const [stored] = (await tab.evaluate(() => zen.storage.list())).filter((f) => f.name === "model.gguf");
  assert.deepEqual([stored.size, stored.sha256, stored.complete], [size, SHA, true]);

  // Broken for good: a code, a part that is listed and not used, and the next visit goes on from it.
  const url = `${site.origin}/dist/pack/model.gguf?b`;
  let first = true;
  site.faults["/dist/pack/model.gguf"] = () => ({ breakAfter: first ? ((first = false), 1_000_000) : 0 });
  const broken = await once(tab, { model: url, heads: "default" });
  assert.equal(broken.code, "network", JSON.stringify(broken));
  const part = (await tab.evaluate(() => zen.storage.list())).find((f) => f.url?.endsWith("?b"));
  assert.equal(part.complete, false);
  assert.ok(part.size > 0 && part.size < size, JSON.stringify([part, site.log.slice(-8)]));
  site.faults = {};
  site.log.length = 0;
  await tab.reload();
  await tab.waitForFunction(() => window.ready);
  const resumed = await once(tab, { model: url, heads: "default" });
  assert.equal(resumed.value?.outcome.task, TASK, JSON.stringify(resumed));
  const asked = site.log.filter((r) => r.path.endsWith("model.gguf")).map((r) => r.range);
  assert.deepEqual(asked, [`bytes=${part.size}-`]);
});

test("f1_a_server_without_ranges_is_asked_anew", async (t) => {
  const { tab, site } = await page(t);
  site.faults["/dist/pack/model.gguf"] = (n) => (n === 0 ? { breakAfter: 1_000_000 } : { noRange: true });
  const { value } = await once(tab, { model: `${site.origin}/dist/pack/model.gguf`, heads: "default" });
  assert.equal(value?.outcome.task, TASK);
});

test("f5_a_part_of_another_version_is_not_gone_on_with", async (t) => {
  const { tab, site } = await page(t);
  const model = `${site.origin}/dist/pack/model.gguf`;
  // A version with another byte breaks off; by the next visit the file has changed.
  let first = true;
  site.version = "a";
  site.faults["/dist/pack/model.gguf"] = () => ({ flip: 500_000, breakAfter: first ? ((first = false), 1_000_000) : 0 });
  assert.equal((await once(tab, { model, heads: "default" })).code, "network");
  site.faults = {};
  site.version = "b";
  assert.equal((await once(tab, { model, heads: "default" })).value?.outcome.task, TASK);
  const [stored] = (await tab.evaluate(() => zen.storage.list())).filter((f) => f.url === model);
  assert.equal(stored.sha256, SHA);
});

test("f2_a_wrong_file_is_refused_and_not_kept", async (t) => {
  const { tab, site } = await page(t);
  const model = { url: `${site.origin}/dist/pack/model.gguf`, sha256: SHA };
  site.faults["/dist/pack/model.gguf"] = () => ({ flip: 3_000_000 });
  assert.equal((await once(tab, { model, heads: "default" })).code, "hash_mismatch");
  assert.deepEqual((await tab.evaluate(() => zen.storage.list())).filter((f) => f.name === "model.gguf"), []);
  // Without a hash, what is no model is found at load, and not kept either.
  const page_ = { url: `${site.origin}/` };
  assert.equal((await once(tab, { model: page_, heads: "default" })).code, "model_damaged");
  assert.deepEqual((await tab.evaluate(() => zen.storage.list())).filter((f) => f.url === `${site.origin}/`), []);
  site.faults = {};
  assert.equal((await once(tab, { model, heads: "default" })).value?.outcome.task, TASK);
  site.faults["/dist/pack/model.gguf"] = () => ({ status: 403 });
  assert.equal((await once(tab, { model: `${site.origin}/dist/pack/model.gguf?c`, heads: "default" })).code, "http");
});

test("f2_a_stored_file_that_was_damaged_is_fetched_anew_once", async (t) => {
  const { tab, site } = await page(t);
  const options = { model: `${site.origin}/dist/pack/model.gguf`, heads: "default" };
  assert.ok((await once(tab, options)).value);
  // Another length: found at once. The same length with a broken header: found at load.
  for (const damage of ["shorten", "overwrite"]) {
    await tab.evaluate(async ([url, damage]) => {
      const [{ id }] = (await zen.storage.list()).filter((f) => f.url === url);
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("zen-edge");
      const handle = await folder.getFileHandle(`${id}.data`);
      const writable = await handle.createWritable({ keepExistingData: true });
      if (damage === "shorten") await writable.truncate(1000);
      else await writable.write({ type: "write", position: 0, data: new Uint8Array(64) });
      await writable.close();
    }, [options.model, damage]);
    site.log.length = 0;
    const { value } = await once(tab, options);
    assert.equal(value?.outcome.task, TASK, damage);
    assert.equal(site.log.filter((r) => r.path.endsWith("model.gguf")).length, 1, damage);
  }
});

test("a second visit needs no network but for the package's own scripts", async (t) => {
  const { tab, site, context } = await page(t);
  const model = `${site.origin}/dist/pack/model.gguf`;
  assert.equal((await once(tab, { model, heads: "default" })).value?.about.stored, false);
  // The scripts are the page's own to keep: here its worker does.
  site.pages["/keep.js"] = `self.addEventListener("fetch", (event) => event.respondWith((async () => {
    const cache = await caches.open("page");
    const kept = await cache.match(event.request);
    if (kept) return kept;
    const response = await fetch(event.request);
    if (response.status === 200) await cache.put(event.request, response.clone());
    return response;
  })()));
  self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));`;
  await tab.evaluate(async () => {
    await navigator.serviceWorker.register("/keep.js");
    await navigator.serviceWorker.ready;
  });
  await tab.reload();
  await tab.waitForFunction(() => window.ready);
  assert.ok((await once(tab, { model, heads: "default" })).value);
  await site.stop();
  await context.setOffline(true);
  await tab.reload();
  await tab.waitForFunction(() => window.ready);
  const { value } = await once(tab, { model, heads: "default" });
  assert.equal(value?.about.stored, true);
  assert.equal(value.about.source, "opfs");
  assert.equal(value.outcome.task, TASK);
  t.diagnostic(`loaded from storage in ${value.about.load_ms.toFixed(0)} ms`);
});

test("e9_i21_a_full_or_absent_storage_leaves_memory_with_a_warning", async (t) => {
  const { tab, site } = await page(t);
  // The worker meets a storage with too little room.
  const worker = fs.readFileSync(path.join(dist, "worker.js"), "utf8");
  const model = `${site.origin}/dist/pack/model.gguf`;
  const cases = {
    "no room by the estimate": ["StorageManager.prototype.estimate = async () => ({ quota: 1e6, usage: 0 });", "memory"],
    "full on the way": [
      `{ const write = FileSystemSyncAccessHandle.prototype.write; let n = 0;
        FileSystemSyncAccessHandle.prototype.write = function (b, o) { n += b.byteLength; if (n > 2e6) throw new DOMException("full", "QuotaExceededError"); return write.call(this, b, o); }; }`,
      "memory",
    ],
    "no private file system": ["StorageManager.prototype.getDirectory = async () => { throw new Error('refused'); };", "indexeddb"],
    "no storage at all": [
      "StorageManager.prototype.getDirectory = async () => { throw new Error('refused'); }; IDBFactory.prototype.open = () => { throw new Error('refused'); };",
      "memory",
    ],
  };
  for (const [name, [fault, source]] of Object.entries(cases)) {
    site.pages["/dist/worker.js"] = `${fault}\n${worker}`;
    const { value, message } = await once(tab, { model: `${model}?${encodeURIComponent(name)}`, heads: "default" });
    assert.equal(value?.outcome.task, TASK, `${name}: ${message}`);
    assert.equal(value.about.source, source, name);
    assert.equal(value.about.warnings.length > 0, source === "memory", `${name}: ${value.about.warnings}`);
  }
  // What IndexedDB keeps is found again.
  site.pages["/dist/worker.js"] = `${cases["no private file system"][0]}\n${worker}`;
  const again = await once(tab, { model: `${model}?${encodeURIComponent("no private file system")}`, heads: "default" });
  assert.equal(again.value?.about.stored, true);
});

test("two tabs at once fetch once, and both route", async (t) => {
  const { tab, open, site } = await page(t);
  const other = await open();
  const options = { model: `${site.origin}/dist/pack/model.gguf`, heads: "default" };
  site.log.length = 0;
  const answers = await Promise.all([once(tab, options), once(other, options)]);
  for (const answer of answers) assert.equal(answer.value?.outcome.task, TASK, JSON.stringify(answer));
  assert.equal(site.log.filter((r) => r.path.endsWith("model.gguf")).length, 1);
});

test("a worker that dies fails the call that waits and every later one with a code, and a reload works", async (t) => {
  const { tab } = await page(t);
  await tab.evaluate(async () => {
    window.router = await zen.Router.load();
    await router.route("hello");
  });
  const [worker] = tab.workers();
  await worker.evaluate(() => self.close());
  const codes = await tab.evaluate(async () => {
    const waiting = await attempt(() => router.route("one"));
    const later = await attempt(() => router.route("two"));
    await router.close();
    const fresh = await zen.Router.load();
    return [waiting.code, later.code, (await fresh.route("three")).tokens];
  });
  assert.deepEqual(codes.slice(0, 2), ["crashed", "crashed"]);
  assert.ok(codes[2] > 0);
});

test("a dropped file is verified, kept, listed, loaded by its id, and erased", async (t) => {
  const { tab } = await page(t);
  const result = await tab.evaluate(async (sha256) => {
    const blob = await (await fetch("/dist/pack/model.gguf")).blob();
    const file = new File([blob], "mine.gguf");
    const load = (model) => zen.Router.load({ model, heads: "default" });
    const first = await load({ file, sha256, keep: true });
    const busy = await attempt(async () => zen.storage.delete((await zen.storage.list()).find((f) => f.name === "mine.gguf").id));
    await first.close();
    const stored = (await zen.storage.list()).find((f) => f.name === "mine.gguf");
    const second = await load({ stored: stored.id });
    const vector = [...(await second.embed("a")).embedding];
    await second.close();
    const unkept = await load(file);
    const same = [...(await unkept.embed("a")).embedding];
    await unkept.close();
    const { bytes } = await zen.storage.size();
    const gone = await zen.storage.delete(stored.id);
    const wrong = await attempt(() => load({ file, sha256: "0".repeat(64) }));
    return { first: first.about.source, second: second.about, stored, busy, vector, same, bytes, gone, wrong, left: (await zen.storage.list()).filter((f) => f.name === "mine.gguf").length, later: await attempt(() => load({ stored: stored.id })) };
  }, SHA);
  assert.equal(result.busy.code, "in_use", JSON.stringify(result.busy));
  assert.equal(result.stored.sha256, SHA);
  assert.equal(result.second.source, "opfs");
  assert.deepEqual(result.vector, result.same);
  assert.ok(result.bytes >= result.stored.size);
  assert.deepEqual([result.gone, result.left, result.wrong.code, result.later.code], [true, 0, "hash_mismatch", "not_stored"]);
});

test("what rewards taught is there at the next visit, and is erased when it is asked", async (t) => {
  const { tab } = await page(t);
  const [users, after_] = await tab.evaluate(async () => {
    const first = await zen.Router.load();
    await first.observe(await first.route("teach me", { user: "u" }), 1);
    await first.close();
    const second = await zen.Router.load();
    const users = (await second.stats()).bandit.users;
    await second.close();
    await zen.storage.delete("learning");
    const third = await zen.Router.load();
    const after_ = (await third.stats()).bandit.users;
    await third.close();
    return [users, after_];
  });
  assert.deepEqual([users, after_], [1, 0]);
});

test("an abort of loading ends it, and the next load goes on from what has come", async (t) => {
  const { tab, site } = await page(t);
  const url = `${site.origin}/dist/pack/model.gguf`;
  const code = await tab.evaluate(async (model) => {
    const controller = new AbortController();
    const onProgress = (p) => p.stage === "model" && p.loaded > 0 && controller.abort();
    return (await attempt(() => zen.Router.load({ model, heads: "default", signal: controller.signal, onProgress }))).code;
  }, url);
  assert.equal(code, "aborted");
  assert.equal((await once(tab, { model: url, heads: "default" })).value?.outcome.task, TASK);
});

test("i12_twenty loads and closes leave memory flat", async (t) => {
  const { tab, context } = await page(t);
  const session = await context.newCDPSession(tab);
  const used = async () => {
    await session.send("HeapProfiler.collectGarbage");
    return (await session.send("Runtime.getHeapUsage")).usedSize;
  };
  for (let i = 0; i < 3; i++) assert.ok((await once(tab)).value);
  const before = await used();
  for (let i = 0; i < 20; i++) assert.ok((await once(tab)).value);
  const grown = (await used()) - before;
  assert.equal(tab.workers().length, 0, "every worker has ended");
  t.diagnostic(`the page's heap grew by ${(grown / 1024).toFixed(0)} KiB`);
  assert.ok(grown < 1 << 20, `${grown} bytes`);
});
