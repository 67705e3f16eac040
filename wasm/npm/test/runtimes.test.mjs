// In Deno and in Bun, where they are to be had: from npm (runtimes/), or where ZEN_EDGE_DENO and ZEN_EDGE_BUN say.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import * as path from "node:path";
import { pathToFileURL } from "node:url";
import { test } from "node:test";
import { CONTEXT, LONG, PROMPTS, bare, built, dist, native, nativeText, root } from "./support.mjs";

const folder = path.join(root, "test/runtimes");

/** The program, or why there is none. */
function find(name) {
  const bin = path.join(folder, "node_modules/.bin", name);
  for (const program of [process.env[`ZEN_EDGE_${name.toUpperCase()}`], bin, name].filter(Boolean)) {
    if (spawnSync(program, ["--version"], { timeout: 60_000 }).status === 0) return { program };
  }
  return { lacks: `needs ${name}: \`npm ci\` in wasm/npm/test/runtimes, or its path in ZEN_EDGE_${name.toUpperCase()}` };
}

const RUNTIMES = [
  // Reading is all that it asks for; `sys` is for the bench's record.
  { name: "deno", flags: ["run", "--quiet", "--no-prompt", "--no-config", "--allow-read", "--allow-sys", "--allow-env"], says: /^Deno \d/ },
  { name: "bun", flags: ["run"], says: /^Bun \d/ },
];

for (const { name, flags, says } of RUNTIMES) {
  const { program, lacks } = find(name);
  test(`${name}: what is routed, read and written is what the native program says`, { skip: lacks }, (t) => {
    const wishes = built.map((build) => ({
      isa: build.startsWith("relaxed") ? "relaxed-simd" : "simd128",
      threads: build.endsWith("threads") ? 2 : 1,
    }));
    const ask = {
      prompts: PROMPTS,
      context: CONTEXT,
      wishes: [{}, ...wishes],
      model: path.join(dist, "pack/model.gguf"),
      heads: path.join(dist, "pack"),
      long: LONG,
    };
    const words = [...flags, path.join(folder, "ask.mjs"), pathToFileURL(path.join(dist, "node.js")).href];
    const out = execFileSync(program, words, { input: JSON.stringify(ask), encoding: "utf8", maxBuffer: 1 << 28 });
    const { loads, vectors, codes, text, refused, device } = JSON.parse(out);
    const { routes, vectors: expected } = native();
    loads.forEach(({ about, answers }, i) => {
      // The first load has no wish. An engine without relaxed SIMD runs the other build, and says so.
      const wish = wishes[i - 1];
      if (wish) {
        const lacking = about.hints.some((hint) => hint.includes("relaxed SIMD"));
        const isa = lacking ? "simd128" : wish.isa;
        assert.equal(about.build, wish.threads > 1 ? `${isa}-threads` : isa);
        assert.equal(about.threads, wish.threads);
      }
      assert.deepEqual(about.warnings, []);
      answers.forEach(({ outcome, vector }, at) => {
        assert.deepEqual(bare(outcome), routes[at]);
        assert.deepEqual(Float32Array.from(vector), Float32Array.from(expected[at]));
      });
    });
    t.diagnostic(`${device.browser}: ${loads.map(({ about }) => about.build).join(", ")}`);
    for (const vector of vectors) assert.deepEqual(Float32Array.from(vector), Float32Array.from(expected[0]));
    assert.ok(codes.filter((code) => code === "aborted").length >= 15, codes.join());
    assert.equal(text, nativeText("The three rivers are", { maxTokens: 40 }).text);
    assert.deepEqual(refused, { code: "no_tokens", ours: true });
    assert.match(device.browser, says);
  });
}
