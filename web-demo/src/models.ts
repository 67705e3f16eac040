import { storage, type FileSpec, type LoadOptions, type Router } from "zen-edge";
import { by, fillTable, make } from "./dom";
import { told, type Engine } from "./engine";
import { bytes, ms } from "./format";

type Load = (options: LoadOptions) => Promise<boolean>;
type Part = "model" | "heads" | "config" | "catalog" | "policy";

const NAMES: Record<Part, string> = {
  model: "backbone",
  heads: "heads",
  config: "the heads' config",
  catalog: "catalog",
  policy: "policy",
};

/** Which part a file is, by its name. */
function partOf(name: string): Part | null {
  const lower = name.toLowerCase();
  if (lower.endsWith(".gguf")) return "model";
  if (lower.endsWith(".safetensors")) return "heads";
  if (/policy.*\.ya?ml$/.test(lower)) return "policy";
  if (/config.*\.json$/.test(lower)) return "config";
  if (/\.(ya?ml|json)$/.test(lower)) return "catalog";
  return null;
}

/** What runs, your own files, and what is stored. */
export function modelsView(engine: Engine, load: Load): void {
  const picked = new Map<Part, File>();
  const note = by("models-note");
  const use = by<HTMLButtonElement>("use");
  const back = by<HTMLButtonElement>("default");
  const drop = by("drop");

  engine.onReady((router) => {
    about(router);
    void list();
  });
  by("tab-models").addEventListener("click", () => void list());
  by<HTMLInputElement>("files").addEventListener("change", (event) => {
    const input = event.target as HTMLInputElement;
    take([...(input.files ?? [])]);
    input.value = "";
  });
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    take([...(event.dataTransfer?.files ?? [])]);
  });
  use.addEventListener("click", () => void useFiles());
  back.addEventListener("click", () => void backToDefault());
  by("persist").addEventListener("click", () => void persist());

  function take(files: File[]): void {
    const refused: string[] = [];
    for (const file of files) {
      const part = partOf(file.name);
      if (part) picked.set(part, file);
      else refused.push(file.name);
    }
    by("picked").replaceChildren(...[...picked].map(([part, file]) => make("li", `${NAMES[part]}: ${file.name}, ${bytes(file.size)}`)));
    use.disabled = picked.size === 0;
    note.textContent = refused.length > 0 ? `Not taken: ${refused.join(", ")}. A backbone ends in .gguf, heads in .safetensors.` : "";
  }

  async function useFiles(): Promise<void> {
    const of = (part: Part): FileSpec | undefined => {
      const file = picked.get(part);
      return file && { file, name: file.name, keep: part === "model" };
    };
    const [model, heads, config] = [of("model"), of("heads"), of("config")];
    if (!!heads !== !!config) {
      note.textContent = "Heads and their router_config.json belong together: give both.";
      return;
    }
    if (model && !heads) {
      note.textContent = "Heads belong to one backbone: give the .safetensors and the config that were fitted to it.";
      return;
    }
    const [catalog, policy] = [of("catalog"), of("policy")];
    const options: LoadOptions = { ...(model && { model }), ...(heads && config && { heads: { heads, config } }), ...(catalog && { catalog }), ...(policy && { policy }) };
    note.textContent = "Loading…";
    const done = await load(options);
    note.textContent = done ? "These files run now. They stay in this browser." : "They could not be used: the line at the top says why. What ran before still runs.";
    back.hidden = !done && back.hidden;
    await list();
  }

  async function backToDefault(): Promise<void> {
    picked.clear();
    by("picked").replaceChildren();
    use.disabled = true;
    if (await load({})) {
      back.hidden = true;
      note.textContent = "The default pack runs.";
    }
  }

  async function persist(): Promise<void> {
    const kept = await storage.persist();
    by("quota").textContent = kept ? "The browser will not clear it by itself." : "The browser may clear it when space runs short.";
  }

  async function list(): Promise<void> {
    try {
      const files = await storage.list();
      const table = by<HTMLTableElement>("stored");
      if (files.length === 0) {
        table.replaceChildren(make("caption", "Nothing is stored."));
        return;
      }
      fillTable(
        table,
        ["file", "size", "stored", "SHA-256", ""],
        files.map((file) => [file.name, bytes(file.size), new Date(file.saved).toLocaleDateString(), file.complete ? `${file.sha256.slice(0, 12)}…` : "not whole yet", ""]),
      );
      files.forEach((file, at) => {
        const button = make("button", "Delete", { type: "button", ariaLabel: `Delete ${file.name}` });
        button.addEventListener("click", () => void remove(file.id));
        table.tBodies[0]?.rows[at]?.cells[4]?.append(button);
      });
    } catch (error) {
      note.textContent = told(error);
    }
  }

  async function remove(id: string): Promise<void> {
    try {
      await storage.delete(id);
      note.textContent = "Deleted.";
    } catch (error) {
      note.textContent = told(error);
    }
    await list();
  }
}

function about(router: Router): void {
  const { about: a } = router;
  const facts: [string, string][] = [
    ["backbone", `${a.architecture}, ${a.layers} layers, hidden size ${a.hidden_size}`],
    ["runs on", `${a.build}, ${a.threads} thread${a.threads === 1 ? "" : "s"}`],
    ["memory", `${bytes(a.memory)}, of which ${bytes(a.weight_bytes)} are weights`],
    ["loaded in", `${ms(a.load_ms)} ms, ${a.stored ? "from this browser" : "from the network"}`],
    ["tasks", a.tasks.join(", ")],
    ["models", a.models.join(", ")],
    ["confidences", a.calibration === "fitted" ? "calibrated" : "not calibrated"],
    ...a.hints.map((hint): [string, string] => ["faster", hint]),
    ...a.warnings.map((warning): [string, string] => ["note", warning]),
  ];
  by("about").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
}
