// The page in headless Chromium, as a person uses it. `cargo xtask test` builds it and runs this; screenshots go to
// target/web-demo for whoever wants to look.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import Ajv from "ajv/dist/2020.js";
import { chromium } from "playwright-core";
import { ISOLATED, serve } from "../../wasm/npm/test/server.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.join(here, "../..");
const dist = path.join(here, "../dist");
const pack = path.join(root, "packs/default");
const shots = path.join(root, "target/web-demo");
const axe = fs.readFileSync(path.join(here, "../node_modules/axe-core/axe.min.js"), "utf8");
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const PROMPT = "write a python function to reverse a linked list";

let browser;
before(async () => {
  fs.mkdirSync(shots, { recursive: true });
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"] });
});
after(async () => {
  await browser?.close();
});

/** The page of a fresh profile, from a fresh server. */
async function open(t, { headers = {}, faults = {}, width = 1440, scheme = "light", ready = true } = {}) {
  const site = await serve({ "/": dist });
  site.pages["/"] = fs.readFileSync(path.join(dist, "index.html"));
  site.headers = headers;
  site.faults = faults;
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, bypassCSP: false });
  const page = await context.newPage();
  const said = [];
  page.on("pageerror", (error) => said.push(error.message));
  page.on("console", (message) => message.type() === "error" && said.push(message.text()));
  await page.goto(`${site.origin}/`);
  t.after(async () => {
    await context.close();
    await site.stop();
  });
  if (ready) await stands(page);
  return { page, site, context, said };
}

const stands = (page) => page.waitForFunction(() => document.getElementById("status").textContent.startsWith("Ready"), null, { timeout: 60_000 });
const decided = (page) => page.waitForFunction(() => /ask|no model fits/.test(document.getElementById("verdict").textContent), null, { timeout: 30_000 });
const text = (page, id) => page.locator(`#${id}`).textContent();

test("a typed prompt gets the outcome of the command line, and nothing goes out", async (t) => {
  const { page, site, said } = await open(t);
  const before = site.log.length;
  await page.locator("#prompt").pressSequentially(PROMPT, { delay: 5 });
  await page.waitForFunction(() => document.getElementById("verdict").textContent.includes("code"), null, { timeout: 30_000 });
  await page.waitForTimeout(500);
  if (process.env.ZEN_EDGE_CLI) {
    const native = JSON.parse(execFileSync(process.env.ZEN_EDGE_CLI, ["route", "--json", "--no-stats", "--user", "nobody", PROMPT], { encoding: "utf8", env: { ...process.env, ZEN_EDGE_STATE: path.join(shots, "state") } }));
    assert.equal(await text(page, "verdict"), `This looks like ${native.task}: ask ${native.model}.`);
    const shown = await page.locator("#tasks li").first().locator(".figure").textContent();
    assert.equal(shown, `${(native.scores.tasks[0].probability * 100).toFixed(1)} %`);
  }
  // The browser looks by itself whether there is a newer service worker.
  const sent = site.log.slice(before).filter((request) => request.path !== "/sw.js");
  assert.deepEqual(sent, [], "no request while typing");
  assert.match(await text(page, "network"), /ready: 0\b/);
  assert.deepEqual(said, [], "no error in the console");
});

test("the counter shows a request when there is one", async (t) => {
  const { page } = await open(t);
  await page.evaluate(() => fetch("./absent.json").catch(() => null));
  await page.waitForFunction(() => /ready: [1-9]/.test(document.getElementById("network").textContent), null, { timeout: 10_000 });
});

test("it routes offline after the first visit", async (t) => {
  const { page, site } = await open(t);
  await site.stop();
  await page.reload();
  await stands(page);
  assert.match(await text(page, "status"), /from this browser's storage/);
  await page.fill("#prompt", PROMPT);
  await decided(page);
  assert.match(await text(page, "verdict"), /code/);
});

test("limits move the choice and say why models fell out", async (t) => {
  const { page } = await open(t);
  await page.fill("#prompt", "What is 12 times 12?");
  await decided(page);
  const free = await text(page, "verdict");
  await page.locator('[name="cost"]').fill("50");
  await page.waitForFunction((before) => document.getElementById("verdict").textContent !== before || document.getElementById("why").textContent.includes("the limit is"), free);
  await page.locator("details summary").click();
  assert.match(await text(page, "why"), /costs \$0\.02, the limit is \$0\.00\d+/);
  await page.locator('[name="vision"]').check();
  await page.waitForFunction(() => document.getElementById("verdict").textContent.includes("no model fits"));
  await page.locator("#limits button[type=reset]").click();
  await page.waitForFunction((before) => document.getElementById("verdict").textContent === before, free);
});

test("thumbs teach, are kept over a reload, and are forgotten", async (t) => {
  const { page } = await open(t);
  await page.fill("#prompt", "Write a short poem about the sea in autumn");
  await decided(page);
  await page.click("#down");
  await page.waitForFunction(() => /Learned from 1 thumb\..* went from/.test(document.getElementById("learned").textContent));
  const [, was, is] = /from (-?[\d.]+) to (-?[\d.]+)/.exec(await text(page, "learned"));
  assert.ok(Number(is) !== Number(was), `${was} to ${is}`);
  // What was learned is written a moment later.
  await page.waitForTimeout(1000);
  await page.reload();
  await stands(page);
  await page.waitForFunction(() => document.getElementById("learned").textContent.startsWith("Learned from 1 thumb"));
  await page.click("#forget");
  await page.waitForFunction(() => document.getElementById("learned").textContent.includes("erased"));
});

test("the benchmark makes a valid file, and files are compared", async (t) => {
  const { page } = await open(t);
  await page.click("#tab-bench");
  await page.fill("#count", "3");
  await page.click("#run");
  await page.waitForFunction(() => !document.getElementById("export").disabled, null, { timeout: 120_000 });
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export")]);
  const file = path.join(shots, "bench.json");
  await download.saveAs(file);
  const record = JSON.parse(fs.readFileSync(file, "utf8"));
  const valid = new Ajv({ strict: false }).compile(JSON.parse(fs.readFileSync(path.join(root, "docs/bench.schema.json"), "utf8")));
  assert.ok(valid(record), JSON.stringify(valid.errors));
  const { strata, cached } = record.decisions;
  assert.deepEqual(strata.map((entry) => entry.tokens), ["1-32", "33-128", "129-512"]);
  for (const { cold } of strata) assert.ok(cold.min <= cold.p50 && cold.p50 <= cold.p99 && cold.p99 <= cold.max && cold.min > 0);
  assert.ok(cached.p50 < strata[2].cold.p50);
  assert.deepEqual(record.speed.map((row) => row.test), ["pp16", "pp64", "pp128", "pp512", "tg32"]);
  for (const row of record.speed) assert.ok(row.bound.tokens_per_second > 0 && row.batch_size === 1);

  const phone = path.join(shots, "phone.json");
  fs.writeFileSync(phone, JSON.stringify({ ...record, device: { ...record.device, name: "<b>a phone</b>" } }));
  const bad = path.join(shots, "bad.json");
  fs.writeFileSync(bad, JSON.stringify({ ...record, decisions: { ...record.decisions, strata: [{ ...strata[0], cold: { mean: "fast" } }] } }));
  // A file of version 1, as this page wrote it before.
  const old = path.join(shots, "old.json");
  const times = { mean: 9, p50: 8, p90: 12, p99: 14, min: 7, max: 14 };
  const first = {
    schema: "zen-edge.bench/1",
    date: "2026-01-01T00:00:00Z",
    engine: record.engine,
    device: { name: "an old tablet", platform: "Android", browser: "Chrome 1", cores: 8, memory_gb: null, cross_origin_isolated: false, adapter: null },
    model: { architecture: "qwen3", layers: 2, hidden_size: 256, multiply_adds: 5, weight_bytes: 6 },
    load: { ms: 12, stored: true, memory_bytes: 7 },
    cold: [{ tokens: "1-32", prompts: 3, mean_tokens: 9, ms: times, tokens_per_second: 700 }],
    repeated: times,
    warnings: [],
  };
  const valid1 = new Ajv({ strict: false }).compile(JSON.parse(fs.readFileSync(path.join(root, "docs/bench.schema.1.json"), "utf8")));
  assert.ok(valid1(first), JSON.stringify(valid1.errors));
  fs.writeFileSync(old, JSON.stringify(first));
  await page.setInputFiles("#import", [phone, bad, old]);
  await page.waitForFunction(() => document.getElementById("compare-note").textContent.includes("bad.json"));
  assert.match(await text(page, "results"), /<b>a phone<\/b>/, "names are shown as text");
  assert.match(await text(page, "results"), /an old tablet/);
  assert.equal(await page.locator("#results tbody tr").count(), 7);
  assert.equal(await page.locator("#chart rect").count(), 7);
  assert.equal(await page.locator("#speeds tbody tr").count(), 10);
  await page.screenshot({ path: path.join(shots, "bench-1440.png"), fullPage: true });
});

test("e10_open developer tools and a hidden tab are warned of", async (t) => {
  const { page } = await open(t, { ready: false });
  // A docked panel takes its room from the page and not from the window.
  await page.evaluate(() => {
    Object.defineProperty(window, "outerWidth", { value: window.innerWidth + 420 });
    Object.defineProperty(document, "hidden", { value: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await page.click("#tab-bench");
  const warnings = await text(page, "warnings");
  assert.match(warnings, /Developer tools seem to be open/);
  assert.match(warnings, /in the background/);
});

test("files of one's own are dropped and used, wrong ones are told of, the default comes back", async (t) => {
  const { page } = await open(t);
  await page.click("#tab-models");
  const files = ["model.gguf", "heads.safetensors", "router_config.json", "catalog.yaml"].map((name) => path.join(pack, name));
  await page.setInputFiles("#files", [files[0], path.join(root, "README.md")]);
  assert.match(await text(page, "models-note"), /Not taken: README\.md/);
  await page.click("#use");
  assert.match(await text(page, "models-note"), /Heads belong to one backbone/);
  await page.setInputFiles("#files", files);
  await page.click("#use");
  await page.waitForFunction(() => document.getElementById("models-note").textContent.includes("run now"), null, { timeout: 30_000 });
  await page.waitForFunction(() => document.getElementById("stored").textContent.includes("model.gguf"));
  await page.click("#tab-route");
  await page.fill("#prompt", PROMPT);
  await decided(page);
  assert.match(await text(page, "verdict"), /code/);
  // A catalog that is none: what ran before still runs.
  await page.click("#tab-models");
  const broken = path.join(shots, "broken-catalog.yaml");
  fs.writeFileSync(broken, "models: [{id: 7");
  await page.setInputFiles("#files", broken);
  await page.click("#use");
  await page.waitForFunction(() => document.getElementById("models-note").textContent.includes("could not be used"), null, { timeout: 30_000 });
  assert.match(await text(page, "status"), /could not be loaded/);
  await page.click("#default");
  await page.waitForFunction(() => document.getElementById("models-note").textContent.includes("default pack runs"), null, { timeout: 30_000 });
});

test("the shell is painted without the engine, and a missing engine is told of", async (t) => {
  const gone = Object.fromEntries(fs.readdirSync(path.join(dist, "assets")).filter((name) => name.endsWith(".wasm")).map((name) => [`/assets/${name}`, () => ({ status: 404 })]));
  const { page } = await open(t, { faults: gone, ready: false });
  assert.equal(await page.locator("h1").textContent(), "Zen Edge");
  assert.ok(await page.locator("#prompt").isVisible());
  await page.waitForFunction(() => document.getElementById("status").textContent.includes("could not be loaded"), null, { timeout: 60_000 });
});

test("the shell stays under 100 KB", () => {
  const names = ["index.html", "sw.js", ...fs.readdirSync(path.join(dist, "assets")).filter((name) => /\.(js|css)$/.test(name)).map((name) => `assets/${name}`)];
  const bytes = names.map((name) => gzipSync(fs.readFileSync(path.join(dist, name))).length).reduce((sum, n) => sum + n, 0);
  assert.ok(bytes <= 100_000, `${bytes} bytes gzipped`);
});

test("tabs go by keys, and the address says which is open", async (t) => {
  const { page } = await open(t, { ready: false });
  await page.focus("#tab-route");
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.evaluate(() => document.activeElement.id), "tab-bench");
  assert.ok(await page.locator("#view-bench").isVisible());
  await page.keyboard.press("End");
  assert.ok(await page.locator("#view-models").isVisible());
  assert.match(page.url(), /#models$/);
});

for (const isolated of [false, true]) {
  test(`it says how it runs ${isolated ? "with" : "without"} cross-origin isolation`, async (t) => {
    const { page } = await open(t, { headers: isolated ? ISOLATED : {} });
    const threads = fs.readdirSync(path.join(dist, "assets")).some((name) => name.includes("-threads"));
    assert.match(await text(page, "status"), isolated && threads ? /-threads, [2-8] threads/ : /1 thread,/);
  });
}

for (const width of [360, 1440]) {
  for (const scheme of ["light", "dark"]) {
    test(`axe finds no serious fault, and nothing is cut off, at ${width} px, ${scheme}`, async (t) => {
      const { page } = await open(t, { width, scheme });
      await page.fill("#prompt", PROMPT);
      await decided(page);
      await page.locator("details summary").click();
      for (const view of ["route", "bench", "models"]) {
        await page.click(`#tab-${view}`);
        await page.screenshot({ path: path.join(shots, `${view}-${width}-${scheme}.png`), fullPage: true });
        // The policy of the page forbids foreign scripts: this one comes by the debugger.
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
        const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
        assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes[0]?.html]), [], view);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(over <= 0, `${view} is ${over} px too wide`);
      }
    });
  }
}
