import type { File as EngineFile } from "virtual:glue";
import { ZenEdgeError } from "./errors.js";

/** A file that is open: what the engine reads, where it lies, and how it is let go. */
export interface OpenFile extends EngineFile {
  readonly source: "opfs" | "indexeddb" | "memory" | "file";
  /** Whether it was there before. */
  readonly stored: boolean;
  /** The stored file's id. */
  readonly id?: string | undefined;
  close(): void;
}

/** Bytes in memory: for the small files. */
export function fromBytes(
  name: string,
  bytes: Uint8Array,
  more: Partial<Pick<OpenFile, "source" | "stored" | "sha256" | "id">> = {},
): OpenFile {
  return {
    name,
    size: bytes.length,
    source: "memory",
    stored: false,
    ...more,
    read(offset, into) {
      into.set(bytes.subarray(offset, offset + into.length));
    },
    close() {},
  };
}

/** Of a blob, so much is in JavaScript's memory at once. */
const WINDOW = 4 << 20;

/** A blob, read piece by piece: it may lie on the disk, and never comes into memory whole. Workers only. */
export function fromBlob(
  name: string,
  blob: Blob,
  more: Partial<Pick<OpenFile, "source" | "stored" | "sha256" | "id">> = {},
): OpenFile {
  return {
    name,
    size: blob.size,
    source: "file",
    stored: false,
    ...more,
    read(offset, into) {
      const reader = new FileReaderSync();
      for (let at = 0; at < into.length; at += WINDOW) {
        const end = Math.min(into.length, at + WINDOW);
        const piece = reader.readAsArrayBuffer(blob.slice(offset + at, offset + end));
        if (piece.byteLength !== end - at) throw new ZenEdgeError("io", `${name} has changed since it was opened`);
        into.set(new Uint8Array(piece), at);
      }
    },
    close() {},
  };
}

/** A handle of the origin's private file system. */
export function fromHandle(
  name: string,
  handle: FileSystemSyncAccessHandle,
  more: Partial<Pick<OpenFile, "stored" | "sha256" | "id">> = {},
): OpenFile {
  return {
    name,
    size: handle.getSize(),
    source: "opfs",
    stored: true,
    ...more,
    read(offset, into) {
      for (let at = 0; at < into.length; ) {
        const n = handle.read(into.subarray(at), { at: offset + at });
        if (n === 0) throw new ZenEdgeError("io", `${name} ends too early`);
        at += n;
      }
    },
    close() {
      handle.close();
    },
  };
}

/** Compiles what a URL holds, while it comes. */
export async function compile(url: string): Promise<WebAssembly.Module> {
  const response = await fetch(url);
  if (!response.ok) throw new ZenEdgeError("http", `the server answers ${response.status}`);
  // Some servers do not know the type, and streaming insists on it.
  return response.headers.get("content-type")?.startsWith("application/wasm")
    ? WebAssembly.compileStreaming(response)
    : WebAssembly.compile(await response.arrayBuffer());
}
