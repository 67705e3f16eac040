// The browser's worker. It is bundled into one script without imports, so that it runs as a module and as a classic
// worker, from a bundle, from a CDN through a blob, and as a thread of its own pool.
import { openFile } from "./download.js";
import { compile } from "./files.js";
import { Host, type Platform } from "./host.js";
import type { Reply, Request } from "./protocol.js";
import { openStore, type Idb, type Opfs } from "./store.js";
import type { Build } from "./types.js";

const scope = self as unknown as DedicatedWorkerGlobalScope;
let store: Promise<Opfs | Idb | null> | null = null;
const opened = () => (store ??= openStore());

// A message to ourselves comes after those that wait, and unlike a timer at once.
const turns: (() => void)[] = [];
const channel = new MessageChannel();
channel.port1.onmessage = () => turns.shift()?.();

/** A thread that has not answered by then will not. */
const START_MS = 20_000;

const platform: Platform = {
  post(reply, transfer = []) {
    scope.postMessage(reply, transfer);
  },

  compile,

  turn() {
    return new Promise((resolve) => {
      turns.push(resolve);
      channel.port2.postMessage(null);
    });
  },

  thread(build: Build, module, memory) {
    return new Promise<void>((resolve, reject) => {
      const worker = new Worker(scope.location.href, { type: "module", name: "zen-edge thread" });
      const timer = setTimeout(() => fail("a thread does not answer"), START_MS);
      const fail = (why: string) => {
        clearTimeout(timer);
        worker.terminate();
        reject(new Error(why));
      };
      worker.onerror = (event) => fail(event.message || "a worker within a worker is refused");
      worker.onmessage = ({ data }: MessageEvent<Reply>) => {
        if (data.type !== "thread-ready") return;
        clearTimeout(timer);
        resolve();
      };
      worker.postMessage({ type: "thread", build, module, memory } satisfies Request);
    });
  },

  async open(spec, call) {
    // What is stored is found also by a router that stores nothing itself.
    const keeps = call.storage === "auto" || "stored" in spec;
    const place = keeps ? await opened() : null;
    if (call.storage === "auto" && !place && "url" in spec) {
      call.warn("this page has no storage (an insecure origin or a private window): files are held in memory");
    }
    return openFile(spec, { ...call, store: place });
  },

  async remove(id) {
    await (await opened())?.remove(id);
  },

  async readLearning(name) {
    return (await (await opened())?.readBytes(name)) ?? null;
  },

  async writeLearning(name, bytes) {
    await (await opened())?.writeBytes(name, bytes);
  },

  alive(name) {
    // Held until the worker is gone, however it goes: that is how the page learns of it.
    void navigator.locks?.request(name, () => new Promise(() => {}));
  },

  own: {
    async list() {
      return (await (await opened())?.list()) ?? [];
    },
    async delete(id: string) {
      return (await (await opened())?.remove(id)) ?? false;
    },
    async forgetLearning() {
      await (await opened())?.forgetBytes("learning-");
    },
  },
};

const host = new Host(platform);
scope.onmessage = ({ data }: MessageEvent<Request>) => host.handle(data);
