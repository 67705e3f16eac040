// The npm package's bench() in Node, as a record: `node benches/node_bench.mjs OUT.json [MODEL.gguf HEADS-FOLDER]`.
// Needs `cargo xtask wasm`. Builds with relaxed SIMD need `node --experimental-wasm-relaxed-simd` before Node 22.
import * as fs from "node:fs";
import { Router } from "../wasm/npm/dist/node.js";

const [out, model, heads] = process.argv.slice(2);
if (!out) throw new Error("say where the record goes: node benches/node_bench.mjs OUT.json [MODEL.gguf HEADS-FOLDER]");
const large = model !== undefined;
const router = await Router.load({ threads: 1, ...(large ? { model, heads } : {}) });
const record = await router.bench({
  name: process.env.DEVICE ?? "this device",
  // 0.6 B read some dozens of tokens a second here: no more than is needed to see it.
  ...(large ? { prefill: [16, 64, 128], decode: [8], each: 0 } : { repetitions: 15, each: 50 }),
});
fs.writeFileSync(out, `${JSON.stringify(record, null, 2)}\n`);
await router.close();
