//! Products of the common K-quants with one token, straight from the bytes of the file: what decoding does most.
//!
//! A superblock of eight blocks is multiplied in registers; its block sums come into lanes, a lane a block, and meet the
//! scales of weights and activations there. Eight rows are then transposed, a lane a row, for the chain of the definition.
//! The bits are those of the panels; [`super::few`] does the same for every format, at half the speed.

use super::lanes::halves;
use super::{Activations, BLOCK, Matrix, by_eights};
use crate::format::BlockType;
use crate::isa::{Isa, Task, dispatch};
use crate::simd::{LANES, Simd};
use core::marker::PhantomData;

/// Blocks of a superblock.
const BLOCKS: usize = 8;

/// Whether [`rows_product`] knows the format.
pub(super) const fn knows(ty: BlockType) -> bool {
    matches!(ty, BlockType::Q4K | BlockType::Q5K | BlockType::Q6K)
}

/// Multiplies the 16 rows from `row` with every token, one token after the other.
///
/// # Safety
/// `out` points at the first of these columns in `tokens` rows of `w.rows`, which nothing else writes meanwhile; the format is
/// one that [`knows`] names.
#[allow(unsafe_code)]
pub(super) unsafe fn rows_product(
    isa: Isa,
    w: &Matrix,
    x: &Activations,
    row: usize,
    tokens: usize,
    out: *mut f32,
) {
    // SAFETY: as the caller gives it.
    unsafe {
        by_eights(w, row, tokens, out, |row, token, out| match w.ty {
            BlockType::Q4K => dispatch(isa, Rows::<Q4K> { w, x, row, token, out, format: PhantomData }),
            BlockType::Q5K => dispatch(isa, Rows::<Q5K> { w, x, row, token, out, format: PhantomData }),
            _ => dispatch(isa, Rows::<Q6K> { w, x, row, token, out, format: PhantomData }),
        });
    }
}

/// What eight blocks of activations say.
#[derive(Clone, Copy)]
struct Eight<S: Simd> {
    q: *const i8,
    scale: S::F,
    /// The sums times their scales, which mins multiply.
    min: S::F,
    /// The sums of each block's first 16 values, and of its last.
    low: S::I,
    high: S::I,
}

/// A K-quant.
#[allow(unsafe_code)]
trait Super {
    /// Where `d` stands, and `dmin` where there is one.
    const D: usize;
    const DMIN: Option<usize>;

    /// The products of a superblock's eight blocks with their scales, and of its mins: a lane a block.
    ///
    /// # Safety
    /// The processor has the instruction set of `S`; `block` is a whole superblock, `x.q` 256 activations.
    unsafe fn products<S: Simd>(block: *const u8, x: &Eight<S>) -> (S::F, S::F);
}

/// The six-bit scales and mins of Q4_K and Q5_K, as floats.
///
/// # Safety
/// The processor has the instruction set of `S`; 12 bytes at `packed`.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn scales_and_mins<S: Simd>(packed: *const u8) -> (S::F, S::F) {
    // SAFETY: as the caller gives it.
    unsafe {
        let word = |at: usize| u32::from_le(packed.add(4 * at).cast::<u32>().read_unaligned());
        let (a, b, c) = (word(0), word(1), word(2));
        let scales = [a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | ((a >> 2) & 0x3030_3030)];
        let mins = [b & 0x3f3f_3f3f, ((c >> 4) & 0x0f0f_0f0f) | ((b >> 2) & 0x3030_3030)];
        let float =
            |bytes: [u32; 2]| S::f_from_i(S::i_from_u8(u64::from(bytes[0]) | u64::from(bytes[1]) << 32));
        (float(scales), float(mins))
    }
}

/// What is common to Q4_K and Q5_K: blocks' sums times scales and activations' scales.
///
/// # Safety
/// The processor has the instruction set of `S`; 12 bytes at `packed`.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn with_mins<S: Simd>(dots: [S::I; BLOCKS], packed: *const u8, x: &Eight<S>) -> (S::F, S::F) {
    // SAFETY: as the caller gives it.
    unsafe {
        let (scales, mins) = scales_and_mins::<S>(packed);
        let [low, high] = S::i_halves(dots);
        // |int| · |scale| < 2^24: the product is exact.
        let int = S::f_mul(S::f_from_i(S::i_add(low, high)), scales);
        (S::f_mul(int, x.scale), S::f_mul(mins, x.min))
    }
}

struct Q4K;
#[allow(unsafe_code)]
impl Super for Q4K {
    const D: usize = 0;
    const DMIN: Option<usize> = Some(2);

    #[inline(always)]
    unsafe fn products<S: Simd>(block: *const u8, x: &Eight<S>) -> (S::F, S::F) {
        // SAFETY: 16 bytes of scales, then 128 of quants.
        unsafe {
            let nibble = S::i_splat(0x0f0f_0f0f);
            let mut dots = [nibble; BLOCKS];
            for run in 0..4 {
                let packed = S::i_load(block.add(16 + 32 * run));
                let a = x.q.add(2 * BLOCK * run);
                dots[2 * run] = S::i_quads(S::i_and(packed, nibble), S::i_load(a.cast()));
                let high = S::i_and(S::i_sar(packed, 4), nibble);
                dots[2 * run + 1] = S::i_quads(high, S::i_load(a.add(BLOCK).cast()));
            }
            with_mins::<S>(dots, block.add(4), x)
        }
    }
}

struct Q5K;
#[allow(unsafe_code)]
impl Super for Q5K {
    const D: usize = 0;
    const DMIN: Option<usize> = Some(2);

    #[inline(always)]
    unsafe fn products<S: Simd>(block: *const u8, x: &Eight<S>) -> (S::F, S::F) {
        // SAFETY: 16 bytes of scales, 32 of fifth bits, then 128 of quants.
        unsafe {
            let (nibble, bit) = (S::i_splat(0x0f0f_0f0f), S::i_splat(0x1010_1010));
            let fifth = S::i_load(block.add(16));
            let mut dots = [nibble; BLOCKS];
            for b in 0..BLOCKS {
                let packed = S::i_load(block.add(48 + 32 * (b / 2)));
                let low = S::i_and(if b % 2 == 0 { packed } else { S::i_sar(packed, 4) }, nibble);
                let high = if b < 4 { S::i_shl(fifth, 4 - b as u32) } else { S::i_sar(fifth, b as u32 - 4) };
                let q = S::i_add(low, S::i_and(high, bit));
                dots[b] = S::i_quads(q, S::i_load(x.q.add(BLOCK * b).cast()));
            }
            with_mins::<S>(dots, block.add(4), x)
        }
    }
}

struct Q6K;
#[allow(unsafe_code)]
impl Super for Q6K {
    const D: usize = 208;
    const DMIN: Option<usize> = None;

    #[inline(always)]
    unsafe fn products<S: Simd>(block: *const u8, x: &Eight<S>) -> (S::F, S::F) {
        // SAFETY: 128 bytes of low bits, 64 of high ones, 16 scales.
        unsafe {
            let (nibble, pair) = (S::i_splat(0x0f0f_0f0f), S::i_splat(0x3030_3030));
            let mut dots = [nibble; BLOCKS];
            for half in 0..2 {
                let high = S::i_load(block.add(128 + 32 * half));
                for run in 0..4 {
                    let low = S::i_load(block.add(64 * half + 32 * (run % 2)));
                    let low = S::i_and(if run < 2 { low } else { S::i_sar(low, 4) }, nibble);
                    let high = match run {
                        0 => S::i_shl(high, 4),
                        1 => S::i_shl(high, 2),
                        2 => high,
                        _ => S::i_sar(high, 2),
                    };
                    let q = S::i_add(low, S::i_and(high, pair));
                    let b = 4 * half + run;
                    dots[b] = S::i_quads(q, S::i_load(x.q.add(BLOCK * b).cast()));
                }
            }
            let [low, high] = S::i_halves(dots);
            // Two signed bytes a block: of its first 16 weights, and of its last.
            let scales = S::i_from_u16(block.add(192));
            let scale = |left: u32| S::f_from_i(S::i_sar(S::i_shl(scales, left), 24));
            let part = |int, sum, scale| S::f_mul(S::f_from_i(S::i_sub(int, S::i_shl(sum, 5))), scale);
            let int = S::f_add(part(low, x.low, scale(24)), part(high, x.high, scale(16)));
            (S::f_mul(int, x.scale), int)
        }
    }
}

/// Up to eight rows and one token.
struct Rows<'a, F> {
    w: &'a Matrix,
    x: &'a Activations,
    row: usize,
    token: usize,
    out: &'a mut [f32],
    format: PhantomData<F>,
}

impl<F: Super> Task for Rows<'_, F> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        let Self { w, x, row, token, out, .. } = self;
        let (blocks, size) = (w.cols / BLOCK, w.ty.block_bytes());
        let row_bytes = w.row(row).len();
        // Rows that are not there are the first one once more: their results are not kept.
        let mut rows = [w.row(row).as_ptr(); LANES];
        for (r, pointer) in rows.iter_mut().enumerate().take(out.len()) {
            *pointer = w.row(row + r).as_ptr();
        }
        // SAFETY: the caller gives the instruction set; a row is `blocks / 8` superblocks, and so are the activations.
        unsafe {
            let mut acc = S::f_splat(0.0);
            for g in 0..blocks / BLOCKS {
                let at = g * BLOCKS * x.tokens() + token;
                let sums = S::i_from_bits(eight_of::<S>(x.sums.as_ptr().add(at).cast(), x.tokens()));
                let eight = Eight::<S> {
                    q: x.q.as_ptr().add((token * blocks + g * BLOCKS) * BLOCK),
                    scale: eight_of::<S>(x.scale.as_ptr().add(at), x.tokens()),
                    min: eight_of::<S>(x.min.as_ptr().add(at), x.tokens()),
                    low: S::i_sar(S::i_shl(sums, 16), 16),
                    high: S::i_sar(sums, 16),
                };
                let mut products = [S::f_splat(0.0); LANES];
                let mut mins = products;
                let (mut d, mut dmin) = ([0u32; LANES], [0u32; LANES]);
                for r in 0..LANES {
                    let block = rows[r].add(g * size);
                    // Two eights of rows ahead, as far as one superblock goes: of mapped pages the processor reads none
                    // ahead by itself beyond 4 KiB. One eight ahead gave .9 of the speed, four .96, ten .9.
                    for line in (0..size).step_by(64) {
                        S::prefetch(block.wrapping_add(2 * LANES * row_bytes + line));
                    }
                    (products[r], mins[r]) = F::products::<S>(block, &eight);
                    let half =
                        |at: usize| u32::from(u16::from_le(block.add(at).cast::<u16>().read_unaligned()));
                    d[r] = half(F::D);
                    if let Some(at) = F::DMIN {
                        dmin[r] = half(at);
                    }
                }
                acc =
                    S::f_add(acc, S::f_mul(halves::<S>(S::i_load(d.as_ptr().cast())), chain::<S>(products)));
                if F::DMIN.is_some() {
                    acc = S::f_sub(
                        acc,
                        S::f_mul(halves::<S>(S::i_load(dmin.as_ptr().cast())), chain::<S>(mins)),
                    );
                }
            }
            let mut copy = [0.0f32; LANES];
            S::f_store(copy.as_mut_ptr(), acc);
            out.copy_from_slice(&copy[..out.len()]);
        }
    }
}

/// Eight values that lie `stride` apart.
///
/// # Safety
/// The processor has the instruction set of `S`; they can be read.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn eight_of<S: Simd>(p: *const f32, stride: usize) -> S::F {
    // SAFETY: as the caller gives it.
    unsafe {
        if stride == 1 {
            return S::f_load(p);
        }
        let mut values = [0.0f32; LANES];
        for (i, value) in values.iter_mut().enumerate() {
            *value = p.add(i * stride).read();
        }
        S::f_load(values.as_ptr())
    }
}

/// The sums of rows over their blocks, from the first block to the last: a lane a row.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn chain<S: Simd>(rows: [S::F; LANES]) -> S::F {
    // SAFETY: the caller gives the instruction set.
    unsafe {
        let mut bits = [S::i_splat(0); LANES];
        for r in 0..LANES {
            bits[r] = S::i_from_bits(rows[r]);
        }
        let mut sum = S::f_splat(0.0);
        for block in S::i_transpose(bits) {
            sum = S::f_add(sum, S::f_from_bits(block));
        }
        sum
    }
}
