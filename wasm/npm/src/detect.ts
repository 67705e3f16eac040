import type { Build } from "./types.js";

// The smallest modules that use what they ask for: `validate` tells without running anything.
const HEAD = [0, 97, 115, 109, 1, 0, 0, 0];
const SIMD = [...HEAD, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11];
const SPLAT = [65, 0, 253, 15];
// i32x4.relaxed_dot_i8x16_i7x16_add_s of three splats.
const RELAXED = [
  ...HEAD, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 19, 1, 17, 0,
  ...SPLAT, ...SPLAT, ...SPLAT, 253, 147, 2, 11,
];
// A shared memory and an atomic load from it.
const ATOMICS = [
  ...HEAD, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 5, 4, 1, 3, 1, 1, 10, 11, 1, 9, 0, 65, 0, 254, 16, 2, 0, 26, 11,
];

function valid(module: number[]): boolean {
  return typeof WebAssembly === "object" && WebAssembly.validate(new Uint8Array(module));
}

/** What this engine of JavaScript can do. */
export interface Features {
  simd: boolean;
  relaxed: boolean;
  /** Shared memory that workers may have: in a page only where it is cross-origin isolated. */
  shared: boolean;
  /** Whether isolation is all that is missing for it. */
  isolation: boolean;
  /** Threads of the machine. */
  hardware: number;
}

/** Looks at this engine. `isolated` is a page's `crossOriginIsolated`; elsewhere nothing need be asked for. */
export function features(isolated: boolean, hardware: number): Features {
  const atomics = valid(ATOMICS);
  return {
    simd: valid(SIMD),
    relaxed: valid(RELAXED),
    shared: atomics && isolated && typeof SharedArrayBuffer === "function",
    isolation: atomics && !isolated,
    hardware: Math.max(1, hardware || 1),
  };
}

/** A build, its threads, and what would give a faster one. */
export interface Pick {
  build: Build;
  threads: number;
  hints: string[];
}

/** Beyond so many, threads of a phone or a laptop are its slow ones, and each costs memory. */
const MOST_THREADS = 8;

/** Picks one of the builds that there are. `isa` and `threads` are wishes; `null`: there is no SIMD at all. */
export function pick(
  f: Features,
  builds: Build[],
  isa?: "simd128" | "relaxed-simd",
  threads?: number,
): Pick | null {
  if (!f.simd) return null;
  const hints: string[] = [];
  const relaxed = f.relaxed && isa !== "simd128";
  if (!f.relaxed && isa !== "simd128") {
    hints.push("This engine has no relaxed SIMD, which makes routing about twice as fast; newer versions have it.");
  }
  let n = Math.min(threads ?? Math.min(f.hardware, MOST_THREADS), f.hardware);
  if (!(n >= 1)) n = 1;
  n = Math.floor(n);
  if (n > 1 && !f.shared) {
    n = 1;
    if (f.isolation) {
      hints.push(
        "The page is not cross-origin isolated, so one thread runs: serve it with the headers " +
          "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp to use more.",
      );
    } else {
      hints.push("This engine has no shared memory, so one thread runs.");
    }
  }
  const bases = relaxed ? (["relaxed-simd", "simd128"] as const) : (["simd128"] as const);
  const threaded = bases.map((base) => `${base}-threads` as const).find((build) => builds.includes(build));
  if (n > 1 && threaded) return { build: threaded, threads: n, hints };
  if (n > 1) hints.push("This copy of the package was built without threads, so one runs.");
  return { build: bases.find((base) => builds.includes(base)) ?? "simd128", threads: 1, hints };
}
