/** What wasm-bindgen makes of wasm/src, once for each build; scripts/build.mjs puts it in. */
declare module "virtual:glue" {
  import type { Build } from "./types.js";

  export interface Job {
    step(ms: number): boolean;
    outcome(): string;
    embedding(): Embedded;
    free(): void;
  }
  export interface Embedded {
    vector(): Float32Array;
    read(): string;
    free(): void;
  }
  export interface Typing {
    begin(prompt: string, request: string): Job;
    clear(): void;
    free(): void;
  }
  export interface Benchmark {
    work(ms: number): boolean;
    progress(): string;
    finish(about: string): string;
    free(): void;
  }
  export interface Generation {
    step(ms: number): boolean;
    fresh(): string;
    finish(): string;
    free(): void;
  }
  export interface Hash {
    update(bytes: Uint8Array): void;
    finish(): string;
    free(): void;
  }
  export interface Engine {
    about(): string;
    begin(prompt: string, request: string): Job;
    begin_embed(prompt: string, request: string): Job;
    typing(): Typing;
    warm_up(): void;
    begin_bench(ask: string): Benchmark;
    begin_text(ask: string): Generation;
    choose(which: string): string;
    observe(outcome: string, reward: string): void;
    stats(): string;
    user(user: string): string;
    forget_user(user: string): boolean;
    forget_conversation(conversation: string): boolean;
    clear_cache(): void;
    learning(): Uint8Array;
    restore_learning(bytes: Uint8Array): string | undefined;
    free(): void;
  }
  /** A file as the engine reads it, synchronously. */
  export interface File {
    readonly name: string;
    readonly size: number;
    readonly sha256?: string | undefined;
    read(offset: number, into: Uint8Array): void;
  }
  export interface Glue {
    initSync(options: {
      module: WebAssembly.Module;
      memory?: WebAssembly.Memory;
      thread_stack_size?: number;
    }): { memory: WebAssembly.Memory };
    Engine: new (
      model: File,
      heads: File,
      config: File,
      catalog: File | undefined,
      policy: File | undefined,
      options: string,
    ) => Engine;
    Hash: new () => Hash;
    /** Only in builds with threads. */
    prepare_pool?(workers: number): void;
    pool_thread?(): void;
  }
  /** The builds that were made. */
  export const glue: Partial<Record<Build, Glue>>;
}
