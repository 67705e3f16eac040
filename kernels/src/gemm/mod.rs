//! Weights × activations.
//!
//! # The result, as the scalar definition states it
//!
//! For a quantised weight row with blocks `b` of 32 and a token whose activations are `q`, with scale `x[b]`
//! ([`Activations`]), in this order and without contraction:
//!
//! ```text
//! int[b] = Σ over sub-blocks s of b: scale[s] · Σ i in s: (w[i] − OFFSET) · q[i]          exact, |int| < 2^24
//! y = 0
//! for each group g (a block, or the superblock of a K-quant):
//!     s = 0;  for b in g: s = s + float(int[b]) · x[b]
//!     y = y + d[g] · s
//!     m = 0;  for sub-blocks j of g: m = m + float(min[j]) · (float(Σ i in j: q[i]) · x[b])     formats with mins
//!     y = y − dmin[g] · m
//! ```
//!
//! For a float weight row: `y = 0; for k: y = y + x[k] · w[k]` in f32.
//!
//! One output is one sequential chain, whatever the tile, the panel, the number of threads or the width of a vector: rows
//! lie in lanes. That is why every instruction set gives the same bits.
//!
//! # How it runs
//!
//! Weights stay as the file has them. A *panel* of 16 rows × 1,024 columns is unpacked into the first-level cache (bytes
//! interleaved so that a lane belongs to a row; how exactly, and how they are multiplied, is the instruction set's) and multiplied with every token before the next is
//! unpacked. Nothing is repacked at load and nothing is kept twice. While a chunk is multiplied, the next one's bytes are asked for. One token has
//! no panel to share: its products read the rows as they lie, a lane a row (`gemv`), a lane a block (`direct`) or in the order of the
//! file (`few`), as the instruction set and the format allow. The price is paid by short prompts: what a pass costs beside its tokens, unpacking
//! and memory above all, is worth about twelve of them (0.6B Q4_K_M, AVX2, one thread: 107 ms beside 8.7 ms a token, from the record
//! `prefill-llama-cpp`).

mod activations;
mod direct;
pub(crate) mod dot;
mod few;
mod float;
mod gemv;
mod lanes;
mod quantized;
#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;

pub use activations::{Activations, BLOCK};
pub(crate) use float::Chains;

use crate::format::BlockType;
use crate::format::decode::with_format;
use crate::isa::Isa;
use crate::memory::Bytes;
use crate::pool::{Pool, SharedMut};
use crate::simd::LANES;

/// Most tokens whose products are made row by row; more share an unpacked panel. Measured with Q4_K and Q6_K of 3072 x 1024 on
/// AVX2 and AVX-512-VNNI: one token 1.2 to 1.3 times as fast, two alike, four .7 to .8 times.
const FEW: usize = 1;

/// Panels that a thread takes at once where tokens are few.
const UNIT: usize = 4;

/// Rows in a panel: two vectors of eight lanes.
pub(crate) const PANEL_ROWS: usize = 16;

/// A weight matrix as a file stores it: `rows` (outputs) of `cols` (inputs), row after row, in whole blocks.
#[derive(Clone, Debug)]
pub struct Matrix {
    ty: BlockType,
    rows: usize,
    cols: usize,
    bytes: Bytes,
}

/// Why bytes are not a matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// A row is not whole blocks.
    #[error("a row of {cols} {ty} values is not whole blocks of {}", .ty.block_len())]
    PartialBlock {
        /// The format.
        ty: BlockType,
        /// Values in a row.
        cols: usize,
    },
    /// The shape and the bytes disagree.
    #[error("{rows} x {cols} {ty} values need {expected} bytes, not {found}")]
    Size {
        /// The format.
        ty: BlockType,
        /// Rows.
        rows: usize,
        /// Values in a row.
        cols: usize,
        /// Bytes that the shape needs (`usize::MAX` where that overflows).
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
}

impl Matrix {
    /// A matrix over `bytes`.
    ///
    /// # Errors
    /// Where the shape is not whole blocks, or needs another number of bytes.
    pub fn new(ty: BlockType, rows: usize, cols: usize, bytes: Bytes) -> Result<Self, MatrixError> {
        let row = ty.row_bytes(cols).ok_or(MatrixError::PartialBlock { ty, cols })?;
        let expected = row.saturating_mul(rows);
        if expected != bytes.len() {
            return Err(MatrixError::Size { ty, rows, cols, expected, found: bytes.len() });
        }
        Ok(Self { ty, rows, cols, bytes })
    }

    /// The format.
    pub const fn block_type(&self) -> BlockType {
        self.ty
    }

    /// Outputs.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// Its bytes, as the file has them.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether a product takes int8 activations (else f32).
    pub const fn is_quantized(&self) -> bool {
        !matches!(self.ty, BlockType::F32 | BlockType::F16 | BlockType::BF16)
    }

    #[inline(always)]
    fn row(&self, row: usize) -> &[u8] {
        let len = self.bytes.len() / self.rows;
        &self.bytes[row * len..][..len]
    }
}

/// The input of products: rows of f32, and their int8 form where a quantised matrix takes part.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// `[token][cols]`
    pub x: &'a [f32],
    /// The same rows, quantised. Not read where every matrix is float.
    pub q: &'a Activations,
}

/// A product to compute: `out[token][row] = w[row] · x[token]`.
pub struct Product<'a> {
    /// The weights.
    pub w: &'a Matrix,
    /// `[token][w.rows()]`
    pub out: &'a mut [f32],
}

/// Computes products that share their input, spread over `pool` by panels.
///
/// # Panics
/// Where the shapes of a matrix, its input and its output do not agree, or the activations were quantised for another
/// instruction set, one that reads them otherwise.
pub fn matmul(isa: Isa, pool: &Pool, input: Input<'_>, products: &mut [Product<'_>]) {
    matmul_by(isa, pool, input, products, FEW);
}

/// [`matmul`], with panels for more than `few` tokens.
fn matmul_by(isa: Isa, pool: &Pool, input: Input<'_>, products: &mut [Product<'_>], few: usize) {
    struct Job<'a> {
        w: &'a Matrix,
        out: SharedMut<'a, f32>,
        first_panel: usize,
        tokens: usize,
    }
    let mut panels = 0;
    let jobs: Vec<Job<'_>> = products
        .iter_mut()
        .map(|p| {
            let tokens = p.out.len() / p.w.rows.max(1);
            assert_eq!(p.out.len(), tokens * p.w.rows, "an output is not whole rows");
            if p.w.is_quantized() {
                assert_eq!(
                    (input.q.tokens(), input.q.cols()),
                    (tokens, p.w.cols),
                    "input and weights disagree"
                );
                input.q.assert_made_for(isa);
            } else {
                assert_eq!(input.x.len(), tokens * p.w.cols, "input and weights disagree");
            }
            let first_panel = panels;
            panels += p.w.rows.div_ceil(PANEL_ROWS);
            Job { w: p.w, out: SharedMut::new(p.out), first_panel, tokens }
        })
        .collect();
    // Rows that one thread reads one after the other: what is asked for ahead is then its own.
    let unit = if jobs.iter().all(|job| job.tokens <= few) { UNIT } else { 1 };
    // Threads take panels in turn: the next of this one lies about as many on as there are threads.
    let ahead = pool.threads();
    let multiply = |panel: usize| {
        let job = &jobs[jobs.partition_point(|job| job.first_panel <= panel) - 1];
        let row = (panel - job.first_panel) * PANEL_ROWS;
        // SAFETY: `out` holds `tokens` rows of `w.rows` floats, and this panel's columns are written by this call alone.
        #[allow(unsafe_code)]
        unsafe {
            let (w, tokens) = (job.w, job.tokens);
            let out = job.out.as_mut_ptr().add(row);
            if isa.dots_in_lanes() && tokens <= few && lanes::knows(w.ty) {
                use crate::format::decode::{Q4_0, Q4K, Q5K, Q6K, Q8_0};
                match w.ty {
                    BlockType::Q4_0 => gemv::rows_product::<Q4_0>(isa, w, input.q, row, tokens, out),
                    BlockType::Q8_0 => gemv::rows_product::<Q8_0>(isa, w, input.q, row, tokens, out),
                    BlockType::Q4K => gemv::rows_product::<Q4K>(isa, w, input.q, row, tokens, out),
                    BlockType::Q5K => gemv::rows_product::<Q5K>(isa, w, input.q, row, tokens, out),
                    _ => gemv::rows_product::<Q6K>(isa, w, input.q, row, tokens, out),
                }
                return;
            }
            if tokens <= few && direct::knows(w.ty) {
                direct::rows_product(isa, w, input.q, row, tokens, out);
                return;
            }
            with_format!(w.ty, F => if tokens <= few {
                    few::rows_product::<F>(isa, w, input.q, row, tokens, out);
                } else {
                    quantized::panel_product::<F>(isa, w, input.q, row, tokens, out, ahead);
                },
                float => float::panel_product(isa, w, input.x, row, tokens, out));
        }
    };
    pool.run(panels.div_ceil(unit), &|i| (i * unit..panels.min((i + 1) * unit)).for_each(&multiply));
}

/// Calls `product(row, token, out)` for each token and the panel's eights of rows, with the part of `out` that is theirs.
///
/// # Safety
/// `out` points at the panel's first column in `tokens` rows of `w.rows`, which nothing else writes meanwhile.
#[allow(unsafe_code)]
unsafe fn by_eights(
    w: &Matrix,
    row: usize,
    tokens: usize,
    out: *mut f32,
    mut product: impl FnMut(usize, usize, &mut [f32]),
) {
    for half in 0..PANEL_ROWS / LANES {
        let row = row + LANES * half;
        let rows = LANES.min(w.rows.saturating_sub(row));
        if rows == 0 {
            break;
        }
        for token in 0..tokens {
            // SAFETY: these columns are among those that the caller gives.
            let out =
                unsafe { core::slice::from_raw_parts_mut(out.add(token * w.rows + LANES * half), rows) };
            product(row, token, out);
        }
    }
}
