import type { Candidate, Context, Limits, Outcome, RouteOptions, Router, Session } from "zen-edge";
import { by, fillTable, make } from "./dom";
import { dropped, told, type Engine } from "./engine";
import { ms, percent, price, why } from "./format";

const EXAMPLES = [
  "Write a Python function that reverses a linked list",
  "What is the integral of x² from 0 to 3?",
  "hi there, how are you?",
  "Write a short poem about the sea in autumn",
  "Explique la différence entre TCP et UDP",
];

/** The user that thumbs teach. One browser, one taste. */
const USER = "me";

/** Type a prompt, and see who should answer. */
export function routeView(engine: Engine): void {
  const prompt = by<HTMLTextAreaElement>("prompt");
  const form = by<HTMLFormElement>("limits");
  const thumbs = { up: by<HTMLButtonElement>("up"), down: by<HTMLButtonElement>("down") };
  const learned = by("learned");
  const forget = by<HTMLButtonElement>("forget");
  let session: Session | null = null;
  let shown: Outcome | null = null;

  for (const text of EXAMPLES) {
    const chip = make("button", text, { type: "button" });
    chip.addEventListener("click", () => {
      prompt.value = text;
      prompt.focus();
      void update();
    });
    by("examples").append(chip);
  }

  engine.onReady((router) => {
    void (async () => {
      session = await router.session();
      await tellLearned(router);
      await update();
    })();
  });
  prompt.addEventListener("input", () => void update());
  form.addEventListener("input", () => {
    labelLimits(form);
    void update();
  });
  form.addEventListener("reset", () =>
    setTimeout(() => {
      labelLimits(form);
      void update();
    }),
  );
  thumbs.up.addEventListener("click", () => void reward(1));
  thumbs.down.addEventListener("click", () => void reward(0));
  forget.addEventListener("click", () => void forgetAll());

  function asked(): RouteOptions {
    return { limits: limitsOf(form), context: memory(), user: USER };
  }

  async function update(): Promise<void> {
    const text = prompt.value;
    if (!session) return;
    try {
      show(await session.update(text, asked()), text);
    } catch (error) {
      if (!dropped(error)) fail(error);
    }
  }

  function fail(error: unknown): void {
    by("verdict").textContent = "There is no decision.";
    by("reason").textContent = told(error);
  }

  function show(outcome: Outcome, text: string): void {
    shown = outcome;
    const empty = text.trim() === "";
    thumbs.up.disabled = thumbs.down.disabled = empty || outcome.model === null;
    const verdict = by("verdict");
    if (empty) {
      verdict.textContent = "The decision appears here as you type.";
      by("reason").textContent = "";
    } else if (outcome.model === null) {
      verdict.replaceChildren("This looks like ", make("strong", words(outcome.task)), ", and no model fits your limits.");
      by("reason").textContent = "The table below says why for each.";
    } else {
      verdict.replaceChildren("This looks like ", make("strong", words(outcome.task)), ": ask ", make("strong", outcome.model), ".");
      by("reason").textContent = reasonOf(outcome);
    }
    bars("tasks", outcome.scores.tasks.slice(0, 8).map((row) => ({ name: words(row.task), share: row.probability, figure: percent(row.probability) })));
    const feasible = outcome.scores.models.filter((row) => row.feasible);
    const most = Math.max(...feasible.map((row) => row.score ?? 0), 1e-9);
    bars(
      "models",
      feasible.slice(0, 6).map((row) => ({
        name: row.model,
        share: Math.max(row.score ?? 0, 0) / most,
        figure: `${row.score === null ? "–" : row.score.toFixed(3)} · ${price(row.cost_per_1k)}`,
      })),
    );
    everyModel(outcome.scores.models, outcome.model);
  }

  /** Sends the text as it stands, so that the answer has an id, and rewards it. */
  async function reward(quality: number): Promise<void> {
    const router = engine.router;
    if (!router || !shown) return;
    thumbs.up.disabled = thumbs.down.disabled = true;
    try {
      const before = shown;
      const sent = await router.route(prompt.value, asked());
      if (sent.outcome) await router.observe(sent.outcome, quality);
      await update();
      const score = (outcome: Outcome | null) => outcome?.scores.models.find((row) => row.model === before.model)?.score;
      const [was, is] = [score(before), score(shown)];
      const moved = was != null && is != null ? ` ${before.model} went from ${was.toFixed(3)} to ${is.toFixed(3)}.` : "";
      await tellLearned(router, moved);
    } catch (error) {
      fail(error);
    }
  }

  async function tellLearned(router: Router, moved = ""): Promise<void> {
    const { bandit } = await router.stats();
    const rewards = Number(bandit.observed ?? 0);
    learned.textContent = rewards === 0 ? "Nothing learned yet." : `Learned from ${rewards} thumb${rewards === 1 ? "" : "s"}.${moved}`;
    forget.hidden = rewards === 0;
  }

  async function forgetAll(): Promise<void> {
    const router = engine.router;
    if (!router) return;
    await router.forgetUser(USER);
    learned.textContent = "What you taught is erased.";
    forget.hidden = true;
    await update();
  }
}

/** What the browser tells of the machine's memory, of which half is taken to be free. Some browsers tell nothing. */
function memory(): Context {
  const gb = (navigator as { deviceMemory?: number }).deviceMemory;
  return gb ? { memory: { available: gb * 2 ** 29, total: gb * 2 ** 30, unified: false } } : {};
}

/** `cheap_chat` for people. */
export function words(task: string): string {
  return { cheap_chat: "small talk", long_context: "a long document", vision: "a question about an image", general: "a general question" }[task] ?? task;
}

function reasonOf(outcome: Outcome): string {
  const { source, reason, tokens, truncated, timings, cached, reused, confidence } = outcome;
  const sure = confidence.task.calibrated ?? confidence.task.raw;
  const by = source === "learned" ? `By the learned heads${sure === null ? "" : `, ${percent(sure)} sure of the task`}` : source === "rules" ? `By rules: ${reason}` : `The policy's default: ${reason}`;
  const read = cached ? "Known already" : reused > 0 ? `${tokens} tokens, ${reused} of them known` : `${tokens} tokens`;
  return `${by}. ${read}${truncated ? ", the rest was cut off" : ""}; ${ms(timings.total)} ms.`;
}

function bars(id: string, rows: { name: string; share: number; figure: string }[]): void {
  const list = by<HTMLUListElement>(id);
  while (list.children.length > rows.length) list.lastElementChild?.remove();
  rows.forEach((row, at) => {
    let item = list.children[at] as HTMLLIElement | undefined;
    if (!item) {
      item = make("li");
      item.append(make("span", "", { className: "fill" }), make("span"), make("span", "", { className: "figure" }));
      list.append(item);
    }
    const [fill, name, figure] = [...item.children] as [HTMLElement, HTMLElement, HTMLElement];
    fill.style.setProperty("--share", String(Math.min(Math.max(row.share, 0), 1)));
    name.textContent = row.name;
    figure.textContent = row.figure;
    item.classList.toggle("best", at === 0);
  });
}

function everyModel(models: Candidate[], chosen: string | null): void {
  const rows = models.map((row) => [
    row.model,
    row.score === null ? "–" : row.score.toFixed(3),
    percent(row.probability),
    price(row.cost_per_1k),
    row.why_not ? why(row.why_not) : row.model === chosen ? "chosen" : "feasible",
  ]);
  fillTable(by<HTMLTableElement>("why"), ["model", "score", "probability", "1k tokens", ""], rows, chosen === null ? -1 : 0);
}

/** The ranges are of 100 steps, the last one (of quality: the first) no limit. Prices and times go by powers of ten. */
function limitsOf(form: HTMLFormElement): Limits {
  const value = (name: string) => Number((form.elements.namedItem(name) as HTMLInputElement).value);
  const checked = (name: string) => (form.elements.namedItem(name) as HTMLInputElement).checked;
  const limits: Limits = { offline: checked("offline") };
  if (checked("vision")) limits.require = { vision: true };
  if (value("cost") < 100) limits.max_cost = costOf(value("cost"));
  if (value("latency") < 100) limits.max_latency_ms = latencyOf(value("latency"));
  if (value("quality") > 0) limits.min_quality = value("quality") / 100;
  return limits;
}

const costOf = (step: number) => (step === 0 ? 0 : Number((10 ** (-4.2 + (step / 100) * 3.2)).toPrecision(2)));
const latencyOf = (step: number) => Number((10 ** (2 + (step / 100) * 2.5)).toPrecision(2));

function labelLimits(form: HTMLFormElement): void {
  const limits = limitsOf(form);
  by("out-cost").textContent = limits.max_cost === undefined ? "any" : `${price(limits.max_cost)} for 1,000 tokens`;
  by("out-latency").textContent = limits.max_latency_ms === undefined ? "any time" : `${ms(limits.max_latency_ms)} ms`;
  by("out-quality").textContent = limits.min_quality === undefined ? "any" : String(limits.min_quality);
}
