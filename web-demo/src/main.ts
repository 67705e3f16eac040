import { benchView } from "./bench";
import { by } from "./dom";
import { Engine, told } from "./engine";
import { bytes, ms } from "./format";
import { modelsView } from "./models";
import { watchNetwork } from "./network";
import { routeView } from "./route";
import type { Progress } from "zen-edge";

const engine = new Engine();
const network = watchNetwork();
const status = by("status");
const bar = by<HTMLProgressElement>("loading");

tabs();
routeView(engine);
benchView(engine);
modelsView(engine, load);

engine.onReady((router) => {
  const { about } = router;
  const threads = about.threads === 1 ? "1 thread" : `${about.threads} threads`;
  const from = about.stored ? "from this browser's storage" : "fetched and stored";
  status.classList.remove("bad");
  status.textContent = `Ready in ${ms(about.load_ms)} ms: ${about.build}, ${threads}, ${bytes(about.memory)} of memory, model ${from}.`;
  network.start();
});

void start();

async function start(): Promise<void> {
  await controlled();
  await load({});
}

/** Loads a router, and tells how far it is. `true` where it stands. */
export async function load(options: Parameters<Engine["load"]>[0]): Promise<boolean> {
  bar.hidden = false;
  status.classList.remove("bad");
  try {
    await engine.load({ ...options, learning: true, onProgress: progress });
    return true;
  } catch (error) {
    status.classList.add("bad");
    status.textContent = `The router could not be loaded: ${told(error)}`;
    return false;
  } finally {
    bar.hidden = true;
  }
}

function progress({ stage, loaded, total }: Progress): void {
  status.textContent = `Loading the ${stage}: ${bytes(loaded)}${total ? ` of ${bytes(total)}` : ""}…`;
  if (total) bar.value = loaded / total;
  else bar.removeAttribute("value");
}

/** Waits until the service worker is in charge, so that what the engine fetches now is there offline; not for long. */
async function controlled(): Promise<void> {
  const workers = navigator.serviceWorker;
  if (!workers || import.meta.env.DEV) return;
  try {
    await workers.register("./sw.js");
    if (workers.controller) return;
    const taken = new Promise((done) => workers.addEventListener("controllerchange", done, { once: true }));
    await Promise.race([taken, new Promise((done) => setTimeout(done, 3000))]);
  } catch {
    // No storage, a private window, no https: the page works, but not offline.
  }
}

/** The tabs by mouse and by keys, as the pattern for them asks. */
function tabs(): void {
  const all = [...document.querySelectorAll<HTMLButtonElement>('[role="tab"]')];
  const select = (tab: HTMLButtonElement, focus: boolean) => {
    for (const other of all) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      by(other.getAttribute("aria-controls") ?? "").hidden = !chosen;
    }
    if (focus) tab.focus();
    history.replaceState(null, "", `#${tab.id.slice(4)}`);
  };
  all.forEach((tab, at) => {
    tab.addEventListener("click", () => select(tab, false));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -at, End: all.length - 1 - at }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const next = all[(at + step + all.length) % all.length];
      if (next) select(next, true);
    });
  });
  const named = all.find((tab) => `#${tab.id.slice(4)}` === location.hash);
  if (named) select(named, false);
}
