import type { BenchRecord, BenchStratum, Spread } from "zen-edge";

export type { BenchRecord } from "zen-edge";

/** The schema of a benchmark file; docs/bench.schema.json describes it. */
const SCHEMA = "zen-edge.bench/2";
/** The one before, which this page wrote at first. */
const SCHEMA_1 = "zen-edge.bench/1";

/** Reads somebody's file: everything that is shown is checked, for the file may hold anything. */
export function parse(text: string): BenchRecord {
  const value: unknown = JSON.parse(text);
  let record = object(value, "the file");
  if (record.schema === SCHEMA_1) record = upgrade(record);
  if (record.schema !== SCHEMA) throw new Error(`the file is neither a ${SCHEMA} nor a ${SCHEMA_1} record`);
  for (const [name, fields] of Object.entries({ engine: ["version", "build", "isa"], device: ["name", "platform"], model: ["architecture"] })) {
    const part = object(record[name], name);
    for (const field of fields) if (typeof part[field] !== "string") throw new Error(`${name}.${field} is no text`);
  }
  const device = object(record.device, "device");
  for (const field of ["browser", "cpu"]) if (device[field] !== undefined && typeof device[field] !== "string") throw new Error(`device.${field} is no text`);
  for (const field of ["cores", "memory_bytes"]) if (device[field] !== undefined) number(device[field], `device.${field}`);
  const model = object(record.model, "model");
  for (const field of ["layers", "multiply_adds"]) number(model[field], `model.${field}`);
  if (model.name !== undefined && typeof model.name !== "string") throw new Error("model.name is no text");
  number(object(record.engine, "engine").threads, "engine.threads");
  if (record.load !== undefined) number(object(record.load, "load").ms, "load.ms");
  for (const row of list(record.speed, "speed")) {
    const { test, isa, threads, tokens_per_second, bound } = object(row, "speed");
    if (typeof test !== "string" || typeof isa !== "string") throw new Error("a speed has no name");
    number(threads, "speed.threads");
    const figures = object(tokens_per_second, "tokens_per_second");
    for (const field of ["mean", "sd", "median"]) number(figures[field], `tokens_per_second.${field}`);
    if (bound === undefined) continue;
    const { tokens_per_second: most, share } = object(bound, "bound");
    number(most, "bound.tokens_per_second");
    number(share, "bound.share");
  }
  if (record.decisions !== undefined) {
    const decisions = object(record.decisions, "decisions");
    if (decisions.cached !== undefined) spread(decisions.cached, "cached");
    for (const entry of list(decisions.strata, "strata")) {
      const stratum = object(entry, "strata");
      if (typeof stratum.tokens !== "string") throw new Error("a stratum has no name");
      for (const field of ["prompts", "mean_tokens", "tokens_per_second"]) number(stratum[field], field);
      spread(stratum.cold, "cold");
    }
  }
  for (const warning of list(record.warnings, "warnings")) {
    if (typeof object(warning, "warnings").message !== "string") throw new Error("a warning has no words");
  }
  return record as unknown as BenchRecord;
}

/** The strata of a record that has decisions. */
export function strata(record: BenchRecord): BenchStratum[] {
  return record.decisions?.strata ?? [];
}

/** A record of version 1 in the form of version 2: whole decisions alone. */
function upgrade(old: Record<string, unknown>): Record<string, unknown> {
  const { cores, memory_gb, adapter, ...device } = object(old.device, "device");
  const load = object(old.load, "load");
  const rows = list(old.cold, "cold").map((entry) => {
    const { ms, ...row } = object(entry, "cold");
    return { ...row, cold: ms as Spread };
  });
  const count = rows.reduce((sum, row) => sum + Number((row as { prompts?: unknown }).prompts), 0);
  return {
    schema: SCHEMA,
    date: old.date,
    engine: old.engine,
    device: {
      ...device,
      ...(typeof cores === "number" ? { cores } : {}),
      ...(typeof memory_gb === "number" ? { memory_bytes: memory_gb * 1e9 } : {}),
      ...(typeof adapter === "string" ? { adapter } : {}),
    },
    model: old.model,
    batch_size: 1,
    load: { ms: load.ms, stored: load.stored },
    limits: [],
    speed: [],
    decisions: { prompts: "made", count, cached: old.repeated, strata: rows },
    warnings: list(old.warnings ?? [], "warnings").map((message) => ({ code: "noted", message })),
  };
}

/** More rows than any record has would only fill the page. */
const MOST = 1000;

function list(value: unknown, name: string): unknown[] {
  if (!Array.isArray(value) || value.length > MOST) throw new Error(`${name} is no list of a benchmark's length`);
  return value;
}

function spread(value: unknown, name: string): void {
  const times = object(value, name);
  for (const field of ["mean", "p50", "p90", "p99", "min", "max"]) number(times[field], `${name}.${field}`);
}

function object(value: unknown, name: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`${name} is no object`);
  return value as Record<string, unknown>;
}

function number(value: unknown, name: string): void {
  if (typeof value !== "number" || !Number.isFinite(value) || value < 0) throw new Error(`${name} is no number`);
}
