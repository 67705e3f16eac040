// The same with Node, Deno and Bun: paths beside URLs, and nothing is stored.
import { existsSync } from "node:fs";
import * as os from "node:os";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import type { Host } from "./router.js";

export const host: Host = {
  spawn(assets) {
    const worker = new Worker(new URL("./worker-node.js", assets ?? import.meta.url));
    // A router that is forgotten does not keep the program from ending; a call that waits does.
    let waiting = 0;
    worker.unref();
    return {
      post(request) {
        if (request.type === "call" && waiting++ === 0) worker.ref();
        worker.postMessage(request);
      },
      listen(message, died) {
        worker.on("message", (reply) => {
          if ((reply.type === "done" || reply.type === "failed") && --waiting === 0) worker.unref();
          message(reply);
        });
        worker.on("error", (error) => died((error as Error).message));
        worker.on("exit", (code) => died(`exit ${code}`));
      },
      terminate: () => void worker.terminate(),
    };
  },
  wasm(assets) {
    const at = (name: string) => new URL(`./${name}.wasm`, assets ?? import.meta.url).href;
    const builds = ["simd128", "relaxed-simd", "simd128-threads", "relaxed-simd-threads"];
    return Object.fromEntries(builds.map((name) => [name, at(name)]));
  },
  pack(assets) {
    const at = (file: string) => new URL(`./pack/${file}`, assets ?? import.meta.url).href;
    return {
      model: at("model.gguf"),
      heads: at("heads.safetensors"),
      config: at("router_config.json"),
      catalog: at("catalog.yaml"),
      policy: at("router_policy.yaml"),
    };
  },
  url(text) {
    const word = String(text);
    return /^(https?|file):/.test(word) && !existsSync(word) ? word : pathToFileURL(word).href;
  },
  isolated: () => true,
  hardware: () => os.availableParallelism(),
  persist: async () => false,
  // Deno and newer Nodes have locks, but our worker holds none there.
  locks: () => false,
  device() {
    const { bun, deno, node } = process.versions as Record<string, string | undefined>;
    const runtime = bun ? `Bun ${bun}` : deno ? `Deno ${deno}` : `Node ${node}`;
    const cpu = os.cpus()[0]?.model.trim();
    return {
      name: "this device",
      platform: `${os.type()} ${os.release()}`,
      browser: runtime,
      arch: os.arch(),
      cores: os.availableParallelism(),
      memory_bytes: os.totalmem(),
      ...(cpu ? { cpu } : {}),
    };
  },
};
