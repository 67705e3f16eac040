//! The vector operations in use: one small trait, one implementation for an instruction set.
//!
//! Every algorithm of this crate is written once, generic over [`Simd`]; a file of an instruction set only binds
//! intrinsics. A vector has eight 32-bit lanes whatever the hardware's width: that is also the fixed number of virtual
//! lanes of a float reduction, so that its result has the same bits on every instruction set.
//!
//! Only IEEE-754 basic operations appear (add, sub, mul, div, sqrt, conversions, comparisons): never a fused
//! multiply-add, never an approximate reciprocal.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
pub(crate) mod portable;

/// Lanes of a vector.
pub(crate) const LANES: usize = 8;

/// A loop over tokens whose body works on a tile of `T` of them at once.
pub(crate) trait Tiles {
    /// Tokens from `first` on.
    ///
    /// # Safety
    /// The processor has the instruction set of `S`; the implementation states the rest.
    #[allow(unsafe_code)]
    unsafe fn tile<S: Simd, const T: usize>(&self, first: usize);
}

/// Eight lanes of f32 and of i32, and the integer dot products of quantised blocks.
///
/// # Safety
/// Every function may only be called where the processor has the implementation's instruction set: inside the function
/// with the matching `target_feature` to which the generic code is inlined. Pointers must be valid for the lanes that
/// the function reads or writes; no alignment is asked for.
#[allow(unsafe_code)]
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// f32 × 8.
    type F: Copy;
    /// i32 × 8; also 32 bytes, four a lane.
    type I: Copy;
    /// What takes the products of four bytes a lane for a while before they are widened.
    type Short: Copy;

    /// Runs a loop in tiles of as many tokens as the registers hold.
    #[inline(always)]
    unsafe fn tiles<B: Tiles>(tokens: usize, body: &B) {
        let mut first = 0;
        // SAFETY: the instruction set is this one's.
        unsafe {
            while tokens - first >= 4 {
                body.tile::<Self, 4>(first);
                first += 4;
            }
            match tokens - first {
                3 => body.tile::<Self, 3>(first),
                2 => body.tile::<Self, 2>(first),
                1 => body.tile::<Self, 1>(first),
                _ => {}
            }
        }
    }

    unsafe fn f_load(p: *const f32) -> Self::F;
    unsafe fn f_store(p: *mut f32, v: Self::F);
    unsafe fn f_splat(v: f32) -> Self::F;
    unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F;
    /// The larger of each lane; `b` where either is NaN.
    unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller of each lane; `b` where either is NaN.
    unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F;
    /// Bits without the sign, as integers: they order as magnitudes do, infinity and NaN last.
    unsafe fn f_magnitude(a: Self::F) -> Self::I;
    /// Integers as float bits, unchanged.
    unsafe fn f_from_bits(a: Self::I) -> Self::F;
    /// The float nearest to each integer.
    unsafe fn f_from_i(a: Self::I) -> Self::F;
    /// The integer nearest to each float, ties to even. Only for values that an i32 holds.
    unsafe fn i_from_f(a: Self::F) -> Self::I;

    unsafe fn i_load(p: *const u8) -> Self::I;
    unsafe fn i_store(p: *mut u8, v: Self::I);
    unsafe fn i_splat(v: i32) -> Self::I;
    unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I;
    /// The larger of each signed lane.
    unsafe fn i_max(a: Self::I, b: Self::I) -> Self::I;
    /// Shifts each lane left by `n` bits.
    unsafe fn i_shl(a: Self::I, n: u32) -> Self::I;
    /// Shifts each lane right by `n` bits; the sign follows.
    unsafe fn i_sar(a: Self::I, n: u32) -> Self::I;
    /// The low 16 bits of each lane of `a`, the high 16 bits of `b`.
    unsafe fn i_blend16(a: Self::I, b: Self::I) -> Self::I;
    /// In each lane, the dot product of its two signed 16-bit halves.
    unsafe fn i_dot16(a: Self::I, b: Self::I) -> Self::I;
    /// Transposes an 8 × 8 matrix of lanes.
    unsafe fn i_transpose(rows: [Self::I; LANES]) -> [Self::I; LANES];
    /// The low byte of each lane, in order (lanes hold -128..=127).
    unsafe fn i_store_low_bytes(p: *mut i8, v: Self::I);

    unsafe fn s_zero() -> Self::Short;
    /// Adds in each lane the products of four unsigned bytes of `w` and four signed bytes of `a`.
    ///
    /// The caller widens before 16 bits can overflow: after 8 calls for `w` ≤ 15, 4 for ≤ 31, 2 for ≤ 63 (|a| ≤ 127).
    unsafe fn s_dot(acc: Self::Short, w: Self::I, a: Self::I) -> Self::Short;
    /// The sums of each lane times its scale, which stands twice in the lane of `scale`, as two 16-bit halves.
    unsafe fn s_widen(acc: Self::Short, scale: Self::I) -> Self::I;
    /// Adds in each lane the dot product of four signed bytes of `w` and of `a` (-128 only in `w`).
    unsafe fn i_dot8(acc: Self::I, w: Self::I, a: Self::I) -> Self::I;
}
