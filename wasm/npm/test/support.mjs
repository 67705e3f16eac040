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
