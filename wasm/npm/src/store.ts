import { ZenEdgeError } from "./errors.js";
import { fromBlob, fromHandle, type OpenFile } from "./files.js";
import type { StoredFile } from "./types.js";

/** What makes a stored file count: it is written last, and names the size that the bytes must have. */
interface Manifest {
  format: 1;
  name: string;
  url: string | null;
  size: number;
  sha256: string;
  etag: string | null;
  saved: number;
}

/** What is known of a file that has not come whole. */
interface Part {
  format: 1;
  name: string;
  url: string;
  etag: string | null;
  total: number | null;
  /** The hash that the caller asked for: a part of something else is not gone on with. */
  sha256: string | null;
}

export interface Writer {
  write(bytes: Uint8Array): void;
  /** What is there from before, piece by piece: to hash it. */
  replay(each: (bytes: Uint8Array) => void): void;
  close(): void;
}

const FOLDER = "zen-edge";

function isQuota(error: unknown): boolean {
  return (error as { name?: string } | null)?.name === "QuotaExceededError";
}

/** The origin's private file system. Per file: `ID.data`, and `ID.json` once it is whole or `ID.part` while it is not. */
export class Opfs {
  readonly kind = "opfs";
  private constructor(private readonly folder: FileSystemDirectoryHandle) {}

  /** `null` where there is none: an old browser, an insecure origin, a private window. */
  static async open(): Promise<Opfs | null> {
    try {
      const root = await navigator.storage.getDirectory();
      return new Opfs(await root.getDirectoryHandle(FOLDER, { create: true }));
    } catch {
      return null;
    }
  }

  private async json<T>(name: string): Promise<T | null> {
    try {
      const file = await (await this.folder.getFileHandle(name)).getFile();
      const value = JSON.parse(await file.text()) as T & { format?: number };
      return value.format === 1 ? value : null;
    } catch {
      return null;
    }
  }

  private async put(name: string, bytes: Uint8Array): Promise<void> {
    const handle = await this.folder.getFileHandle(name, { create: true });
    if ("createWritable" in handle) {
      // It is written beside, and takes the name's place when it is closed.
      const writable = await handle.createWritable();
      await writable.write(bytes as Uint8Array<ArrayBuffer>);
      await writable.close();
      return;
    }
    const sync = await (handle as FileSystemFileHandle).createSyncAccessHandle();
    try {
      sync.truncate(0);
      sync.write(bytes as Uint8Array<ArrayBuffer>, { at: 0 });
      sync.flush();
    } finally {
      sync.close();
    }
  }

  private putJson(name: string, value: unknown): Promise<void> {
    return this.put(name, new TextEncoder().encode(JSON.stringify(value)));
  }

  private async erase(name: string): Promise<void> {
    try {
      await this.folder.removeEntry(name);
    } catch (error) {
      const name = (error as { name?: string }).name;
      if (name === "NotFoundError") return;
      if (name === "NoModificationAllowedError" || name === "InvalidStateError") {
        throw new ZenEdgeError("in_use", "the stored file is open; close the router that uses it first");
      }
      throw error;
    }
  }

  /** A whole file, open; `null` where there is none. One whose size is not the manifest's is erased. */
  async find(id: string, fresh = false): Promise<OpenFile | null> {
    const manifest = await this.json<Manifest>(`${id}.json`);
    if (!manifest) return null;
    const more = { stored: !fresh, sha256: manifest.sha256, id };
    let file: OpenFile;
    try {
      const handle = await this.folder.getFileHandle(`${id}.data`);
      try {
        // Several tabs may read; where the option is not known, the second tab reads through a blob instead.
        const open = handle.createSyncAccessHandle as (options?: object) => Promise<FileSystemSyncAccessHandle>;
        file = fromHandle(manifest.name, await open.call(handle, { mode: "read-only" }), more);
      } catch {
        file = fromBlob(manifest.name, await handle.getFile(), { ...more, source: "opfs" });
      }
    } catch {
      await this.erase(`${id}.json`);
      return null;
    }
    if (file.size === manifest.size) return file;
    file.close();
    await this.remove(id);
    return null;
  }

  /** What has come of a file so far. */
  async partial(id: string): Promise<(Part & { size: number }) | null> {
    const part = await this.json<Part>(`${id}.part`);
    if (!part) return null;
    try {
      const file = await (await this.folder.getFileHandle(`${id}.data`)).getFile();
      return { ...part, size: file.size };
    } catch {
      return null;
    }
  }

  /** Writes on from `from`; what stands behind is cut off. */
  async writer(id: string, part: Omit<Part, "format">, from: number): Promise<Writer> {
    await this.erase(`${id}.json`);
    await this.putJson(`${id}.part`, { ...part, format: 1 });
    const handle = await (await this.folder.getFileHandle(`${id}.data`, { create: true })).createSyncAccessHandle();
    handle.truncate(from);
    let at = from;
    return {
      write(bytes) {
        for (let done = 0; done < bytes.length; ) {
          const n = handle.write(bytes.subarray(done) as Uint8Array<ArrayBuffer>, { at: at + done });
          if (n === 0) throw new DOMException("the storage is full", "QuotaExceededError");
          done += n;
        }
        at += bytes.length;
      },
      replay(each) {
        const window = new Uint8Array(1 << 20);
        for (let read = 0; read < from; ) {
          const n = handle.read(window.subarray(0, Math.min(window.length, from - read)), { at: read });
          if (n === 0) throw new ZenEdgeError("storage", "the stored part is shorter than it was");
          each(window.subarray(0, n));
          read += n;
        }
      },
      close() {
        handle.flush();
        handle.close();
      },
    };
  }

  /** Makes a file that has come whole count. */
  async publish(id: string, manifest: Omit<Manifest, "format" | "saved">): Promise<void> {
    await this.putJson(`${id}.json`, { ...manifest, format: 1, saved: Date.now() });
    await this.erase(`${id}.part`);
  }

  async remove(id: string): Promise<boolean> {
    const known = (await this.json(`${id}.json`)) !== null || (await this.json(`${id}.part`)) !== null;
    // The data first: where it is in use, all stays as it is.
    await this.erase(`${id}.data`);
    await this.erase(`${id}.json`);
    await this.erase(`${id}.part`);
    return known;
  }

  async list(): Promise<StoredFile[]> {
    const names: string[] = [];
    for await (const name of (this.folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
    const files: StoredFile[] = [];
    for (const name of names) {
      if (name.endsWith(".json")) {
        const id = name.slice(0, -5);
        const m = await this.json<Manifest>(name);
        if (m) files.push({ id, name: m.name, url: m.url, size: m.size, sha256: m.sha256, saved: m.saved, complete: true });
      } else if (name.endsWith(".part") && !names.includes(`${name.slice(0, -5)}.json`)) {
        const id = name.slice(0, -5);
        const p = await this.partial(id);
        if (p) files.push({ id, name: p.name, url: p.url, size: p.size, sha256: "", saved: 0, complete: false });
      }
    }
    return files;
  }

  /** A small file of our own: what was learned. */
  async readBytes(name: string): Promise<Uint8Array | null> {
    try {
      return new Uint8Array(await (await (await this.folder.getFileHandle(name)).getFile()).arrayBuffer());
    } catch {
      return null;
    }
  }

  async writeBytes(name: string, bytes: Uint8Array): Promise<void> {
    await this.put(name, bytes);
  }

  async forgetBytes(prefix: string): Promise<void> {
    const names: string[] = [];
    for await (const name of (this.folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
    for (const name of names) if (name.startsWith(prefix)) await this.erase(name);
  }
}

/** IndexedDB, where there is no private file system: a blob for a file, there whole or not at all. */
export class Idb {
  readonly kind = "indexeddb";
  private constructor(private readonly db: IDBDatabase) {}

  static async open(): Promise<Idb | null> {
    try {
      const open = indexedDB.open(FOLDER, 1);
      open.onupgradeneeded = () => {
        open.result.createObjectStore("files");
        open.result.createObjectStore("bytes");
      };
      return new Idb(await settled(open));
    } catch {
      return null;
    }
  }

  private store(name: "files" | "bytes", mode: IDBTransactionMode): IDBObjectStore {
    return this.db.transaction(name, mode).objectStore(name);
  }

  async find(id: string): Promise<OpenFile | null> {
    const kept = await settled<{ manifest: Manifest; blob: Blob } | undefined>(this.store("files", "readonly").get(id));
    if (!kept) return null;
    if (kept.blob.size !== kept.manifest.size) {
      await this.remove(id);
      return null;
    }
    const { name, sha256 } = kept.manifest;
    return fromBlob(name, kept.blob, { source: "indexeddb", stored: true, sha256, id });
  }

  async keep(id: string, manifest: Omit<Manifest, "format" | "saved">, blob: Blob): Promise<void> {
    const whole: Manifest = { ...manifest, format: 1, saved: Date.now() };
    await settled(this.store("files", "readwrite").put({ manifest: whole, blob }, id));
  }

  async remove(id: string): Promise<boolean> {
    const known = (await settled(this.store("files", "readonly").count(id))) > 0;
    await settled(this.store("files", "readwrite").delete(id));
    return known;
  }

  async list(): Promise<StoredFile[]> {
    const ids = await settled(this.store("files", "readonly").getAllKeys());
    const files: StoredFile[] = [];
    for (const id of ids) {
      const kept = await settled<{ manifest: Manifest } | undefined>(this.store("files", "readonly").get(id));
      if (!kept) continue;
      const { name, url, size, sha256, saved } = kept.manifest;
      files.push({ id: String(id), name, url, size, sha256, saved, complete: true });
    }
    return files;
  }

  async readBytes(name: string): Promise<Uint8Array | null> {
    return (await settled<Uint8Array | undefined>(this.store("bytes", "readonly").get(name))) ?? null;
  }

  async writeBytes(name: string, bytes: Uint8Array): Promise<void> {
    await settled(this.store("bytes", "readwrite").put(bytes, name));
  }

  async forgetBytes(prefix: string): Promise<void> {
    const keys = await settled(this.store("bytes", "readonly").getAllKeys());
    for (const key of keys) {
      if (String(key).startsWith(prefix)) await settled(this.store("bytes", "readwrite").delete(key));
    }
  }
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new ZenEdgeError("storage", "IndexedDB refused"));
  });
}

/** The storage of this origin; `null`: there is none, and all is in memory. */
export async function openStore(): Promise<Opfs | Idb | null> {
  return (await Opfs.open()) ?? (await Idb.open());
}

export { isQuota };
