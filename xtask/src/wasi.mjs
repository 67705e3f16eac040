// Runs a WebAssembly program of the system interface "wasi preview 1": `node wasi.mjs PROGRAM.wasm [ARGUMENT …]`.
//
// The runner of `cargo test --target wasm32-wasip1`. Node's own interface; the program sees the working folder and the
// environment's variables that begin with ZEN_EDGE_.
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const [program, ...args] = process.argv.slice(2);
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("ZEN_EDGE_")));
const wasi = new WASI({ version: "preview1", args: [program, ...args], env, preopens: { "/": "/", ".": "." } });
const module = await WebAssembly.compile(await readFile(program));
const instance = await WebAssembly.instantiate(module, wasi.getImportObject());
process.exitCode = wasi.start(instance);
