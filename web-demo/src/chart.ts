import { strata, type BenchRecord } from "./record";
import { ms } from "./format";

const SVG = "http://www.w3.org/2000/svg";

function node(tag: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text) made.textContent = text;
  return made;
}

/** Milliseconds a decision by prompt length: a bar to the median, a line to the 99th of a hundred, one row a record. */
export function chart(records: BenchRecord[]): SVGElement {
  const lengths = [...new Set(records.flatMap((record) => strata(record).map((stratum) => stratum.tokens)))];
  const rowHeight = 22;
  const groupHeight = rowHeight * records.length + 26;
  const [left, right, width] = [8, records.length > 1 ? 210 : 90, 640];
  const height = groupHeight * lengths.length + 4;
  const most = Math.max(...records.flatMap((record) => strata(record).map((stratum) => stratum.cold.p99)), 1e-9);
  const x = (value: number) => left + (value / most) * (width - left - right);
  const label = records
    .map((record, at) => `${nameOf(record, at)}: ${strata(record).map((s) => `${s.tokens} tokens, median ${ms(s.cold.p50)} ms`).join("; ")}`)
    .join(". ");
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  lengths.forEach((name, group) => {
    const top = group * groupHeight;
    svg.append(node("text", { x: left, y: top + 15, "font-weight": 600 }, `${name} tokens`));
    records.forEach((record, at) => {
      const stratum = strata(record).find((entry) => entry.tokens === name);
      if (!stratum) return;
      const y = top + 22 + at * rowHeight;
      const hue = `hue-${at % 4}`;
      svg.append(node("rect", { x: left, y, width: Math.max(x(stratum.cold.p50) - left, 1), height: rowHeight - 6, rx: 3, class: hue }));
      svg.append(node("line", { x1: x(stratum.cold.p50), x2: x(stratum.cold.p99), y1: y + 8, y2: y + 8, class: hue }));
      const whose = records.length > 1 ? ` ${nameOf(record, at)}` : "";
      svg.append(node("text", { x: x(stratum.cold.p99) + 6, y: y + 12 }, `${ms(stratum.cold.p50)} ms${whose}`));
    });
  });
  return svg;
}

/** A short name for a record among others. */
export function nameOf(record: BenchRecord, at: number): string {
  return at === 0 ? "here" : record.device.name === "this device" ? `file ${at}` : record.device.name.slice(0, 24);
}
