import type { About, Backend } from "zen-edge";

/** The schema of a benchmark file; docs/bench.schema.json describes it. */
export const SCHEMA = "zen-edge.bench/1";

/** Milliseconds of many decisions. */
export interface Spread {
  mean: number;
  p50: number;
  p90: number;
  p99: number;
  min: number;
  max: number;
}

/** Decisions on prompts of similar length. */
export interface Stratum {
  /** `1-32`, `33-128`, `129-512`, `513+`. */
  tokens: string;
  prompts: number;
  /** Tokens of a prompt, on average. */
  mean_tokens: number;
  ms: Spread;
  /** Prompt tokens read in a second of these decisions, one prompt at a time. */
  tokens_per_second: number;
}

/** What one device measured. */
export interface BenchRecord {
  schema: typeof SCHEMA;
  /** ISO 8601. */
  date: string;
  engine: { version: string; build: string; isa: string; threads: number };
  device: {
    name: string;
    platform: string;
    browser: string;
    cores: number | null;
    memory_gb: number | null;
    cross_origin_isolated: boolean;
    adapter: string | null;
  };
  model: { architecture: string; layers: number; hidden_size: number; multiply_adds: number; weight_bytes: number };
  load: { ms: number; stored: boolean; memory_bytes: number };
  /** Each prompt unlike the others: nothing is looked up. */
  cold: Stratum[];
  /** One prompt again and again. */
  repeated: Spread;
  /** What may have spoilt the figures. */
  warnings: string[];
}

/** Sorted values to their spread. */
export function spread(values: number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.round((sorted.length - 1) * share))] ?? NaN;
  const mean = sorted.reduce((sum, value) => sum + value, 0) / sorted.length;
  return { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), min: at(0), max: at(1) };
}

/** What the browser tells of itself and of the machine. */
export function device(): BenchRecord["device"] {
  const hints = (navigator as { userAgentData?: { platform?: string; brands?: { brand: string; version: string }[] } }).userAgentData;
  const brand = hints?.brands?.find((entry) => !/not.?a.?brand/i.test(entry.brand));
  const agent = /(Firefox|Edg|Chrome|Version)\/([\d.]+)/.exec(navigator.userAgent);
  const browser = brand ? `${brand.brand} ${brand.version}` : agent ? `${agent[1] === "Version" ? "Safari" : agent[1]} ${agent[2]}` : "unknown";
  return {
    name: "this device",
    platform: hints?.platform || navigator.platform || "unknown",
    browser,
    cores: navigator.hardwareConcurrency ?? null,
    memory_gb: (navigator as { deviceMemory?: number }).deviceMemory ?? null,
    cross_origin_isolated: self.crossOriginIsolated,
    adapter: null,
  };
}

/** What ran, from a router. */
export function engineOf(about: About, backend: Backend): BenchRecord["engine"] {
  return { version: __VERSION__, build: about.build, isa: backend.isa, threads: backend.threads };
}

declare const __VERSION__: string;

/** Reads somebody's file: everything that is shown is checked, for the file may hold anything. */
export function parse(text: string): BenchRecord {
  const value: unknown = JSON.parse(text);
  const record = object(value, "the file");
  if (record.schema !== SCHEMA) throw new Error(`the file is not a ${SCHEMA} record`);
  for (const [name, fields] of Object.entries({ engine: ["version", "build"], device: ["name", "platform", "browser"], model: ["architecture"] })) {
    const part = object(record[name], name);
    for (const field of fields) if (typeof part[field] !== "string") throw new Error(`${name}.${field} is no text`);
  }
  number(object(record.engine, "engine").threads, "engine.threads");
  number(object(record.load, "load").ms, "load.ms");
  for (const figure of Object.values(object(record.repeated, "repeated"))) number(figure, "repeated");
  if (!Array.isArray(record.cold) || record.cold.length > 16) throw new Error("cold is no list of strata");
  for (const entry of record.cold) {
    const stratum = object(entry, "cold");
    if (typeof stratum.tokens !== "string") throw new Error("a stratum has no name");
    for (const field of ["prompts", "mean_tokens", "tokens_per_second"]) number(stratum[field], field);
    const times = object(stratum.ms, "ms");
    for (const field of ["mean", "p50", "p90", "p99", "min", "max"]) number(times[field], `ms.${field}`);
  }
  return value as BenchRecord;
}

function object(value: unknown, name: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`${name} is no object`);
  return value as Record<string, unknown>;
}

function number(value: unknown, name: string): void {
  if (typeof value !== "number" || !Number.isFinite(value) || value < 0) throw new Error(`${name} is no number`);
}
