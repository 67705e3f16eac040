//! AVX2.

use super::{LANES, Simd};
use core::arch::x86_64::*;

/// The AVX2 implementation.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

// SAFETY of every block below: the trait's contract gives a processor with AVX2 and pointers that are valid for one
// unaligned vector; the intrinsics ask for nothing else.
#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl Simd for Avx2 {
    type F = __m256;
    type I = __m256i;
    /// Sixteen 16-bit sums: two a lane.
    type Short = __m256i;

    #[inline(always)]
    unsafe fn f_load(p: *const f32) -> Self::F {
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn f_store(p: *mut f32, v: Self::F) {
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn f_splat(v: f32) -> Self::F {
        unsafe { _mm256_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn f_magnitude(a: Self::F) -> Self::I {
        unsafe { _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0), a)) }
    }
    #[inline(always)]
    unsafe fn f_from_bits(a: Self::I) -> Self::F {
        unsafe { _mm256_castsi256_ps(a) }
    }
    #[inline(always)]
    unsafe fn f_from_i(a: Self::I) -> Self::F {
        unsafe { _mm256_cvtepi32_ps(a) }
    }
    #[inline(always)]
    unsafe fn i_from_f(a: Self::F) -> Self::I {
        unsafe { _mm256_cvtps_epi32(a) }
    }

    #[inline(always)]
    unsafe fn i_load(p: *const u8) -> Self::I {
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn i_store(p: *mut u8, v: Self::I) {
        unsafe { _mm256_storeu_si256(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn i_splat(v: i32) -> Self::I {
        unsafe { _mm256_set1_epi32(v) }
    }
    #[inline(always)]
    unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_sub_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn i_max(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_max_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn i_shl(a: Self::I, n: u32) -> Self::I {
        unsafe { _mm256_sll_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    unsafe fn i_sar(a: Self::I, n: u32) -> Self::I {
        unsafe { _mm256_sra_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    unsafe fn i_blend16(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_blend_epi16::<0b1010_1010>(a, b) }
    }
    #[inline(always)]
    unsafe fn i_dot16(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_madd_epi16(a, b) }
    }
    #[inline(always)]
    unsafe fn i_transpose(r: [Self::I; LANES]) -> [Self::I; LANES] {
        unsafe {
            let pair =
                |i: usize| (_mm256_unpacklo_epi32(r[i], r[i + 1]), _mm256_unpackhi_epi32(r[i], r[i + 1]));
            let (a, b, c, d) = (pair(0), pair(2), pair(4), pair(6));
            // Rows 0..4 and 4..8, columns j and j + 4 in the two halves.
            let quad = |x: (__m256i, __m256i), y: (__m256i, __m256i)| {
                [
                    _mm256_unpacklo_epi64(x.0, y.0),
                    _mm256_unpackhi_epi64(x.0, y.0),
                    _mm256_unpacklo_epi64(x.1, y.1),
                    _mm256_unpackhi_epi64(x.1, y.1),
                ]
            };
            let (low, high) = (quad(a, b), quad(c, d));
            let mut out = [_mm256_setzero_si256(); LANES];
            for j in 0..4 {
                out[j] = _mm256_permute2x128_si256::<0x20>(low[j], high[j]);
                out[j + 4] = _mm256_permute2x128_si256::<0x31>(low[j], high[j]);
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn i_store_low_bytes(p: *mut i8, v: Self::I) {
        unsafe {
            let words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
            _mm_storel_epi64(p.cast(), _mm_packs_epi16(words, words));
        }
    }

    #[inline(always)]
    unsafe fn s_zero() -> Self::Short {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn s_dot(acc: Self::Short, w: Self::I, a: Self::I) -> Self::Short {
        unsafe { _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, a)) }
    }
    #[inline(always)]
    unsafe fn s_widen(acc: Self::Short, scale: Self::I) -> Self::I {
        unsafe { _mm256_madd_epi16(acc, scale) }
    }
    #[inline(always)]
    unsafe fn i_dot8(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe {
            // |w| as an unsigned byte (128 fits), its sign moved to `a` (never -128): a pair sums to at most 32,512.
            let products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
            _mm256_add_epi32(acc, _mm256_madd_epi16(products, _mm256_set1_epi16(1)))
        }
    }
}
