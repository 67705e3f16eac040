import { defineConfig, type Plugin } from "vite";

/** The files of the shell, for the service worker: all but the engine's builds, of which a browser needs one. */
function shell(): Plugin {
  return {
    name: "shell",
    generateBundle(_, bundle) {
      const files = Object.keys(bundle).filter((name) => name !== "sw.js" && !/\.(wasm|gguf|safetensors|map)$/.test(name));
      const list = ["./", ...files.map((name) => `./${name}`), "./manifest.webmanifest", "./icon.svg"].sort();
      this.emitFile({ type: "asset", fileName: "shell.json", source: JSON.stringify(list) });
    },
  };
}

export default defineConfig({
  // Any folder of any host.
  base: "./",
  build: {
    target: "es2022",
    // The policy of the page forbids what is inlined as data.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: { index: "index.html", sw: "src/sw.ts" },
      output: { entryFileNames: (chunk) => (chunk.name === "sw" ? "sw.js" : "assets/[name]-[hash].js") },
    },
  },
  worker: { format: "es" },
  plugins: [shell()],
});
