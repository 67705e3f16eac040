import { ZenEdgeError, type Outcome, type Router } from "zen-edge";
import { chart, nameOf } from "./chart";
import { by, fillTable, make, save } from "./dom";
import { told, type Engine } from "./engine";
import { ms } from "./format";
import { SCHEMA, device, engineOf, parse, spread, type BenchRecord, type Stratum } from "./record";

/** Words of many prompts: every prompt is a run of these, begun by its own number, so that no two begin alike. */
const WORDS =
  "explain how a small engine reads the whole question once and then decides which of the listed models ought to answer it within the given price and time while nobody else ever sees what was typed".split(
    " ",
  );

const STRATA: { name: string; from: number; to: number }[] = [
  { name: "1-32", from: 4, to: 32 },
  { name: "33-128", from: 33, to: 128 },
  { name: "129-512", from: 129, to: 512 },
  { name: "513+", from: 513, to: 900 },
];

/** A prompt of about so many words. */
function promptOf(number: number, words: number): string {
  const text = Array.from({ length: Math.max(words - 2, 1) }, (_, at) => WORDS[(at * 7 + number) % WORDS.length]);
  return `${number} ${text.join(" ")}?`;
}

/** How fast is this device, and how fast are others. */
export function benchView(engine: Engine): void {
  const run = by<HTMLButtonElement>("run");
  const stop = by<HTMLButtonElement>("stop");
  const bar = by<HTMLProgressElement>("bench-progress");
  const saving = by<HTMLButtonElement>("export");
  const others: BenchRecord[] = [];
  let mine: BenchRecord | null = null;
  let control = new AbortController();
  const throttle = watchThrottling();

  engine.onReady(() => (run.disabled = false));
  run.addEventListener("click", () => void measure());
  stop.addEventListener("click", () => control.abort());
  saving.addEventListener("click", () => mine && save(`zen-edge-bench-${mine.date.slice(0, 10)}.json`, JSON.stringify(mine, null, 1)));
  by<HTMLInputElement>("import").addEventListener("change", (event) => void read(event.target as HTMLInputElement));
  by("tab-bench").addEventListener("click", () => warn(signs()));

  function signs(): string[] {
    const found = throttle.signs();
    // A docked panel leaves the page less room than its window has. A heuristic: said as one.
    const docked = window.outerWidth - window.innerWidth * devicePixelRatioOfZoom() > 200 || window.outerHeight - window.innerHeight * devicePixelRatioOfZoom() > 300;
    if (docked) found.push("Developer tools seem to be open: they can halve the speed of WebAssembly. Close them and run again.");
    return found;
  }

  function warn(found: string[]): void {
    by("warnings").replaceChildren(...found.map((text) => make("li", text)));
  }

  async function measure(): Promise<void> {
    const router = engine.router;
    if (!router) return;
    control = new AbortController();
    run.hidden = true;
    stop.hidden = false;
    bar.hidden = false;
    by("compare-note").textContent = "";
    throttle.begin();
    try {
      mine = await bench(router, Number(by<HTMLInputElement>("count").value), control.signal, (share) => (bar.value = share));
      mine.warnings = signs();
      warn(mine.warnings);
      saving.disabled = false;
      show();
    } catch (error) {
      const stopped = error instanceof ZenEdgeError && error.code === "aborted";
      by("compare-note").textContent = stopped ? "Stopped." : `The benchmark failed: ${told(error)}`;
    } finally {
      run.hidden = false;
      stop.hidden = true;
      bar.hidden = true;
    }
  }

  async function read(input: HTMLInputElement): Promise<void> {
    const notes: string[] = [];
    for (const file of input.files ?? []) {
      try {
        if (file.size > 1 << 20) throw new Error("it is larger than any record");
        const record = parse(await file.text());
        if (record.device.name === "this device") record.device.name = file.name.replace(/\.json$/, "");
        others.push(record);
      } catch (error) {
        notes.push(`${file.name}: ${told(error)}`);
      }
    }
    input.value = "";
    by("compare-note").textContent = notes.join("; ");
    show();
  }

  function show(): void {
    const records = [...(mine ? [mine] : []), ...others];
    if (records.length === 0) return;
    const name = (record: BenchRecord, at: number) => (record === mine ? "here" : nameOf(record, at + 1));
    const facts = by("device");
    facts.replaceChildren(
      ...records.map((record, at) => {
        const { device, engine, model, load } = record;
        const cores = device.cores === null ? "" : `, ${device.cores} cores`;
        const memory = device.memory_gb === null ? "" : `, at least ${device.memory_gb} GB`;
        return make(
          "p",
          `${name(record, at)}: ${device.browser} on ${device.platform}${cores}${memory}; ${engine.build}, ${engine.threads} thread${engine.threads === 1 ? "" : "s"}, zen-edge ${engine.version}; ${model.architecture} of ${model.layers} layers; loaded in ${ms(load.ms)} ms; a repeated prompt ${ms(record.repeated.p50)} ms.`,
        );
      }),
    );
    const head = ["tokens", "device", "prompts", "mean", "p50", "p90", "p99", "min", "max", "tokens/s"];
    const strata = [...new Set(records.flatMap((record) => record.cold.map((entry) => entry.tokens)))];
    const rows = strata.flatMap((tokens) =>
      records.flatMap((record, at) => {
        const entry = record.cold.find((stratum) => stratum.tokens === tokens);
        if (!entry) return [];
        const { mean, p50, p90, p99, min, max } = entry.ms;
        return [[tokens, name(record, at), String(entry.prompts), ...[mean, p50, p90, p99, min, max].map(ms), Math.round(entry.tokens_per_second).toLocaleString("en")]];
      }),
    );
    fillTable(by<HTMLTableElement>("results"), head, rows);
    const figure = by("chart");
    figure.hidden = false;
    figure.querySelector("svg")?.remove();
    figure.prepend(chart(records));
  }
}

/** Decisions of each length, one at a time, each on a prompt of its own; and one prompt again and again. */
async function bench(router: Router, count: number, signal: AbortSignal, progress: (share: number) => void): Promise<BenchRecord> {
  const prompts = Math.min(Math.max(Math.round(count) || 20, 3), 200);
  let number = Math.floor(Math.random() * 1e6) * 1000;
  const one = async (words: number): Promise<{ outcome: Outcome; ms: number }> => {
    number += 1;
    const text = promptOf(number, words);
    const start = performance.now();
    const outcome = await router.route(text, { signal });
    return { outcome, ms: performance.now() - start };
  };
  // Tokens of a word, and the longest that is read.
  const probe = await one(200);
  const long = await one(1200);
  const perWord = probe.outcome.tokens / 200;
  const most = long.outcome.tokens;
  const strata = STRATA.filter((stratum) => stratum.from < most);
  const cold: Stratum[] = [];
  let done = 0;
  for (const { name, from, to } of strata) {
    const times: number[] = [];
    let tokens = 0;
    for (let at = 0; at < prompts; at++) {
      const aim = from + ((Math.min(to, most) - from) * (at + 0.5)) / prompts;
      const { outcome, ms } = await one(Math.max(Math.round(aim / perWord), 1));
      if (outcome.tokens >= from - 3 && outcome.tokens <= to + 16) {
        times.push(ms);
        tokens += outcome.tokens;
      }
      done += 1;
      progress(done / (strata.length * prompts));
    }
    if (times.length === 0) continue;
    const total = times.reduce((sum, value) => sum + value, 0);
    cold.push({ tokens: name, prompts: times.length, mean_tokens: tokens / times.length, ms: spread(times), tokens_per_second: (tokens / total) * 1000 });
  }
  const again: number[] = [];
  for (let at = 0; at < 50; at++) {
    const start = performance.now();
    await router.route("why is the sky blue?", { signal });
    if (at > 0) again.push(performance.now() - start);
  }
  const { about } = router;
  return {
    schema: SCHEMA,
    date: new Date().toISOString(),
    engine: engineOf(about, probe.outcome.backend),
    device: device(),
    model: {
      architecture: about.architecture,
      layers: about.layers,
      hidden_size: about.hidden_size,
      multiply_adds: about.multiply_adds,
      weight_bytes: about.weight_bytes,
    },
    load: { ms: about.load_ms, stored: about.stored, memory_bytes: about.memory },
    cold,
    repeated: spread(again),
    warnings: [],
  };
}

/** Notices that the tab was hidden, and that timers came late: a throttled tab, a busy machine, a battery saver. */
function watchThrottling(): { begin(): void; signs(): string[] } {
  let hidden = document.hidden;
  let late = 0;
  let ticks = 0;
  document.addEventListener("visibilitychange", () => (hidden ||= document.hidden));
  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    ticks += 1;
    if (now - last > 500) late += 1;
    last = now;
  }, 100);
  return {
    begin() {
      hidden = document.hidden;
      late = ticks = 0;
    },
    signs() {
      const found: string[] = [];
      if (hidden) found.push("The tab was in the background: browsers slow it down there.");
      if (ticks > 10 && late > ticks / 10) found.push("Timers come late: the tab is throttled or the machine is busy.");
      return found;
    },
  };
}

/** The page's zoom: a zoomed page is narrower than its window without any panel beside it. */
function devicePixelRatioOfZoom(): number {
  const zoom = window.outerWidth / window.innerWidth;
  return [0.5, 0.67, 0.75, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3].find((step) => Math.abs(step - zoom) < 0.02) ?? 1;
}
