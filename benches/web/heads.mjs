// Heads for any backbone, so that a whole route is measured: their values change no time.
import * as fs from "node:fs";

/** The size of a GGUF's hidden states. */
export function hiddenSize(file) {
  const fd = fs.openSync(file, "r");
  const start = Buffer.alloc(1 << 16);
  fs.readSync(fd, start);
  fs.closeSync(fd);
  const at = start.indexOf(".embedding_length");
  if (at < 0 || start.readUInt32LE(at + 17) !== 4) throw new Error(`${file}: no embedding_length near its start`);
  return start.readUInt32LE(at + 21);
}

/** The files of a folder `/heads/`, for a server. */
export function heads(hidden) {
  const tasks = ["code", "reasoning", "math", "creative", "vision", "long_context", "cheap_chat", "general"];
  const models = Array.from({ length: 28 }, (_, i) => `model-${i}`);
  const header = {};
  const pieces = [];
  let at = 0;
  // A generator of numbers of its own, for the same heads each time.
  let state = 20261130;
  const next = () => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32 - 0.5) / 16;
  for (const [name, rows] of [["task_head", tasks.length], ["route_head", models.length], ["feature_head", 256]]) {
    for (const [part, shape] of [["weight", [rows, hidden]], ["bias", [rows]]]) {
      const values = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, next);
      header[`${name}.${part}`] = { dtype: "F32", shape, data_offsets: [at, (at += values.byteLength)] };
      pieces.push(Buffer.from(values.buffer));
    }
  }
  const json = Buffer.from(JSON.stringify(header).padEnd(Math.ceil(JSON.stringify(header).length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  const config = { tasks, catalog: models, hidden_size: hidden, feature_dim: 256, pooling: "last", embd_normalize: -1 };
  return {
    "/heads/heads.safetensors": Buffer.concat([length, json, ...pieces]),
    "/heads/router_config.json": JSON.stringify(config),
  };
}
