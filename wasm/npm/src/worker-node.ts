// Node's worker.
import { setImmediate as turn } from "node:timers/promises";
import * as fs from "node:fs";
import { fileURLToPath } from "node:url";
import { Worker, parentPort, type Transferable as NodeTransferable } from "node:worker_threads";
import { ZenEdgeError } from "./errors.js";
import { fromBytes, type OpenFile } from "./files.js";
import { Host, type Platform } from "./host.js";
import type { Reply, Request } from "./protocol.js";

const port = parentPort!;

/** A file of the file system, read where the engine asks. */
function fromPath(path: string): OpenFile {
  const fd = fs.openSync(path, "r");
  return {
    name: path,
    size: fs.fstatSync(fd).size,
    source: "file",
    stored: false,
    read(offset, into) {
      for (let at = 0; at < into.length; ) {
        const n = fs.readSync(fd, into, at, into.length - at, offset + at);
        if (n === 0) throw new ZenEdgeError("io", `${path} ends too early`);
        at += n;
      }
    },
    close() {
      fs.closeSync(fd);
    },
  };
}

const platform: Platform = {
  post(reply, transfer = []) {
    port.postMessage(reply, transfer as NodeTransferable[]);
  },
  async compile(url) {
    return WebAssembly.compile(await fs.promises.readFile(fileURLToPath(url)));
  },
  async turn() {
    await turn();
  },
  thread(build, module, memory) {
    return new Promise<void>((resolve, reject) => {
      const worker = new Worker(new URL(import.meta.url));
      worker.once("error", reject);
      worker.once("message", (reply: Reply) => {
        if (reply.type === "thread-ready") resolve();
      });
      worker.postMessage({ type: "thread", build, module, memory } satisfies Request);
      worker.unref();
    });
  },
  async open(spec, call) {
    if ("stored" in spec) throw new ZenEdgeError("not_stored", "Node has no storage of ours: give a path");
    if ("url" in spec) {
      if (spec.url.startsWith("file:")) {
        const path = fileURLToPath(spec.url);
        if (spec.optional && !fs.existsSync(path)) return null;
        let file: OpenFile;
        try {
          file = fromPath(path);
        } catch (error) {
          throw new ZenEdgeError("io", (error as Error).message, { cause: error });
        }
        const Hash = await call.begin(file.size);
        if (spec.sha256) {
          const hash = new Hash();
          const window = new Uint8Array(1 << 20);
          for (let at = 0; at < file.size; at += window.length) {
            const part = window.subarray(0, Math.min(window.length, file.size - at));
            file.read(at, part);
            hash.update(part);
          }
          check(path, hash.finish(), spec.sha256);
        }
        call.progress(file.size, file.size, false);
        return file;
      }
      const response = await fetch(spec.url, { signal: call.signal });
      if (spec.optional && response.status === 404) return null;
      if (!response.ok) throw new ZenEdgeError("http", `${spec.url}: the server answers ${response.status}`);
      return bytes(spec.url, new Uint8Array(await response.arrayBuffer()), spec.sha256, call);
    }
    return bytes(spec.name ?? "file", new Uint8Array(await spec.file.arrayBuffer()), spec.sha256, call);
  },
  async remove() {},
  async readLearning() {
    return null;
  },
  async writeLearning() {},
  alive() {},
  own: {
    list: async () => [],
    delete: async () => false,
    forgetLearning: async () => undefined,
  },
};

async function bytes(
  name: string,
  data: Uint8Array,
  wanted: string | undefined,
  call: Parameters<Platform["open"]>[1],
): Promise<OpenFile> {
  const Hash = await call.begin(data.length);
  if (wanted) {
    const hash = new Hash();
    hash.update(data);
    check(name, hash.finish(), wanted);
  }
  call.progress(data.length, data.length, false);
  return fromBytes(name, data);
}

function check(name: string, found: string, wanted: string): void {
  if (found !== wanted.toLowerCase()) {
    throw new ZenEdgeError("hash_mismatch", `${name}: SHA-256 is ${found}, ${wanted} was expected`);
  }
}

const host = new Host(platform);
port.on("message", (request: Request) => host.handle(request));
