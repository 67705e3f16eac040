import { glue, type Engine, type Glue, type Hash, type Job, type Typing } from "virtual:glue";
import { ZenEdgeError, plain } from "./errors.js";
import type { OpenFile } from "./files.js";
import type { Reply, Request, SentFile, SentLoad } from "./protocol.js";
import type { About, BenchProgress, BenchRecord, Build, Choice, Embedding, Generated, Outcome, Progress, RouteOptions, Stats } from "./types.js";

/** What a worker can do beside computing: a browser's and Node's differ. */
export interface Platform {
  post(reply: Reply, transfer?: Transferable[]): void;
  compile(url: string): Promise<WebAssembly.Module>;
  /** Lets other messages come. */
  turn(): Promise<void>;
  /** Starts a worker as a thread of the pool; resolves when it is about to wait for work. */
  thread(build: Build, module: WebAssembly.Module, memory: WebAssembly.Memory): Promise<void>;
  /** Opens a file; see download.ts. */
  open(
    spec: SentFile,
    call: {
      storage: "auto" | "memory";
      signal: AbortSignal;
      progress(loaded: number, total: number | null, stored: boolean): void;
      warn(text: string): void;
      begin(size: number | null): Promise<new () => Hash>;
    },
  ): Promise<OpenFile | null>;
  /** Erases a stored file that turned out to be of no use. */
  remove(id: string): Promise<void>;
  readLearning(name: string): Promise<Uint8Array | null>;
  writeLearning(name: string, bytes: Uint8Array): Promise<void>;
  /** Methods of its own that the page may call. */
  own?: Record<string, (...args: never[]) => Promise<unknown>>;
  /** Called when the worker is ready: it holds a lock as long as it lives. */
  alive(name: string): void;
}

/** Work between two looks at the messages, in milliseconds. */
const SLICE = 8;
/**
 * Tokens of a chunk: an abort is seen after one product of so many, the largest of which is two fifths of a layer: at 0.6B some 60 ms
 * (reckoned from 31 tokens/s, benches/records/web.md).
 * Larger ones unpack the weights less often.
 */
const CHUNK = 128;
const PAGE = 65536;
/** Memory beside the weights: activations, caches, tokenizer, the threads' stacks. */
const BESIDE = 160 << 20;
/** The most that a 32-bit module can have, and what is declared where the size is not known. */
const MOST = 2 ** 32;
const UNKNOWN = 2 ** 31;
/** Bytes of a thread's stack. The deepest loop takes a few kilobytes. */
const STACK = 1 << 18;

function takeover(error: unknown): ZenEdgeError {
  const { code, message } = plain(error);
  return new ZenEdgeError(code, message, { cause: error });
}

/** The engine in its worker: it answers the page's calls one after the other. */
export class Host {
  private engine: Engine | null = null;
  private memory: WebAssembly.Memory | null = null;
  private files: OpenFile[] = [];
  private model: OpenFile | null = null;
  private dead: ZenEdgeError | null = null;
  private queue: Promise<unknown> = Promise.resolve();
  private readonly aborts = new Map<number, AbortController>();
  private readonly sessions = new Map<number, { typing: Typing; latest: AbortController | null }>();
  private readonly texts = new Set<AbortController>();
  private learning: { name: string; timer: ReturnType<typeof setTimeout> | null } | null = null;
  /** Builds by their URLs, while a router is loaded. */
  private readonly modules = new Map<string, Promise<WebAssembly.Module>>();
  private sent: (module: WebAssembly.Module | null) => void = () => {};
  /** What the page compiled. */
  private readonly module = new Promise<WebAssembly.Module | null>((resolve) => (this.sent = resolve));

  constructor(private readonly platform: Platform) {}

  /** Takes a message. */
  handle(request: Request): void {
    if (request.type === "abort") {
      this.aborts.get(request.id)?.abort();
      return;
    }
    if (request.type === "module") {
      this.sent(request.module);
      return;
    }
    if (request.type === "thread") {
      this.serve(request.build as Build, request.module, request.memory);
      return;
    }
    const { id, method, args } = request;
    const abort = new AbortController();
    this.aborts.set(id, abort);
    if (method === "update") this.supersede(args[0] as number, abort);
    if (method === "generate") this.texts.add(abort);
    // A text may take minutes: closing does not wait for it.
    if (method === "close") for (const text of this.texts) text.abort("closed");
    const run = async () => {
      try {
        if (this.dead) throw this.dead;
        if (abort.signal.aborted) throw this.gone(abort.signal);
        const value = await this.call(method, args, abort.signal, id);
        const transfer = method === "embed" ? [(value as Embedding).embedding.buffer as ArrayBuffer] : [];
        this.platform.post({ type: "done", id, value }, transfer);
      } catch (error) {
        const told = plain(error);
        if (told.code === "crashed") this.dead = new ZenEdgeError("crashed", told.message);
        this.platform.post({ type: "failed", id, error: told });
      } finally {
        this.aborts.delete(id);
        this.texts.delete(abort);
      }
    };
    this.queue = this.queue.then(run);
  }

  /** An older text of the session is of no more interest, whether it runs or waits. */
  private supersede(session: number, abort: AbortController): void {
    const typing = this.sessions.get(session);
    if (!typing) return;
    typing.latest?.abort("superseded");
    typing.latest = abort;
  }

  private gone(signal: AbortSignal): ZenEdgeError {
    if (signal.reason === "closed") return new ZenEdgeError("closed", "the router is closed");
    return signal.reason === "superseded"
      ? new ZenEdgeError("superseded", "a newer text has come")
      : new ZenEdgeError("aborted", "the work was aborted");
  }

  /** Becomes a thread of another worker's pool. */
  private serve(build: Build, module: WebAssembly.Module, memory: WebAssembly.Memory): void {
    const made = glue[build];
    if (!made?.pool_thread) throw new ZenEdgeError("no_wasm", `this package has no build ${build}`);
    made.initSync({ module, memory, thread_stack_size: STACK });
    this.platform.post({ type: "thread-ready" });
    made.pool_thread();
  }

  private async call(method: string, args: unknown[], signal: AbortSignal, id: number): Promise<unknown> {
    switch (method) {
      case "load":
        return this.load(args[0] as SentLoad, signal);
      case "route":
        return this.route(this.ready.begin(args[0] as string, JSON.stringify(args[1])), args[1] as RouteOptions, signal);
      case "embed":
        return this.embed(args[0] as string, JSON.stringify(args[1]), signal);
      case "session": {
        const id = args[0] as number;
        this.sessions.set(id, { typing: this.ready.typing(), latest: null });
        return undefined;
      }
      case "update": {
        const session = this.sessions.get(args[0] as number);
        if (!session) throw new ZenEdgeError("closed", "the session was closed");
        return this.route(session.typing.begin(args[1] as string, JSON.stringify(args[2])), {}, signal);
      }
      case "end": {
        this.sessions.get(args[0] as number)?.typing.free();
        this.sessions.delete(args[0] as number);
        return undefined;
      }
      case "bench":
        return this.bench(args[0], args[1] as Record<string, unknown>, signal, id);
      case "generate":
        return this.generate(JSON.stringify(args[0]), signal, id);
      case "choose":
        return JSON.parse(this.ready.choose(JSON.stringify(args[0]))) as Choice[];
      case "warmUp":
        return this.ready.warm_up();
      case "observe":
        this.ready.observe(args[0] as string, JSON.stringify(args[1]));
        this.learned();
        return undefined;
      case "stats":
        return { ...JSON.parse(this.ready.stats()), memory: this.bytes } as Stats;
      case "user":
        return JSON.parse(this.ready.user(args[0] as string));
      case "forgetUser": {
        const known = this.ready.forget_user(args[0] as string);
        await this.save();
        return known;
      }
      case "forgetConversation":
        return this.ready.forget_conversation(args[0] as string);
      case "learning":
        return this.ready.learning();
      case "trim":
        return this.ready.clear_cache();
      case "close":
        await this.close();
        return undefined;
      default: {
        const own = this.platform.own?.[method];
        if (!own) throw new ZenEdgeError("bad_request", `there is no method ${method}`);
        return own(...(args as never[]));
      }
    }
  }

  private get ready(): Engine {
    if (!this.engine) throw new ZenEdgeError("closed", "the router is closed");
    return this.engine;
  }

  private get bytes(): number {
    return this.memory?.buffer.byteLength ?? 0;
  }

  /** Works in slices, and looks in between whether anyone still wants the answer. */
  private async drive(job: Job, signal: AbortSignal): Promise<void> {
    while (!job.step(SLICE)) {
      await this.platform.turn();
      if (signal.aborted) {
        job.free();
        throw this.gone(signal);
      }
    }
  }

  private async route(job: Job, options: RouteOptions, signal: AbortSignal): Promise<Outcome> {
    await this.drive(job, signal);
    const outcome = JSON.parse(job.outcome()) as Outcome;
    // What waits for a reward must outlive the page.
    if (options.user !== undefined) this.learned();
    return outcome;
  }

  /** Measures in slices, and tells in between how far it is. */
  private async bench(ask: unknown, about: Record<string, unknown>, signal: AbortSignal, id: number): Promise<BenchRecord> {
    const bench = this.ready.begin_bench(JSON.stringify(ask));
    let told = -Infinity;
    try {
      while (!bench.work(SLICE)) {
        const now = performance.now();
        if (now - told >= 100) {
          told = now;
          this.platform.post({ type: "bench-progress", id, progress: JSON.parse(bench.progress()) as BenchProgress });
        }
        await this.platform.turn();
        if (signal.aborted) throw this.gone(signal);
      }
    } catch (error) {
      bench.free();
      throw error;
    }
    const { name, sha256 } = this.model ?? {};
    const model = { model: name?.split("/").pop(), sha256 };
    return JSON.parse(bench.finish(JSON.stringify({ ...model, ...about }))) as BenchRecord;
  }

  /** Generates in slices, and sends what has come in between. Ended from the page, what there is of it is the answer. */
  private async generate(ask: string, signal: AbortSignal, id: number): Promise<Generated> {
    const generation = this.ready.begin_text(ask);
    try {
      for (let ended = false; !ended && !signal.aborted; ) {
        ended = generation.step(SLICE);
        const text = generation.fresh();
        if (text !== "") this.platform.post({ type: "text", id, text });
        if (!ended) await this.platform.turn();
      }
      if (signal.reason === "closed") throw this.gone(signal);
    } catch (error) {
      // After a trap the module is of no more use, and to free something in it would hide why.
      if (!(error instanceof WebAssembly.RuntimeError)) generation.free();
      throw error;
    }
    return JSON.parse(generation.finish()) as Generated;
  }

  private async embed(prompt: string, request: string, signal: AbortSignal): Promise<Embedding> {
    const job = this.ready.begin_embed(prompt, request);
    await this.drive(job, signal);
    const embedded = job.embedding();
    const embedding = { embedding: embedded.vector(), ...JSON.parse(embedded.read()) } as Embedding;
    embedded.free();
    return embedding;
  }

  private async load(load: SentLoad, signal: AbortSignal): Promise<Omit<About, "load_ms" | "hints">> {
    const warnings: string[] = [];
    const warn = (text: string) => void (warnings.includes(text) || warnings.push(text));
    let build = load.pick.build;
    let threads = load.pick.threads;
    let made: Glue | null = null;
    this.progress("engine", 0, null, false);
    // It is compiled while the model is looked for. Where that fails, it is told when the engine is wanted.
    const url = load.wasm[build];
    if (url && load.sends) this.modules.set(url, this.module.then((module) => module ?? this.platform.compile(url)));
    if (url) this.compile(url).catch(() => {});

    /** Instantiates the engine, with as much memory as the model needs. */
    const begin = async (size: number | null): Promise<new () => Hash> => {
      if (made) return made.Hash;
      if (threads > 1) {
        try {
          made = await this.start(build, load.wasm, size, threads);
        } catch (error) {
          // A phone that refuses shared memory, a policy that refuses workers within workers: one thread always works.
          warn(`threads did not start (${plain(error).message}): one thread runs`);
          build = build.replace("-threads", "") as Build;
          threads = 1;
        }
      }
      made ??= await this.start(build, load.wasm, size, 1);
      return made.Hash;
    };
    const open = (part: Progress["stage"], spec: SentFile) =>
      this.platform.open(spec, {
        storage: load.storage,
        signal,
        warn,
        begin,
        progress: (loaded, total, stored) => this.progress(part, loaded, total, stored),
      });

    const { files: specs } = load;
    const model = await this.opened(open("model", specs.model));
    for (let again = false; ; again = true) {
      let current = again ? await this.opened(open("model", specs.model)) : model;
      try {
        const beside = await Promise.allSettled([
          this.opened(open("heads", specs.heads)),
          this.opened(open("config", specs.config)),
          specs.catalog ? this.opened(open("catalog", specs.catalog)) : null,
          specs.policy ? this.opened(open("policy", specs.policy)) : null,
        ]);
        const [heads, config, catalog, policy] = beside.map((file) => {
          if (file.status === "rejected") throw file.reason;
          return file.value;
        });
        if (signal.aborted) throw this.gone(signal);
        if (!current || !heads || !config) throw new ZenEdgeError("http", "the heads' folder lacks a file");
        this.progress("weights", 0, current.size, current.stored);
        const epoch = crypto.getRandomValues(new Uint32Array(1))[0]!;
        const options = {
          chunk: CHUNK,
          epoch,
          cache_bytes: load.cacheBytes,
          prefix_bytes: load.prefixBytes,
          exploration: null,
        };
        const { Engine } = made!;
        this.engine = new Engine(
          current,
          heads,
          config,
          catalog ?? undefined,
          policy ?? undefined,
          JSON.stringify(options),
        );
        this.progress("weights", current.size, current.size, current.stored);
        const about = JSON.parse(this.engine.about());
        await this.restore(load.learning, heads, warn);
        this.platform.alive(load.alive);
        this.model = current;
        this.modules.clear();
        return {
          ...about,
          build,
          warnings,
          source: current.source,
          stored: current.stored,
          memory: this.bytes,
        };
      } catch (error) {
        const { code } = plain(error);
        const damaged = ["model_damaged", "model_unsupported", "tokenizer", "heads", "config"].includes(code);
        const stored = this.files.filter((file) => file.stored && file.id);
        this.release();
        // What was stored may have been damaged on the disk: once, it is fetched anew. What has just come is thrown
        // away, for else the same wrong file would be loaded again and again.
        if (damaged) {
          for (const file of [current, ...stored]) if (file?.id) await this.platform.remove(file.id);
          if (!again && stored.length > 0 && "url" in specs.model) continue;
        }
        throw takeover(error);
      }
    }
  }

  private async opened<F extends OpenFile | null>(file: Promise<F>): Promise<F> {
    const open = await file;
    if (open) this.files.push(open);
    return open;
  }

  private release(): void {
    for (const file of this.files) file.close();
    this.files = [];
    this.model = null;
  }

  private progress(stage: Progress["stage"], loaded: number, total: number | null, stored: boolean): void {
    this.platform.post({ type: "progress", progress: { stage, loaded, total, stored } });
  }

  private compile(url: string): Promise<WebAssembly.Module> {
    const module = this.modules.get(url) ?? this.platform.compile(url);
    this.modules.set(url, module);
    return module;
  }

  private async start(build: Build, wasm: Record<string, string>, size: number | null, threads: number): Promise<Glue> {
    const made = glue[build];
    const url = wasm[build];
    if (!made || !url) throw new ZenEdgeError("no_wasm", `this package has no build ${build}`);
    let module: WebAssembly.Module;
    try {
      module = await this.compile(url);
    } catch (error) {
      throw new ZenEdgeError(
        "no_wasm",
        `the engine cannot be loaded from ${url} (${plain(error).message}); a Content-Security-Policy needs 'wasm-unsafe-eval'`,
        { cause: error },
      );
    }
    if (threads === 1) {
      this.memory = made.initSync({ module }).memory;
      return made;
    }
    // Phones reserve a shared memory's maximum at once: it is no larger than the model needs.
    const maximum = Math.min(MOST, size === null ? UNKNOWN : size + BESIDE) / PAGE;
    const memory = new WebAssembly.Memory({ initial: 256, maximum: Math.ceil(maximum), shared: true });
    this.memory = made.initSync({ module, memory, thread_stack_size: 1 << 20 }).memory;
    // The pool first: each worker takes one of its threads.
    made.prepare_pool?.(threads - 1);
    const starts = Array.from({ length: threads - 1 }, () => this.platform.thread(build, module, memory));
    const started = await Promise.allSettled(starts);
    const ready = started.filter((one) => one.status === "fulfilled").length;
    if (ready < threads - 1) throw new Error(`${ready + 1} of ${threads}`);
    return made;
  }

  private async restore(learning: boolean | Uint8Array, heads: OpenFile, warn: (text: string) => void): Promise<void> {
    let bytes = learning instanceof Uint8Array ? learning : null;
    if (learning === true) {
      const name = `learning-${heads.sha256 ?? heads.name}`.replace(/[^\w.-]/g, "_");
      this.learning = { name, timer: null };
      bytes = await this.platform.readLearning(name);
    }
    const wrong = bytes && this.engine?.restore_learning(bytes);
    if (wrong) warn(wrong);
  }

  /** Something was learned: it is saved a little later, so that ten thumbs are one write. */
  private learned(): void {
    if (this.learning && this.learning.timer === null) {
      this.learning.timer = setTimeout(() => void this.save(), 300);
    }
  }

  private async save(): Promise<void> {
    if (!this.learning || !this.engine || this.dead) return;
    if (this.learning.timer !== null) clearTimeout(this.learning.timer);
    this.learning.timer = null;
    try {
      await this.platform.writeLearning(this.learning.name, this.engine.learning());
    } catch {
      // A full storage costs the learning of this visit, and never an answer.
    }
  }

  private async close(): Promise<void> {
    if (this.learning?.timer != null) await this.save();
    for (const { typing } of this.sessions.values()) typing.free();
    this.sessions.clear();
    this.engine?.free();
    this.engine = null;
    this.release();
  }
}
