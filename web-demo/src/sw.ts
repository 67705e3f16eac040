/**
 * Keeps the page's own files, so that it works offline after the first visit, and counts what goes to the network.
 *
 * The shell is fetched when the worker is installed; the engine's build and the default pack when they are first asked for.
 * A file whose name holds its hash never changes: it comes from the cache. The page itself comes from the network where
 * there is one.
 */
declare const self: ServiceWorkerGlobalScope;

const CACHE = "zen-edge-1";

self.addEventListener("install", (event) => {
  event.waitUntil(
    (async () => {
      const cache = await caches.open(CACHE);
      const list = (await (await fetch("./shell.json", { cache: "no-store" })).json()) as string[];
      await cache.addAll(list.map((url) => new Request(url, { cache: "reload" })));
      await self.skipWaiting();
    })(),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    (async () => {
      for (const name of await caches.keys()) if (name !== CACHE) await caches.delete(name);
      await self.clients.claim();
    })(),
  );
});

/** Tells every page that a request went out. */
async function tell(url: string): Promise<void> {
  for (const client of await self.clients.matchAll({ includeUncontrolled: true })) client.postMessage({ network: url });
}

async function answer(request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  const page = request.mode === "navigate";
  // Backbones, whole or in parts, are the loader's affair: it keeps what it fetches itself.
  if (request.headers.has("range") || new URL(request.url).pathname.endsWith(".gguf")) {
    void tell(request.url);
    return fetch(request);
  }
  const kept = await cache.match(page ? "./" : request, { ignoreSearch: page });
  if (kept && !page) return kept;
  try {
    void tell(request.url);
    const fresh = await fetch(request);
    if (fresh.ok && fresh.status === 200 && new URL(request.url).origin === self.location.origin) {
      await cache.put(page ? "./" : request, fresh.clone());
    }
    return fresh;
  } catch (error) {
    if (kept) return kept;
    throw error;
  }
}

self.addEventListener("fetch", (event) => {
  if (event.request.method === "GET") event.respondWith(answer(event.request));
});

export {};
