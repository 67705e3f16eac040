//! x86-64: AVX2, and the same with the dot products of AVX-VNNI and of AVX-512 VNNI.

use super::{ByteDot, LANES, ShortDot, Simd, Tiles};
use crate::gemm::dot::{Exact, Shorts};
use core::arch::x86_64::*;

/// AVX2: `vpmaddubsw` sums pairs of products in 16 bits.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// What AVX-512 counts sums from.
#[cfg_attr(target_os = "android", expect(dead_code, reason = "not built there"))]
const SUM_FROM: f32 = 12_582_912.0;

/// AVX2 with AVX-VNNI: `vpdpbusd` sums four products in 32 bits.
#[derive(Clone, Copy)]
#[cfg_attr(target_os = "android", expect(dead_code, reason = "not built there"))]
pub(crate) struct AvxVnni;

/// AVX-512 (F, BW, DQ, VL) with VNNI: the 16 rows of a panel are one `zmm` in the integer products; floats stay in `ymm`,
/// whose eight lanes are those of every reduction.
#[derive(Clone, Copy)]
#[cfg_attr(target_os = "android", expect(dead_code, reason = "not built there"))]
pub(crate) struct Avx512Vnni;

/// What the three share: everything but the dot products.
macro_rules! avx2_operations {
    () => {
        type F = __m256;
        type I = __m256i;

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
        unsafe fn i_from_bits(a: Self::F) -> Self::I {
            unsafe { _mm256_castps_si256(a) }
        }
        #[inline(always)]
        unsafe fn i_from_u8(bytes: u64) -> Self::I {
            unsafe { _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes as i64)) }
        }
        #[inline(always)]
        unsafe fn i_from_u16(p: *const u8) -> Self::I {
            unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())) }
        }
        #[inline(always)]
        unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I {
            unsafe { _mm256_and_si256(a, b) }
        }
        #[inline(always)]
        unsafe fn prefetch(p: *const u8) {
            // A hint: an address that is not valid is passed over.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
        #[inline(always)]
        unsafe fn i_halves(r: [Self::I; LANES]) -> [Self::I; 2] {
            unsafe {
                let four = |i: usize| {
                    let (a, b) = (_mm256_hadd_epi32(r[i], r[i + 1]), _mm256_hadd_epi32(r[i + 2], r[i + 3]));
                    _mm256_hadd_epi32(a, b)
                };
                let (a, b) = (four(0), four(4));
                [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)]
            }
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
        unsafe fn i_xor(a: Self::I, b: Self::I) -> Self::I {
            unsafe { _mm256_xor_si256(a, b) }
        }
        /// Half as wide at every level, and so half as many shuffles as a transposition.
        #[inline(always)]
        unsafe fn f_trees(v: [Self::F; LANES]) -> Self::F {
            unsafe {
                // `[0+4, 1+5, 2+6, 3+7]` of two vectors.
                let fours = |a: __m256, b: __m256| {
                    let (low, high) =
                        (_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
                    _mm256_add_ps(low, high)
                };
                // Of four: `[(0+4)+(2+6), (1+5)+(3+7)]`, those of `a` and `b` in the low half.
                let twos = |a: __m256, b: __m256| {
                    let low = _mm256_shuffle_ps::<0b01_00_01_00>(a, b);
                    let high = _mm256_shuffle_ps::<0b11_10_11_10>(a, b);
                    _mm256_add_ps(low, high)
                };
                let (a, b) =
                    (twos(fours(v[0], v[4]), fours(v[1], v[5])), twos(fours(v[2], v[6]), fours(v[3], v[7])));
                let even = _mm256_shuffle_ps::<0b10_00_10_00>(a, b);
                let odd = _mm256_shuffle_ps::<0b11_01_11_01>(a, b);
                _mm256_add_ps(even, odd)
            }
        }
        /// Halves of rows four apart meet as they are loaded: eight shuffles between halves less.
        #[inline(always)]
        unsafe fn i_load_transposed(from: [*const u8; LANES]) -> [Self::I; LANES] {
            unsafe {
                let mut out = [_mm256_setzero_si256(); LANES];
                for half in 0..2 {
                    let row = |r: usize| {
                        let low = _mm256_castsi128_si256(_mm_loadu_si128(from[r].add(16 * half).cast()));
                        _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(from[r + 4].add(16 * half).cast()))
                    };
                    let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                    let (low, high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                    out[4 * half] = _mm256_unpacklo_epi64(low, high);
                    out[4 * half + 1] = _mm256_unpackhi_epi64(low, high);
                    let (low, high) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                    out[4 * half + 2] = _mm256_unpacklo_epi64(low, high);
                    out[4 * half + 3] = _mm256_unpackhi_epi64(low, high);
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
    };
}

// SAFETY of every block below: the trait's contract gives a processor with AVX2 (and VNNI, where it is named) and
// pointers that are valid for one unaligned vector; the intrinsics ask for nothing else.
#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl Simd for Avx2 {
    type Unsigned = Shorts;
    type Signed = Exact;
    avx2_operations!();
    super::panel_pairs!();

    #[inline(always)]
    unsafe fn i_quads(w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1)) }
    }
    #[inline(always)]
    unsafe fn i_dot4(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_add_epi32(acc, Self::i_quads(w, a)) }
    }
    #[inline(always)]
    unsafe fn i_dot4_signed(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { signed_dot(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn i_quads_signed(w: Self::I, a: Self::I) -> Self::I {
        unsafe { signed_dot(_mm256_setzero_si256(), w, a) }
    }
}

#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl Simd for AvxVnni {
    type Unsigned = Exact;
    type Signed = Exact;
    avx2_operations!();
    super::panel_pairs!();

    #[inline(always)]
    unsafe fn i_quads(w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), w, a) }
    }
    #[inline(always)]
    unsafe fn i_dot4(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_dpbusd_avx_epi32(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn i_dot4_signed(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_dpbusd_avx_epi32(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(a, w)) }
    }
    #[inline(always)]
    unsafe fn i_quads_signed(w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(w), _mm256_sign_epi8(a, w)) }
    }
}

#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl Simd for Avx512Vnni {
    type Unsigned = Exact;
    type Signed = Exact;
    avx2_operations!();

    type F16 = __m512;
    type I16 = __m512i;

    #[inline(always)]
    unsafe fn f16_load(p: *const f32) -> Self::F16 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn f16_store(p: *mut f32, v: Self::F16) {
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn f16_splat(v: f32) -> Self::F16 {
        unsafe { _mm512_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn f16_add(a: Self::F16, b: Self::F16) -> Self::F16 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn f16_sub(a: Self::F16, b: Self::F16) -> Self::F16 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn f16_mul(a: Self::F16, b: Self::F16) -> Self::F16 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn f16_from_i(a: Self::I16) -> Self::F16 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    /// Sums are counted from the bits of 1.5 · 2^23: as long as they stay below 2^22 those are the float of 1.5 · 2^23 plus the sum, and what
    /// makes a float of them multiplies at once.
    #[inline(always)]
    unsafe fn sum_of(a: i32, b: i32) -> Self::I16 {
        unsafe { _mm512_dpwssd_epi32(Self::sum_of_none(), _mm512_set1_epi32(a), _mm512_set1_epi32(b)) }
    }
    #[inline(always)]
    unsafe fn sum_of_none() -> Self::I16 {
        unsafe { _mm512_castps_si512(_mm512_set1_ps(SUM_FROM)) }
    }
    #[inline(always)]
    unsafe fn f16_from_sum(sum: Self::I16) -> Self::F16 {
        unsafe { _mm512_sub_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps(SUM_FROM)) }
    }
    /// Nothing is rounded, so that the bits are those of a conversion and a product: 1.5 · 2^23 times a whole number of at most 128 is exact, and
    /// the sum times it is.
    #[inline(always)]
    unsafe fn f16_from_scaled_sum(sum: Self::I16, scale: Self::F16) -> Self::F16 {
        unsafe {
            let from = _mm512_mul_ps(_mm512_set1_ps(SUM_FROM), scale);
            _mm512_fmsub_ps(_mm512_castsi512_ps(sum), scale, from)
        }
    }
    #[inline(always)]
    unsafe fn i16_load_high(p: *const i32) -> Self::I16 {
        unsafe { _mm512_srai_epi32::<16>(_mm512_loadu_si512(p.cast())) }
    }
    #[inline(always)]
    unsafe fn i16_from(low: Self::I, high: Self::I) -> Self::I16 {
        unsafe { _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high) }
    }
    #[inline(always)]
    unsafe fn f16_from(low: Self::F, high: Self::F) -> Self::F16 {
        unsafe { _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high) }
    }
    #[inline(always)]
    unsafe fn f16_halves(a: Self::F16) -> [Self::F; 2] {
        unsafe { [_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a)] }
    }
    #[inline(always)]
    unsafe fn i16_from_f(a: Self::F16) -> Self::I16 {
        unsafe { _mm512_cvtps_epi32(a) }
    }

    #[inline(always)]
    unsafe fn i_quads(w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, a) }
    }
    #[inline(always)]
    unsafe fn i_dot4(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_dpbusd_epi32(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn i_dot4_signed(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_dpbusd_epi32(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(a, w)) }
    }
    #[inline(always)]
    unsafe fn i_quads_signed(w: Self::I, a: Self::I) -> Self::I {
        unsafe { _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(w), _mm256_sign_epi8(a, w)) }
    }

    /// Eight tokens: as many independent sums as the latency of `vpdpbusd` asks for, since a token has one `zmm`.
    #[inline(always)]
    unsafe fn tiles<B: Tiles>(tokens: usize, body: &B) {
        let whole = tokens / 8 * 8;
        unsafe {
            for first in (0..whole).step_by(8) {
                body.tile::<Self, 8>(first);
            }
            super::tiles_of_four::<Self, B>(whole, tokens, body);
        }
    }
}

#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl ShortDot for Avx2 {
    /// Sixteen 16-bit sums: two a lane.
    type Short = __m256i;

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
}

/// Adds in each lane the dot product of four signed bytes of `w` and of `a` (-128 only in `w`).
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
unsafe fn signed_dot(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
    unsafe {
        // |w| as an unsigned byte (128 fits), its sign moved to `a` (never -128): a pair sums to at most 32,512.
        let products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
        _mm256_add_epi32(acc, _mm256_madd_epi16(products, _mm256_set1_epi16(1)))
    }
}

#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl ByteDot for Avx2 {
    super::sums_by_quads!(signed_dot);
}

#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl ByteDot for AvxVnni {
    const BIAS_SHIFT: Option<u32> = Some(7);
    super::sums_by_quads!(_mm256_dpbusd_avx_epi32);
}

#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl ByteDot for Avx512Vnni {
    const BIAS_SHIFT: Option<u32> = Some(7);

    #[inline(always)]
    unsafe fn sums<const T: usize>(
        w: *const u8,
        a: [*const i8; T],
        init: [Self::I16; T],
        quads: usize,
    ) -> [Self::I16; T] {
        unsafe {
            let mut int = init;
            for i in 0..quads {
                let w = _mm512_loadu_si512(w.add(64 * i).cast());
                for t in 0..T {
                    let a = _mm512_set1_epi32(a[t].add(4 * i).cast::<i32>().read_unaligned());
                    int[t] = _mm512_dpbusd_epi32(int[t], w, a);
                }
            }
            int
        }
    }
}
