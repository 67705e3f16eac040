//! What an owner of a catalog needs to make a pack, on their own machine.
//!
//! * [`rows`] – prompts with their labels, and outcomes of models, from JSON lines.
//! * [`fit`] – heads from rows, with a report of what they are worth.
//! * [`verify`] – a backbone against a reference in float arithmetic: the same decisions?
//! * [`ablate`] – what a scheme of quantisation costs the decision.
//! * [`parity`] – the harness of both.
//! * [`mod@quantize`] – a float model to a quantised GGUF.
//! * [`source`] – a model as named float tensors, from a GGUF or a folder of Hugging Face files.
//! * [`gguf_writer`] – GGUF files, written as they go.
//!
//! Nothing of it is part of a router that runs: applications do not link this crate.

pub mod ablate;
pub mod fit;
pub mod gguf_writer;
pub mod parity;
pub mod quantize;
pub mod rows;
pub mod source;
pub mod verify;
