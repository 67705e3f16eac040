//! Products with one token by eight rows at once, a lane a row: decoding, where an instruction set multiplies bytes in lanes.
//!
//! What [`super::lanes`] unpacks is multiplied where it stands, in registers; the four activations of a step are the same for all rows. Sums need
//! not be brought into lanes: they are there, and the chain of the definition follows.

use super::lanes::{self, Sink};
use super::quantized::half_sum;
use super::{Activations, BLOCK, Matrix, by_eights};
use crate::format::decode::{Class, Format};
use crate::isa::{Isa, Task, dispatch};
use crate::simd::{LANES, Simd};
use core::marker::PhantomData;

/// Blocks of the largest group, and sub-blocks.
const BLOCKS: usize = 8;
const SUBS: usize = 16;

/// Multiplies the 16 rows from `row` with every token, one token after the other.
///
/// # Safety
/// `out` points at the first of these columns in `tokens` rows of `w.rows`, which nothing else writes meanwhile; the format is
/// one that [`lanes::knows`] names.
#[allow(unsafe_code)]
pub(super) unsafe fn rows_product<F: Format>(
    isa: Isa,
    w: &Matrix,
    x: &Activations,
    row: usize,
    tokens: usize,
    out: *mut f32,
) {
    // SAFETY: as the caller gives it.
    unsafe {
        by_eights(w, row, tokens, out, |row, token, out| {
            dispatch(isa, Rows::<F> { w, x, row, token, out, format: PhantomData });
        });
    }
}

/// Up to eight rows times one token.
struct Rows<'a, F> {
    w: &'a Matrix,
    x: &'a Activations,
    row: usize,
    token: usize,
    out: &'a mut [f32],
    format: PhantomData<F>,
}

/// A group's sums, a lane a row.
struct Sums<S: Simd, F> {
    /// The token's activations of the group.
    a: *const i8,
    /// `[sub-block]`
    int: [S::I; SUBS],
    scale: [S::F; SUBS],
    min: [S::F; SUBS],
    d: S::F,
    dmin: S::F,
    format: PhantomData<F>,
}

/// `a` must point at as many activations as the format's group has.
#[allow(unsafe_code)]
impl<S: Simd, F: Format> Sink<S> for Sums<S, F> {
    #[inline(always)]
    unsafe fn quad(&mut self, block: usize, quad: usize, q: S::I) {
        let at = BLOCK * block + 4 * quad;
        // SAFETY: as the caller gives it.
        unsafe {
            let a = S::i_splat(self.a.add(at).cast::<i32>().read_unaligned());
            let int = &mut self.int[at / F::SUB];
            *int =
                if F::CLASS == Class::Signed { S::i_dot4_signed(*int, q, a) } else { S::i_dot4(*int, q, a) };
        }
    }

    #[inline(always)]
    unsafe fn scale(&mut self, sub: usize, scale: S::I) {
        // SAFETY: the caller gives the instruction set.
        self.scale[sub] = unsafe { S::f_from_i(scale) };
    }

    #[inline(always)]
    unsafe fn min(&mut self, sub: usize, min: S::F) {
        self.min[sub] = min;
    }

    #[inline(always)]
    unsafe fn floats(&mut self, d: S::F, dmin: S::F) {
        (self.d, self.dmin) = (d, dmin);
    }
}

impl<F: Format> Task for Rows<'_, F> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        let Self { w, x, row, token, out, .. } = self;
        const { assert!(F::LEN / BLOCK <= BLOCKS && F::LEN / F::SUB <= SUBS && (!F::MIN || F::SUB == BLOCK)) };
        let (blocks, size) = (w.cols / BLOCK, F::TYPE.block_bytes());
        let (group_blocks, subs) = (F::LEN / BLOCK, BLOCK / F::SUB);
        let row_bytes = w.row(row).len();
        // Rows that are not there are the first one once more: their results are not kept.
        let mut rows = [w.row(row).as_ptr(); LANES];
        for (r, pointer) in rows.iter_mut().enumerate().take(out.len()) {
            *pointer = w.row(row + r).as_ptr();
        }
        // SAFETY: the caller gives the instruction set; a row is `blocks / group_blocks` groups, and so are the activations.
        unsafe {
            let zero = S::f_splat(0.0);
            let mut y = zero;
            for g in 0..blocks / group_blocks {
                for row in &rows {
                    // Two eights of rows ahead: of mapped pages the processor reads none ahead by itself beyond 4 KiB.
                    for line in (0..size).step_by(64) {
                        S::prefetch(row.wrapping_add(2 * LANES * row_bytes + line));
                    }
                }
                let first = g * group_blocks;
                let mut sums = Sums::<S, F> {
                    a: x.q.as_ptr().add((token * blocks + first) * BLOCK),
                    int: [S::i_splat(0); SUBS],
                    scale: [zero; SUBS],
                    min: [zero; SUBS],
                    d: zero,
                    dmin: zero,
                    format: PhantomData,
                };
                lanes::unpack::<S, _>(F::TYPE, &rows, &mut sums);
                for row in &mut rows {
                    *row = row.add(size);
                }
                let Sums { int, scale, min, d, dmin, .. } = sums;
                let mut s = zero;
                for b in 0..group_blocks {
                    let at = (first + b) * x.tokens() + token;
                    let halves = *x.sums.as_ptr().add(at);
                    let mut product = zero;
                    for sub in 0..subs {
                        let i = b * subs + sub;
                        let mut int = int[i];
                        if let Some(shift) = F::OFFSET_SHIFT {
                            let sum = if subs == 1 {
                                half_sum(halves, 0) + half_sum(halves, 1)
                            } else {
                                half_sum(halves, sub)
                            };
                            int = S::i_sub(int, S::i_splat(sum << shift));
                        }
                        // |int| · |scale| < 2^24: products are exact, and so is the sum of two.
                        let mut float = S::f_from_i(int);
                        if group_blocks > 1 {
                            float = S::f_mul(float, scale[i]);
                        }
                        product = if sub == 0 { float } else { S::f_add(product, float) };
                    }
                    s = S::f_add(s, S::f_mul(product, S::f_splat(*x.scale.as_ptr().add(at))));
                }
                y = S::f_add(y, S::f_mul(d, s));
                if F::MIN {
                    let mut m = zero;
                    for b in 0..group_blocks {
                        let x = S::f_splat(*x.min.as_ptr().add((first + b) * x.tokens() + token));
                        m = S::f_add(m, S::f_mul(min[b], x));
                    }
                    y = S::f_sub(y, S::f_mul(dmin, m));
                }
            }
            let mut copy = [0.0f32; LANES];
            S::f_store(copy.as_mut_ptr(), y);
            out.copy_from_slice(&copy[..out.len()]);
        }
    }
}
