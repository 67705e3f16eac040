//! Activations in int8 blocks of 32: the right-hand side of every quantised product.

use crate::isa::{Isa, Task, dispatch};
use crate::ops::lane_tree;
use crate::pool::{Pool, SharedMut};
use crate::simd::{LANES, Simd};

/// Activations in a block.
pub const BLOCK: usize = 32;

/// A block whose largest magnitude is below this is stored as zeros: 127 ÷ it would overflow.
const SMALLEST: f32 = f32::from_bits(27 << 23); // 2^-100

/// The roundings that are tried, as ratios of the block's finest grid: down to 123 steps for the largest value.
const RATIOS: [f32; 8] = [1.0035, 0.999, 0.9945, 0.99, 0.9855, 0.981, 0.9765, 0.972];

/// Rows of activations (one a token), quantised to int8 in blocks of 32 along the input dimension.
///
/// For a block with the largest magnitude `m`, let `y = x · (127 / m)`. Of the roundings `q = round(y · r)` (ties to even,
/// `|q| ≤ 127`) for the eight ratios `r` of `RATIOS` the one with the largest `(Σ y·q)² / Σ q²` is kept, the first of equals,
/// with `scale = (m / 127) · (Σ y·q / Σ q²)`: the least squared error that the ratio allows. `Σ y·q` runs in eight virtual
/// lanes and the fixed tree of all reductions. A block that holds an infinity or NaN has the scale NaN, which reaches every
/// output it touches.
///
/// Why eight: a single rounding (`scale = m / 127`, as others do it) leaves as much error as llama.cpp's. The search lowers
/// 1 − cosine by a tenth to a fifth (tiny random Qwen3, against transformers). Scales for every 16 values would lower it by a
/// third, and cost every kernel one more widening for each block.
#[derive(Default)]
pub struct Activations {
    tokens: usize,
    cols: usize,
    /// `[token][cols]`
    pub(crate) q: Vec<i8>,
    /// The same as 16-bit words, where the instruction set multiplies words; else empty.
    pub(crate) words: Vec<i16>,
    /// `[token][block]`
    pub(crate) scale: Vec<f32>,
    /// `[token][block]`: the sums of `q` over the block's two halves, as the two 16-bit halves of a word.
    pub(crate) sums: Vec<i32>,
    /// `[token][block]`: the block's sum times its scale, which mins multiply.
    pub(crate) min: Vec<f32>,
}

impl Activations {
    /// None yet; [`quantize`](Self::quantize) fills it and reuses its memory.
    pub const fn new() -> Self {
        Self {
            tokens: 0,
            cols: 0,
            q: Vec::new(),
            words: Vec::new(),
            scale: Vec::new(),
            sums: Vec::new(),
            min: Vec::new(),
        }
    }

    /// Rows that it holds.
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// Length of a row.
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of memory that it keeps.
    pub fn memory(&self) -> usize {
        self.q.capacity()
            + 2 * self.words.capacity()
            + 4 * (self.scale.capacity() + self.sums.capacity() + self.min.capacity())
    }

    /// Whether a product on `isa` finds what it reads.
    pub(super) fn assert_made_for(&self, isa: Isa) {
        let words = isa.signed_words() || isa.unsigned_words();
        assert!(!words || self.words.len() == self.q.len(), "the activations were not quantised for {isa}");
    }

    /// Quantises `x`, rows of `cols` values, for products on `isa`.
    ///
    /// # Panics
    /// Where `cols` is not whole blocks or `x` not whole rows.
    pub fn quantize(&mut self, isa: Isa, pool: &Pool, x: &[f32], cols: usize) {
        assert!(
            cols > 0 && cols.is_multiple_of(BLOCK),
            "a row of {cols} values is not whole blocks of {BLOCK}"
        );
        assert!(x.len().is_multiple_of(cols), "{} values are not whole rows of {cols}", x.len());
        (self.tokens, self.cols) = (x.len() / cols, cols);
        let blocks = x.len() / BLOCK;
        self.q.resize(x.len(), 0);
        let words = isa.signed_words() || isa.unsigned_words();
        self.words.resize(if words { x.len() } else { 0 }, 0);
        self.scale.resize(blocks, 0.0);
        self.sums.resize(blocks, 0);
        self.min.resize(blocks, 0.0);
        let q = SharedMut::new(&mut self.q);
        let wide = SharedMut::new(&mut self.words);
        let scale = SharedMut::new(&mut self.scale);
        let sums = SharedMut::new(&mut self.sums);
        let min = SharedMut::new(&mut self.min);
        let row_blocks = cols / BLOCK;
        pool.run(self.tokens, &|token| {
            let blocks = token * row_blocks..(token + 1) * row_blocks;
            // SAFETY: each token's rows are handed out once.
            #[allow(unsafe_code)]
            let row = unsafe {
                QuantizeRow {
                    x: &x[token * cols..][..cols],
                    q: q.slice(token * cols..(token + 1) * cols),
                    words: wide.slice(if words { token * cols..(token + 1) * cols } else { 0..0 }),
                    scale: scale.slice(blocks.clone()),
                    sums: sums.slice(blocks.clone()),
                    min: min.slice(blocks),
                }
            };
            dispatch(isa, row);
        });
    }
}

struct QuantizeRow<'a> {
    x: &'a [f32],
    q: &'a mut [i8],
    words: &'a mut [i16],
    scale: &'a mut [f32],
    sums: &'a mut [i32],
    min: &'a mut [f32],
}

impl Task for QuantizeRow<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        for (b, (x, q)) in self.x.chunks_exact(BLOCK).zip(self.q.chunks_exact_mut(BLOCK)).enumerate() {
            // SAFETY: the caller gives the instruction set; a block is four vectors of floats and of bytes.
            unsafe {
                let mut v = [S::f_splat(0.0); 4];
                for (i, v) in v.iter_mut().enumerate() {
                    *v = S::f_load(x.as_ptr().add(LANES * i));
                }
                let m = S::i_max(
                    S::i_max(S::f_magnitude(v[0]), S::f_magnitude(v[1])),
                    S::i_max(S::f_magnitude(v[2]), S::f_magnitude(v[3])),
                );
                let mut lanes = [0u32; LANES];
                S::i_store(lanes.as_mut_ptr().cast(), m);
                let largest = f32::from_bits(lanes.into_iter().max().unwrap_or(0));
                if !(SMALLEST..=f32::MAX).contains(&largest) {
                    // Zeros, or not finite.
                    q.fill(0);
                    self.scale[b] = if largest < SMALLEST { 0.0 } else { f32::NAN };
                    self.sums[b] = 0;
                    self.min[b] = self.scale[b];
                    continue;
                }
                let inverse = S::f_splat(127.0 / largest);
                for v in &mut v {
                    *v = S::f_mul(*v, inverse);
                }
                let mut best = (f32::NEG_INFINITY, 0.0, RATIOS[0]);
                for ratio in RATIOS {
                    let r = S::f_splat(ratio);
                    let (mut dot, mut square) = (S::f_splat(0.0), S::f_splat(0.0));
                    for v in v {
                        let q = S::f_from_i(S::i_from_f(S::f_mul(v, r)));
                        dot = S::f_add(dot, S::f_mul(v, q));
                        square = S::f_add(square, S::f_mul(q, q));
                    }
                    let (dot, square) = (lane_tree::<S>(dot), lane_tree::<S>(square));
                    let score = dot * dot / square;
                    if score > best.0 {
                        best = (score, dot / square, ratio);
                    }
                }
                let (_, fit, ratio) = best;
                let scale = largest / 127.0 * fit;
                self.scale[b] = scale;
                let ratio = S::f_splat(ratio);
                for (i, v) in v.into_iter().enumerate() {
                    S::i_store_low_bytes(q.as_mut_ptr().add(LANES * i), S::i_from_f(S::f_mul(v, ratio)));
                }
                let sum = |half: &[i8]| half.iter().map(|&q| i32::from(q)).sum::<i32>();
                let (low, high) = (sum(&q[..16]), sum(&q[16..]));
                self.sums[b] = (low & 0xffff) | (high << 16);
                self.min[b] = (low + high) as f32 * scale;
            }
        }
        for (word, q) in self.words.iter_mut().zip(&*self.q) {
            *word = i16::from(*q);
        }
    }
}
