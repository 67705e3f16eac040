/** The eight kinds of work that a prompt may ask for. */
export type Task =
  | "code"
  | "reasoning"
  | "math"
  | "creative"
  | "vision"
  | "long_context"
  | "cheap_chat"
  | "general";

/** The effort that a model is asked for. */
export type Level = "fast" | "balanced" | "max";

/** What a model may cost and must be able to do. What is left out is no limit; 0 is one. */
export interface Limits {
  /** The most USD for 1,000 tokens; 0: only what is free. */
  max_cost?: number;
  /** The most milliseconds of the whole answer, by the catalog's figures. */
  max_latency_ms?: number;
  /** The least quality, 0 to 1: the catalog's figure, else the route head's probability. */
  min_quality?: number;
  /** The weight of cost in a score, for a USD a 1,000 tokens (0.35 where nobody says otherwise). */
  lambda?: number;
  /** The weight of latency in a score, for a second (0.15 where nobody says otherwise). */
  mu?: number;
  /** Only models on this device. */
  offline?: boolean;
  /** Abilities that the model must have. */
  require?: { vision?: boolean; min_context?: number };
  /** Ids that are never chosen. */
  exclude?: string[];
  /** The effort that the model must offer. */
  level?: Level;
  /** The confidence of the task below which rules decide, 0 to 1. */
  min_confidence?: number;
  /** The tokens of the answer, for its cost and latency (256). */
  output_tokens?: number;
  /** Whether a model whose latency or quality is not known passes a limit on it. */
  allow_unknown?: boolean;
}

/** The state of the device and of the providers. */
export interface Context {
  /** Ids of local models that run now. */
  running?: string[];
  /** Memory; where it is not known, no local model is loaded. */
  memory?: { available: number; total: number; unified: boolean };
  /** Providers by name. */
  providers?: Record<
    string,
    {
      spent_usd?: number;
      budget_usd?: number;
      limited_until_ms?: number;
      requests_left?: number;
      down?: boolean;
    }
  >;
  /** The battery, 0 to 1, and whether the system saves power. */
  power?: { battery?: number; charging?: boolean; saving?: boolean };
  /** How hot the device is. */
  thermal?: "nominal" | "fair" | "serious" | "critical";
  /** The time in milliseconds, from any epoch that the providers' times share. */
  now_ms?: number;
}

/** What is asked beside the prompt. */
export interface RouteOptions {
  /** Limits of the choice. */
  limits?: Limits;
  /** The device and the providers. */
  context?: Context;
  /** The task, where you know it. */
  task?: Task;
  /** Whether an image, a sound or a film goes with the prompt. */
  media?: boolean;
  /** Whether special tokens that stand in the prompt are plain text; the config's word where it is left out. */
  plain_text?: boolean;
  /** Answer by rules, without the backbone. */
  rules?: boolean;
  /** Milliseconds in which the answer must be there: where the heads cannot be asked in time, rules decide. */
  deadline_ms?: number;
  /** Whose rewards count; then the outcome has an id that {@link Router.observe} takes. */
  user?: string;
  /** The conversation that the prompt is a turn of: it is held at its model. */
  conversation?: string;
  /** Stops the work, also in the middle of a prompt. */
  signal?: AbortSignal;
}

/** Why a model was not taken; `why` names the cause, the other fields its figures. */
export interface WhyNot {
  why:
    | "disabled"
    | "excluded"
    | "offline"
    | "no_vision"
    | "context_too_small"
    | "level_unavailable"
    | "too_expensive"
    | "above_ceiling"
    | "quality_unknown"
    | "quality_too_low"
    | "latency_unknown"
    | "too_slow"
    | "provider_down"
    | "rate_limited"
    | "budget_spent"
    | "hot"
    | "low_power"
    | "size_unknown"
    | "memory_unknown"
    | "does_not_fit"
    | "untrained"
    | "not_for_task";
  [figure: string]: unknown;
}

/** A model of the catalog and how it fared. */
export interface Candidate {
  /** Its id. */
  model: string;
  /** By the heads: quality − λ·cost − μ·latency; by rules: 1 divided by its place. `null`: not considered. */
  score: number | null;
  /** The catalog's quality, else the heads'. */
  quality: number | null;
  /** The heads' probability that it is the best. */
  probability: number | null;
  /** USD for 1,000 tokens. */
  cost_per_1k: number;
  /** Milliseconds of its answer, where the catalog knows. */
  latency_ms: number | null;
  /** Whether the heads may pick it. */
  trained: boolean;
  /** Whether it runs on this device now. */
  running: boolean;
  /** Whether it could have been taken. */
  feasible: boolean;
  /** Why not. */
  why_not: WhyNot | null;
}

/** How sure the heads are, 0 to 1; `null` where they were not asked. */
export interface Confidence {
  /** The softmax as it is. */
  raw: number | null;
  /** At the temperature that was fitted with the heads: a probability. `null`: none was fitted. */
  calibrated: number | null;
}

/** A GPU. */
export interface Adapter {
  /** Its name; browsers tell little of it. */
  name: string;
  /** The driver's, as far as it tells it. */
  driver: string;
  /** Through what it is reached. */
  api: "webgpu" | "vulkan" | "metal" | "dx12";
  /** Whether it is a processor that plays a GPU. */
  software: boolean;
  /** Whether a device was lost before, and this one took over. */
  rebuilt: boolean;
}

/** What ran. */
export interface Backend {
  /** The device that read the prompt. */
  device: "cpu" | "gpu";
  /** The instruction set of the kernels: `simd128` or `relaxed-simd`; `wgsl` on a GPU. */
  isa: string;
  /** Threads of the CPU. */
  threads: number;
  /** The GPU that read the prompt, where one did. */
  adapter?: Adapter;
  /** Why the CPU answered where a GPU was asked for. */
  fallback?: string;
}

/** Milliseconds. */
export interface Timings {
  tokenize: number;
  prefill: number;
  heads: number;
  total: number;
}

/** The answer to one prompt: the same words as `zen-edge route --json`. */
export interface Outcome {
  /** What {@link Router.observe} rewards it by; only where a `user` was named. */
  outcome?: string;
  /** What the prompt asks for. */
  task: Task;
  /** The model that should answer; `null` where none fits, and `scores.models` says why. */
  model: string | null;
  /** How it is reached. */
  route: "cloud" | "load_local" | "reuse" | "no_fit";
  /** The provider of a cloud model. */
  provider: string | null;
  /** The effort to ask it for. */
  level: Level;
  /** What chose it. */
  source: "learned" | "rules" | "fallback" | "tag" | "both";
  /** Why that source, in words. */
  reason: string;
  /** Whether a conversation was held at its model: the scores speak for another one. */
  held: boolean;
  /** How sure the heads are. */
  confidence: { task: Confidence; model: Confidence };
  /** The chosen model and its two next best. */
  top3: Candidate[];
  /** Everything that was weighed. */
  scores: {
    lambda: number;
    mu: number;
    /** The tasks, the most probable first. */
    tasks: { task: Task; probability: number; logit: number }[];
    /** Every model, the chosen one first. */
    models: Candidate[];
  };
  /** Tokens that were read. */
  tokens: number;
  /** Of these, the first so many were known from an earlier prompt that begins alike. */
  reused: number;
  /** Whether the prompt was longer than what was read of it. */
  truncated: boolean;
  /** Whether an equal prompt was read before. */
  cached: boolean;
  /** What ran. */
  backend: Backend;
  /** Where the time went. */
  timings: Timings;
}

/** A prompt's vector. */
export interface Embedding {
  /** What the heads read: the last token's hidden state after the final norm unless their config's `pooling` says otherwise; not normalised. */
  embedding: Float32Array;
  /** Its Euclidean norm. */
  norm: number;
  /** Tokens that were read. */
  tokens: number;
  /** Of these, known before. */
  reused: number;
  /** Whether the prompt was longer than what was read of it. */
  truncated: boolean;
  /** Whether an equal prompt was read before. */
  cached: boolean;
  /** What ran. */
  backend: Backend;
  /** Where the time went. */
  timings: Timings;
}

/** How an answer turned out. */
export interface Reward {
  /** 0 to 1: a thumb, a grade, a test that passed. */
  quality: number;
  /** What it cost, in USD for 1,000 tokens; the catalog's figure where it is left out. */
  cost_per_1k?: number;
  /** Milliseconds that it took; the catalog's estimate where it is left out. */
  latency_ms?: number;
}

/** What a router has done since it was loaded. It holds no text. */
export interface Stats {
  routed: number;
  sources: Partial<Record<"learned" | "rules" | "fallback" | "tag" | "both", number>>;
  reasons: Record<string, number>;
  tasks: Partial<Record<Task, number>>;
  models: Record<string, number>;
  no_fit: number;
  truncated: number;
  cache_hits: number;
  prefix_hits: number;
  tokens_read: number;
  tokens_reused: number;
  held: number;
  cancelled: number;
  failed: number;
  /** The share of decisions that the heads did not make; `null` before the first. */
  fallback_rate: number | null;
  /** Vectors of earlier prompts. */
  cache: { entries: number; bytes: number };
  /** Keys and values of earlier prompts. */
  prefixes: { entries: number; bytes: number };
  conversations: number;
  /** The measured speed; `null` before the first pass. */
  speed: { tokens_per_second: number; overhead_ms: number } | null;
  /** What was learned from users. */
  bandit: Record<string, number>;
  /** Bytes of the engine's memory now. WebAssembly's memory never shrinks: it is also the most it has been. */
  memory: number;
}

/** A file to load: a URL, a `File` or `Blob` (dropped, picked), or one of these with what is known of it. */
export type FileSpec =
  | string
  | URL
  | Blob
  | {
      /** Where it is fetched from; in Node also a path. */
      url: string | URL;
      /** Its SHA-256, in hexadecimal digits: what comes otherwise is refused. */
      sha256?: string;
    }
  | {
      /** A dropped or picked file. */
      file: Blob;
      /** What messages call it. */
      name?: string;
      sha256?: string;
      /** Copy it into the origin's storage, so that `{ stored: id }` loads it at the next visit. */
      keep?: boolean;
    }
  | {
      /** The id of a stored file, from {@link storage.list}. */
      stored: string;
    };

/** The files that belong to a backbone. */
export interface HeadsSpec {
  /** `heads.safetensors`. */
  heads: FileSpec;
  /** `router_config.json`. */
  config: FileSpec;
  /** `catalog.yaml` or `catalog.json`. Without one, nothing but the config's ids is known of the models. */
  catalog?: FileSpec;
  /** `router_policy.yaml`. */
  policy?: FileSpec;
}

/** The four builds of the engine. */
export type Build = "simd128" | "relaxed-simd" | "simd128-threads" | "relaxed-simd-threads";

/** How far loading is. */
export interface Progress {
  /** What is at work: the engine, a file by its part, or the reading of the weights. */
  stage: "engine" | "model" | "heads" | "config" | "catalog" | "policy" | "weights";
  /** Bytes that have come. */
  loaded: number;
  /** Bytes in all; `null` where the server does not say. */
  total: number | null;
  /** Whether they come from the origin's storage. */
  stored: boolean;
}

/** How a router is loaded. */
export interface LoadOptions {
  /** The backbone, a GGUF; `"default"` is the small one that comes with the package. */
  model?: "default" | FileSpec;
  /**
   * What belongs to it; `"default"` for the default model. A URL names a folder with `heads.safetensors`,
   * `router_config.json` and, where they are there, `catalog.yaml` and `router_policy.yaml`.
   */
  heads?: "default" | string | URL | HeadsSpec;
  /** Your own catalog in place of the heads'. */
  catalog?: FileSpec;
  /** Your own policy in place of the heads'. */
  policy?: FileSpec;
  /** `auto` and `cpu` mean the same now: there is no other device yet. */
  device?: "auto" | "cpu";
  /** The instruction set; the fastest of this browser where it is left out. */
  isa?: "simd128" | "relaxed-simd";
  /** Threads; as many as the machine has, at most 8, where the page is cross-origin isolated, else 1. */
  threads?: number;
  /** Called while files come. */
  onProgress?: (progress: Progress) => void;
  /** Gives up. What has come of a download is kept, and the next load goes on from there. */
  signal?: AbortSignal;
  /** `auto`: downloads are kept in the origin's storage where there is one; `memory`: nothing is. */
  storage?: "auto" | "memory";
  /**
   * What rewards taught. `true`: kept in the origin's storage. Bytes of {@link Router.learning}: taken over from you.
   * `false`: learned, and gone with the router.
   */
  learning?: boolean | Uint8Array;
  /** Bytes that keys and values of earlier prompts may take (32 MiB). */
  prefixBytes?: number;
  /** Bytes that vectors of earlier prompts may take (4 MiB). */
  cacheBytes?: number;
  /** The folder that holds the package's `worker.js`, `*.wasm` and `pack/`, where your bundler does not move them itself. */
  assets?: string | URL;
}

/** What was loaded, and how it runs. */
export interface About {
  /** The build that was picked. */
  build: Build;
  /** Why not a faster one, and what would give it; empty where none is. */
  hints: string[];
  /** What did not go as asked, and what was done instead. */
  warnings: string[];
  /** Where the model's bytes lie: the origin's private file system, IndexedDB, memory, or a file of yours. */
  source: "opfs" | "indexeddb" | "memory" | "file";
  /** Whether the model was there already. */
  stored: boolean;
  /** Milliseconds from the call to the router. */
  load_ms: number;
  architecture: string;
  layers: number;
  hidden_size: number;
  isa: string;
  threads: number;
  tasks: Task[];
  models: string[];
  /** Whether confidences are probabilities. */
  calibration: "fitted" | "absent" | "other_backbone";
  /** What the catalog holds beyond what was understood, and where it and the heads do not meet. */
  report: Record<string, unknown>;
  /** Bytes of the weights in memory. */
  weight_bytes: number;
  /** Multiply-adds of the weights for one token. */
  multiply_adds: number;
  /** Bytes of the engine's memory after loading. */
  memory: number;
}

/** A file in the origin's storage. */
export interface StoredFile {
  /** What `{ stored: id }` and {@link storage.delete} name it by. */
  id: string;
  /** Its name. */
  name: string;
  /** Where it came from; `null` for one of yours. */
  url: string | null;
  /** Bytes. */
  size: number;
  /** Its SHA-256. */
  sha256: string;
  /** When it was stored, in milliseconds since 1970. */
  saved: number;
  /** Whether it is whole; one that is not is gone on with at the next load. */
  complete: boolean;
}

/** One message of a conversation. */
export interface ChatMessage {
  /** Who says it: what the model's chat template knows, most often these three. */
  role: "system" | "user" | "assistant" | (string & {});
  /** Its text. */
  content: string;
}

/** How {@link Router.generate} continues a text. What is left out has a default; the default takes no chances. */
export interface GenerateOptions {
  /** Most tokens that are generated (256). */
  maxTokens?: number;
  /** 0 always takes the most probable token (the default); 1 samples as the model was trained. */
  temperature?: number;
  /** Sample from so many of the most probable tokens; 0 is off. */
  topK?: number;
  /** Sample from the fewest tokens that reach this probability together; 1 is off. */
  topP?: number;
  /** Sample from tokens of at least this share of the largest probability; 0 is off. */
  minP?: number;
  /** Makes tokens among the last 64 less probable; 1 is off. */
  repetitionPenalty?: number;
  /** What chance begins with, a whole number (0): the same seed gives the same text. */
  seed?: number;
  /** Texts that end the generation; they are no part of its text. */
  stop?: string[];
  /** How keys and values are kept: `f32` (the default), `f16` (half the memory) or `int8` (a quarter). */
  kv?: "f32" | "f16" | "int8";
  /** Ends it with the error `aborted`, also while the prompt is read. */
  signal?: AbortSignal;
}

/** A generated text. */
export interface Generated {
  /** The text: all pieces together. */
  text: string;
  /** Tokens that were generated, with the one that ended the text. */
  tokens: number;
  /** Tokens of the prompt, with those of the chat template. */
  promptTokens: number;
  /**
   * What ended it: the model, a stop text, `maxTokens`, the end of the model's context, or you by leaving the loop.
   */
  endedBy: "end_of_text" | "stop_string" | "length" | "context" | "cancelled";
}

/** How {@link Router.choose} compares. */
export interface ChooseOptions {
  /**
   * A prompt of the same form without content ("N/A" in the place of the text): what an option has there is taken off, so
   * that a frequent word does not win by being frequent.
   */
  contentFree?: string;
  /** Compare by the mean over an option's tokens instead of the sum: for options of very different lengths. */
  byToken?: boolean;
  /** Gives up waiting. The worker still ends a comparison that it has begun. */
  signal?: AbortSignal;
}

/** One option's share. */
export interface Choice {
  /** The option. */
  option: string;
  /** Its probability among the options; all of them sum to 1. */
  probability: number;
  /** The natural logarithm of the probability that the model continues the prompt with it, over its whole vocabulary. */
  logLikelihood: number;
  /** The same behind the content-free prompt, where one was given. */
  contentFree?: number;
  /** Its tokens. */
  tokens: number;
}

/** What {@link Router.bench} measures. What is left out has a default. */
export interface BenchOptions {
  /** Tokens of the prompts whose prefill is measured: 16, 64, 128 and 512. */
  prefill?: number[];
  /** Tokens that are generated, one after the other: 32. It reads the LM head into memory; `[]` leaves it alone. */
  decode?: number[];
  /** How keys and values are kept in decode: `f32`. */
  kv?: "f32" | "f16" | "int8";
  /** How often each of them: 3. */
  repetitions?: number;
  /** Made prompts for each length, whose decisions are measured: 20; 0 measures none. */
  each?: number;
  /** Prompts of your own in their place. */
  prompts?: string[];
  /** Reads for so many seconds without a pause, to see whether the device throttles. */
  sustainedSeconds?: number;
  /** Bytes of the buffer that tells the memory's bandwidth: 64 MiB. */
  readBytes?: number;
  /** What the record calls the device. */
  name?: string;
  /** Called some times a second. */
  onProgress?: (progress: BenchProgress) => void;
  /** Ends it. */
  signal?: AbortSignal;
}

/** How far a bench is. */
export interface BenchProgress {
  /** 0 to 1. */
  share: number;
  /** What is at work: `warm-up`, `pp512`, `tg32`, `decisions`, `limits`, `sustained`. */
  stage: string;
}

/** Milliseconds of many decisions. A percentile is a measured value, that of the nearest rank. */
export interface Spread {
  mean: number;
  p50: number;
  p90: number;
  p99: number;
  min: number;
  max: number;
}

/** Tokens a second of one test. */
export interface BenchSpeed {
  /** `pp512`: prefill of 512 tokens; `tg32`: 32 tokens generated. */
  test: string;
  phase: "prefill" | "decode";
  tokens: number;
  batch_size: 1;
  isa: string;
  threads: number;
  kv?: "f32" | "f16" | "int8";
  repetitions: number;
  tokens_per_second: { mean: number; sd: number; median: number; min: number; max: number };
  /** What a single stream can reach at most on this device, by its limits. */
  bound?: {
    tokens_per_second: number;
    memory_tokens_per_second: number;
    compute_tokens_per_second: number;
    limiter: "memory" | "compute";
    bytes: number;
    multiply_adds: number;
    /** The median over the bound. Above 1 there is a warning. */
    share: number;
  };
  joules_per_token?: number;
}

/** Decisions on prompts of similar length. */
export interface BenchStratum {
  /** `1-32`, `33-128`, `129-512` or `513+`. */
  tokens: string;
  prompts: number;
  /** Tokens of a prompt, on average. */
  mean_tokens: number;
  /** Nothing of the prompt known. */
  cold: Spread;
  /** The same prompt at once again. */
  cached?: Spread;
  /** Prompt tokens over the time of the whole cold decisions. */
  tokens_per_second: number;
}

/** What one device measured with one backbone: the schema `zen-edge.bench/2`, the same as `zen-edge bench` writes. */
export interface BenchRecord {
  schema: "zen-edge.bench/2";
  /** ISO 8601. */
  date: string;
  engine: { version: string; build: string; isa: string; threads: number };
  device: {
    name: string;
    platform: string;
    cpu?: string;
    arch?: string;
    browser?: string;
    cores?: number;
    memory_bytes?: number;
    cross_origin_isolated?: boolean;
    adapter?: string;
  };
  model: {
    name?: string;
    architecture: string;
    layers: number;
    hidden_size: number;
    sha256?: string;
    file_bytes?: number;
    multiply_adds: number;
    float_multiply_adds?: number;
    weight_bytes: number;
    head_bytes?: number;
  };
  /** Sequences at once, in every figure. */
  batch_size: 1;
  load?: {
    ms: number;
    first_decision_ms?: number;
    source?: string;
    stored?: boolean;
    page_cache_dropped?: boolean;
    disk_bytes?: number;
    again?: { ms: number; first_decision_ms: number };
  };
  memory?: { resident_bytes: number; peak_bytes?: number; anonymous_bytes?: number; file_bytes?: number };
  energy?: { source: string; joules: number; seconds: number };
  limits: {
    isa: string;
    threads: number;
    read: { bytes: number; bytes_per_second: number }[];
    int8_multiply_adds_per_second: number;
    float_multiply_adds_per_second: number;
  }[];
  speed: BenchSpeed[];
  decisions?: { prompts: string; count: number; cold?: Spread; cached?: Spread; strata: BenchStratum[] };
  sustained?: {
    test: string;
    seconds: number;
    interval_seconds: number;
    tokens_per_second: number[];
    first: number;
    last: number;
  };
  /** What may have spoilt the figures. */
  warnings: { code: string; message: string }[];
}
