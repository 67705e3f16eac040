import hashes, { builds } from "virtual:pack";
import { host } from "virtual:host";
import { features, pick } from "./detect.js";
import { ZenEdgeError, type PlainError } from "./errors.js";
import type { Reply, Request, SentFile, SentLoad } from "./protocol.js";
import type {
  About,
  BenchOptions,
  BenchProgress,
  BenchRecord,
  ChatMessage,
  Choice,
  ChooseOptions,
  Embedding,
  FileSpec,
  Generated,
  GenerateOptions,
  LoadOptions,
  Outcome,
  Progress,
  Reward,
  RouteOptions,
  Stats,
  StoredFile,
} from "./types.js";

/** A worker, whatever the platform calls it. */
export interface Port {
  post(request: Request): void;
  listen(message: (reply: Reply) => void, died: (why: string) => void): void;
  terminate(): void;
}

/** What differs between a page and Node. */
export interface Host {
  spawn(assets: string | null): Port;
  /** Absolute URLs of the builds and of the default pack. */
  wasm(assets: string | null): Record<string, string>;
  pack(assets: string | null): { model: string; heads: string; config: string; catalog: string; policy: string };
  /** An absolute URL; in Node also of a path. */
  url(text: string | URL): string;
  isolated(): boolean;
  hardware(): number;
  persist(): Promise<boolean>;
  /** Compiles a build beside the worker's start, where a module can be sent. */
  compile?(url: string): Promise<WebAssembly.Module>;
  /** Whether a worker that dies is known by the lock that it held; else its port tells. */
  locks(): boolean;
  /** What the platform tells of the machine. */
  device(): BenchRecord["device"];
}

/** The default pack's hashes: the same bytes are stored once, wherever they came from. */
export interface PackHashes {
  model: string;
  heads: string;
  config: string;
  catalog: string;
  policy: string;
}

/** Most calls that wait. Who asks faster than the engine answers is told so, before the prompts take the memory. */
const MOST_CALLS = 4096;

class Link {
  private last = 0;
  private readonly waiting = new Map<
    number,
    { resolve(value: unknown): void; reject(error: unknown): void; heard: ((part: never) => void) | undefined }
  >();
  private over: ZenEdgeError | null = null;
  onProgress: ((progress: Progress) => void) | undefined;

  constructor(private readonly port: Port) {
    port.listen(
      (reply) => this.take(reply),
      (why) => this.end(new ZenEdgeError("crashed", `the worker died (${why}); load the router anew`)),
    );
  }

  private take(reply: Reply): void {
    if (reply.type === "progress") return this.onProgress?.(reply.progress);
    if (reply.type === "thread-ready") return;
    if (reply.type === "bench-progress") return this.waiting.get(reply.id)?.heard?.(reply.progress as never);
    if (reply.type === "text") return this.waiting.get(reply.id)?.heard?.(reply.text as never);
    const call = this.waiting.get(reply.id);
    this.waiting.delete(reply.id);
    if (reply.type === "done") return call?.resolve(reply.value);
    const { code, message }: PlainError = reply.error;
    const error = new ZenEdgeError(code, message);
    call?.reject(error);
    if (code === "crashed") this.end(error);
  }

  /** The number of a call that is yet to be made. */
  next(): number {
    return ++this.last;
  }

  /** Gives the worker its engine. */
  send(module: WebAssembly.Module | null): void {
    if (!this.over) this.port.post({ type: "module", module });
  }

  /** Ends the work of a call, and leaves it to the worker how that call is answered. */
  stop(id: number): void {
    if (this.waiting.has(id)) this.port.post({ type: "abort", id });
  }

  /**
   * Calls a method of the worker. With a signal, the work ends where it fires, and the promise with it. What the worker
   * tells before its answer goes to `heard`.
   */
  call<T, Part = BenchProgress>(
    method: string,
    args: unknown[] = [],
    signal?: AbortSignal,
    heard?: (part: Part) => void,
    id = this.next(),
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.over) return reject(this.over);
      // What gives back is always taken.
      if (this.waiting.size >= MOST_CALLS && method !== "close" && method !== "trim") {
        return reject(new ZenEdgeError("busy", `${MOST_CALLS} calls wait already: wait for answers before asking on`));
      }
      const stop = () => new ZenEdgeError("aborted", "aborted by its signal", { cause: signal?.reason });
      if (signal?.aborted) return reject(stop());
      const abort = () => {
        this.port.post({ type: "abort", id });
        this.waiting.delete(id);
        reject(stop());
      };
      const done = () => signal?.removeEventListener("abort", abort);
      this.waiting.set(id, {
        resolve: (value) => (done(), resolve(value as T)),
        reject: (error) => (done(), reject(error)),
        heard,
      });
      signal?.addEventListener("abort", abort, { once: true });
      try {
        this.port.post({ type: "call", id, method, args });
      } catch (error) {
        // What cannot be sent: a function among the options.
        done();
        this.waiting.delete(id);
        reject(new ZenEdgeError("bad_request", (error as Error).message, { cause: error }));
      }
    });
  }

  /** Ends the worker; every call, now and later, fails with this. */
  end(error: ZenEdgeError): void {
    if (this.over) return;
    this.over = error;
    this.port.terminate();
    for (const call of this.waiting.values()) call.reject(error);
    this.waiting.clear();
  }
}

/** A text that is being typed: each update pays for what is new since the last one, and ends the work on older ones. */
export class Session {
  /** @internal */
  constructor(
    private readonly link: Link,
    private readonly id: number,
    private readonly options: RouteOptions,
  ) {}

  /**
   * The text as it is now. Its answer is a draft: it has no id to be rewarded by. An update that is still at work ends
   * with the code `superseded`.
   */
  update(text: string, options: RouteOptions = {}): Promise<Outcome> {
    const { signal, ...rest } = { ...this.options, ...options };
    return this.link.call("update", [this.id, text, rest], signal);
  }

  /** Forgets the text. */
  async close(): Promise<void> {
    await this.link.call("end", [this.id]);
  }
}

/**
 * A text on its way, piece by piece. Leaving the loop ends the work.
 *
 * ```js
 * const generation = router.generate("The three rivers are");
 * for await (const text of generation) console.log(text);
 * const { tokens, endedBy } = await generation.result;
 * ```
 */
export class Generation implements AsyncIterable<string> {
  /**
   * The whole text and its figures, when it has ended; it needs no loop. After leaving the loop it is what there was of the
   * text, ended by `cancelled`. It fails as the loop does.
   */
  readonly result: Promise<Generated>;
  private readonly pieces: string[] = [];
  private over = false;
  private wake = () => {};
  private readonly id: number;

  /** @internal */
  constructor(
    private readonly link: Link,
    ask: Record<string, unknown>,
    signal: AbortSignal | undefined,
  ) {
    this.id = link.next();
    const heard = (text: string) => {
      this.pieces.push(text);
      this.wake();
    };
    this.result = link.call<Generated, string>("generate", [ask], signal, heard, this.id);
    const end = () => {
      this.over = true;
      this.wake();
    };
    // Who loops hears of a failure there; `result` that nobody waits for is no unhandled one.
    this.result.then(end, (error: ZenEdgeError) => {
      if (error.code === "aborted") this.pieces.length = 0;
      end();
    });
  }

  /** The pieces, each once: whoever loops a second time gets what is left. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    try {
      for (;;) {
        const piece = this.pieces.shift();
        if (piece !== undefined) yield piece;
        else if (this.over) return void (await this.result);
        else await new Promise<void>((wake) => (this.wake = wake));
      }
    } finally {
      this.link.stop(this.id);
    }
  }
}

/**
 * Routes prompts on this device.
 *
 * ```js
 * import { Router } from "zen-edge";
 * const router = await Router.load();
 * const { task, model } = await router.route("write a haiku about rust");
 * ```
 *
 * All work is done in a worker: a page never waits for it. No prompt leaves the device, and nothing is sent anywhere;
 * the network is asked for the files that you name, once.
 */
export class Router {
  private sessions = 0;
  private constructor(
    private readonly link: Link,
    /** What was loaded, how it runs, and what would make it faster. */
    readonly about: About,
    /** What a benchmark's record calls the model, where its file's name says less. */
    private readonly named: string | null,
  ) {}

  /**
   * Loads a router; without options the small default model, which comes with the package.
   *
   * In a page, models are fetched once and kept in the origin's storage; a download that broke off is gone on with.
   * Node reads them where they lie.
   *
   * @throws ZenEdgeError, with a code for each cause.
   */
  static async load(options: LoadOptions = {}): Promise<Router> {
    const start = performance.now();
    const { signal } = options;
    if (signal?.aborted) throw new ZenEdgeError("aborted", "aborted by its signal", { cause: signal.reason });
    if (options.device !== undefined && options.device !== "auto" && options.device !== "cpu") {
      throw new ZenEdgeError("bad_request", `there is no device ${JSON.stringify(options.device)}: say "auto" or "cpu"`);
    }
    const picked = pick(features(host.isolated(), host.hardware()), builds, options.isa, options.threads);
    if (!picked) {
      throw new ZenEdgeError("no_simd", "this browser has no WebAssembly SIMD; any since 2021 (Safari: 2023) has it");
    }
    const assets = options.assets === undefined ? null : `${host.url(options.assets).replace(/\/$/, "")}/`;
    const alive = `zen-edge:alive:${Math.random().toString(36).slice(2)}${Date.now()}`;
    const load: SentLoad = {
      pick: picked,
      wasm: host.wasm(assets),
      sends: host.compile !== undefined,
      files: specs(assets, options),
      storage: options.storage ?? "auto",
      learning: options.learning ?? true,
      prefixBytes: options.prefixBytes ?? null,
      cacheBytes: options.cacheBytes ?? null,
      alive,
    };
    const link = new Link(host.spawn(assets));
    const send = (module: WebAssembly.Module | null) => link.send(module);
    host.compile?.(load.wasm[picked.build]!).then(send, () => send(null));
    link.onProgress = options.onProgress;
    try {
      const about = await link.call<Omit<About, "load_ms" | "hints">>("load", [load], signal);
      watch(link, alive);
      const router = new Router(link, { ...about, hints: picked.hints, load_ms: performance.now() - start }, (options.model ?? "default") === "default" ? "zen-edge-default" : null);
      link.onProgress = undefined;
      return router;
    } catch (error) {
      // The reading of the weights is one long call: only the worker's end stops it.
      link.end(new ZenEdgeError("closed", "the router was not loaded"));
      throw error;
    }
  }

  /**
   * Which kind of task a prompt is, and which model should answer it.
   *
   * Calls are answered one after the other. An aborted one ends within some milliseconds, also in the middle of a prompt.
   */
  route(prompt: string, options: RouteOptions = {}): Promise<Outcome> {
    const { signal, ...rest } = options;
    return this.link.call("route", [prompt, rest], signal);
  }

  /** A prompt's vector: what the heads read, by default the last token's hidden state, not normalised. Bit for bit that of the native program. */
  embed(prompt: string, options: Pick<RouteOptions, "plain_text" | "signal"> = {}): Promise<Embedding> {
    const { signal, ...rest } = options;
    return this.link.call("embed", [prompt, rest], signal);
  }

  /**
   * Continues a text, or answers a conversation by the model's chat template. The text comes piece by piece; with the same
   * options it is that of `zen-edge generate`.
   *
   * ```js
   * for await (const text of router.generate([{ role: "user", content: "Name three rivers." }])) console.log(text);
   * ```
   *
   * Leaving the loop ends the work, and so does the signal, within some milliseconds. The first text of a router reads the
   * model's LM head into memory, where it stays until {@link close}. Other calls wait for the end of the text.
   *
   * Control tokens that stand in a prompt or a message are control tokens for the model: take them out of what strangers wrote.
   */
  generate(prompt: string | ChatMessage[], options: GenerateOptions = {}): Generation {
    const { signal, ...rest } = options;
    const asked = typeof prompt === "string" ? { prompt } : { messages: prompt };
    return new Generation(this.link, { ...rest, ...asked }, signal);
  }

  /**
   * How probable each of `options` is as what follows `prompt`, in their order. They are compared as whole texts: one that
   * another begins with ("A", "All") is never less probable than it, so end such ones alike ("A.", "All.").
   *
   * ```js
   * const [yes, no] = await router.choose("Is the sky blue? Answer:", [" yes", " no"]);
   * ```
   */
  choose(prompt: string, options: string[], how: ChooseOptions = {}): Promise<Choice[]> {
    const { signal, ...rest } = how;
    return this.link.call("choose", [{ ...rest, prompt, options }], signal);
  }

  /** A text that is being typed. */
  async session(options: RouteOptions = {}): Promise<Session> {
    const id = ++this.sessions;
    await this.link.call("session", [id]);
    return new Session(this.link, id, options);
  }

  /** Tells how an answer turned out; it must have been asked for with a `user`. It may come late, or never. */
  async observe(outcome: string | Outcome, reward: number | Reward): Promise<void> {
    const id = typeof outcome === "string" ? outcome : outcome.outcome;
    if (id === undefined) {
      throw new ZenEdgeError("unknown_outcome", "the answer has no id: name a user when you route");
    }
    await this.link.call("observe", [id, typeof reward === "number" ? { quality: reward } : reward]);
  }

  /** What was decided, and what is held. */
  stats(): Promise<Stats> {
    return this.link.call("stats");
  }

  /** What is known of a user; `null` before the first reward. */
  user(user: string): Promise<Record<string, unknown> | null> {
    return this.link.call("user", [user]);
  }

  /** Forgets what a user's rewards taught. Whether there was anything. */
  forgetUser(user: string): Promise<boolean> {
    return this.link.call("forgetUser", [user]);
  }

  /** Forgets the model that a conversation is held at. Whether there was one. */
  forgetConversation(conversation: string): Promise<boolean> {
    return this.link.call("forgetConversation", [conversation]);
  }

  /** What was learned, as a file: for {@link LoadOptions.learning} where the page may store nothing. It holds no text. */
  learning(): Promise<Uint8Array> {
    return this.link.call("learning");
  }

  /** Measures the speed by a short pass, so that `deadline_ms` can be promised before the first prompt. */
  async warmUp(): Promise<void> {
    await this.link.call("warmUp");
  }

  /**
   * Measures this device: tokens a second of prefill and decode beside the most that the device allows, and milliseconds
   * a decision by the prompt's length. The record is that of `zen-edge bench`; `docs/bench.md` of the repository explains it.
   *
   * ```js
   * const record = await router.bench({ onProgress: ({ share, stage }) => console.log(stage, share) });
   * ```
   *
   * It forgets earlier prompts, as {@link trim} does, and takes memory that a page does not give back: 64 MiB, and with
   * `decode` as much as the LM head. Other calls wait for it. A signal ends it within some milliseconds.
   */
  bench(options: BenchOptions = {}): Promise<BenchRecord> {
    const { signal, onProgress, name, prefill, decode, kv, repetitions, each, prompts, sustainedSeconds, readBytes } = options;
    const ask = { prefill, decode, kv, repetitions, each, prompts, sustained_seconds: sustainedSeconds, read_bytes: readBytes };
    const { about } = this;
    const device = host.device();
    const sent = {
      date: new Date().toISOString(),
      build: about.build,
      device: name === undefined ? device : { ...device, name },
      load: { ms: about.load_ms, source: about.source, stored: about.stored },
      ...(this.named === null ? {} : { model: this.named }),
    };
    return this.link.call("bench", [ask, sent], signal, onProgress);
  }

  /** Forgets earlier prompts: their text, vectors, keys and values. */
  async trim(): Promise<void> {
    await this.link.call("trim");
  }

  /** Saves what was learned and ends the worker; its memory is free again. Texts on their way end with the code `closed`. */
  async close(): Promise<void> {
    const closed = new ZenEdgeError("closed", "the router is closed");
    try {
      await this.link.call("close");
    } catch (error) {
      if ((error as ZenEdgeError).code !== "crashed" && (error as ZenEdgeError).code !== "closed") throw error;
    } finally {
      this.link.end(closed);
    }
  }
}

/** A worker that dies without a word frees its lock: then we hold it, and know. */
function watch(link: Link, alive: string): void {
  if (!host.locks()) return;
  void navigator.locks
    .request(alive, () => link.end(new ZenEdgeError("crashed", "the worker died; load the router anew")))
    .catch(() => {});
}

function specs(assets: string | null, options: LoadOptions): SentLoad["files"] {
  const model = options.model ?? "default";
  const heads = options.heads ?? (model === "default" ? "default" : undefined);
  if (heads === undefined) {
    throw new ZenEdgeError("bad_request", "name the heads that belong to the model: `heads`");
  }
  const file = (spec: FileSpec): SentFile => {
    if (typeof spec === "string" || spec instanceof URL) return { url: host.url(spec) };
    if (spec instanceof Blob) return { file: spec };
    if ("url" in spec) return { ...spec, url: host.url(spec.url) };
    if ("file" in spec || "stored" in spec) return spec;
    throw new ZenEdgeError("bad_request", "a file is a URL, a Blob, { url }, { file } or { stored }");
  };
  const pack = host.pack(assets);
  const ours = (part: keyof PackHashes): SentFile => ({ url: pack[part], sha256: hashes[part] });
  const files: SentLoad["files"] = { model: model === "default" ? ours("model") : file(model) } as SentLoad["files"];
  if (heads === "default") {
    for (const part of ["heads", "config", "catalog", "policy"] as const) files[part] = ours(part);
  } else if (typeof heads === "string" || heads instanceof URL) {
    const folder = host.url(heads).replace(/\/?$/, "/");
    files.heads = { url: `${folder}heads.safetensors` };
    files.config = { url: `${folder}router_config.json` };
    files.catalog = { url: `${folder}catalog.yaml`, optional: true };
    files.policy = { url: `${folder}router_policy.yaml`, optional: true };
  } else {
    files.heads = file(heads.heads);
    files.config = file(heads.config);
    if (heads.catalog) files.catalog = file(heads.catalog);
    if (heads.policy) files.policy = file(heads.policy);
  }
  if (options.catalog) files.catalog = file(options.catalog);
  if (options.policy) files.policy = file(options.policy);
  return files;
}

/** The files that this package keeps in the origin's storage. */
export interface Storage {
  /** Every file, also those that have not come whole. */
  list(): Promise<StoredFile[]>;
  /** Bytes of the package's files, and what the browser says of the origin's room. */
  size(): Promise<{ bytes: number; usage: number | null; quota: number | null }>;
  /** Erases a file, or `"learning"`: what was learned. Whether there was one. */
  delete(id: string): Promise<boolean>;
  /** Asks the browser not to erase the origin's files when the disk is full. Whether it grants it. */
  persist(): Promise<boolean>;
}

/** A worker of its own, for as long as the question takes: handles belong to workers. */
async function ask<T>(method: string, args: unknown[] = []): Promise<T> {
  const link = new Link(host.spawn(null));
  try {
    return await link.call<T>(method, args);
  } finally {
    link.end(new ZenEdgeError("closed", "done"));
  }
}

/** The files that this package keeps in the origin's storage. In Node there are none. */
export const storage: Storage = {
  list: () => ask("list"),
  async size() {
    const files = await ask<StoredFile[]>("list");
    const bytes = files.reduce((sum, file) => sum + file.size, 0);
    const estimate = await navigator.storage?.estimate?.().catch(() => null);
    return { bytes, usage: estimate?.usage ?? null, quota: estimate?.quota ?? null };
  },
  async delete(id) {
    if (id !== "learning") return ask("delete", [id]);
    await ask("forgetLearning");
    return true;
  },
  persist: () => host.persist(),
};
