/** SHA-256 of the default pack's files; scripts/build.mjs puts them in. */
declare module "virtual:pack" {
  const hashes: import("./router.js").PackHashes;
  export default hashes;
  /** The builds that were made: without a nightly compiler, those without threads. */
  export const builds: import("./types.js").Build[];
}

/** The platform's side: page.ts or node.ts. */
declare module "virtual:host" {
  export const host: import("./router.js").Host;
}
