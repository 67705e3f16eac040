import type { WhyNot } from "zen-edge";

/** `1234567` as `1.2 MB`. */
export function bytes(n: number): string {
  const units = ["bytes", "kB", "MB", "GB"];
  let at = 0;
  while (n >= 999.5 && at + 1 < units.length) {
    n /= 1000;
    at += 1;
  }
  return at === 0 ? `${n} bytes` : `${n.toFixed(1)} ${units[at]}`;
}

/** Milliseconds, with as many digits as are worth reading. */
export function ms(n: number): string {
  return n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : Math.round(n).toLocaleString("en");
}

/** Tokens a second, likewise. */
export function speed(n: number): string {
  return n < 10 ? n.toFixed(1) : Math.round(n).toLocaleString("en");
}

/** A share of 1 in per cent. */
export function percent(n: number | null): string {
  return n === null ? "–" : `${(n * 100).toFixed(1)} %`;
}

/** A price for a thousand tokens. */
export function price(n: number): string {
  return n === 0 ? "free" : `$${Number(n.toPrecision(2))}`;
}

const num = (value: unknown) => (typeof value === "number" ? Number(value.toPrecision(3)).toLocaleString("en") : "?");

/** Why a model was not taken, in words. */
export function why(not: WhyNot): string {
  switch (not.why) {
    case "disabled":
      return "switched off in the catalog";
    case "excluded":
      return "excluded";
    case "offline":
      return "not on this device";
    case "no_vision":
      return "reads no images";
    case "context_too_small":
      return `reads ${num(not.has)} tokens, ${num(not.needs)} are needed`;
    case "level_unavailable":
      return "does not offer that effort";
    case "too_expensive":
      return `costs $${num(not.cost)}, the limit is $${num(not.limit)}`;
    case "above_ceiling":
      return `costs $${num(not.cost)}, the policy's ceiling is $${num(not.limit)}`;
    case "quality_unknown":
      return "its quality is not known";
    case "quality_too_low":
      return `quality ${num(not.quality)}, at least ${num(not.limit)} is asked for`;
    case "latency_unknown":
      return "how long it takes is not known";
    case "too_slow":
      return `takes ${num(not.latency)} ms, the limit is ${num(not.limit)} ms`;
    case "provider_down":
      return "its provider is out of reach";
    case "rate_limited":
      return "its provider takes no requests now";
    case "budget_spent":
      return "its provider's budget does not reach";
    case "hot":
      return "the device is too hot";
    case "low_power":
      return "the device is short of power";
    case "size_unknown":
      return "its size is not known";
    case "memory_unknown":
      return "this page cannot see how much memory is free";
    case "does_not_fit":
      return "does not fit into memory";
    case "untrained":
      return "the learned head has seen no data of it";
    case "not_for_task":
      return "not meant for this task";
  }
}
