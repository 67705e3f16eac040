import type { Hash } from "virtual:glue";
import { ZenEdgeError } from "./errors.js";
import { fromBlob, type OpenFile } from "./files.js";
import type { SentFile } from "./protocol.js";
import { Opfs, isQuota, type Idb } from "./store.js";

/** What a download is told and tells. */
export interface Call {
  /** Where files are kept; `null`: nowhere. */
  store: Opfs | Idb | null;
  signal: AbortSignal;
  progress(loaded: number, total: number | null, stored: boolean): void;
  warn(text: string): void;
  /** Called once, before anything is read, with the size as soon as it is known: the engine's memory depends on it. */
  begin(size: number | null): Promise<new () => Hash>;
}

/** A break is mended so often, each time after a longer pause. */
const RETRIES = 4;
/** Bytes go to a blob by so many: fewer would make a list of thousands. */
const PIECE = 4 << 20;

function aborted(signal: AbortSignal): ZenEdgeError {
  return new ZenEdgeError("aborted", "loading was aborted; what has come is kept", { cause: signal.reason });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(aborted(signal))), { once: true });
  });
}

/** Only one tab at a time works on a file; the others wait and find it done. */
export function locked<T>(id: string, signal: AbortSignal, body: () => Promise<T>): Promise<T> {
  if (typeof navigator === "undefined" || !navigator.locks) return body();
  return navigator.locks.request(`zen-edge:${id}`, { signal }, body) as Promise<T>;
}

/** A short name of a text that any file system takes. */
async function idOf(text: string): Promise<string> {
  const bytes = new TextEncoder().encode(text);
  if (globalThis.crypto?.subtle) {
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return Array.from(hash.subarray(0, 16), (b) => b.toString(16).padStart(2, "0")).join("");
  }
  // An insecure origin has no digest, and no private file system either: this names a row of IndexedDB.
  let h = 0xcbf29ce484222325n;
  for (const byte of bytes) h = BigInt.asUintN(64, (h ^ BigInt(byte)) * 0x100000001b3n);
  return h.toString(16).padStart(16, "0");
}

function nameOf(url: string): string {
  const path = url.split(/[?#]/, 1)[0] ?? url;
  return path.slice(path.lastIndexOf("/") + 1) || url;
}

/** Opens a file: from the storage, from the network into it, or one of the caller's. */
export async function openFile(spec: SentFile, call: Call): Promise<OpenFile | null> {
  if ("stored" in spec) {
    const file = call.store ? await call.store.find(spec.stored) : null;
    if (!file) throw new ZenEdgeError("not_stored", `no stored file has the id ${spec.stored}`);
    await call.begin(file.size);
    call.progress(file.size, file.size, true);
    return file;
  }
  if ("file" in spec) return openBlob(spec, call);
  const id = await idOf(spec.sha256 ? `sha256:${spec.sha256.toLowerCase()}` : spec.url);
  try {
    return await locked(id, call.signal, async () => {
      const kept = call.store ? await call.store.find(id) : null;
      if (kept && spec.sha256 && kept.sha256 !== spec.sha256.toLowerCase()) {
        kept.close();
        await call.store?.remove(id);
      } else if (kept) {
        await call.begin(kept.size);
        call.progress(kept.size, kept.size, true);
        return kept;
      }
      return await fetchFile(spec, id, call);
    });
  } catch (error) {
    if (call.signal.aborted) throw aborted(call.signal);
    throw error;
  }
}

/** Under this name it is kept that a server had no such file. */
const absent = (id: string) => `absent-${id}`;

/** Answers of a server that a second try may change. */
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);

/** Where bytes go while they come. */
interface Sink {
  size: number;
  write(bytes: Uint8Array): void;
  hash: Hash | null;
}

async function fetchFile(
  spec: { url: string; sha256?: string; optional?: boolean },
  id: string,
  call: Call,
): Promise<OpenFile | null> {
  const wanted = spec.sha256?.toLowerCase() ?? null;
  const name = nameOf(spec.url);
  const store = call.store;
  let opfs = store instanceof Opfs ? store : null;
  const part = opfs ? await opfs.partial(id) : null;
  let etag: string | null = null;
  let total: number | null = null;
  let have = 0;
  // A part is gone on with where the server can tell that it is of the same file.
  if (part && part.sha256 === wanted && (part.etag || wanted) && part.size > 0) {
    ({ etag, total } = part);
    have = part.size;
  }

  let HashOf: (new () => Hash) | null = null;
  let writer: Awaited<ReturnType<Opfs["writer"]>> | null = null;
  let pieces: Blob[] = [];
  let waiting: Uint8Array[] = [];
  let waitingBytes = 0;
  const sink: Sink = {
    size: 0,
    hash: null,
    write(bytes) {
      if (writer) {
        writer.write(bytes);
      } else {
        waiting.push(bytes);
        waitingBytes += bytes.length;
        if (waitingBytes >= PIECE) flush();
      }
      this.hash?.update(bytes);
      this.size += bytes.length;
    },
  };
  const flush = () => {
    pieces.push(new Blob(waiting as Uint8Array<ArrayBuffer>[]));
    waiting = [];
    waitingBytes = 0;
  };
  /** Begins anew, or from what is there. */
  const start = async (from: number) => {
    writer?.close();
    writer = null;
    sink.hash?.free();
    HashOf ??= await call.begin(total);
    sink.hash = new HashOf();
    sink.size = 0;
    pieces = [];
    waiting = [];
    waitingBytes = 0;
    if (!opfs) return;
    writer = await opfs.writer(id, { name, url: spec.url, etag, total, sha256: wanted }, from);
    writer.replay((bytes) => sink.hash?.update(bytes));
    sink.size = from;
  };

  let failures = 0;
  let whole = false;
  try {
    while (!whole) {
      let response: Response;
      const headers: Record<string, string> = {};
      if (have > 0) {
        headers["Range"] = `bytes=${have}-`;
        if (etag && !etag.startsWith("W/")) headers["If-Range"] = etag;
      }
      try {
        // What we store need not lie in the browser's cache too; and a part of it there would answer for the rest.
        const cache = opfs || have > 0 ? "no-store" : "default";
        response = await fetch(spec.url, { headers, signal: call.signal, cache });
      } catch (error) {
        if (call.signal.aborted) throw aborted(call.signal);
        // Without a network, a file that was not there is not there.
        if (spec.optional && (await store?.readBytes(absent(id)))) return null;
        if (++failures > RETRIES || have === 0) {
          throw new ZenEdgeError("network", `${spec.url} cannot be fetched; the next load goes on from what has come`, {
            cause: error,
          });
        }
        await pause(200 * 2 ** failures, call.signal);
        continue;
      }
      if (response.status === 416 && have > 0) {
        // There is nothing behind what we have: it is whole, or of another file. Its hash tells, where one was asked for.
        if (total !== null && have === total) {
          if (!sink.hash) await start(have);
          break;
        }
        have = 0;
        etag = null;
        continue;
      }
      if (!response.ok) {
        if (spec.optional && response.status === 404) {
          await response.body?.cancel();
          await store?.writeBytes(absent(id), Uint8Array.of(0)).catch(() => {});
          return null;
        }
        if (PASSING.has(response.status) && ++failures <= RETRIES) {
          await response.body?.cancel();
          await pause(200 * 2 ** failures, call.signal);
          continue;
        }
        throw new ZenEdgeError("http", `${spec.url}: the server answers ${response.status}`);
      }
      const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "");
      if (response.status === 206 && !(range && Number(range[1]) === have)) {
        // Not the part that was asked for.
        await response.body?.cancel();
        have = 0;
        etag = null;
        if (++failures > RETRIES) throw new ZenEdgeError("http", `${spec.url}: the server sends wrong parts`);
        continue;
      }
      const continued = response.status === 206;
      // Of an encoded body the length is not that of the bytes that we see.
      const length = response.headers.get("content-encoding") ? null : response.headers.get("content-length");
      if (!continued) {
        have = 0;
        etag = response.headers.get("etag");
        total = length === null ? null : Number(length);
      } else if (range?.[2] && range[2] !== "*") {
        total = Number(range[2]);
      }
      if (opfs && total !== null && have === 0 && !(await fits(total))) {
        call.warn(`the storage has no room for ${name} (${total} bytes): it is held in memory for this visit`);
        opfs = null;
      }
      if (!continued || sink.hash === null) {
        try {
          await start(have);
        } catch (error) {
          if (!isQuota(error)) throw error;
          opfs = null;
          call.warn(`the storage is full: ${name} is held in memory for this visit`);
          await start(0);
          if (continued) {
            await response.body?.cancel();
            have = 0;
            continue;
          }
        }
      }
      try {
        const reader = response.body!.getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          sink.write(value);
          have = sink.size;
          failures = 0;
          call.progress(have, total, false);
        }
        // Some servers and proxies end a broken body as if it were whole.
        whole = total === null || have >= total;
        if (!whole) throw new TypeError("the connection ended early");
      } catch (error) {
        if (call.signal.aborted) throw aborted(call.signal);
        if (isQuota(error)) {
          // What does not fit on the disk may fit into memory; it is fetched anew.
          call.warn(`the storage is full: ${name} is held in memory for this visit`);
          const full = opfs;
          opfs = null;
          have = 0;
          etag = null;
          await start(0);
          await full?.remove(id);
          continue;
        }
        if (++failures > RETRIES) {
          throw new ZenEdgeError("network", `${spec.url} broke off; the next load goes on from what has come`, {
            cause: error,
          });
        }
        // Without a strong tag the rest might be of another file: then from the start, unless the hash will tell.
        if (!(etag && !etag.startsWith("W/")) && !wanted) {
          have = 0;
          sink.hash?.free();
          sink.hash = null;
        }
        await pause(100 * 2 ** failures, call.signal);
      }
    }
    const sha256 = sink.hash!.finish();
    sink.hash = null;
    const size = sink.size;
    (writer as { close(): void } | null)?.close();
    writer = null;
    if (wanted && sha256 !== wanted) {
      await opfs?.remove(id);
      throw new ZenEdgeError(
        "hash_mismatch",
        `${spec.url}: SHA-256 is ${sha256}, ${wanted} was expected; nothing was kept`,
      );
    }
    const manifest = { name, url: spec.url, size, sha256, etag };
    if (opfs) {
      await opfs.publish(id, manifest);
      const file = await opfs.find(id, true);
      if (!file) throw new ZenEdgeError("storage", `${name} was stored and is not there`);
      return file;
    }
    flush();
    const blob = new Blob(pieces);
    if (store && !(store instanceof Opfs)) {
      try {
        await store.keep(id, manifest, blob);
        return fromBlob(name, blob, { source: "indexeddb", sha256, id });
      } catch {
        call.warn(`the storage is full: ${name} is held in memory for this visit`);
      }
    }
    return fromBlob(name, blob, { source: "memory", sha256 });
  } finally {
    (writer as { close(): void } | null)?.close();
    sink.hash?.free();
  }
}

/** Whether so many bytes fit, as far as the browser tells. */
async function fits(size: number): Promise<boolean> {
  try {
    const { quota, usage } = await navigator.storage.estimate();
    return quota === undefined || usage === undefined || quota - usage >= size;
  } catch {
    return true;
  }
}

async function openBlob(
  spec: { file: Blob; name?: string; sha256?: string; keep?: boolean },
  call: Call,
): Promise<OpenFile> {
  const { file: blob } = spec;
  const name = spec.name ?? (blob as Partial<globalThis.File>).name ?? "file";
  const wanted = spec.sha256?.toLowerCase() ?? null;
  const HashOf = await call.begin(blob.size);
  const opfs = spec.keep && call.store instanceof Opfs ? call.store : null;
  if (!wanted && !spec.keep) {
    call.progress(blob.size, blob.size, false);
    return fromBlob(name, blob);
  }
  const id = await idOf(`file:${name}:${blob.size}:${wanted ?? (blob as Partial<globalThis.File>).lastModified ?? 0}`);
  return locked(id, call.signal, async () => {
    const kept = spec.keep ? await call.store?.find(id) : null;
    if (kept) return kept;
    const hash = new HashOf();
    let writer: Awaited<ReturnType<Opfs["writer"]>> | null = null;
    let read = 0;
    try {
      if (opfs && (await fits(blob.size))) {
        writer = await opfs.writer(id, { name, url: `file:${name}`, etag: null, total: blob.size, sha256: wanted }, 0);
      } else if (opfs) {
        call.warn(`the storage has no room for ${name}: it is read where it lies`);
      }
      for await (const bytes of blob.stream() as unknown as AsyncIterable<Uint8Array>) {
        if (call.signal.aborted) throw aborted(call.signal);
        hash.update(bytes);
        try {
          writer?.write(bytes);
        } catch (error) {
          if (!isQuota(error)) throw error;
          writer?.close();
          writer = null;
          await opfs?.remove(id);
          call.warn(`the storage is full: ${name} is read where it lies`);
        }
        read += bytes.length;
        call.progress(read, blob.size, false);
      }
    } finally {
      writer?.close();
    }
    const sha256 = hash.finish();
    if (wanted && sha256 !== wanted) {
      await opfs?.remove(id);
      throw new ZenEdgeError("hash_mismatch", `${name}: SHA-256 is ${sha256}, ${wanted} was expected`);
    }
    const manifest = { name, url: null, size: blob.size, sha256, etag: null };
    if (writer && opfs) {
      await opfs.publish(id, manifest);
      const file = await opfs.find(id, true);
      if (file) return file;
    } else if (spec.keep && call.store && !(call.store instanceof Opfs)) {
      try {
        await call.store.keep(id, manifest, blob);
      } catch {
        call.warn(`the storage is full: ${name} is read where it lies`);
      }
    }
    return fromBlob(name, blob, { sha256 });
  });
}
