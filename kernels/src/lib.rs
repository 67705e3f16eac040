//! Block formats and CPU kernels of Zen Edge.
//!
//! This crate is arithmetic. It knows blocks, tiles and devices; it knows no model.
//!
//! * [`format`](mod@format) – what a weight's bytes mean: the block formats of GGUF and how each decodes.
//! * [`memory`] – where a weight's bytes live: a mapped file or owned memory, shared without copies.
//! * [`gemm`] – weights × activations, the nearly all of the work.
//! * [`attention`], [`ops`], [`math`] – what stands between products.
//! * `gpu` – the same on a GPU, held to a tolerance (feature `gpu`).
//! * [`isa`] and [`pool`] – which instruction set and which threads run it.
//! * [`limits`] – what the machine can do at most, to set beside what was measured.
//!
//! Every kernel gives the same bits on every instruction set and any number of threads: see [`gemm`] for how.
//!
//! # Instruction sets
//!
//! | name | processor | a block of unsigned quants | a block of signed bytes | tokens at once |
//! |---|---|---|---|---|
//! | `scalar` | any | bytes, 32-bit sums: the definition | the same | 1 |
//! | `avx2` | x86-64 | `vpmaddubsw`, sums in 16 bits | `vpmaddubsw` of magnitudes, `vpmaddwd` | 4 |
//! | `avx-vnni` | x86-64 | `vpdpbusd` | `vpdpbusd`, weights + 128 | 4 |
//! | `avx512-vnni` | x86-64 | `vpdpbusd` on 16 rows (`zmm`) | the same, weights + 128 | 8 |
//! | `neon` | aarch64 | `smlal`, sums in 16 bits | `smull`, `smlal`, `sadalp` | 2 |
//! | `neon-dotprod` | aarch64 | `sdot` by element | `sdot` by element | 4 |
//! | `neon-i8mm` | aarch64 | `smmla`, 2 rows × 2 tokens | `smmla` | 4 |
//! | `simd128` | WebAssembly | words that hold scale · (q − offset): `i32x4.dot_i16x8_s` | the same | 2 |
//! | `relaxed-simd` | WebAssembly | `i16x8.relaxed_dot_i8x16_i7x16_s`, sums in 16 bits | words, as `simd128` | 2 |
//!
//! x86-64 and aarch64 are asked while the program runs; a WebAssembly module has what it was built with. The suites
//! hold every path to the definition wherever the processor has it.
//!
//! Products with one token (decode) go another way: K-quants straight from the file's bytes (`gemm::direct`), other formats row by
//! row (`gemm::few`).
//!
//! What did not pay, with figures in `benches/records/kernels-wasm.md` and `kernels-aarch64.md`: loops that LLVM unrolls whole
//! in WebAssembly (half the speed, by spills), `usdot` beside
//! `sdot` (quants are at most 63). Left undone: floats in `zmm`, which would need 16 lanes in the trait.

// Lanes, rows and tokens are indices into several arrays at once: a loop over one of them hides that.
#![allow(clippy::needless_range_loop)]

#[cfg(target_endian = "big")]
compile_error!("GGUF is little-endian, and so are the kernels");

pub mod attention;
pub mod format;
pub mod gemm;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod isa;
pub mod limits;
pub mod math;
pub mod memory;
pub mod ops;
pub mod pool;
mod simd;
#[cfg(any(test, feature = "gpu"))]
#[cfg_attr(not(test), allow(dead_code))]
mod testing;
