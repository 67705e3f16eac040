// From src/ and build/ (what `cargo xtask wasm` made of the crate) to dist/: two entries, two workers, the builds and the
// default pack beside them, and the types.
import { createHash } from "node:crypto";
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), "..");
const dist = path.join(root, "dist");
const made = path.join(root, "build");
const pack = path.join(root, "../../packs/default");
const BUILDS = ["simd128", "relaxed-simd", "simd128-threads", "relaxed-simd-threads"];
const PACK = {
  model: "model.gguf",
  heads: "heads.safetensors",
  config: "router_config.json",
  catalog: "catalog.yaml",
  policy: "router_policy.yaml",
};

const there = BUILDS.filter((build) => fs.existsSync(path.join(made, `${build}.wasm`)));
if (there.length === 0) throw new Error("build/ holds no build: run `cargo xtask wasm`");

/** What the sources call `virtual:…`. */
const virtual = (host) => ({
  name: "virtual",
  setup(build) {
    build.onResolve({ filter: /^virtual:host$/ }, () => ({ path: path.join(root, `src/${host}.ts`) }));
    build.onResolve({ filter: /^virtual:/ }, ({ path: name }) => ({ path: name, namespace: "virtual" }));
    build.onLoad({ filter: /./, namespace: "virtual" }, ({ path: name }) => {
      if (name === "virtual:pack") {
        const hash = (file) => createHash("sha256").update(fs.readFileSync(path.join(pack, file))).digest("hex");
        const hashes = Object.fromEntries(Object.entries(PACK).map(([part, file]) => [part, hash(file)]));
        const builds = `export const builds = ${JSON.stringify(there)};`;
        return { contents: `export default ${JSON.stringify(hashes)};\n${builds}` };
      }
      const imports = there.map((build, i) => `import * as b${i} from "./${build}.js";`);
      const table = there.map((build, i) => `${JSON.stringify(build)}: b${i}`);
      return { contents: `${imports.join("\n")}\nexport const glue = { ${table.join(", ")} };`, resolveDir: made };
    });
  },
});

fs.rmSync(dist, { recursive: true, force: true });
fs.mkdirSync(path.join(dist, "pack"), { recursive: true });
const common = {
  bundle: true,
  target: "es2022",
  legalComments: "none",
  absWorkingDir: root,
  logLevel: "warning",
};
const entry = { ...common, entryPoints: ["src/index.ts"], format: "esm" };
await esbuild.build({ ...entry, plugins: [virtual("page")], outfile: "dist/index.js", platform: "browser" });
await esbuild.build({ ...entry, plugins: [virtual("node")], outfile: "dist/node.js", platform: "node" });
await esbuild.build({
  ...common,
  entryPoints: ["src/worker-node.ts"],
  plugins: [virtual("node")],
  outfile: "dist/worker-node.js",
  format: "esm",
  platform: "node",
});
// No import and no export: it runs as a module and as a classic script.
await esbuild.build({
  ...common,
  entryPoints: ["src/worker.ts"],
  plugins: [virtual("page")],
  outfile: "dist/worker.js",
  format: "iife",
  platform: "browser",
  minify: true,
});
for (const build of there) fs.copyFileSync(path.join(made, `${build}.wasm`), path.join(dist, `${build}.wasm`));
for (const file of [...Object.values(PACK), "NOTICE.md"]) {
  fs.copyFileSync(path.join(pack, file), path.join(dist, "pack", file));
}
fs.copyFileSync(path.join(root, "../../LICENSE"), path.join(dist, "LICENSE"));
const tsc = path.join(root, "node_modules/typescript/bin/tsc");
execFileSync(process.execPath, [tsc, "--emitDeclarationOnly"], { cwd: root, stdio: "inherit" });
// The types that people see do not speak of the engine's own.
for (const file of fs.readdirSync(dist)) {
  if (/^(worker|worker-node|host|download|store|files|page|node)\.d\.ts$/.test(file)) fs.rmSync(path.join(dist, file));
}
