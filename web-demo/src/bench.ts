import { ZenEdgeError } from "zen-edge";
import { chart, nameOf } from "./chart";
import { by, fillTable, make, save } from "./dom";
import { told, type Engine } from "./engine";
import { bytes, ms, speed } from "./format";
import { parse, strata, type BenchRecord } from "./record";

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
      const each = Math.min(Math.max(Math.round(Number(by<HTMLInputElement>("count").value)) || 20, 3), 200);
      mine = await router.bench({
        each,
        signal: control.signal,
        onProgress: ({ share, stage }) => {
          bar.value = share;
          bar.title = stage;
        },
      });
      mine.warnings.push(...signs().map((message) => ({ code: "noted", message })));
      warn(mine.warnings.map(({ message }) => message));
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
        const { device, engine, model, load, decisions } = record;
        const words = [
          [device.browser, device.cpu].filter(Boolean).join(", ") || "unknown",
          `on ${device.platform}`,
        ].join(" ");
        const cores = device.cores === undefined ? "" : `, ${device.cores} cores`;
        const memory = device.memory_bytes === undefined ? "" : `, at least ${bytes(device.memory_bytes)}`;
        const loaded = load ? `; loaded in ${ms(load.ms)} ms` : "";
        const again = decisions?.cached ? `; a repeated prompt ${ms(decisions.cached.p50)} ms` : "";
        return make(
          "p",
          `${name(record, at)}: ${words}${cores}${memory}; ${engine.build}, ${engine.threads} thread${engine.threads === 1 ? "" : "s"}, zen-edge ${engine.version}; ${model.name ?? model.architecture} of ${model.layers} layers${loaded}${again}.`,
        );
      }),
    );
    const head = ["tokens", "device", "prompts", "mean", "p50", "p90", "p99", "min", "max", "tokens/s"];
    const lengths = [...new Set(records.flatMap((record) => strata(record).map((entry) => entry.tokens)))];
    const rows = lengths.flatMap((tokens) =>
      records.flatMap((record, at) => {
        const entry = strata(record).find((stratum) => stratum.tokens === tokens);
        if (!entry) return [];
        const { mean, p50, p90, p99, min, max } = entry.cold;
        return [[tokens, name(record, at), String(entry.prompts), ...[mean, p50, p90, p99, min, max].map(ms), speed(entry.tokens_per_second)]];
      }),
    );
    fillTable(by<HTMLTableElement>("results"), head, rows);
    const tests = [...new Set(records.flatMap((record) => record.speed.map((row) => row.test)))];
    const speeds = tests.flatMap((test) =>
      records.flatMap((record, at) =>
        record.speed
          .filter((row) => row.test === test)
          .map(({ isa, threads, tokens_per_second: { mean, sd, median }, bound }) => [
            test,
            name(record, at),
            isa,
            String(threads),
            `${speed(mean)} ± ${speed(sd)}`,
            speed(median),
            bound ? speed(bound.tokens_per_second) : "–",
            bound ? `${Math.round(bound.share * 100)} %` : "–",
          ]),
      ),
    );
    by("speeds-block").hidden = speeds.length === 0;
    fillTable(by<HTMLTableElement>("speeds"), ["test", "device", "kernels", "threads", "tokens/s", "median", "at most", "reached"], speeds);
    const figure = by("chart");
    figure.hidden = false;
    figure.querySelector("svg")?.remove();
    figure.prepend(chart(records));
  }
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
