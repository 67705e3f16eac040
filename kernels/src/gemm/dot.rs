//! How a block of small integers is multiplied: three ways, each exact, each written once.
//!
//! All of them give `float(int[b])` of the definition ([`crate::gemm`]). They differ in what a panel holds and in how far
//! sums may grow before they are widened, because that is what instruction sets differ in.

use super::{Activations, BLOCK, PANEL_ROWS};
use crate::format::decode::{Class, Format, Group};
use crate::simd::{ByteDot, LANES, ShortDot, Simd, panels, store_by_quads};

/// Four-byte steps in a block.
const QUADS: usize = BLOCK / 4;
/// Steps of two words in a block.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
const PAIRS: usize = BLOCK / 2;

/// Bytes of a step of 16 rows, of two words each.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
static STEP: usize = 4 * PANEL_ROWS;

/// What a kernel must know of a format beside the range of its quants.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Blocks in a group.
    pub group_blocks: usize,
    /// log2 of what is subtracted from a quant, where something is.
    pub offset_shift: Option<u32>,
    /// Whether sub-blocks have mins.
    pub min: bool,
}

impl Layout {
    pub(crate) const fn of<F: Format>() -> Self {
        Self { group_blocks: F::LEN / BLOCK, offset_shift: F::OFFSET_SHIFT, min: F::MIN }
    }
}

/// A way to multiply blocks with the instruction set of `S`.
///
/// # Safety
/// Every function may only be called where the processor has the instruction set of `S`, with pointers that are valid as
/// it states.
#[allow(unsafe_code)]
pub(crate) trait Dot<S: Simd> {
    /// What an activation is read as.
    type Activation;
    /// Bytes that a value of the panel has.
    const WIDTH: usize;
    /// What signed bytes are changed by, where a panel's block is `[quad][row][4]` bytes as [`super::lanes`] writes them.
    const QUADS: Option<u8> = None;

    /// The activations.
    fn activations(x: &Activations) -> *const Self::Activation;

    /// Writes block `b` of eight rows' groups into a panel's block of `16 · 32 · WIDTH` bytes; `half` says which eight of
    /// its 16 rows they are.
    unsafe fn pack<F: Format>(groups: &[Group], b: usize, half: usize, block: &mut [u8]);

    /// `float(int[b])` of 16 rows × `T` tokens.
    ///
    /// `w` points at a block of a panel; `scale` at its sub-blocks' scales, `[sub-block][16]`; each of `a` at 32
    /// activations, whose sums over the block's halves are `sums`. `STEPS` quads of products fit into 16 bits (0: quants
    /// are signed bytes), a block has `SUBS` sub-blocks.
    unsafe fn block<const STEPS: usize, const SUBS: usize, const T: usize>(
        w: *const u8,
        scale: *const i32,
        a: [*const Self::Activation; T],
        sums: [i32; T],
        layout: Layout,
    ) -> [S::F16; T];
}

/// Unsigned quants as bytes, summed in 16 bits, `STEPS` quads at a time, then widened by a multiplication with the scale.
pub(crate) struct Shorts;

#[allow(unsafe_code)]
impl<S: ShortDot> Dot<S> for Shorts {
    type Activation = i8;
    const WIDTH: usize = 1;
    const QUADS: Option<u8> = Some(0);

    fn activations(x: &Activations) -> *const i8 {
        x.q.as_ptr()
    }

    #[inline(always)]
    unsafe fn pack<F: Format>(groups: &[Group], b: usize, half: usize, block: &mut [u8]) {
        assert!(block.len() == BLOCK * PANEL_ROWS);
        // SAFETY: as the caller gives it; the block is as large as was just seen.
        unsafe { store_by_quads::<S>(byte_rows::<S>(groups, b, None), half, block.as_mut_ptr()) }
    }

    #[inline(always)]
    unsafe fn block<const STEPS: usize, const SUBS: usize, const T: usize>(
        w: *const u8,
        scale: *const i32,
        a: [*const i8; T],
        sums: [i32; T],
        layout: Layout,
    ) -> [S::F16; T] {
        // SAFETY: as the caller gives it.
        unsafe {
            let mut int = [[S::i_splat(0); T]; 2];
            for at in (0..QUADS).step_by(STEPS) {
                let mut from = a;
                for from in &mut from {
                    *from = from.add(4 * at);
                }
                let short = S::s_sums::<STEPS, T>(w.add(4 * PANEL_ROWS * at), from);
                let scale = scale.add(at * SUBS / QUADS * PANEL_ROWS);
                for r in 0..2 {
                    let scale = S::i_load(scale.add(LANES * r).cast());
                    for t in 0..T {
                        let sum = S::s_widen(short[r][t], scale);
                        int[r][t] = if at == 0 { sum } else { S::i_add(int[r][t], sum) };
                    }
                }
            }
            if let Some(shift) = layout.offset_shift {
                for r in 0..2 {
                    let low = S::i_load(scale.add(LANES * r).cast());
                    let high = S::i_load(scale.add((SUBS - 1) * PANEL_ROWS + LANES * r).cast());
                    let both = S::i_blend16(low, high);
                    for t in 0..T {
                        let offset = S::i_shl(S::i_dot16(both, S::i_splat(sums[t])), shift);
                        int[r][t] = S::i_sub(int[r][t], offset);
                    }
                }
            }
            floats::<S, T>(panels::<S, T>(int))
        }
    }
}

/// Bytes summed in 32 bits; an offset is where the sum begins, a scale is multiplied as a float.
pub(crate) struct Exact;

#[allow(unsafe_code)]
impl<S: ByteDot> Dot<S> for Exact {
    type Activation = i8;
    const WIDTH: usize = 1;
    const QUADS: Option<u8> = match (S::BY_QUADS, S::BIAS_SHIFT) {
        (false, _) => None,
        (true, None) => Some(0),
        (true, Some(shift)) => Some(1 << shift),
    };

    fn activations(x: &Activations) -> *const i8 {
        x.q.as_ptr()
    }

    #[inline(always)]
    unsafe fn pack<F: Format>(groups: &[Group], b: usize, half: usize, block: &mut [u8]) {
        let bias = if F::CLASS == Class::Signed { S::BIAS_SHIFT } else { None };
        assert!(block.len() == BLOCK * PANEL_ROWS);
        // SAFETY: as the caller gives it; the block is as large as was just seen.
        unsafe { S::store_block(byte_rows::<S>(groups, b, bias), half, block.as_mut_ptr()) }
    }

    #[inline(always)]
    unsafe fn block<const STEPS: usize, const SUBS: usize, const T: usize>(
        w: *const u8,
        scale: *const i32,
        a: [*const i8; T],
        sums: [i32; T],
        layout: Layout,
    ) -> [S::F16; T] {
        let shift = if STEPS == 0 { S::BIAS_SHIFT } else { layout.offset_shift };
        // SAFETY: as the caller gives it.
        unsafe {
            let mut out = [S::f16_splat(0.0); T];
            for sub in 0..SUBS {
                let mut init = [S::sum_of_none(); T];
                if let Some(shift) = shift {
                    // Minus the offset for each half of the block that this sub-block covers, as two words.
                    let offset = -(1i32 << shift);
                    let (low, high) = (offset & 0xffff, offset << 16);
                    let offsets = if SUBS == 1 {
                        low | high
                    } else if sub == 0 {
                        low
                    } else {
                        high
                    };
                    for t in 0..T {
                        init[t] = S::sum_of(sums[t], offsets);
                    }
                }
                let mut at = a;
                for at in &mut at {
                    *at = at.add(BLOCK / SUBS * sub);
                }
                let w = w.add(BLOCK / SUBS * PANEL_ROWS * sub);
                let int = S::sums::<T>(w, at, init, QUADS / SUBS);
                let mut sums = [S::f16_splat(0.0); T];
                if layout.group_blocks > 1 {
                    // |int| · |scale| < 2^24: the products are exact, and so is their sum.
                    let scale = S::f16_from_i(S::i16_load_high(scale.add(sub * PANEL_ROWS)));
                    for t in 0..T {
                        sums[t] = S::f16_from_scaled_sum(int[t], scale);
                    }
                } else {
                    for t in 0..T {
                        sums[t] = S::f16_from_sum(int[t]);
                    }
                }
                for t in 0..T {
                    out[t] = if sub == 0 { sums[t] } else { S::f16_add(out[t], sums[t]) };
                }
            }
            out
        }
    }
}

/// Words that hold `scale · (q − offset)` already: what is left of a block is a dot product of 16-bit words.
///
/// For instruction sets without a product of bytes. The panel is twice as large.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) struct Words;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[allow(unsafe_code)]
impl<S: Simd> Dot<S> for Words {
    type Activation = i16;
    const WIDTH: usize = 2;

    fn activations(x: &Activations) -> *const i16 {
        x.words.as_ptr()
    }

    #[inline(always)]
    unsafe fn pack<F: Format>(groups: &[Group], b: usize, half: usize, block: &mut [u8]) {
        let mut words = [[0i16; BLOCK]; LANES];
        let offset = F::OFFSET_SHIFT.map_or(0, |shift| 1i16 << shift);
        for (words, group) in words.iter_mut().zip(groups) {
            for sub in 0..BLOCK / F::SUB {
                let scale = i16::from(group.scale[b * (BLOCK / F::SUB) + sub]);
                for i in F::SUB * sub..F::SUB * (sub + 1) {
                    let q = group.q[BLOCK * b + i];
                    let q = if matches!(F::CLASS, Class::Signed) { i16::from(q as i8) } else { i16::from(q) };
                    words[i] = scale * (q - offset);
                }
            }
        }
        assert!(block.len() == 2 * BLOCK * PANEL_ROWS);
        for pairs in 0..2 {
            // SAFETY: eight pairs of each row; the block holds sixteen steps of 64 bytes, as was just seen.
            unsafe {
                let mut lanes = [S::i_splat(0); LANES];
                for (lane, words) in lanes.iter_mut().zip(&words) {
                    *lane = S::i_load(words[2 * LANES * pairs..].as_ptr().cast());
                }
                for (pair, lane) in S::i_transpose(lanes).into_iter().enumerate() {
                    let at = (LANES * pairs + pair) * 4 * PANEL_ROWS + 4 * LANES * half;
                    S::i_store(block.as_mut_ptr().add(at), lane);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn block<const STEPS: usize, const SUBS: usize, const T: usize>(
        w: *const u8,
        _scale: *const i32,
        a: [*const i16; T],
        _sums: [i32; T],
        _layout: Layout,
    ) -> [S::F16; T] {
        // SAFETY: as the caller gives it.
        unsafe {
            let mut int = [[S::i_splat(0); T]; 2];
            let (mut w, mut a) = (w, a);
            // A loop that stays one: unrolled into one block of code, all loads came first and everything spilled (half the
            // speed). A step that LLVM cannot know keeps it; V8 unrolls it well. Read, and not `black_box`: that one is a
            // store, and all that memory holds is loaded anew behind it.
            let step = (&raw const STEP).read_volatile();
            let end = w.add(step * PAIRS);
            loop {
                let rows = [S::i_load(w), S::i_load(w.add(4 * LANES))];
                for t in 0..T {
                    let a = S::i_splat(a[t].cast::<i32>().read_unaligned());
                    for r in 0..2 {
                        int[r][t] = S::i_add(int[r][t], S::i_dot16(rows[r], a));
                    }
                }
                w = w.add(step);
                if w == end {
                    break;
                }
                for t in 0..T {
                    a[t] = a[t].add(2);
                }
            }
            floats::<S, T>(panels::<S, T>(int))
        }
    }
}

/// The quants of eight rows' block `b`, `2^bias` added where there is a bias.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn byte_rows<S: Simd>(groups: &[Group], b: usize, bias: Option<u32>) -> [S::I; LANES] {
    // SAFETY: the caller gives the instruction set; 32 bytes of each row.
    unsafe {
        let mut rows = [S::i_splat(0); LANES];
        for (row, group) in rows.iter_mut().zip(groups) {
            let quants: &[u8; BLOCK] = group.q[BLOCK * b..][..BLOCK].first_chunk().expect("a block");
            if let Some(shift) = bias {
                let mut biased = [0u8; BLOCK];
                for i in 0..BLOCK {
                    biased[i] = quants[i].wrapping_add(1 << shift);
                }
                *row = S::i_load(biased.as_ptr());
            } else {
                *row = S::i_load(quants.as_ptr());
            }
        }
        rows
    }
}

/// The floats of integers.
///
/// A loop, not `map`: closures that a library function calls are not compiled for the instruction set, and cost a call for
/// each vector (measured: ten times slower).
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn floats<S: Simd, const T: usize>(int: [S::I16; T]) -> [S::F16; T] {
    // SAFETY: the caller gives the instruction set.
    unsafe {
        let mut out = [S::f16_splat(0.0); T];
        for t in 0..T {
            out[t] = S::f16_from_i(int[t]);
        }
        out
    }
}
