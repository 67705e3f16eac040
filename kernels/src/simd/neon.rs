//! aarch64: Advanced SIMD, two registers to eight lanes, and the same with `sdot` and with `smmla`.
//!
//! `sdot` and `smmla` are written as assembly: their intrinsics are not stable.

use super::{ByteDot, LANES, ShortDot, Simd, Tiles};
use crate::gemm::dot::{Exact, Shorts};
use core::arch::aarch64::*;
use core::arch::asm;

/// Advanced SIMD as every aarch64 has it: products of bytes are 16 bits wide.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

/// With FEAT_DotProd: `sdot` sums four products of signed bytes in 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct Dotprod;

/// With FEAT_I8MM: `smmla` multiplies two rows with two tokens, eight bytes each.
///
/// `usdot` would be as fast as `sdot`: unsigned quants are at most 63, signed bytes as they stand.
#[derive(Clone, Copy)]
pub(crate) struct I8mm;

type F = [float32x4_t; 2];
type I = [int32x4_t; 2];

/// Transposes 4 × 4 lanes.
#[inline(always)]
fn transpose(r: [int32x4_t; 4]) -> [int32x4_t; 4] {
    // SAFETY: every aarch64 that we run on has Advanced SIMD.
    #[allow(unsafe_code, unused_unsafe)]
    unsafe {
        let wide = |v| vreinterpretq_s64_s32(v);
        let (a, b) = (wide(vzip1q_s32(r[0], r[1])), wide(vzip2q_s32(r[0], r[1])));
        let (c, d) = (wide(vzip1q_s32(r[2], r[3])), wide(vzip2q_s32(r[2], r[3])));
        [
            vreinterpretq_s32_s64(vzip1q_s64(a, c)),
            vreinterpretq_s32_s64(vzip2q_s64(a, c)),
            vreinterpretq_s32_s64(vzip1q_s64(b, d)),
            vreinterpretq_s32_s64(vzip2q_s64(b, d)),
        ]
    }
}

/// What the three share: everything but the products of quants.
macro_rules! neon_operations {
    () => {
        super::panel_pairs!();
        type F = F;
        type I = I;

        #[inline(always)]
        unsafe fn f_load(p: *const f32) -> Self::F {
            unsafe { [vld1q_f32(p), vld1q_f32(p.add(4))] }
        }
        #[inline(always)]
        unsafe fn f_store(p: *mut f32, v: Self::F) {
            unsafe {
                vst1q_f32(p, v[0]);
                vst1q_f32(p.add(4), v[1]);
            }
        }
        #[inline(always)]
        unsafe fn f_splat(v: f32) -> Self::F {
            unsafe { [vdupq_n_f32(v); 2] }
        }
        #[inline(always)]
        unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F {
            unsafe { [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F {
            unsafe { [vsubq_f32(a[0], b[0]), vsubq_f32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F {
            unsafe { [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F {
            unsafe { [vdivq_f32(a[0], b[0]), vdivq_f32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F {
            // Not `fmax`, which gives NaN where either is NaN.
            unsafe {
                [vbslq_f32(vcgtq_f32(a[0], b[0]), a[0], b[0]), vbslq_f32(vcgtq_f32(a[1], b[1]), a[1], b[1])]
            }
        }
        #[inline(always)]
        unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F {
            unsafe {
                [vbslq_f32(vcltq_f32(a[0], b[0]), a[0], b[0]), vbslq_f32(vcltq_f32(a[1], b[1]), a[1], b[1])]
            }
        }
        #[inline(always)]
        unsafe fn f_magnitude(a: Self::F) -> Self::I {
            unsafe { [vreinterpretq_s32_f32(vabsq_f32(a[0])), vreinterpretq_s32_f32(vabsq_f32(a[1]))] }
        }
        #[inline(always)]
        unsafe fn f_from_bits(a: Self::I) -> Self::F {
            unsafe { [vreinterpretq_f32_s32(a[0]), vreinterpretq_f32_s32(a[1])] }
        }
        #[inline(always)]
        unsafe fn f_from_i(a: Self::I) -> Self::F {
            unsafe { [vcvtq_f32_s32(a[0]), vcvtq_f32_s32(a[1])] }
        }
        #[inline(always)]
        unsafe fn i_from_f(a: Self::F) -> Self::I {
            unsafe { [vcvtnq_s32_f32(a[0]), vcvtnq_s32_f32(a[1])] }
        }

        #[inline(always)]
        unsafe fn i_load(p: *const u8) -> Self::I {
            // Of bytes: a load of words may ask for their alignment.
            unsafe { [vreinterpretq_s32_u8(vld1q_u8(p)), vreinterpretq_s32_u8(vld1q_u8(p.add(16)))] }
        }
        #[inline(always)]
        unsafe fn i_store(p: *mut u8, v: Self::I) {
            unsafe {
                vst1q_u8(p, vreinterpretq_u8_s32(v[0]));
                vst1q_u8(p.add(16), vreinterpretq_u8_s32(v[1]));
            }
        }
        #[inline(always)]
        unsafe fn i_splat(v: i32) -> Self::I {
            unsafe { [vdupq_n_s32(v); 2] }
        }
        #[inline(always)]
        unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I {
            unsafe { [vaddq_s32(a[0], b[0]), vaddq_s32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I {
            unsafe { [vsubq_s32(a[0], b[0]), vsubq_s32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn i_max(a: Self::I, b: Self::I) -> Self::I {
            unsafe { [vmaxq_s32(a[0], b[0]), vmaxq_s32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn i_shl(a: Self::I, n: u32) -> Self::I {
            unsafe {
                let n = vdupq_n_s32(n as i32);
                [vshlq_s32(a[0], n), vshlq_s32(a[1], n)]
            }
        }
        #[inline(always)]
        unsafe fn i_sar(a: Self::I, n: u32) -> Self::I {
            unsafe {
                let n = vdupq_n_s32(-(n as i32));
                [vshlq_s32(a[0], n), vshlq_s32(a[1], n)]
            }
        }
        #[inline(always)]
        unsafe fn i_blend16(a: Self::I, b: Self::I) -> Self::I {
            unsafe {
                let low = vdupq_n_u32(0xffff);
                [vbslq_s32(low, a[0], b[0]), vbslq_s32(low, a[1], b[1])]
            }
        }
        #[inline(always)]
        unsafe fn i_dot16(a: Self::I, b: Self::I) -> Self::I {
            unsafe {
                let mut out = a;
                for h in 0..2 {
                    let (a, b) = (vreinterpretq_s16_s32(a[h]), vreinterpretq_s16_s32(b[h]));
                    out[h] = vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
                }
                out
            }
        }
        #[inline(always)]
        unsafe fn i_quads(w: Self::I, a: Self::I) -> Self::I {
            // At most 63: they are signed bytes as they stand.
            unsafe { Self::i_quads_signed(w, a) }
        }
        #[inline(always)]
        unsafe fn i_from_bits(a: Self::F) -> Self::I {
            unsafe { [vreinterpretq_s32_f32(a[0]), vreinterpretq_s32_f32(a[1])] }
        }
        #[inline(always)]
        unsafe fn i_from_u8(bytes: u64) -> Self::I {
            unsafe {
                let words = vmovl_u8(vcreate_u8(bytes));
                [
                    vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words))),
                    vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(words))),
                ]
            }
        }
        #[inline(always)]
        unsafe fn i_from_u16(p: *const u8) -> Self::I {
            unsafe {
                let words = vreinterpretq_u16_u8(vld1q_u8(p));
                [
                    vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words))),
                    vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(words))),
                ]
            }
        }
        #[inline(always)]
        unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I {
            unsafe { [vandq_s32(a[0], b[0]), vandq_s32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn prefetch(p: *const u8) {
            // A hint: an address that is not valid is passed over.
            unsafe { asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly)) }
        }
        #[inline(always)]
        unsafe fn i_halves(rows: [Self::I; LANES]) -> [Self::I; 2] {
            unsafe {
                let four = |row: usize, half: usize| {
                    let a = vpaddq_s32(rows[row][half], rows[row + 1][half]);
                    vpaddq_s32(a, vpaddq_s32(rows[row + 2][half], rows[row + 3][half]))
                };
                [[four(0, 0), four(4, 0)], [four(0, 1), four(4, 1)]]
            }
        }
        #[inline(always)]
        unsafe fn i_transpose(r: [Self::I; LANES]) -> [Self::I; LANES] {
            let corner = |row: usize, half: usize| {
                transpose([r[row][half], r[row + 1][half], r[row + 2][half], r[row + 3][half]])
            };
            let (a, b, c, d) = (corner(0, 0), corner(4, 0), corner(0, 1), corner(4, 1));
            [
                [a[0], b[0]],
                [a[1], b[1]],
                [a[2], b[2]],
                [a[3], b[3]],
                [c[0], d[0]],
                [c[1], d[1]],
                [c[2], d[2]],
                [c[3], d[3]],
            ]
        }
        #[inline(always)]
        unsafe fn i_xor(a: Self::I, b: Self::I) -> Self::I {
            unsafe { [veorq_s32(a[0], b[0]), veorq_s32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn i_store_low_bytes(p: *mut i8, v: Self::I) {
            unsafe { vst1_s8(p, vmovn_s16(vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1])))) }
        }
    };
}

// SAFETY of every block below: the trait's contract gives a processor with the instruction set and pointers that are
// valid for the lanes of a vector; the intrinsics ask for nothing else.
#[allow(unsafe_code, unused_unsafe, clippy::undocumented_unsafe_blocks)]
impl Simd for Neon {
    type Unsigned = Shorts;
    type Signed = Exact;
    neon_operations!();

    #[inline(always)]
    unsafe fn i_dot4(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { [dot4(acc[0], w[0], a[0]), dot4(acc[1], w[1], a[1])] }
    }
    #[inline(always)]
    unsafe fn i_dot4_signed(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { [dot4(acc[0], w[0], a[0]), dot4(acc[1], w[1], a[1])] }
    }
    #[inline(always)]
    unsafe fn i_quads_signed(w: Self::I, a: Self::I) -> Self::I {
        unsafe {
            let mut out = w;
            for h in 0..2 {
                let (w, a) = (bytes(w[h]), bytes(a[h]));
                let low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(a)));
                out[h] = vaddq_s32(low, vpaddlq_s16(vmull_high_s8(w, a)));
            }
            out
        }
    }

    /// Two tokens: 16-bit sums of 16 rows take eight registers for each.
    #[inline(always)]
    unsafe fn tiles<B: Tiles>(tokens: usize, body: &B) {
        let pairs = tokens / 2 * 2;
        unsafe {
            for first in (0..pairs).step_by(2) {
                body.tile::<Self, 2>(first);
            }
            if pairs < tokens {
                body.tile::<Self, 1>(pairs);
            }
        }
    }
}

#[allow(unsafe_code, unused_unsafe, clippy::undocumented_unsafe_blocks)]
impl Simd for Dotprod {
    type Unsigned = Exact;
    type Signed = Exact;
    neon_operations!();

    #[inline(always)]
    unsafe fn i_dot4(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe {
            [sdot_quads(acc[0], bytes(w[0]), bytes(a[0])), sdot_quads(acc[1], bytes(w[1]), bytes(a[1]))]
        }
    }
    #[inline(always)]
    unsafe fn i_dot4_signed(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { Self::i_dot4(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn i_quads_signed(w: Self::I, a: Self::I) -> Self::I {
        unsafe {
            let zero = vdupq_n_s32(0);
            [sdot_quads(zero, bytes(w[0]), bytes(a[0])), sdot_quads(zero, bytes(w[1]), bytes(a[1]))]
        }
    }
}

#[allow(unsafe_code, unused_unsafe, clippy::undocumented_unsafe_blocks)]
impl Simd for I8mm {
    type Unsigned = Exact;
    type Signed = Exact;
    neon_operations!();

    #[inline(always)]
    unsafe fn i_dot4(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe {
            [sdot_quads(acc[0], bytes(w[0]), bytes(a[0])), sdot_quads(acc[1], bytes(w[1]), bytes(a[1]))]
        }
    }
    #[inline(always)]
    unsafe fn i_dot4_signed(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { Self::i_dot4(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn i_quads_signed(w: Self::I, a: Self::I) -> Self::I {
        unsafe {
            let zero = vdupq_n_s32(0);
            [sdot_quads(zero, bytes(w[0]), bytes(a[0])), sdot_quads(zero, bytes(w[1]), bytes(a[1]))]
        }
    }
}

/// A vector as bytes.
#[inline(always)]
fn bytes(v: int32x4_t) -> int8x16_t {
    // SAFETY: every aarch64 that we run on has Advanced SIMD.
    #[allow(unsafe_code, unused_unsafe)]
    unsafe {
        vreinterpretq_s8_s32(v)
    }
}

#[allow(unsafe_code, unused_unsafe, clippy::undocumented_unsafe_blocks)]
impl ShortDot for Neon {
    /// Four 16-bit sums a lane: one for each byte. A sum is of half the products that the trait allows for.
    type Short = [int16x8_t; 4];

    #[inline(always)]
    unsafe fn s_zero() -> Self::Short {
        unsafe { [vdupq_n_s16(0); 4] }
    }
    #[inline(always)]
    unsafe fn s_dot(acc: Self::Short, w: Self::I, a: Self::I) -> Self::Short {
        unsafe {
            let (w, a) = ([bytes(w[0]), bytes(w[1])], [bytes(a[0]), bytes(a[1])]);
            [
                vmlal_s8(acc[0], vget_low_s8(w[0]), vget_low_s8(a[0])),
                vmlal_high_s8(acc[1], w[0], a[0]),
                vmlal_s8(acc[2], vget_low_s8(w[1]), vget_low_s8(a[1])),
                vmlal_high_s8(acc[3], w[1], a[1]),
            ]
        }
    }
    #[inline(always)]
    unsafe fn s_widen(acc: Self::Short, scale: Self::I) -> Self::I {
        unsafe {
            let sum = |a, b| vpaddq_s32(vpaddlq_s16(a), vpaddlq_s16(b));
            [
                vmulq_s32(sum(acc[0], acc[1]), vshrq_n_s32::<16>(scale[0])),
                vmulq_s32(sum(acc[2], acc[3]), vshrq_n_s32::<16>(scale[1])),
            ]
        }
    }
}

#[allow(unsafe_code, unused_unsafe, clippy::undocumented_unsafe_blocks)]
impl ByteDot for Neon {
    /// Two quads at a time in 16 bits (2 · 128 · 127 = 32,512), then pairwise into 32.
    #[inline(always)]
    unsafe fn sums<const T: usize>(
        w: *const u8,
        a: [*const i8; T],
        init: [Self::I16; T],
        quads: usize,
    ) -> [Self::I16; T] {
        unsafe {
            // `[half of the rows][token][two sums of a row beside one another]`
            let mut int = [[[vdupq_n_s32(0); 4]; T]; 2];
            for i in (0..quads).step_by(2) {
                for t in 0..T {
                    let a = a[t].add(4 * i).cast::<i32>();
                    let a = [
                        bytes(vdupq_n_s32(a.read_unaligned())),
                        bytes(vdupq_n_s32(a.add(1).read_unaligned())),
                    ];
                    for r in 0..2 {
                        for v in 0..2 {
                            let at = w.add(64 * i + 32 * r + 16 * v).cast();
                            let w = [vld1q_s8(at), vld1q_s8(at.add(64))];
                            let low = vmull_s8(vget_low_s8(w[0]), vget_low_s8(a[0]));
                            let low = vmlal_s8(low, vget_low_s8(w[1]), vget_low_s8(a[1]));
                            let high = vmull_high_s8(w[0], a[0]);
                            let high = vmlal_high_s8(high, w[1], a[1]);
                            int[r][t][2 * v] = vpadalq_s16(int[r][t][2 * v], low);
                            int[r][t][2 * v + 1] = vpadalq_s16(int[r][t][2 * v + 1], high);
                        }
                    }
                }
            }
            let mut out = [[Self::i_splat(0); T]; 2];
            for r in 0..2 {
                for t in 0..T {
                    let sums = int[r][t];
                    let sums = [vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3])];
                    out[r][t] = Self::i_add(sums, init[t][r]);
                }
            }
            crate::simd::panels::<Self, T>(out)
        }
    }
}

/// Adds in each lane the dot product of four signed bytes of `w` and of `a` (-128 in one of them at most).
///
/// # Safety
/// As [`Simd`].
#[inline(always)]
#[allow(unsafe_code, unused_unsafe, clippy::undocumented_unsafe_blocks)]
unsafe fn dot4(acc: int32x4_t, w: int32x4_t, a: int32x4_t) -> int32x4_t {
    unsafe {
        let (w, a) = (bytes(w), bytes(a));
        let (low, high) = (vmull_s8(vget_low_s8(w), vget_low_s8(a)), vmull_high_s8(w, a));
        vpadalq_s16(acc, vpaddq_s16(low, high))
    }
}

/// `acc` plus the dot products of four bytes of each lane of `w` with lane `LANE` of `a`.
///
/// # Safety
/// The processor has FEAT_DotProd.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn sdot<const LANE: usize>(mut acc: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    // SAFETY: the caller gives the instruction; it touches its operands alone.
    unsafe {
        asm!("sdot {acc:v}.4s, {w:v}.16b, {a:v}.4b[{lane}]", acc = inout(vreg) acc, w = in(vreg) w, a = in(vreg) a,
            lane = const LANE, options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// Adds in each lane the dot product of four signed bytes of `w` and of `a`.
///
/// # Safety
/// The processor has FEAT_DotProd.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn sdot_quads(mut acc: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    // SAFETY: the caller gives the instruction; it touches its operands alone.
    unsafe {
        asm!("sdot {acc:v}.4s, {w:v}.16b, {a:v}.16b", acc = inout(vreg) acc, w = in(vreg) w, a = in(vreg) a,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

#[allow(unsafe_code, unused_unsafe, clippy::undocumented_unsafe_blocks)]
impl ByteDot for Dotprod {
    #[inline(always)]
    unsafe fn sums<const T: usize>(
        w: *const u8,
        a: [*const i8; T],
        init: [Self::I16; T],
        quads: usize,
    ) -> [Self::I16; T] {
        /// One quad of 16 rows and the tokens' activations of four quads.
        ///
        /// # Safety
        /// As the trait's function.
        #[inline(always)]
        unsafe fn quad<const LANE: usize, const T: usize>(
            int: &mut [[I; T]; 2],
            w: *const u8,
            a: [int8x16_t; T],
        ) {
            unsafe {
                for r in 0..2 {
                    for v in 0..2 {
                        let w = vld1q_s8(w.add(64 * LANE + 32 * r + 16 * v).cast());
                        for t in 0..T {
                            int[r][t][v] = sdot::<LANE>(int[r][t][v], w, a[t]);
                        }
                    }
                }
            }
        }
        unsafe {
            let mut int = [[Self::i_splat(0); T]; 2];
            for r in 0..2 {
                for t in 0..T {
                    int[r][t] = init[t][r];
                }
            }
            for i in (0..quads).step_by(4) {
                let mut four = [vdupq_n_s8(0); T];
                for t in 0..T {
                    four[t] = vld1q_s8(a[t].add(4 * i));
                }
                let w = w.add(64 * i);
                quad::<0, T>(&mut int, w, four);
                quad::<1, T>(&mut int, w, four);
                quad::<2, T>(&mut int, w, four);
                quad::<3, T>(&mut int, w, four);
            }
            crate::simd::panels::<Self, T>(int)
        }
    }
}

/// `acc` plus the products of two rows (of eight bytes) of `w` with two of `a`: `[w0·a0, w0·a1, w1·a0, w1·a1]`.
///
/// # Safety
/// The processor has FEAT_I8MM.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn smmla(mut acc: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    // SAFETY: the caller gives the instruction; it touches its operands alone.
    unsafe {
        asm!("smmla {acc:v}.4s, {w:v}.16b, {a:v}.16b", acc = inout(vreg) acc, w = in(vreg) w, a = in(vreg) a,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

#[allow(unsafe_code, unused_unsafe, clippy::undocumented_unsafe_blocks)]
impl ByteDot for I8mm {
    const BY_QUADS: bool = false;

    /// Rows go in pairs: `[eight columns][pair of rows][row][8]`.
    #[inline(always)]
    unsafe fn store_block(rows: [Self::I; LANES], half: usize, block: *mut u8) {
        unsafe {
            for pair in 0..LANES / 2 {
                for v in 0..2 {
                    let (a, b) = (rows[2 * pair][v], rows[2 * pair + 1][v]);
                    let (a, b) = (vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b));
                    let at = block.add(256 * v + 64 * half + 16 * pair);
                    vst1q_u8(at, vreinterpretq_u8_s64(vzip1q_s64(a, b)));
                    vst1q_u8(at.add(128), vreinterpretq_u8_s64(vzip2q_s64(a, b)));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn sums<const T: usize>(
        w: *const u8,
        a: [*const i8; T],
        init: [Self::I16; T],
        quads: usize,
    ) -> [Self::I16; T] {
        unsafe {
            // `[pair of tokens][pair of rows]`; of an odd number of tokens the last goes twice.
            const { assert!(T <= 4) };
            let second = |pair: usize| (2 * pair + 1).min(T - 1);
            let mut int = [[vdupq_n_s32(0); LANES]; 2];
            for (pair, int) in int.iter_mut().enumerate().take(T.div_ceil(2)) {
                // What a token's sum begins with is the same in every lane.
                let both = vzip1q_s32(init[2 * pair][0][0], init[second(pair)][0][0]);
                *int = [both; LANES];
            }
            for octet in 0..quads / 2 {
                let mut tokens = [vdupq_n_s8(0); 2];
                for (pair, both) in tokens.iter_mut().enumerate().take(T.div_ceil(2)) {
                    let (x, y) = (a[2 * pair].add(8 * octet), a[second(pair)].add(8 * octet));
                    *both = vcombine_s8(vld1_s8(x), vld1_s8(y));
                }
                for rows in 0..LANES {
                    let w = vld1q_s8(w.add(128 * octet + 16 * rows).cast());
                    for pair in 0..T.div_ceil(2) {
                        int[pair][rows] = smmla(int[pair][rows], w, tokens[pair]);
                    }
                }
            }
            let mut out = [[Self::i_splat(0); T]; 2];
            for r in 0..2 {
                for t in 0..T {
                    let int = &int[t / 2][4 * r..][..4];
                    out[r][t] = if t % 2 == 0 {
                        [vuzp1q_s32(int[0], int[1]), vuzp1q_s32(int[2], int[3])]
                    } else {
                        [vuzp2q_s32(int[0], int[1]), vuzp2q_s32(int[2], int[3])]
                    };
                }
            }
            crate::simd::panels::<Self, T>(out)
        }
    }
}
