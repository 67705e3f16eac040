//! Block formats and CPU kernels of Zen Edge.
//!
//! This crate is arithmetic. It knows blocks, tiles and devices; it knows no model.
//!
//! * [`format`](mod@format) – what a weight's bytes mean: the block formats of GGUF and how each decodes.
//! * [`memory`] – where a weight's bytes live: a mapped file or owned memory, shared without copies.
//! * [`gemm`] – weights × activations, the nearly all of the work.
//! * [`attention`], [`ops`], [`math`] – what stands between products.
//! * [`isa`] and [`pool`] – which instruction set and which threads run it.
//!
//! Every kernel gives the same bits on every instruction set and any number of threads: see [`gemm`] for how.

// Lanes, rows and tokens are indices into several arrays at once: a loop over one of them hides that.
#![allow(clippy::needless_range_loop)]

#[cfg(target_endian = "big")]
compile_error!("GGUF is little-endian, and so are the kernels");

pub mod attention;
pub mod format;
pub mod gemm;
pub mod isa;
pub mod math;
pub mod memory;
pub mod ops;
pub mod pool;
mod simd;
#[cfg(test)]
mod testing;
