// A static server whose faults are made to order.
import { createServer } from "node:http";
import * as fs from "node:fs";
import * as path from "node:path";

const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".css": "text/css",
  ".json": "application/json",
  ".wasm": "application/wasm",
};

/**
 * Serves `folders` (`{ "/prefix/": folder }`) at a free port. What may be set at any time on the result:
 * `headers` (on everything), `faults` (`{ "/path": (served) => fault }`, where a fault is
 * `{ breakAfter: bytes }`, `{ flip: offset }`, `{ status }`, `{ noRange: true }`, or nothing), `version` (a part of every ETag), and `log` (each request).
 */
export async function serve(folders) {
  const site = { headers: {}, faults: {}, log: [], pages: {}, version: "" };
  const served = new Map();
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://localhost");
    site.log.push({ path: url.pathname, range: request.headers.range ?? null });
    for (const [name, value] of Object.entries(site.headers)) response.setHeader(name, value);
    if (url.pathname in site.pages) {
      response.setHeader("content-type", TYPES[path.extname(url.pathname)] ?? "text/html");
      return response.end(site.pages[url.pathname]);
    }
    const prefix = Object.keys(folders).find((prefix) => url.pathname.startsWith(prefix));
    const file = prefix && path.join(folders[prefix], path.normalize(url.pathname.slice(prefix.length)));
    if (!file || !fs.existsSync(file) || !fs.statSync(file).isFile()) return response.writeHead(404).end();
    const n = served.get(url.pathname) ?? 0;
    served.set(url.pathname, n + 1);
    const fault = site.faults[url.pathname]?.(n) ?? {};
    if (fault.status) return response.writeHead(fault.status).end();
    let body = fs.readFileSync(file);
    if (fault.flip !== undefined) {
      body = Buffer.from(body);
      body[fault.flip] ^= 1;
    }
    const { size, mtimeMs } = fs.statSync(file);
    const etag = `"${size.toString(16)}-${Math.floor(mtimeMs).toString(16)}${site.version}"`;
    response.setHeader("etag", etag);
    response.setHeader("content-type", TYPES[path.extname(file)] ?? "application/octet-stream");
    response.setHeader("cache-control", "no-cache");
    const range = fault.noRange ? null : /^bytes=(\d+)-$/.exec(request.headers.range ?? "");
    const still = request.headers["if-range"] === undefined || request.headers["if-range"] === etag;
    let from = 0;
    if (range && still) {
      from = Number(range[1]);
      if (from >= body.length) return response.writeHead(416, { "content-range": `bytes */${body.length}` }).end();
      response.statusCode = 206;
      response.setHeader("content-range", `bytes ${from}-${body.length - 1}/${body.length}`);
    }
    response.setHeader("content-length", body.length - from);
    if (fault.breakAfter !== undefined) {
      // What the page has not read when the connection breaks is lost to it: it gets the time.
      response.write(body.subarray(from, from + fault.breakAfter), () => setTimeout(() => request.socket.destroy(), 2000));
      return;
    }
    response.end(body.subarray(from));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  site.origin = `http://localhost:${server.address().port}`;
  site.stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return site;
}

export const ISOLATED = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};
