//! Block formats and CPU kernels of Zen Edge.
//!
//! This crate is arithmetic. It knows blocks, tiles and devices; it knows no model.
//!
//! * [`format`](mod@format) – what a weight's bytes mean: the block formats of GGUF and how each decodes.
//! * [`memory`] – where a weight's bytes live: a mapped file or owned memory, shared without copies.

pub mod format;
pub mod memory;
