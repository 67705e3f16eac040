// benches/records/web.md from web.json and web-visit.json: `node table.mjs`.
import * as fs from "node:fs";
import * as path from "node:path";
import { fileURLToPath } from "node:url";

const records = path.join(path.dirname(fileURLToPath(import.meta.url)), "../records");
const read = (name) => JSON.parse(fs.readFileSync(path.join(records, name), "utf8")).runs;
const runs = read("web.json");
const visited = fs.existsSync(path.join(records, "web-visit.json")) ? read("web-visit.json") : [];

const median = (list) => {
  const sorted = [...list].sort((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
};
const mb = (bytes) => `${Math.round(bytes / 1e6)}`;
const s = (ms) => (ms / 1e3).toFixed(ms < 1000 ? 2 : 1);
const unique = (list) => [...new Set(list)];
const row = (cells) => `| ${cells.join(" | ")} |`;
const table = (head, rows) => [row(head), row(head.map((_, i) => (i === 0 ? "---" : "--:"))), ...rows.map(row), ""];

const lines = ["# Prefill in a browser", ""];
const machine = runs[0].machine;
lines.push(
  `${unique(runs.map((run) => run.date.slice(0, 10))).join(", ")}, ${machine.cpu}, ${machine.threads} cores, headless Chromium ${unique(runs.map((run) => run.browser)).join(", ")}. ` +
    "Written by benches/web/table.mjs from what run.mjs and visit.mjs measured; every single time is in web.json and web-visit.json. " +
    "Within a run all engines of a table are loaded at once and asked in turn; nothing else ran meanwhile.",
  "",
);
for (const file of unique(runs.map((run) => run.model.file))) {
  for (const threads of unique(runs.filter((run) => run.model.file === file).map((run) => Math.max(...run.engines.map((e) => e.threads)))).sort()) {
    const mine = runs.filter((run) => run.model.file === file && Math.max(...run.engines.map((e) => e.threads)) === threads);
    const sizes = unique(mine.flatMap((run) => Object.keys(run.engines[0].times).map(Number))).sort((a, b) => a - b);
    const names = unique(mine.flatMap((run) => run.engines.map((e) => `${e.name}|${e.threads}`)));
    const all = (name) => mine.flatMap((run) => run.engines.filter((e) => `${e.name}|${e.threads}` === name));
    const speed = (name, n) => {
      const times = all(name).flatMap((e) => e.times[n] ?? []);
      return times.length ? median(times.map((t) => (1000 * t.tokens) / t.ms)) : null;
    };
    lines.push(`## ${file} (${mb(mine[0].model.bytes)} MB), ${threads} thread${threads > 1 ? "s" : ""}`, "");
    lines.push(
      ...table(
        ["tokens a second", "threads", ...sizes.map((n) => `at ${n}`), "load cold, s", "from storage, s", "peak, MB"],
        names.map((name) => {
          const [label, count] = name.split("|");
          return [
            label,
            count,
            ...sizes.map((n) => speed(name, n)?.toFixed(1) ?? ""),
            s(median(all(name).map((e) => e.load_cold_ms))),
            s(median(all(name).map((e) => e.load_stored_ms))),
            mb(Math.max(...all(name).map((e) => e.memory_peak))),
          ];
        }),
      ),
    );
    const ours = names.filter((name) => name.startsWith("zen-edge") && name.endsWith(`|${threads}`));
    const peers = names.filter((name) => !name.startsWith("zen-edge"));
    const ratios = ours.flatMap((a) => [
      ...peers.map((b) => [a, b, `${a.split("|")[0]} : ${b.split("|")[0]}`]),
      ...(threads > 1 ? [[a, a.replace(/\d+$/, "1"), `${a.split("|")[0]}: ${threads} threads : 1`]] : []),
    ]);
    const peak = (name) => Math.max(...all(name).map((e) => e.memory_peak));
    lines.push(
      ...table(
        ["times as fast", ...sizes.map((n) => `at ${n}`), "of its peak"],
        ratios
          .filter(([, b]) => names.includes(b))
          .map(([a, b, label]) => [
            label,
            ...sizes.map((n) => (speed(a, n) && speed(b, n) ? (speed(a, n) / speed(b, n)).toFixed(1) : "")),
            a.split("|")[0] === b.split("|")[0] ? "" : `${Math.round((100 * peak(a)) / peak(b))} %`,
          ]),
      ),
    );
  }
}
if (visited.length) {
  lines.push("## The second visit", "", "The server is gone, the browser started anew: medians, and the slowest visit behind the stroke.", "");
  const of = (run, f) => {
    const list = run.visits.map(f);
    return `${s(median(list))} / ${s(Math.max(...list))}`;
  };
  lines.push(
    ...table(
      ["model, build", "threads", "visits", "load, s", "first answer, s", "in memory, MB", "the page's longest task, ms"],
      visited.map((run) => {
        const { build, threads, memory } = run.visits[0];
        const task = (kind) => Math.max(...run.visits.map((v) => Math.max(0, ...v.tasks.map((t) => t[kind])))).toFixed(1);
        return [
          `${run.model}, ${build}`,
          threads,
          run.visits.length,
          of(run, ({ marks }) => marks.loaded - marks.called),
          of(run, ({ marks }) => marks.routed - marks.called),
          mb(memory),
          task("wall"),
        ];
      }),
    ),
  );
}
const notes = path.join(records, "web-notes.md");
if (fs.existsSync(notes)) lines.push(fs.readFileSync(notes, "utf8").trim(), "");
fs.writeFileSync(path.join(records, "web.md"), lines.join("\n"));
