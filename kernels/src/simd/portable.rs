//! Plain Rust: the definition of every vector operation, and the path of a processor without a kernel of its own.

use super::{ByteDot, LANES, ShortDot, Simd, Tiles};
use crate::gemm::dot::{Exact, Shorts};

/// The portable implementation.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[inline(always)]
fn map<T: Copy, U: Copy + Default>(a: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    let mut out = [U::default(); LANES];
    for i in 0..LANES {
        out[i] = f(a[i]);
    }
    out
}

#[inline(always)]
fn zip<T: Copy, U: Copy + Default>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> U) -> [U; LANES] {
    let mut out = [U::default(); LANES];
    for i in 0..LANES {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
fn halves(v: i32) -> [i32; 2] {
    [i32::from(v as i16), v >> 16]
}

#[allow(unsafe_code)]
impl Simd for Portable {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type Unsigned = Shorts;
    type Signed = Exact;
    super::panel_pairs!();

    /// One token at a time: larger tiles only make larger code here.
    #[inline(always)]
    unsafe fn tiles<B: Tiles>(tokens: usize, body: &B) {
        for first in 0..tokens {
            // SAFETY: plain Rust runs everywhere.
            unsafe { body.tile::<Self, 1>(first) }
        }
    }

    #[inline(always)]
    unsafe fn f_load(p: *const f32) -> Self::F {
        // SAFETY: the caller gives eight readable floats.
        unsafe { p.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn f_store(p: *mut f32, v: Self::F) {
        // SAFETY: the caller gives eight writable floats.
        unsafe { p.cast::<Self::F>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn f_splat(v: f32) -> Self::F {
        [v; LANES]
    }
    #[inline(always)]
    unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn f_magnitude(a: Self::F) -> Self::I {
        map(a, |a| a.abs().to_bits() as i32)
    }
    #[inline(always)]
    unsafe fn f_from_bits(a: Self::I) -> Self::F {
        map(a, |a| f32::from_bits(a as u32))
    }
    #[inline(always)]
    unsafe fn f_from_i(a: Self::I) -> Self::F {
        map(a, |a| a as f32)
    }
    #[inline(always)]
    unsafe fn i_from_f(a: Self::F) -> Self::I {
        map(a, |a| a.round_ties_even() as i32)
    }

    #[inline(always)]
    unsafe fn i_load(p: *const u8) -> Self::I {
        // SAFETY: the caller gives 32 readable bytes.
        let bytes = unsafe { p.cast::<[[u8; 4]; LANES]>().read_unaligned() };
        map(bytes, i32::from_le_bytes)
    }
    #[inline(always)]
    unsafe fn i_store(p: *mut u8, v: Self::I) {
        // SAFETY: the caller gives 32 writable bytes.
        unsafe { p.cast::<[[u8; 4]; LANES]>().write_unaligned(map(v, i32::to_le_bytes)) }
    }
    #[inline(always)]
    unsafe fn i_splat(v: i32) -> Self::I {
        [v; LANES]
    }
    #[inline(always)]
    unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    unsafe fn i_max(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::max)
    }
    #[inline(always)]
    unsafe fn i_shl(a: Self::I, n: u32) -> Self::I {
        map(a, |a| a << n)
    }
    #[inline(always)]
    unsafe fn i_sar(a: Self::I, n: u32) -> Self::I {
        map(a, |a| a >> n)
    }
    #[inline(always)]
    unsafe fn i_blend16(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| (a & 0xffff) | (b & !0xffff))
    }
    #[inline(always)]
    unsafe fn i_dot16(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| {
            let (a, b) = (halves(a), halves(b));
            (a[0] * b[0]).wrapping_add(a[1] * b[1])
        })
    }
    #[inline(always)]
    unsafe fn i_from_bits(a: Self::F) -> Self::I {
        map(a, |a| a.to_bits() as i32)
    }
    #[inline(always)]
    unsafe fn i_from_u8(bytes: u64) -> Self::I {
        map(bytes.to_le_bytes(), i32::from)
    }
    #[inline(always)]
    unsafe fn i_from_u16(p: *const u8) -> Self::I {
        // SAFETY: the caller gives 16 readable bytes.
        map(unsafe { p.cast::<[[u8; 2]; LANES]>().read_unaligned() }, |word| {
            i32::from(u16::from_le_bytes(word))
        })
    }
    #[inline(always)]
    unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a & b)
    }
    #[inline(always)]
    unsafe fn i_quads(w: Self::I, a: Self::I) -> Self::I {
        zip(w, a, |w, a| {
            let (w, a) = (w.to_le_bytes(), a.to_le_bytes());
            (0..4).map(|i| i32::from(w[i]) * i32::from(a[i] as i8)).sum()
        })
    }
    #[inline(always)]
    unsafe fn i_dot4(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        dot8(acc, w, a)
    }
    #[inline(always)]
    unsafe fn i_dot4_signed(acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        dot8(acc, w, a)
    }
    #[inline(always)]
    unsafe fn i_quads_signed(w: Self::I, a: Self::I) -> Self::I {
        zip(w, a, |w, a| {
            let (w, a) = (w.to_le_bytes(), a.to_le_bytes());
            (0..4).map(|i| i32::from(w[i] as i8) * i32::from(a[i] as i8)).sum()
        })
    }
    #[inline(always)]
    unsafe fn i_halves(rows: [Self::I; LANES]) -> [Self::I; 2] {
        let half =
            |from: usize| map(rows, |row| row[from..from + 4].iter().fold(0i32, |a, b| a.wrapping_add(*b)));
        [half(0), half(4)]
    }
    #[inline(always)]
    unsafe fn i_transpose(rows: [Self::I; LANES]) -> [Self::I; LANES] {
        let mut out = [[0; LANES]; LANES];
        for (r, row) in rows.iter().enumerate() {
            for (c, &v) in row.iter().enumerate() {
                out[c][r] = v;
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn i_xor(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    unsafe fn i_store_low_bytes(p: *mut i8, v: Self::I) {
        // SAFETY: the caller gives eight writable bytes.
        unsafe { p.cast::<[i8; LANES]>().write_unaligned(map(v, |v| v as i8)) }
    }
}

#[allow(unsafe_code)]
impl ShortDot for Portable {
    type Short = [i32; LANES];

    #[inline(always)]
    unsafe fn s_zero() -> Self::Short {
        [0; LANES]
    }
    #[inline(always)]
    unsafe fn s_dot(mut acc: Self::Short, w: Self::I, a: Self::I) -> Self::Short {
        for i in 0..LANES {
            let (w, a) = (w[i].to_le_bytes(), a[i].to_le_bytes());
            for j in 0..4 {
                acc[i] += i32::from(w[j]) * i32::from(a[j] as i8);
            }
        }
        acc
    }
    #[inline(always)]
    unsafe fn s_widen(acc: Self::Short, scale: Self::I) -> Self::I {
        zip(acc, scale, |acc, scale| acc * (scale >> 16))
    }
}

/// Adds in each lane the dot product of four signed bytes.
#[inline(always)]
fn dot8(mut acc: [i32; LANES], w: [i32; LANES], a: [i32; LANES]) -> [i32; LANES] {
    for i in 0..LANES {
        let (w, a) = (w[i].to_le_bytes(), a[i].to_le_bytes());
        for j in 0..4 {
            acc[i] += i32::from(w[j] as i8) * i32::from(a[j] as i8);
        }
    }
    acc
}

#[allow(unsafe_code)]
impl ByteDot for Portable {
    super::sums_by_quads!(dot8);
}
