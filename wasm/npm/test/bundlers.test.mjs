// The app of three lines through the bundlers in use, and the snippets of docs/web.md, each run in Chromium.
import assert from "node:assert/strict";
import * as fs from "node:fs";
import * as path from "node:path";
import { after, before, test } from "node:test";
import * as esbuild from "esbuild";
import { chromium } from "playwright-core";
import * as vite from "vite";
import webpack from "webpack";
import { serve } from "./server.mjs";
import { BUILDS, PROMPTS, built, dist, native, root } from "./support.mjs";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const APP = `import { Router } from "zen-edge";
const router = await Router.load(OPTIONS);
document.title = (await router.route(${JSON.stringify(PROMPTS[1])})).task;
`;
const whole = built.length === BUILDS.length ? false : "not all builds were made";

let browser;
let folder;
before(async () => {
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-quic", "--no-first-run"] });
  // Within the package, so that the bundlers' own files are found.
  folder = fs.mkdtempSync(path.join(root, "build/app-"));
  fs.mkdirSync(path.join(folder, "node_modules"));
  fs.symlinkSync(root, path.join(folder, "node_modules/zen-edge"));
  fs.writeFileSync(path.join(folder, "index.html"), `<!doctype html><meta charset="utf-8"><script type="module" src="./app.js"></script>`);
  fs.writeFileSync(path.join(folder, "package.json"), `{ "type": "module", "private": true }`);
  fs.writeFileSync(path.join(folder, "app.js"), APP.replace("OPTIONS", ""));
});
after(async () => {
  await browser?.close();
  if (folder) fs.rmSync(folder, { recursive: true, force: true });
});

/** Opens what was built; the page's title becomes the task. */
async function runs(t, folders) {
  const site = await serve(folders);
  const context = await browser.newContext();
  t.after(async () => {
    await context.close();
    await site.stop();
  });
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  await page.goto(`${site.origin}/index.html`);
  await page.waitForFunction(() => document.title !== "", null, { timeout: 60_000 }).catch(() => {});
  assert.deepEqual(errors, []);
  assert.equal(await page.title(), native().routes[1].task);
}

test("i23_vite", { skip: whole }, async (t) => {
  const out = path.join(folder, "vite");
  await vite.build({ root: folder, configFile: false, logLevel: "error", build: { outDir: out, target: "es2022" } });
  await runs(t, { "/": out });
});

test("i23_webpack", { skip: whole }, async (t) => {
  const out = path.join(folder, "webpack");
  const stats = await new Promise((resolve, reject) => {
    const config = { mode: "production", context: folder, entry: "./app.js", output: { path: out, filename: "app.js" } };
    webpack(config, (error, stats) => (error ? reject(error) : resolve(stats)));
  });
  assert.deepEqual(stats.toJson().errors.map((error) => error.message), []);
  fs.copyFileSync(path.join(folder, "index.html"), path.join(out, "index.html"));
  await runs(t, { "/": out });
});

test("esbuild, which leaves files where they are", async (t) => {
  const out = path.join(folder, "esbuild");
  fs.writeFileSync(path.join(folder, "app2.js"), APP.replace("OPTIONS", `{ assets: "/zen-edge/" }`));
  await esbuild.build({
    entryPoints: [path.join(folder, "app2.js")],
    outfile: path.join(out, "app.js"),
    bundle: true,
    format: "esm",
    target: "es2022",
    logLevel: "error",
  });
  fs.copyFileSync(path.join(folder, "index.html"), path.join(out, "index.html"));
  await runs(t, { "/zen-edge/": dist, "/": out });
});

test("e6_from_another_origin_as_from_a_cdn", async (t) => {
  const cdn = await serve({ "/zen-edge/": dist });
  cdn.headers = { "access-control-allow-origin": "*" };
  t.after(() => cdn.stop());
  const out = path.join(folder, "cdn");
  fs.mkdirSync(out);
  fs.copyFileSync(path.join(folder, "index.html"), path.join(out, "index.html"));
  fs.writeFileSync(path.join(out, "app.js"), APP.replace("zen-edge", `${cdn.origin}/zen-edge/index.js`).replace("OPTIONS", ""));
  await runs(t, { "/": out });
});

const guide = fs.readFileSync(path.join(root, "../../docs/web.md"), "utf8");
const blocks = [...guide.matchAll(/^```(\w+)[^\n]*\n([\s\S]*?)^```/gm)].map(([, language, text]) => ({ language, text }));

test("every snippet of docs/web.md runs", async (t) => {
  const snippets = blocks.filter(({ language }) => language === "js").map(({ text }) => text);
  assert.ok(snippets.length >= 5);
  const site = await serve({ "/dist/": dist, "/models/": path.join(dist, "pack") });
  const context = await browser.newContext();
  t.after(async () => {
    await context.close();
    await site.stop();
  });
  for (const [i, snippet] of snippets.entries()) {
    site.pages["/"] = `<!doctype html><meta charset="utf-8"><textarea></textarea><input type="file"><p></p>
      <script type="importmap">{ "imports": { "zen-edge": "/dist/index.js" } }</script>
      <script type="module" src="/snippet.js"></script>`;
    site.pages["/snippet.js"] = `${snippet}\nwindow.done = true;`;
    const page = await context.newPage();
    const errors = [];
    page.on("pageerror", (error) => errors.push(error.message));
    await page.goto(site.origin);
    await page.waitForFunction(() => window.done, null, { timeout: 60_000 }).catch(() => {});
    assert.deepEqual([i, errors, await page.evaluate(() => window.done)], [i, [], true], snippet);
    // What a snippet listens to happens.
    if (snippet.includes("textarea")) {
      await page.locator("textarea").pressSequentially("What is the");
      await page.waitForFunction(() => document.querySelector("p").textContent !== "", null, { timeout: 60_000 });
    }
    if (snippet.includes("type=file")) {
      await page.locator("input").setInputFiles(path.join(dist, "pack/model.gguf"));
      await page.waitForFunction(() => document.querySelector("p").textContent !== "", null, { timeout: 60_000 });
    }
    assert.deepEqual(errors, []);
    await page.close();
  }
});

test("every host's snippet of docs/web.md names both headers with their values", () => {
  const hosts = blocks.filter(({ text }) => /cross-origin/i.test(text));
  assert.ok(hosts.length >= 4);
  for (const { text } of hosts) {
    assert.match(text, /Cross-Origin-Opener-Policy["',:\s]+(value["':\s]+)?same-origin/i);
    assert.match(text, /Cross-Origin-Embedder-Policy["',:\s]+(value["':\s]+)?require-corp/i);
  }
});
