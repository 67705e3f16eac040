// What a page's side of the package does with the browser.
import { compile } from "./files.js";
import type { Host, Port } from "./router.js";
import type { Reply } from "./protocol.js";

function port(worker: Worker): Port {
  return {
    post: (request) => worker.postMessage(request),
    listen(message, died) {
      worker.onmessage = ({ data }: MessageEvent<Reply>) => message(data);
      worker.onerror = (event) => {
        event.preventDefault();
        died(event.message || "its script cannot be loaded");
      };
      worker.onmessageerror = () => died("a message was lost");
    },
    terminate: () => worker.terminate(),
  };
}

export const host: Host = {
  spawn(assets) {
    const name = "zen-edge";
    if (assets === null) {
      // Bundlers look for just these words, and move the script beside theirs.
      const here = new URL("./worker.js", import.meta.url);
      if (here.origin === location.origin || here.protocol === "blob:") {
        return port(new Worker(new URL("./worker.js", import.meta.url), { type: "module", name }));
      }
      return port(foreign(here.href, name));
    }
    const script = `${assets}worker.js`;
    return port(
      new URL(script).origin === location.origin ? new Worker(script, { type: "module", name }) : foreign(script, name),
    );
  },
  wasm(assets) {
    const at = (file: string, bundled: URL) => (assets === null ? bundled.href : assets + file);
    return {
      simd128: at("simd128.wasm", new URL("./simd128.wasm", import.meta.url)),
      "relaxed-simd": at("relaxed-simd.wasm", new URL("./relaxed-simd.wasm", import.meta.url)),
      "simd128-threads": at("simd128-threads.wasm", new URL("./simd128-threads.wasm", import.meta.url)),
      "relaxed-simd-threads": at("relaxed-simd-threads.wasm", new URL("./relaxed-simd-threads.wasm", import.meta.url)),
    };
  },
  pack(assets) {
    const at = (file: string, bundled: URL) => (assets === null ? bundled.href : `${assets}pack/${file}`);
    return {
      model: at("model.gguf", new URL("./pack/model.gguf", import.meta.url)),
      heads: at("heads.safetensors", new URL("./pack/heads.safetensors", import.meta.url)),
      config: at("router_config.json", new URL("./pack/router_config.json", import.meta.url)),
      catalog: at("catalog.yaml", new URL("./pack/catalog.yaml", import.meta.url)),
      policy: at("router_policy.yaml", new URL("./pack/router_policy.yaml", import.meta.url)),
    };
  },
  url: (text) => new URL(text, document_()).href,
  isolated: () => globalThis.crossOriginIsolated === true,
  hardware: () => navigator.hardwareConcurrency,
  compile,
  locks: () => typeof navigator === "object" && Boolean(navigator.locks),
  persist: async () => (await navigator.storage?.persist?.()) ?? false,
  device() {
    const own = navigator as {
      deviceMemory?: number;
      userAgentData?: { platform?: string; brands?: { brand: string; version: string }[] };
    };
    const brand = own.userAgentData?.brands?.find((entry) => !/not.?a.?brand/i.test(entry.brand));
    const agent = /(Firefox|Edg|Chrome|Version)\/([\d.]+)/.exec(navigator.userAgent);
    const named = agent ? `${agent[1] === "Version" ? "Safari" : agent[1]} ${agent[2]}` : "unknown";
    return {
      name: "this device",
      platform: own.userAgentData?.platform || navigator.platform || "unknown",
      browser: brand ? `${brand.brand} ${brand.version}` : named,
      cross_origin_isolated: globalThis.crossOriginIsolated === true,
      ...(navigator.hardwareConcurrency ? { cores: navigator.hardwareConcurrency } : {}),
      ...(own.deviceMemory ? { memory_bytes: own.deviceMemory * 2 ** 30 } : {}),
    };
  },
};

/** What relative URLs are relative to: the page, or the worker that we are called in. */
function document_(): string {
  return typeof document === "undefined" ? location.href : document.baseURI;
}

/** A worker's script must be of the page's origin; from elsewhere, a script of a line that imports it is. */
function foreign(script: string, name: string): Worker {
  const blob = new Blob([`import ${JSON.stringify(script)};`], { type: "text/javascript" });
  return new Worker(URL.createObjectURL(blob), { type: "module", name });
}
