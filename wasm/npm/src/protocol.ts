import type { PlainError } from "./errors.js";
import type { Pick } from "./detect.js";
import type { About, BenchProgress, FileSpec, HeadsSpec, LoadOptions, Progress } from "./types.js";

/** A file spec that can be sent: URLs are absolute strings. */
export type SentFile =
  | { url: string; sha256?: string; optional?: boolean }
  | { file: Blob; name?: string; sha256?: string; keep?: boolean }
  | { stored: string };

export interface SentLoad {
  pick: Pick;
  wasm: Record<string, string>;
  /** Whether the page compiles the picked build and sends it: that takes as long as a worker takes to start. */
  sends: boolean;
  files: {
    model: SentFile;
    heads: SentFile;
    config: SentFile;
    catalog?: SentFile;
    policy?: SentFile;
  };
  storage: "auto" | "memory";
  learning: boolean | Uint8Array;
  prefixBytes: number | null;
  cacheBytes: number | null;
  /** The name of the Web Lock that the worker holds as long as it lives. */
  alive: string;
}

/** What the page asks of the worker. Requests with an `id` are answered by a reply with the same. */
export type Request =
  | { type: "call"; id: number; method: string; args: unknown[] }
  | { type: "abort"; id: number }
  /** What `sends` speaks of; `null`: the page could not. */
  | { type: "module"; module: WebAssembly.Module | null }
  /** To a worker that is to be a thread of another's pool. */
  | { type: "thread"; build: string; module: WebAssembly.Module; memory: WebAssembly.Memory };

export type Reply =
  | { type: "done"; id: number; value: unknown }
  | { type: "failed"; id: number; error: PlainError }
  | { type: "progress"; progress: Progress }
  /** What has come of the text that the call with this id generates. */
  | { type: "text"; id: number; text: string }
  /** Of the call with this id. */
  | { type: "bench-progress"; id: number; progress: BenchProgress }
  | { type: "thread-ready" };

export type { About, FileSpec, HeadsSpec, LoadOptions };
