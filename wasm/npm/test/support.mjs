// What the tests of Node and of the browser share: prompts, and what the native program answers to them.
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { fileURLToPath } from "node:url";

export const root = path.join(path.dirname(fileURLToPath(import.meta.url)), "..");
export const dist = path.join(root, "dist");
export const BUILDS = ["simd128", "relaxed-simd", "simd128-threads", "relaxed-simd-threads"];
/** The builds that were made: without a nightly compiler, those without threads. */
export const built = BUILDS.filter((build) => fs.existsSync(path.join(dist, `${build}.wasm`)));

/** The native program, as `cargo xtask test` names it; its answers are the measure. */
export const cli = process.env.ZEN_EDGE_CLI;

export const LONG = "The committee met again on Thursday, and again it could not agree on the colour of the gate. ".repeat(40);

export const PROMPTS = [
  "write a python function to reverse a linked list",
  "What is the capital of Mongolia?",
  "Prove that there are infinitely many primes, and say where the proof uses that a number has a prime factor.",
  "¿Puedes escribir un poema breve sobre la lluvia? 🌧️ 雨の詩も。",
  "a",
  LONG,
];

/** The same state of the device on both sides: local models depend on its memory. */
export const CONTEXT = { memory: { available: 8e9, total: 16e9, unified: false } };

/** What does not depend on how fast the machine was, nor on which instruction set ran. */
export function bare(answer) {
  const { timings, backend, ...rest } = answer;
  return rest;
}

function ask(args, rows) {
  const input = rows.map((prompt) => JSON.stringify({ prompt })).join("\n");
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "zen-edge-")), "prompts.jsonl");
  fs.writeFileSync(file, `${input}\n`);
  const out = execFileSync(cli, [...args, "--file", file], { encoding: "utf8", maxBuffer: 1 << 28 });
  return out.trim().split("\n").map((line) => JSON.parse(line));
}

let answers;
/** `{ routes, vectors }` of the native program, one a prompt. */
export function native() {
  if (!cli) throw new Error("ZEN_EDGE_CLI must name the native program; `cargo xtask test` does");
  if (answers) return answers;
  const context = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "zen-edge-")), "context.json");
  fs.writeFileSync(context, JSON.stringify(CONTEXT));
  const routes = ask(["route", "--no-stats", "--context", context], PROMPTS).map(bare);
  const vectors = ask(["embed"], PROMPTS).map((row) => row.embedding);
  return (answers = { routes, vectors });
}

/** What text is asked for: of the default pack a greedy one, sampled ones, one that a stop text ends, and none. */
export const TEXTS = [
  { prompt: "The three rivers are", options: { maxTokens: 40 } },
  {
    prompt: PROMPTS[3],
    options: { maxTokens: 60, temperature: 0.9, topK: 200, topP: 0.97, minP: 0.001, repetitionPenalty: 1.3, seed: 7 },
  },
  { prompt: PROMPTS[0], options: { maxTokens: 24, kv: "int8", temperature: 1, seed: 2 ** 40 } },
  { prompt: "The three rivers are", options: { maxTokens: 40, stop: [" River River"] } },
  { prompt: "a", options: { maxTokens: 0 } },
];

/** What is compared: a few options, with and without content taken off. */
export const CHOICES = [
  { prompt: "Is the sky blue? Answer:", options: [" yes", " no", " it depends on the hour"], how: {} },
  {
    prompt: "Text: my card was charged twice. Kind:",
    options: [" billing", " weather report", " code"],
    how: { contentFree: "Text: N/A. Kind:", byToken: true },
  },
];

const run = (args) => JSON.parse(execFileSync(cli, args, { encoding: "utf8", maxBuffer: 1 << 28 }));

/** The flags of the command line that mean the same as options. */
function flags(options) {
  const name = (word) => `--${word.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  return Object.entries(options).flatMap(([word, value]) =>
    value === true ? [name(word)] : [value].flat().map((one) => `${name(word)}=${one}`),
  );
}

/** What `zen-edge generate` writes, in the package's words. */
export function nativeText(prompt, options, more = []) {
  const { text, tokens, prompt_tokens: promptTokens, ended_by: endedBy } = run(["generate", "--json", ...flags(options), ...more, prompt]);
  return { text, tokens, promptTokens, endedBy };
}

/** What `zen-edge choose` says, in the package's words. */
export function nativeChoice(prompt, options, how) {
  const rows = run(["choose", "--json", ...flags(how), ...options.map((option) => `--option=${option}`), prompt]);
  return rows.map(({ log_likelihood: logLikelihood, content_free: contentFree, ...rest }) => ({ ...rest, logLikelihood, contentFree }));
}

/** Whether two lists of choices are the same to the sixth figure, and the probabilities sum to 1. */
export function sameChoices(found, expected) {
  const sum = found.reduce((sum, { probability }) => sum + probability, 0);
  const near = (a, b) => a === b || Math.abs(a - b) < 1e-6;
  return (
    near(sum, 1) &&
    found.length === expected.length &&
    found.every((choice, i) => {
      const other = expected[i];
      const figures = ["probability", "logLikelihood", "contentFree"];
      return choice.option === other.option && choice.tokens === other.tokens && figures.every((name) => near(choice[name], other[name]));
    })
  );
}

/** The default model with a chat template, as a file. Its bytes stay aligned: the template ends in a comment that fills up. */
export function chatModel(template) {
  const model = fs.readFileSync(path.join(dist, "pack/model.gguf"));
  const key = Buffer.from("tokenizer.chat_template");
  const fixed = 8 + key.length + 4 + 8;
  const bare = Buffer.byteLength(template) + "{##}".length;
  const fill = (32 - ((fixed + bare) % 32)) % 32;
  const value = Buffer.from(`${template}{#${" ".repeat(fill)}#}`);
  const entry = Buffer.alloc(fixed + value.length);
  entry.writeBigUInt64LE(BigInt(key.length), 0);
  key.copy(entry, 8);
  entry.writeUInt32LE(8, 8 + key.length); // a string
  entry.writeBigUInt64LE(BigInt(value.length), 12 + key.length);
  value.copy(entry, fixed);
  const header = Buffer.from(model.subarray(0, 24));
  header.writeBigUInt64LE(header.readBigUInt64LE(16) + 1n, 16);
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "zen-edge-")), "chat.gguf");
  fs.writeFileSync(file, Buffer.concat([header, entry, model.subarray(24)]));
  return file;
}
