//! Activations in int8 blocks of 32: the right-hand side of every quantised product.

use crate::isa::{Isa, Task, dispatch};
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
    /// `[block][token]`: what a tile of tokens reads of a block lies together.
    pub(crate) scale: Vec<f32>,
    /// `[block][token]`: the sums of `q` over the block's two halves, as the two 16-bit halves of a word.
    pub(crate) sums: Vec<i32>,
    /// `[block][token]`: the block's sum times its scale, which mins multiply.
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
        let tokens = self.tokens;
        pool.run(tokens, &|token| {
            // SAFETY: each token's values are handed out once.
            #[allow(unsafe_code)]
            let row = unsafe {
                QuantizeRow {
                    x: &x[token * cols..][..cols],
                    q: q.slice(token * cols..(token + 1) * cols),
                    words: wide.slice(if words { token * cols..(token + 1) * cols } else { 0..0 }),
                    scale: &scale,
                    sums: &sums,
                    min: &min,
                    token,
                    tokens,
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
    /// Of all tokens; this one's column is written.
    scale: &'a SharedMut<'a, f32>,
    sums: &'a SharedMut<'a, i32>,
    min: &'a SharedMut<'a, f32>,
    token: usize,
    tokens: usize,
}

impl QuantizeRow<'_> {
    /// What a block has beside its values: its scale, and the sums of its halves.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn say(&self, block: usize, scale: f32, low: i32, high: i32, min: f32) {
        let at = block * self.tokens + self.token;
        // SAFETY: this token's column, which is written here alone; `slice` looks that it is there.
        unsafe {
            self.scale.slice(at..at + 1)[0] = scale;
            self.sums.slice(at..at + 1)[0] = (low & 0xffff) | (high << 16);
            self.min.slice(at..at + 1)[0] = min;
        }
    }
}

impl Task for QuantizeRow<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(mut self) {
        let quants = std::mem::take(&mut self.q);
        for (b, (x, q)) in self.x.chunks_exact(BLOCK).zip(quants.chunks_exact_mut(BLOCK)).enumerate() {
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
                    let scale = if largest < SMALLEST { 0.0 } else { f32::NAN };
                    self.say(b, scale, 0, 0, scale);
                    continue;
                }
                let inverse = S::f_splat(127.0 / largest);
                for v in &mut v {
                    *v = S::f_mul(*v, inverse);
                }
                // Two ratios side by side where a vector has 16 lanes; then a lane a ratio, for the sums' tree and the divisions.
                let (mut dots, mut squares) = ([S::f_splat(0.0); LANES], [S::f_splat(0.0); LANES]);
                let mut twice = [S::f16_splat(0.0); 4];
                for (twice, v) in twice.iter_mut().zip(v) {
                    *twice = S::f16_from(v, v);
                }
                for pair in 0..RATIOS.len() / 2 {
                    let r = S::f16_from(S::f_splat(RATIOS[2 * pair]), S::f_splat(RATIOS[2 * pair + 1]));
                    let (mut dot, mut square) = (S::f16_splat(0.0), S::f16_splat(0.0));
                    for v in twice {
                        let q = S::f16_from_i(S::i16_from_f(S::f16_mul(v, r)));
                        dot = S::f16_add(dot, S::f16_mul(v, q));
                        square = S::f16_add(square, S::f16_mul(q, q));
                    }
                    let (dot, square) = (S::f16_halves(dot), S::f16_halves(square));
                    for half in 0..2 {
                        dots[2 * pair + half] = dot[half];
                        squares[2 * pair + half] = square[half];
                    }
                }
                let (dot, square) = (S::f_trees(dots), S::f_trees(squares));
                let (mut scores, mut fits) = ([0.0f32; LANES], [0.0f32; LANES]);
                S::f_store(scores.as_mut_ptr(), S::f_div(S::f_mul(dot, dot), square));
                S::f_store(fits.as_mut_ptr(), S::f_div(dot, square));
                // The first of the largest, without a branch: which one it is nobody can foretell.
                let largest_score = scores.into_iter().fold(f32::NEG_INFINITY, f32::max);
                let mut largest_ones = 0u32;
                for (i, score) in scores.into_iter().enumerate() {
                    largest_ones |= u32::from(score == largest_score) << i;
                }
                let best = largest_ones.trailing_zeros() as usize % LANES;
                let (fit, ratio) = (fits[best], RATIOS[best]);
                let scale = largest / 127.0 * fit;
                let ratio = S::f_splat(ratio);
                let mut ints = [S::i_splat(0); 4];
                for i in 0..4 {
                    ints[i] = S::i_from_f(S::f_mul(v[i], ratio));
                    S::i_store_low_bytes(q.as_mut_ptr().add(LANES * i), ints[i]);
                }
                let (mut low, mut high) = ([0i32; LANES], [0i32; LANES]);
                S::i_store(low.as_mut_ptr().cast(), S::i_add(ints[0], ints[1]));
                S::i_store(high.as_mut_ptr().cast(), S::i_add(ints[2], ints[3]));
                let (low, high) = (low.into_iter().sum::<i32>(), high.into_iter().sum::<i32>());
                self.say(b, scale, low, high, (low + high) as f32 * scale);
            }
        }
        for (word, q) in self.words.iter_mut().zip(&*quants) {
            *word = i16::from(*q);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_ratios_as_lanes() {
        assert_eq!(RATIOS.len(), LANES);
    }
}
