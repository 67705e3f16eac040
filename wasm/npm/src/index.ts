/**
 * Zen Edge in a page, in Node, Deno and Bun: which kind of task a prompt is, and which model should answer it, on the
 * device.
 *
 * @packageDocumentation
 */
export { Generation, Router, Session, storage } from "./router.js";
export type { Storage } from "./router.js";
export { ZenEdgeError, type ErrorCode } from "./errors.js";
export type * from "./types.js";
