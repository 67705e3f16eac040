//! Elementary functions built from IEEE-754 basic operations: the same bits on every instruction set.

use crate::simd::Simd;

/// e^x in every lane.
///
/// Range reduction by ln 2 in two parts, then the degree-6 polynomial of Cephes' `expf` (Moshier); within 2 units in the
/// last place. Results are clamped to e^-87.33 … e^88.02 (normal numbers); NaN stays NaN.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller gives the instruction set.
    unsafe {
        // The operand that may be NaN stands second: that is the one that a NaN comparison keeps.
        let x = S::f_min(S::f_splat(88.02), S::f_max(S::f_splat(-87.33), x));
        let n = S::i_from_f(S::f_mul(x, S::f_splat(core::f32::consts::LOG2_E)));
        let n_float = S::f_from_i(n);
        let r = S::f_sub(x, S::f_mul(n_float, S::f_splat(0.693_359_4)));
        let r = S::f_sub(r, S::f_mul(n_float, S::f_splat(-2.121_944_4e-4)));
        let mut p = S::f_splat(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = S::f_add(S::f_mul(p, r), S::f_splat(c));
        }
        let p = S::f_add(S::f_add(S::f_mul(p, S::f_mul(r, r)), r), S::f_splat(1.0));
        S::f_mul(p, S::f_from_bits(S::i_shl(S::i_add(n, S::i_splat(127)), 23)))
    }
}

/// x · sigmoid(x) in every lane.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) unsafe fn silu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller gives the instruction set.
    unsafe {
        let e = exp::<S>(S::f_sub(S::f_splat(0.0), x));
        S::f_div(x, S::f_add(S::f_splat(1.0), e))
    }
}

/// GELU in its tanh form, `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, in every lane.
///
/// Computed as `x · sigmoid(2u)`, which is the same function.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) unsafe fn gelu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller gives the instruction set.
    unsafe {
        let cube = S::f_mul(S::f_mul(x, x), x);
        let u = S::f_add(x, S::f_mul(S::f_splat(0.044_715), cube));
        // -2·√(2/π)
        let e = exp::<S>(S::f_mul(S::f_splat(-2.0 * 0.797_884_6), u));
        S::f_div(x, S::f_add(S::f_splat(1.0), e))
    }
}

/// `base` to the power of `exponent`, from the software implementation that is the same on every target.
pub fn pow(base: f64, exponent: f64) -> f64 {
    libm::pow(base, exponent)
}

/// The natural logarithm, from the software implementation that is the same on every target.
pub fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// `e` to the power of `x`, from the software implementation that is the same on every target.
pub fn exp_f64(x: f64) -> f64 {
    libm::exp(x)
}

/// Sine and cosine of an angle in radians, from the software implementation that is the same on every target.
pub fn sin_cos(angle: f64) -> (f64, f64) {
    libm::sincos(angle)
}
