/**
 * What went wrong, one code for a cause.
 *
 * | code | what it means, and what helps |
 * |---|---|
 * | `aborted` | Your `AbortSignal` fired. |
 * | `superseded` | A newer text of the same typing session has come. |
 * | `closed` | The router was closed. |
 * | `busy` | 4,096 calls wait already: wait for answers before asking on. |
 * | `crashed` | The worker died. Load the router anew; what was learned and saved is still there. |
 * | `bad_request` | An option has a wrong name or type. |
 * | `unknown_model` | A limit names a model that the catalog does not have. |
 * | `unknown_outcome` | A reward for an answer that was never given, was rewarded already, or is too old; or no number. |
 * | `prompt_too_long` | The prompt leaves no room in the model's context for an answer: shorten it. |
 * | `no_chat_template` | The model has no chat template: give the whole prompt as a text in place of messages. |
 * | `chat_template` | The model's chat template cannot be run: give the whole prompt as a text. |
 * | `messages` | The model's chat template refuses these messages; the message says why (an unknown role, an order). |
 * | `no_tokens` | There is nothing to read in the prompt. |
 * | `network` | The file could not be fetched. What has come is kept, and the next load goes on from there. |
 * | `http` | The server refused the file. |
 * | `hash_mismatch` | What came is not what `sha256` says. Nothing is kept of it. |
 * | `not_stored` | No stored file has this id. |
 * | `in_use` | The stored file is open; close its router first. |
 * | `storage` | The storage refused. |
 * | `io` | A file could not be read. |
 * | `model_damaged` | The model is no GGUF, or a broken one. |
 * | `model_unsupported` | A sound model, of an architecture or type that is not run. |
 * | `tokenizer` | The model's tokenizer is not one that is known. |
 * | `heads`, `config`, `catalog`, `policy` | That file is damaged, or does not belong to the others. |
 * | `out_of_memory` | The weights do not fit into what the browser gives a page. |
 * | `no_simd` | The browser has no WebAssembly SIMD; any since 2021 (Safari: 2023) has it. |
 * | `no_wasm` | The page's Content-Security-Policy forbids WebAssembly, or its file did not come. |
 */
export type ErrorCode =
  | "aborted"
  | "superseded"
  | "closed"
  | "busy"
  | "crashed"
  | "bad_request"
  | "unknown_model"
  | "unknown_outcome"
  | "prompt_too_long"
  | "no_chat_template"
  | "chat_template"
  | "messages"
  | "no_tokens"
  | "network"
  | "http"
  | "hash_mismatch"
  | "not_stored"
  | "in_use"
  | "storage"
  | "io"
  | "model_damaged"
  | "model_unsupported"
  | "tokenizer"
  | "heads"
  | "config"
  | "catalog"
  | "policy"
  | "out_of_memory"
  | "no_simd"
  | "no_wasm";

/** Every error that this package throws. */
export class ZenEdgeError extends Error {
  /** The cause; see {@link ErrorCode}. */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    // So that code which knows nothing of us still sees an abort as one.
    this.name = code === "aborted" || code === "superseded" ? "AbortError" : "ZenEdgeError";
  }
}

/** An error as it crosses from the worker. */
export interface PlainError {
  code: ErrorCode;
  message: string;
}

/** What any thrown value says, as it can be sent. */
export function plain(error: unknown, otherwise: ErrorCode = "io"): PlainError {
  if (error instanceof WebAssembly.RuntimeError) {
    return { code: "crashed", message: `the engine failed (${error.message}); load the router anew` };
  }
  const code = (error as { code?: unknown } | null)?.code;
  const message = error instanceof Error ? error.message : String(error);
  return { code: typeof code === "string" && /^[a-z_]+$/.test(code) ? (code as ErrorCode) : otherwise, message };
}
