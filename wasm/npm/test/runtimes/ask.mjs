// Run by Deno and by Bun: `ask.mjs ENTRY`, with what to ask on the standard input; the answers go to the standard output.
import { readFileSync } from "node:fs";
import process from "node:process";

const { prompts, context, wishes, model, heads, long } = JSON.parse(readFileSync(0, "utf8"));
const { Router, ZenEdgeError } = await import(process.argv[2]);

const loads = [];
for (const wish of wishes) {
  const router = await Router.load(wish);
  const answers = [];
  for (const prompt of prompts) {
    answers.push({ outcome: await router.route(prompt, { context }), vector: [...(await router.embed(prompt)).embedding] });
  }
  loads.push({ about: router.about, answers });
  await router.close();
}

// A path of the file system, and a Blob.
const vectors = [];
for (const source of [model, new Blob([readFileSync(model)])]) {
  const router = await Router.load({ model: source, heads, threads: 1 });
  vectors.push([...(await router.embed(prompts[0])).embedding]);
  await router.close();
}

const router = await Router.load({ cacheBytes: 0, prefixBytes: 0 });
const controller = new AbortController();
const calls = Array.from({ length: 20 }, (_, i) => router.route(`${i} ${long}`, { signal: controller.signal }));
setTimeout(() => controller.abort(), 15);
const codes = (await Promise.allSettled(calls)).map((end) => (end.status === "rejected" ? end.reason.code : "answered"));
let text = "";
for await (const piece of router.generate("The three rivers are", { maxTokens: 40 })) text += piece;
const refused = await router.embed("").catch((error) => ({ code: error.code, ours: error instanceof ZenEdgeError }));
const { device } = await router.bench({ prefill: [4], decode: [], each: 1, repetitions: 1, readBytes: 1 << 20 });
// It is not closed: a router that is forgotten keeps no program from ending.
console.log(JSON.stringify({ loads, vectors, codes, text, refused, device }));
