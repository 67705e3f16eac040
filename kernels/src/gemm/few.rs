//! Products of quantised weights with few tokens: a GEMV, as decoding is.
//!
//! A panel that is unpacked with rows in lanes pays where many tokens share it; for one token it costs a dozen times what
//! the token does. Here the quants of eight rows are only widened to bytes, in the order of the file, and multiplied where
//! they lie; the sums of eight rows come into lanes by a tree of additions. The integers are exact, and the floats follow the
//! chain of the definition, so that the bits are those of the panels.

use super::dot::Layout;
use super::quantized::half_sum;
use super::{Activations, BLOCK, Matrix, PANEL_ROWS};
use crate::format::decode::{Class, Format, Group};
use crate::isa::{Isa, Task, dispatch};
use crate::simd::{LANES, Simd};
use core::marker::PhantomData;
use std::cell::RefCell;

/// Groups of a row that are widened at once. Of a K-quant they are 4,096 columns, a whole row as a rule: rows are then read
/// one after the other as they lie in memory. Bytes of eight rows by turns came at a third of the speed.
const CHUNK: usize = 16;
/// Sub-blocks of the largest group.
const SUBS: usize = 16;

thread_local! {
    /// `[group][row]`
    static GROUPS: RefCell<Vec<[Group; LANES]>> = const { RefCell::new(Vec::new()) };
}

/// Multiplies the 16 rows from `row` with every token.
///
/// # Safety
/// `out` points at the first of these columns in `tokens` rows of `w.rows`, which nothing else writes meanwhile.
#[allow(unsafe_code)]
pub(super) unsafe fn rows_product<F: Format>(
    isa: Isa,
    w: &Matrix,
    x: &Activations,
    row: usize,
    tokens: usize,
    out: *mut f32,
) {
    let (blocks, layout) = (w.cols / BLOCK, Layout::of::<F>());
    GROUPS.with_borrow_mut(|groups| {
        groups.resize_with(CHUNK, || [const { Group::new() }; LANES]);
        let chunk = groups.len() * layout.group_blocks;
        for half in 0..PANEL_ROWS / LANES {
            let row = row + LANES * half;
            let rows = LANES.min(w.rows.saturating_sub(row));
            if rows == 0 {
                break;
            }
            // SAFETY: these columns are among those that the caller gives.
            let out = unsafe { out.add(LANES * half) };
            for start in (0..blocks).step_by(chunk) {
                let len = chunk.min(blocks - start);
                let groups = &mut groups[..len / layout.group_blocks];
                let first = start / layout.group_blocks;
                dispatch(isa, Widen::<F> { w, row, rows, first, groups, format: PhantomData });
                let chunk = Rows { groups, layout, x, start, tokens, out, out_stride: w.rows, rows };
                // As with panels, formats that differ only in data share code.
                match (F::CLASS, F::SUB) {
                    (Class::Signed, _) => dispatch(isa, Kernel::<true, 1>(chunk)),
                    (_, BLOCK) => dispatch(isa, Kernel::<false, 1>(chunk)),
                    _ => dispatch(isa, Kernel::<false, 2>(chunk)),
                }
            }
        }
    });
}

/// Decodes groups of `rows` rows from group `first` on; rows that are not there become zeros.
struct Widen<'a, F> {
    w: &'a Matrix,
    row: usize,
    rows: usize,
    first: usize,
    groups: &'a mut [[Group; LANES]],
    format: PhantomData<F>,
}

impl<F: Format> Task for Widen<'_, F> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        let size = F::TYPE.block_bytes();
        for (r, row) in (self.row..self.row + self.rows).enumerate() {
            let bytes = &self.w.row(row)[self.first * size..];
            for (groups, block) in self.groups.iter_mut().zip(bytes.chunks_exact(size)) {
                F::decode(block, &mut groups[r]);
            }
        }
        for groups in self.groups {
            for group in &mut groups[self.rows..] {
                *group = Group::new();
            }
        }
    }
}

/// A chunk of eight rows and what it is multiplied with.
struct Rows<'a> {
    groups: &'a [[Group; LANES]],
    layout: Layout,
    x: &'a Activations,
    /// First block of the chunk.
    start: usize,
    tokens: usize,
    out: *mut f32,
    out_stride: usize,
    rows: usize,
}

/// The kernel for `SIGNED` or unsigned quants with `BLOCK_SUBS` sub-blocks in a block.
struct Kernel<'a, const SIGNED: bool, const BLOCK_SUBS: usize>(Rows<'a>);

impl<const SIGNED: bool, const BLOCK_SUBS: usize> Task for Kernel<'_, SIGNED, BLOCK_SUBS> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller gives the instruction set; the pointers are valid as `rows_product` states.
        unsafe {
            for token in 0..self.0.tokens {
                self.token::<S>(token);
            }
        }
    }
}

impl<const SIGNED: bool, const BLOCK_SUBS: usize> Kernel<'_, SIGNED, BLOCK_SUBS> {
    /// Eight rows × one token.
    ///
    /// # Safety
    /// The processor has the instruction set of `S`; `out` has `rows` columns in the token's row.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn token<S: Simd>(&self, token: usize) {
        let Rows { groups, layout, x, start, out, out_stride, rows, .. } = self.0;
        let blocks = x.cols() / BLOCK;
        let Layout { group_blocks, offset_shift, min } = layout;
        let mut scales = [[0.0f32; LANES]; SUBS];
        let mut mins = [[0.0f32; LANES]; SUBS];
        let mut copy = [0.0f32; LANES];
        // SAFETY: the activations hold `blocks` blocks of every token, a group its quants, scales and mins; partial rows of
        // `out` go through a copy.
        unsafe {
            let out = out.add(token * out_stride);
            if start > 0 {
                core::ptr::copy_nonoverlapping(out, copy.as_mut_ptr(), rows);
            }
            let at_token = |block: usize| block * x.tokens() + token;
            let mut acc = S::f_load(copy.as_ptr());
            for (g, groups) in groups.iter().enumerate() {
                if group_blocks > 1 {
                    lanes::<S>(groups, group_blocks * BLOCK_SUBS, min, &mut scales, &mut mins);
                }
                let first = start + g * group_blocks;
                let mut s = S::f_splat(0.0);
                for b in 0..group_blocks {
                    let a = S::i_load(x.q.as_ptr().add((token * blocks + first + b) * BLOCK).cast());
                    let mut dots = [S::i_splat(0); LANES];
                    for r in 0..LANES {
                        let w = S::i_load(groups[r].q.as_ptr().add(BLOCK * b));
                        dots[r] = if SIGNED { S::i_quads_signed(w, a) } else { S::i_quads(w, a) };
                    }
                    let [low, high] = S::i_halves(dots);
                    let sums = *x.sums.as_ptr().add(at_token(first + b));
                    let shift = offset_shift.unwrap_or(0);
                    let offset = |sum: i32| if offset_shift.is_some() { sum << shift } else { 0 };
                    // |int| · |scale| < 2^24: products with a scale are exact, and so is the sum of two.
                    let int = if BLOCK_SUBS == 1 {
                        let sum = offset(half_sum(sums, 0) + half_sum(sums, 1));
                        let int = S::f_from_i(S::i_sub(S::i_add(low, high), S::i_splat(sum)));
                        if group_blocks > 1 { S::f_mul(int, S::f_load(scales[b].as_ptr())) } else { int }
                    } else {
                        let low = S::f_from_i(S::i_sub(low, S::i_splat(offset(half_sum(sums, 0)))));
                        let high = S::f_from_i(S::i_sub(high, S::i_splat(offset(half_sum(sums, 1)))));
                        S::f_add(
                            S::f_mul(low, S::f_load(scales[2 * b].as_ptr())),
                            S::f_mul(high, S::f_load(scales[2 * b + 1].as_ptr())),
                        )
                    };
                    s = S::f_add(s, S::f_mul(int, S::f_splat(*x.scale.as_ptr().add(at_token(first + b)))));
                }
                let mut d = [0.0f32; LANES];
                for r in 0..LANES {
                    d[r] = groups[r].d;
                }
                acc = S::f_add(acc, S::f_mul(S::f_load(d.as_ptr()), s));
                if !min {
                    continue;
                }
                let mut dmin = [0.0f32; LANES];
                for r in 0..LANES {
                    dmin[r] = groups[r].dmin;
                    if group_blocks == 1 {
                        mins[0][r] = f32::from(groups[r].min[0]);
                    }
                }
                let mut m = S::f_splat(0.0);
                for b in 0..group_blocks {
                    for sub in 0..BLOCK_SUBS {
                        let x = if BLOCK_SUBS == 1 {
                            *x.min.as_ptr().add(at_token(first + b))
                        } else {
                            half_sum(*x.sums.as_ptr().add(at_token(first + b)), sub) as f32
                                * *x.scale.as_ptr().add(at_token(first + b))
                        };
                        let min = S::f_load(mins[b * BLOCK_SUBS + sub].as_ptr());
                        m = S::f_add(m, S::f_mul(min, S::f_splat(x)));
                    }
                }
                acc = S::f_sub(acc, S::f_mul(S::f_load(dmin.as_ptr()), m));
            }
            S::f_store(copy.as_mut_ptr(), acc);
            core::ptr::copy_nonoverlapping(copy.as_ptr(), out, rows);
        }
    }
}

/// Scales and mins of eight rows' sub-blocks as floats, a lane a row.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn lanes<S: Simd>(
    groups: &[Group; LANES],
    subs: usize,
    min: bool,
    scales: &mut [[f32; LANES]; SUBS],
    mins: &mut [[f32; LANES]; SUBS],
) {
    // SAFETY: scales and mins stand together, 32 bytes of each row; four of them to a lane, and after the transposition
    // a lane a row.
    unsafe {
        let mut rows = [S::i_splat(0); LANES];
        for r in 0..LANES {
            rows[r] = S::i_load((&raw const groups[r].scale).cast());
        }
        let words = S::i_transpose(rows);
        for word in 0..subs / 4 {
            for byte in 0..4 {
                let float = |word| S::f_from_i(S::i_sar(S::i_shl(word, 24 - 8 * byte as u32), 24));
                S::f_store(scales[4 * word + byte].as_mut_ptr(), float(words[word]));
                if min {
                    // Mins are at most 63: their sign bit is clear.
                    S::f_store(mins[4 * word + byte].as_mut_ptr(), float(words[4 + word]));
                }
            }
        }
    }
}
