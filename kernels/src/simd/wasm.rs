//! WebAssembly: 128-bit vectors, two to eight lanes, and the same with the relaxed product of bytes.

#[cfg(target_feature = "relaxed-simd")]
use super::ShortDot;
use super::{LANES, Simd, Tiles};
#[cfg(target_feature = "relaxed-simd")]
use crate::gemm::dot::Shorts;
use crate::gemm::dot::Words;
use core::arch::wasm32::*;

/// simd128. It has no product of bytes; `i32x4.dot_i16x8_s` is one instruction on x86 (`pmaddwd`), where the extending
/// products of bytes are three.
#[derive(Clone, Copy)]
pub(crate) struct Simd128;

/// simd128 with relaxed-simd: `i16x8.relaxed_dot_i8x16_i7x16_s` is one instruction on x86 (`pmaddubsw`).
///
/// It is only defined where its second operand has seven bits: unsigned quants (at most 63) are. Signed ones go as words.
#[cfg(target_feature = "relaxed-simd")]
#[derive(Clone, Copy)]
pub(crate) struct Relaxed;

type V = [v128; 2];

#[inline(always)]
fn map(a: V, f: impl Fn(v128) -> v128) -> V {
    [f(a[0]), f(a[1])]
}

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(v128, v128) -> v128) -> V {
    [f(a[0], b[0]), f(a[1], b[1])]
}

/// Transposes 4 × 4 lanes.
#[inline(always)]
fn transpose(r: [v128; 4]) -> [v128; 4] {
    let a = i32x4_shuffle::<0, 4, 1, 5>(r[0], r[1]);
    let b = i32x4_shuffle::<2, 6, 3, 7>(r[0], r[1]);
    let c = i32x4_shuffle::<0, 4, 1, 5>(r[2], r[3]);
    let d = i32x4_shuffle::<2, 6, 3, 7>(r[2], r[3]);
    [
        i64x2_shuffle::<0, 2>(a, c),
        i64x2_shuffle::<1, 3>(a, c),
        i64x2_shuffle::<0, 2>(b, d),
        i64x2_shuffle::<1, 3>(b, d),
    ]
}

/// What both share: everything but the products of quants.
macro_rules! simd128_operations {
    () => {
        super::panel_pairs!();
        type F = V;
        type I = V;

        /// Two tokens: with 16 rows they take 8 sums, 4 vectors of weights and 2 of activations. x86-64 has 16 registers,
        /// of which V8 gives 15; a larger tile spills.
        #[inline(always)]
        unsafe fn tiles<B: Tiles>(tokens: usize, body: &B) {
            let pairs = tokens / 2 * 2;
            // SAFETY: the module has the instruction set, or it would not have been loaded.
            unsafe {
                for first in (0..pairs).step_by(2) {
                    body.tile::<Self, 2>(first);
                }
                if pairs < tokens {
                    body.tile::<Self, 1>(pairs);
                }
            }
        }

        #[inline(always)]
        unsafe fn f_load(p: *const f32) -> Self::F {
            // SAFETY: the caller gives eight readable floats.
            unsafe { [v128_load(p.cast()), v128_load(p.add(4).cast())] }
        }
        #[inline(always)]
        unsafe fn f_store(p: *mut f32, v: Self::F) {
            // SAFETY: the caller gives eight writable floats.
            unsafe {
                v128_store(p.cast(), v[0]);
                v128_store(p.add(4).cast(), v[1]);
            }
        }
        #[inline(always)]
        unsafe fn f_splat(v: f32) -> Self::F {
            [f32x4_splat(v); 2]
        }
        #[inline(always)]
        unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F {
            zip(a, b, |a, b| f32x4_add(a, b))
        }
        #[inline(always)]
        unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F {
            zip(a, b, |a, b| f32x4_sub(a, b))
        }
        #[inline(always)]
        unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F {
            zip(a, b, |a, b| f32x4_mul(a, b))
        }
        #[inline(always)]
        unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F {
            zip(a, b, |a, b| f32x4_div(a, b))
        }
        #[inline(always)]
        unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F {
            // Not `pmax`, which says the same: with relaxed-simd LLVM makes of it `relaxed_max`, whose NaN is the engine's.
            zip(a, b, |a, b| v128_bitselect(a, b, f32x4_gt(a, b)))
        }
        #[inline(always)]
        unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F {
            zip(a, b, |a, b| v128_bitselect(a, b, f32x4_lt(a, b)))
        }
        #[inline(always)]
        unsafe fn f_magnitude(a: Self::F) -> Self::I {
            map(a, |a| f32x4_abs(a))
        }
        #[inline(always)]
        unsafe fn f_from_bits(a: Self::I) -> Self::F {
            a
        }
        #[inline(always)]
        unsafe fn f_from_i(a: Self::I) -> Self::F {
            map(a, |a| f32x4_convert_i32x4(a))
        }
        #[inline(always)]
        unsafe fn i_from_f(a: Self::F) -> Self::I {
            // Around 1.5 · 2^23 floats are the integers: the addition rounds, ties to even. A saturating conversion is
            // seven instructions on x86.
            map(a, |a| i32x4_sub(f32x4_add(a, f32x4_splat(12_582_912.0)), i32x4_splat(0x4b40_0000)))
        }

        #[inline(always)]
        unsafe fn i_load(p: *const u8) -> Self::I {
            // SAFETY: the caller gives 32 readable bytes.
            unsafe { [v128_load(p.cast()), v128_load(p.add(16).cast())] }
        }
        #[inline(always)]
        unsafe fn i_store(p: *mut u8, v: Self::I) {
            // SAFETY: the caller gives 32 writable bytes.
            unsafe {
                v128_store(p.cast(), v[0]);
                v128_store(p.add(16).cast(), v[1]);
            }
        }
        #[inline(always)]
        unsafe fn i_splat(v: i32) -> Self::I {
            [i32x4_splat(v); 2]
        }
        #[inline(always)]
        unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I {
            zip(a, b, |a, b| i32x4_add(a, b))
        }
        #[inline(always)]
        unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I {
            zip(a, b, |a, b| i32x4_sub(a, b))
        }
        #[inline(always)]
        unsafe fn i_max(a: Self::I, b: Self::I) -> Self::I {
            zip(a, b, |a, b| i32x4_max(a, b))
        }
        #[inline(always)]
        unsafe fn i_shl(a: Self::I, n: u32) -> Self::I {
            map(a, |a| i32x4_shl(a, n))
        }
        #[inline(always)]
        unsafe fn i_sar(a: Self::I, n: u32) -> Self::I {
            map(a, |a| i32x4_shr(a, n))
        }
        #[inline(always)]
        unsafe fn i_blend16(a: Self::I, b: Self::I) -> Self::I {
            zip(a, b, |a, b| i16x8_shuffle::<0, 9, 2, 11, 4, 13, 6, 15>(a, b))
        }
        #[inline(always)]
        unsafe fn i_dot16(a: Self::I, b: Self::I) -> Self::I {
            zip(a, b, |a, b| i32x4_dot_i16x8(a, b))
        }
        #[inline(always)]
        unsafe fn i_dot4(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
            // At most 63: they are signed bytes as they stand.
            // SAFETY: as the caller gives it.
            unsafe { Self::i_dot4_signed(acc, w, a) }
        }
        #[inline(always)]
        unsafe fn i_dot4_signed(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
            let products = zip(w, a, |w, a| {
                let low = i32x4_dot_i16x8(i16x8_extend_low_i8x16(w), i16x8_extend_low_i8x16(a));
                let high = i32x4_dot_i16x8(i16x8_extend_high_i8x16(w), i16x8_extend_high_i8x16(a));
                i32x4_add(i32x4_shuffle::<0, 2, 4, 6>(low, high), i32x4_shuffle::<1, 3, 5, 7>(low, high))
            });
            zip(acc, products, |acc, products| i32x4_add(acc, products))
        }
        #[inline(always)]
        unsafe fn i_quads_signed(w: Self::I, a: Self::I) -> Self::I {
            zip(w, a, |w, a| {
                let low = i32x4_dot_i16x8(i16x8_extend_low_i8x16(w), i16x8_extend_low_i8x16(a));
                let high = i32x4_dot_i16x8(i16x8_extend_high_i8x16(w), i16x8_extend_high_i8x16(a));
                i32x4_add(low, high)
            })
        }
        #[inline(always)]
        unsafe fn i_from_bits(a: Self::F) -> Self::I {
            a
        }
        #[inline(always)]
        unsafe fn i_from_u8(bytes: u64) -> Self::I {
            let words = i16x8_extend_low_u8x16(u64x2_splat(bytes));
            [i32x4_extend_low_u16x8(words), i32x4_extend_high_u16x8(words)]
        }
        #[inline(always)]
        unsafe fn i_from_u16(p: *const u8) -> Self::I {
            // SAFETY: the caller gives 16 readable bytes.
            let words = unsafe { v128_load(p.cast()) };
            [i32x4_extend_low_u16x8(words), i32x4_extend_high_u16x8(words)]
        }
        #[inline(always)]
        unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I {
            zip(a, b, |a, b| v128_and(a, b))
        }
        #[inline(always)]
        unsafe fn i_halves(rows: [Self::I; LANES]) -> [Self::I; 2] {
            let four = |row: usize, half: usize| {
                let r = transpose([
                    rows[row][half],
                    rows[row + 1][half],
                    rows[row + 2][half],
                    rows[row + 3][half],
                ]);
                i32x4_add(i32x4_add(r[0], r[1]), i32x4_add(r[2], r[3]))
            };
            [[four(0, 0), four(4, 0)], [four(0, 1), four(4, 1)]]
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
            [v128_xor(a[0], b[0]), v128_xor(a[1], b[1])]
        }
        #[inline(always)]
        unsafe fn i_store_low_bytes(p: *mut i8, v: Self::I) {
            let words = i16x8_narrow_i32x4(v[0], v[1]);
            // SAFETY: the caller gives eight writable bytes.
            unsafe { v128_store64_lane::<0>(i8x16_narrow_i16x8(words, words), p.cast()) }
        }
    };
}

#[allow(unsafe_code)]
impl Simd for Simd128 {
    type Unsigned = Words;
    type Signed = Words;
    simd128_operations!();

    #[inline(always)]
    unsafe fn i_quads(w: Self::I, a: Self::I) -> Self::I {
        // At most 63: they are signed bytes as they stand.
        // SAFETY: as the caller gives it.
        unsafe { Self::i_quads_signed(w, a) }
    }
}

#[cfg(target_feature = "relaxed-simd")]
#[allow(unsafe_code)]
impl Simd for Relaxed {
    type Unsigned = Shorts;
    type Signed = Words;
    simd128_operations!();

    #[inline(always)]
    unsafe fn i_quads(w: Self::I, a: Self::I) -> Self::I {
        zip(w, a, |w, a| i32x4_extadd_pairwise_i16x8(i16x8_relaxed_dot_i8x16_i7x16(a, w)))
    }
}

/// Bytes of a quad of 16 rows.
#[cfg(target_feature = "relaxed-simd")]
static STEP: usize = 64;

#[cfg(target_feature = "relaxed-simd")]
#[allow(unsafe_code)]
impl ShortDot for Relaxed {
    /// Sixteen 16-bit sums: two a lane.
    type Short = V;

    #[inline(always)]
    unsafe fn s_zero() -> Self::Short {
        [i32x4_splat(0); 2]
    }
    #[inline(always)]
    unsafe fn s_dot(acc: Self::Short, w: Self::I, a: Self::I) -> Self::Short {
        let products = zip(a, w, |a, w| i16x8_relaxed_dot_i8x16_i7x16(a, w));
        zip(acc, products, |acc, products| i16x8_add(acc, products))
    }
    #[inline(always)]
    unsafe fn s_sums<const STEPS: usize, const T: usize>(
        mut w: *const u8,
        mut a: [*const i8; T],
    ) -> [[Self::Short; T]; 2] {
        // SAFETY: as the caller gives it.
        unsafe {
            let mut short = [[Self::s_zero(); T]; 2];
            // A loop that stays one: unrolled into one block of code, all loads came first and everything spilled (half the
            // speed). A step that LLVM cannot know keeps it; V8 unrolls it well. Read, and not `black_box`: that one is a
            // store, and all that memory holds is loaded anew behind it.
            let step = (&raw const STEP).read_volatile();
            let end = w.add(step * STEPS);
            loop {
                let rows = [Self::i_load(w), Self::i_load(w.add(32))];
                for t in 0..T {
                    let a = [v128_load32_splat(a[t].cast()); 2];
                    for r in 0..2 {
                        short[r][t] = Self::s_dot(short[r][t], rows[r], a);
                    }
                }
                w = w.add(step);
                if w == end {
                    break;
                }
                for t in 0..T {
                    a[t] = a[t].add(4);
                }
            }
            short
        }
    }
    #[inline(always)]
    unsafe fn s_widen(acc: Self::Short, scale: Self::I) -> Self::I {
        zip(acc, scale, |acc, scale| i32x4_dot_i16x8(acc, scale))
    }
}
