// Run by `cargo xtask test` with --experimental-wasm-relaxed-simd, which Node 20 needs and later ones do not mind.
import assert from "node:assert/strict";
import * as fs from "node:fs";
import * as path from "node:path";
import { test } from "node:test";
import { Router, ZenEdgeError, storage } from "../dist/node.js";
import {
  CHOICES,
  CONTEXT,
  LONG,
  PROMPTS,
  TEXTS,
  bare,
  built,
  chatModel,
  dist,
  native,
  nativeChoice,
  nativeText,
  root,
  sameChoices,
} from "./support.mjs";

const wish = (build) => ({
  isa: build.startsWith("relaxed") ? "relaxed-simd" : "simd128",
  threads: build.endsWith("threads") ? 2 : 1,
});

for (const build of built) {
  test(`${build}: vectors and decisions are the native program's, bit for bit`, async () => {
    const router = await Router.load(wish(build));
    assert.equal(router.about.build, build);
    assert.deepEqual(router.about.warnings, []);
    assert.equal(router.about.threads, build.endsWith("threads") ? 2 : 1);
    const { routes, vectors } = native();
    for (const [i, prompt] of PROMPTS.entries()) {
      const outcome = await router.route(prompt, { context: CONTEXT });
      assert.deepEqual(bare(outcome), routes[i]);
      assert.equal(outcome.backend.isa, wish(build).isa);
      const { embedding } = await router.embed(prompt);
      assert.deepEqual(embedding, Float32Array.from(vectors[i]));
    }
    await router.close();
  });
}

test("the types of what ran have the fields that the engine writes, and as optional as it leaves them out", () => {
  const read = (file) => fs.readFileSync(path.join(root, file), "utf8");
  const [rust, types] = [read("../../core/src/router/types.rs"), read("src/types.ts")];
  for (const [struct, name] of [["BackendInfo", "Backend"], ["Adapter", "Adapter"]]) {
    const theirs = new RegExp(`pub struct ${struct} \\{\n(.*?)\n\\}`, "s").exec(rust)[1];
    const ours = new RegExp(`export interface ${name} \\{\n(.*?)\n\\}`, "s").exec(types)[1];
    assert.deepEqual(
      [...ours.matchAll(/^ {2}(\w+)(\??):/gm)].map(([, field, optional]) => [field, optional === "?"]),
      [...theirs.matchAll(/^ {4}pub (\w+): (Option<)?/gm)].map(([, field, optional]) => [field, optional !== undefined]),
    );
  }
});

test("where the runtime has Web Locks, as Deno and newer Nodes do, a router that lives is not taken for dead", async (t) => {
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  const locks = { request: async (_name, ...rest) => rest.at(-1)() };
  Object.defineProperty(globalThis, "navigator", { value: { hardwareConcurrency: 1, locks }, configurable: true });
  t.after(() => (before ? Object.defineProperty(globalThis, "navigator", before) : delete globalThis.navigator));
  const router = await Router.load({ threads: 1 });
  assert.equal((await router.route("hello")).tokens, 1);
  await router.close();
});

test("an abort ends a prompt in the middle, and the next one is answered", async () => {
  const router = await Router.load({ threads: 1, cacheBytes: 0, prefixBytes: 0 });
  const controller = new AbortController();
  // Twenty prompts wait; all are given up.
  const calls = Array.from({ length: 20 }, (_, i) => router.route(`${i} ${LONG}`, { signal: controller.signal }));
  setTimeout(() => controller.abort(), 15);
  const ends = await Promise.allSettled(calls);
  const codes = ends.map((end) => (end.status === "rejected" ? end.reason.code : "answered"));
  assert.ok(codes.filter((code) => code === "aborted").length >= 15, codes.join());
  assert.equal((await router.route("hello")).tokens, 1);
  assert.ok((await router.stats()).routed < 6);
  await assert.rejects(router.route("x", { signal: AbortSignal.abort() }), { code: "aborted", name: "AbortError" });
  await router.close();
});

test("the queue has an end, what gives memory back is taken all the same, and answers make room", async () => {
  const router = await Router.load({ threads: 1 });
  const calls = Array.from({ length: 4100 }, () => router.route("hello", { rules: true }));
  const trimmed = router.trim();
  const ends = await Promise.allSettled(calls);
  const refused = ends.filter((end) => end.status === "rejected").map((end) => end.reason.code);
  assert.deepEqual(refused, Array(4).fill("busy"));
  await trimmed;
  assert.equal((await router.route("hello")).tokens, 1);
  await router.close();
});

test("a session pays for what is new, and a newer text ends the work on an older one", async () => {
  const router = await Router.load({ threads: 1 });
  const session = await router.session();
  await session.update("Write a poem about the sea and its many");
  const second = await session.update("Write a poem about the sea and its many fish, in the style of Goethe");
  assert.ok(second.reused >= 8, `${second.reused} of ${second.tokens}`);
  const old = session.update(LONG);
  const fresh = session.update("Write a poem");
  await assert.rejects(old, { code: "superseded" });
  assert.equal((await fresh).outcome, undefined);
  await session.close();
  await assert.rejects(session.update("x"), { code: "closed" });
  await router.close();
});

test("rewards are learned, given back as bytes, and taken over", async () => {
  const router = await Router.load({ threads: 1, learning: false });
  const outcome = await router.route(PROMPTS[0], { user: "u" });
  await router.observe(outcome, 1);
  await assert.rejects(router.observe(outcome, 1), { code: "unknown_outcome" });
  assert.equal((await router.user("u")).observations ?? (await router.stats()).bandit.observed, 1);
  const bytes = await router.learning();
  await router.close();
  const again = await Router.load({ threads: 1, learning: bytes });
  assert.equal((await again.stats()).bandit.users, 1);
  assert.equal(await again.forgetUser("u"), true);
  assert.equal(await again.user("u"), null);
  await again.close();
  const damaged = await Router.load({ threads: 1, learning: bytes.slice(0, 20) });
  assert.match(damaged.about.warnings[0], /learning starts anew/);
  await damaged.close();
});

test("limits are kept, and what is wrong has a code", async () => {
  const router = await Router.load({ threads: 1 });
  const none = await router.route("hi there", { limits: { offline: true } });
  assert.equal(none.model, null);
  assert.equal(none.route, "no_fit");
  assert.ok(none.scores.models.every((candidate) => candidate.why_not));
  await assert.rejects(router.route("hi", { limits: { exclude: ["no-such-model"] } }), { code: "unknown_model" });
  await assert.rejects(router.route("hi", { limits: { maxCost: 1 } }), { code: "bad_request" });
  await assert.rejects(router.route("hi", { limits: () => {} }), { code: "bad_request" });
  await assert.rejects(router.embed(""), { code: "no_tokens" });
  await router.close();
  await assert.rejects(router.route("hi"), { code: "closed" });
  await router.close();

  await assert.rejects(Router.load({ model: path.join(dist, "worker.js"), heads: "default" }), { code: "model_damaged" });
  await assert.rejects(Router.load({ model: "no/such/file.gguf", heads: "default" }), { code: "io" });
  await assert.rejects(Router.load({ model: { stored: "x" }, heads: "default" }), { code: "not_stored" });
  await assert.rejects(Router.load({ model: path.join(dist, "pack/model.gguf") }), { code: "bad_request" });
  await assert.rejects(Router.load({ device: "gpu" }), { code: "bad_request" });
  const wrong = { url: path.join(dist, "pack/model.gguf"), sha256: "0".repeat(64) };
  await assert.rejects(Router.load({ model: wrong, heads: "default" }), (error) => {
    assert.ok(error instanceof ZenEdgeError);
    return error.code === "hash_mismatch";
  });
});

test("a bench tells how far it is, leaves a record, and ends by its signal", async () => {
  const router = await Router.load({ threads: 1 });
  const seen = [];
  const record = await router.bench({
    prefill: [4, 16],
    decode: [2],
    kv: "f16",
    repetitions: 2,
    each: 2,
    readBytes: 1 << 20,
    name: "here",
    onProgress: ({ share, stage }) => seen.push({ share, stage }),
  });
  assert.ok(seen.length > 0 && seen.every(({ share }, at) => share >= 0 && share <= 1 && (at === 0 || share >= seen[at - 1].share)));
  assert.equal(record.schema, "zen-edge.bench/2");
  assert.deepEqual(record.speed.map(({ test, batch_size, repetitions }) => [test, batch_size, repetitions]), [["pp4", 1, 2], ["pp16", 1, 2], ["tg2", 1, 2]]);
  for (const { bound, tokens_per_second } of record.speed) {
    assert.ok(tokens_per_second.min > 0 && tokens_per_second.min <= tokens_per_second.median);
    assert.ok(Math.abs(bound.share - tokens_per_second.median / bound.tokens_per_second) < 1e-6);
  }
  assert.equal(record.speed[2].kv, "f16");
  assert.deepEqual(record.decisions.strata.map(({ tokens, prompts }) => [tokens, prompts]), [["1-32", 2], ["33-128", 2], ["129-512", 2]]);
  assert.ok(record.decisions.cached.p50 < record.decisions.cold.p50);
  assert.deepEqual([record.device.name, record.engine.build, record.engine.isa], ["here", router.about.build, router.about.isa]);
  assert.match(record.device.browser, /^(Node|Bun|Deno) /);
  assert.equal(record.model.name, "zen-edge-default");
  assert.ok(record.memory.resident_bytes >= router.about.memory);

  const given = await router.bench({ prefill: [], decode: [], prompts: ["a", "b", "a"], readBytes: 1 << 20 });
  assert.deepEqual([given.speed.length, given.decisions.count, given.decisions.prompts], [0, 2, "file"]);
  const controller = new AbortController();
  const long = router.bench({ sustainedSeconds: 600, prefill: [4], decode: [], each: 0, readBytes: 1 << 20, signal: controller.signal });
  setTimeout(() => controller.abort(), 50);
  await assert.rejects(long, { code: "aborted" });
  assert.equal((await router.route("hello")).tokens, 1);
  await assert.rejects(router.bench({ repetitions: 0 }), { code: "bad_request" });
  await assert.rejects(router.bench({ kv: "f8" }), { code: "bad_request" });
  await router.close();
});

test("a model from a path, from a file URL and from a blob are the same", async () => {
  const file = path.join(dist, "pack/model.gguf");
  const expected = native().vectors[1];
  for (const model of [file, new URL(`file://${file}`), new Blob([fs.readFileSync(file)])]) {
    const router = await Router.load({ model, heads: path.join(dist, "pack"), threads: 1 });
    assert.deepEqual((await router.embed(PROMPTS[1])).embedding, Float32Array.from(expected));
    await router.close();
  }
  assert.deepEqual(await storage.list(), []);
});

for (const build of built) {
  test(`${build}: a text is the native program's, its pieces join to it, and options are as probable`, async () => {
    const router = await Router.load(wish(build));
    for (const { prompt, options } of TEXTS) {
      const generation = router.generate(prompt, options);
      const pieces = [];
      for await (const piece of generation) pieces.push(piece);
      const result = await generation.result;
      assert.deepEqual(result, nativeText(prompt, options));
      assert.equal(pieces.join(""), result.text);
      assert.ok(pieces.every((piece) => piece !== ""));
    }
    for (const { prompt, options, how } of CHOICES) {
      const found = await router.choose(prompt, options, how);
      const expected = nativeChoice(prompt, options, how);
      assert.ok(sameChoices(found, expected), JSON.stringify([found, expected]));
    }
    await router.close();
  });
}

test("a conversation is answered by the model's chat template, and what it refuses has a code", async () => {
  const template =
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";
  const model = chatModel(template);
  const router = await Router.load({ model, heads: path.join(dist, "pack"), threads: 1 });
  const options = { maxTokens: 20, temperature: 1, seed: 3 };
  const messages = [
    { role: "system", content: "You are brief." },
    { role: "user", content: "Name three rivers." },
  ];
  const answer = await router.generate(messages, options).result;
  const more = ["--model", model, "--chat", "--system", messages[0].content];
  assert.deepEqual(answer, nativeText(messages[1].content, options, more));
  assert.ok(answer.promptTokens > nativeText(messages[1].content, { maxTokens: 0 }).promptTokens);
  await assert.rejects(router.generate([{ role: "tool", content: "x" }]).result, { code: "messages", message: /no tools here/ });
  await router.close();
  const broken = await Router.load({ model: chatModel("{% for %}"), heads: path.join(dist, "pack"), threads: 1 });
  await assert.rejects(broken.generate(messages).result, { code: "chat_template" });
  assert.equal((await broken.generate("a", { maxTokens: 1 }).result).tokens, 1);
  await broken.close();
});

test("an abort ends a text in its prompt and behind it, and a loop that is left ends it too", async () => {
  const router = await Router.load({ threads: 1 });
  const time = async (work) => {
    const start = performance.now();
    await work();
    return performance.now() - start;
  };
  const prompt = LONG.repeat(4);
  const whole = await time(() => router.generate(prompt, { maxTokens: 1 }).result);

  const reading = new AbortController();
  const early = router.generate(prompt, { signal: reading.signal });
  let pieces = 0;
  const loop = (async () => {
    for await (const _ of early) pieces++;
  })();
  setTimeout(() => reading.abort(), whole / 10);
  await assert.rejects(loop, { code: "aborted", name: "AbortError" });
  await assert.rejects(early.result, { code: "aborted" });
  assert.equal(pieces, 0);
  const next = await time(() => router.route("hello"));
  assert.ok(next < whole / 2, `${next} ms behind an abort; the whole prompt takes ${whole}`);

  // As many tokens as the context has room for, and one of them heard.
  const most = 4000;
  const some = await time(() => router.generate("The sea", { maxTokens: 200 }).result);
  const writing = new AbortController();
  const late = router.generate("The sea", { maxTokens: most, signal: writing.signal });
  await assert.rejects(
    async () => {
      for await (const _ of late) {
        pieces++;
        writing.abort();
      }
    },
    { code: "aborted" },
  );
  assert.equal(pieces, 1);
  await assert.rejects(late.result, { code: "aborted" });
  const then = await time(() => router.route("and on"));
  assert.ok(then < some, `${then} ms behind an abort; 200 tokens take ${some}, and ${most} were to come`);

  const left = router.generate("The sea", { maxTokens: most });
  let text = "";
  for await (const piece of left) {
    text += piece;
    if (text.length > 10) break;
  }
  const { endedBy, tokens, text: all } = await left.result;
  assert.equal(endedBy, "cancelled");
  assert.ok(tokens > 0 && tokens < most / 2, `${tokens}`);
  assert.ok(all.startsWith(text), all);
  // What was ended before it began, and what nobody listens to, trouble no one.
  await assert.rejects(router.generate("x", { signal: AbortSignal.abort() }).result, { code: "aborted" });
  router.generate("x", { maxTokens: -1 });
  assert.ok((await router.route("still there")).tokens > 0);
  await router.close();
  await assert.rejects(router.generate("x").result, { code: "closed" });
});

test("what cannot be generated or compared has a code", async () => {
  const router = await Router.load({ threads: 1 });
  const text = async (prompt, options) => {
    for await (const _ of router.generate(prompt, options));
  };
  await assert.rejects(text([{ role: "user", content: "hi" }]), { code: "no_chat_template" });
  await assert.rejects(text(""), { code: "no_tokens" });
  await assert.rejects(text(LONG.repeat(8)), { code: "prompt_too_long" });
  for (const options of [{ maxtokens: 1 }, { temperature: -1 }, { topP: 0 }, { seed: 0.5 }, { kv: "f8" }, { stop: "x" }, { stop: [() => {}] }]) {
    await assert.rejects(text("hi", options), { code: "bad_request" }, Object.keys(options).join());
  }
  await assert.rejects(text(undefined), { code: "bad_request" });
  for (const options of [[], ["", " a"], [" a", " a"], " a"]) {
    await assert.rejects(router.choose("hi", options), { code: "bad_request" }, JSON.stringify(options));
  }
  await assert.rejects(router.choose("hi", [" a"], { byTokens: true }), { code: "bad_request" });
  await assert.rejects(router.choose("hi", [" a", " b"], { signal: AbortSignal.abort() }), { code: "aborted" });
  await router.close();
});
