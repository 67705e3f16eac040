//! The vector operations in use: one small trait, one implementation for an instruction set.
//!
//! Every algorithm of this crate is written once, generic over [`Simd`]; a file of an instruction set only binds
//! intrinsics. A vector has eight 32-bit lanes whatever the hardware's width: that is also the fixed number of virtual
//! lanes of a float reduction, so that its result has the same bits on every instruction set.
//!
//! Only IEEE-754 basic operations appear (add, sub, mul, div, sqrt, conversions, comparisons): never a fused
//! multiply-add (but where nothing is rounded), never an approximate reciprocal.
//!
//! How blocks of small integers are multiplied is where instruction sets differ most. Three ways are written once, in
//! [`crate::gemm::dot`]; an instruction set names the one it takes ([`Simd::Unsigned`], [`Simd::Signed`]) and binds the
//! few operations that it needs ([`ShortDot`], [`ByteDot`]; words need none of their own).

#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod wasm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use crate::gemm::dot::Dot;

/// Lanes of a vector.
pub(crate) const LANES: usize = 8;
/// Bytes of a vector; two of them are four columns of a panel's 16 rows.
const VECTOR: usize = 4 * LANES;

/// A loop over tokens whose body works on a tile of `T` of them at once.
pub(crate) trait Tiles {
    /// Tokens from `first` on.
    ///
    /// # Safety
    /// The processor has the instruction set of `S`; the implementation states the rest.
    #[allow(unsafe_code)]
    unsafe fn tile<S: Simd, const T: usize>(&self, first: usize);
}

/// Tokens `first..tokens` in tiles of four and a rest.
///
/// # Safety
/// The processor has the instruction set of `S`; the body states the rest.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn tiles_of_four<S: Simd, B: Tiles>(mut first: usize, tokens: usize, body: &B) {
    // SAFETY: as the caller gives it.
    unsafe {
        while tokens - first >= 4 {
            body.tile::<S, 4>(first);
            first += 4;
        }
        match tokens - first {
            3 => body.tile::<S, 3>(first),
            2 => body.tile::<S, 2>(first),
            1 => body.tile::<S, 1>(first),
            _ => {}
        }
    }
}

/// Where a tile of `T` tokens finds and leaves its 16 sums a token: in `out` itself, or where that has fewer lanes in a copy. So the
/// body of a tile, which is inlined, stands once.
pub(crate) struct TileSums<const T: usize> {
    copy: [[f32; 2 * LANES]; T],
    out: *mut f32,
    stride: usize,
    lanes: usize,
}

impl<const T: usize> TileSums<T> {
    /// # Safety
    /// `out` has `lanes` floats, at most 16, in each of `T` rows that lie `stride` apart.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(crate) unsafe fn of(out: *mut f32, stride: usize, lanes: usize) -> Self {
        let mut copy = [[0.0; 2 * LANES]; T];
        if lanes < 2 * LANES {
            for (t, copy) in copy.iter_mut().enumerate() {
                // SAFETY: as the caller gives it.
                unsafe { core::ptr::copy_nonoverlapping(out.add(t * stride), copy.as_mut_ptr(), lanes) }
            }
        }
        Self { copy, out, stride, lanes }
    }

    /// The first token's 16 sums, and how far the next one's are from them.
    #[inline(always)]
    pub(crate) fn place(&mut self) -> (*mut f32, usize) {
        if self.lanes < 2 * LANES {
            (self.copy.as_mut_ptr().cast(), 2 * LANES)
        } else {
            (self.out, self.stride)
        }
    }

    /// Brings back what a copy holds.
    ///
    /// # Safety
    /// As for [`Self::of`].
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(crate) unsafe fn store(self) {
        if self.lanes < 2 * LANES {
            for (t, copy) in self.copy.iter().enumerate() {
                // SAFETY: as the caller gives it.
                unsafe {
                    core::ptr::copy_nonoverlapping(copy.as_ptr(), self.out.add(t * self.stride), self.lanes);
                }
            }
        }
    }
}

/// Stores 32 columns of eight rows, a row a vector, into a panel's block; `half` says which eight of its 16 rows.
///
/// A lane belongs to a row: `[quad][row][4]`, so that four columns of the 16 rows are 64 bytes.
///
/// # Safety
/// The processor has the instruction set of `S`, `block` 512 bytes.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) unsafe fn store_by_quads<S: Simd>(rows: [S::I; LANES], half: usize, block: *mut u8) {
    // SAFETY: as the caller gives it.
    unsafe {
        for (quad, lane) in S::i_transpose(rows).into_iter().enumerate() {
            S::i_store(block.add(2 * VECTOR * quad + VECTOR * half), lane);
        }
    }
}

/// The two halves of a panel's rows as one.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) unsafe fn panels<S: Simd, const T: usize>(halves: [[S::I; T]; 2]) -> [S::I16; T] {
    // SAFETY: as the caller gives it. A loop and no `map`: closures of library functions are not compiled for the set.
    unsafe {
        let mut out = [S::i16_from(halves[0][0], halves[1][0]); T];
        for t in 1..T {
            out[t] = S::i16_from(halves[0][t], halves[1][t]);
        }
        out
    }
}

/// Eight lanes of f32 and of i32.
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
    /// f32 × 16: the rows of a panel. Two vectors, or one where the hardware has them so wide.
    type F16: Copy;
    /// i32 × 16.
    type I16: Copy;
    /// How blocks of unsigned quants (at most 63) are multiplied.
    type Unsigned: Dot<Self>;
    /// How blocks of signed bytes are multiplied.
    type Signed: Dot<Self>;

    /// Runs a loop in tiles of as many tokens as the registers hold.
    #[inline(always)]
    unsafe fn tiles<B: Tiles>(tokens: usize, body: &B) {
        // SAFETY: the instruction set is this one's.
        unsafe { tiles_of_four::<Self, B>(0, tokens, body) }
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
    /// The integer nearest to each float, ties to even. Only for magnitudes below 2^22: adding 1.5 · 2^23 is then a
    /// rounding, where an instruction set has none.
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
    /// Float bits as integers, unchanged.
    unsafe fn i_from_bits(a: Self::F) -> Self::I;
    /// Eight unsigned bytes, the lowest first.
    unsafe fn i_from_u8(bytes: u64) -> Self::I;
    /// Eight unsigned 16-bit words of memory.
    unsafe fn i_from_u16(p: *const u8) -> Self::I;
    /// The bits that both have.
    unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I;
    /// Asks for the line of memory at `p`, which need not be valid.
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        let _ = p;
    }
    /// The products of 32 unsigned bytes (at most 63) of `w` and 32 signed bytes of `a` (never -128), summed to eight lanes:
    /// those of the first 16 bytes lie in the first four. Which of them a product goes to is not said.
    unsafe fn i_quads(w: Self::I, a: Self::I) -> Self::I;
    /// Adds in each lane the products of its four unsigned bytes of `w` (at most 63) and signed bytes of `a` (never -128).
    unsafe fn i_dot4(acc: Self::I, w: Self::I, a: Self::I) -> Self::I;
    /// [`i_dot4`](Self::i_dot4) of signed bytes `w`.
    unsafe fn i_dot4_signed(acc: Self::I, w: Self::I, a: Self::I) -> Self::I;
    /// [`i_quads`](Self::i_quads) of signed bytes `w`.
    unsafe fn i_quads_signed(w: Self::I, a: Self::I) -> Self::I;
    /// The sums of each row's first four lanes, a lane a row, and of its last four.
    unsafe fn i_halves(rows: [Self::I; LANES]) -> [Self::I; 2];
    /// Transposes an 8 × 8 matrix of lanes.
    unsafe fn i_transpose(rows: [Self::I; LANES]) -> [Self::I; LANES];
    /// [`i_transpose`](Self::i_transpose) of eight vectors of memory.
    #[inline(always)]
    unsafe fn i_load_transposed(from: [*const u8; LANES]) -> [Self::I; LANES] {
        // SAFETY: as the caller gives it.
        unsafe {
            let mut rows = [Self::i_splat(0); LANES];
            for r in 0..LANES {
                rows[r] = Self::i_load(from[r]);
            }
            Self::i_transpose(rows)
        }
    }
    /// The sum of each vector's lanes, `((0+4)+(2+6))+((1+5)+(3+7))`, a lane a vector ([`crate::ops::lane_tree`] of eight).
    #[inline(always)]
    unsafe fn f_trees(vectors: [Self::F; LANES]) -> Self::F {
        // SAFETY: as the caller gives it.
        unsafe {
            let mut bits = [Self::i_splat(0); LANES];
            for i in 0..LANES {
                bits[i] = Self::i_from_bits(vectors[i]);
            }
            let lanes = Self::i_transpose(bits);
            let mut lane = vectors;
            for i in 0..LANES {
                lane[i] = Self::f_from_bits(lanes[i]);
            }
            Self::f_add(
                Self::f_add(Self::f_add(lane[0], lane[4]), Self::f_add(lane[2], lane[6])),
                Self::f_add(Self::f_add(lane[1], lane[5]), Self::f_add(lane[3], lane[7])),
            )
        }
    }
    /// The low byte of each lane, in order (lanes hold -128..=127).
    unsafe fn i_store_low_bytes(p: *mut i8, v: Self::I);
    /// The bits that one of them has.
    unsafe fn i_xor(a: Self::I, b: Self::I) -> Self::I;

    unsafe fn f16_load(p: *const f32) -> Self::F16;
    unsafe fn f16_store(p: *mut f32, v: Self::F16);
    unsafe fn f16_splat(v: f32) -> Self::F16;
    unsafe fn f16_add(a: Self::F16, b: Self::F16) -> Self::F16;
    unsafe fn f16_sub(a: Self::F16, b: Self::F16) -> Self::F16;
    unsafe fn f16_mul(a: Self::F16, b: Self::F16) -> Self::F16;
    unsafe fn f16_from_i(a: Self::I16) -> Self::F16;
    /// What [`ByteDot::sums`] begins with: in every lane, the dot product of the two signed 16-bit halves of `a` and of `b`, in
    /// the form that [`f16_from_sum`](Self::f16_from_sum) takes.
    unsafe fn sum_of(a: i32, b: i32) -> Self::I16;
    /// The same of nothing.
    unsafe fn sum_of_none() -> Self::I16;
    /// A sum of magnitude below 2^22 as floats.
    unsafe fn f16_from_sum(sum: Self::I16) -> Self::F16;
    /// A sum times whole numbers of at most 128, the products of magnitude below 2^24: exact.
    unsafe fn f16_from_scaled_sum(sum: Self::I16, scale: Self::F16) -> Self::F16;
    /// 16 lanes of memory, each shifted right by 16 bits; the sign follows.
    unsafe fn i16_load_high(p: *const i32) -> Self::I16;
    /// Rows 0 to 7 and 8 to 15.
    unsafe fn i16_from(low: Self::I, high: Self::I) -> Self::I16;
    unsafe fn f16_from(low: Self::F, high: Self::F) -> Self::F16;
    unsafe fn f16_halves(a: Self::F16) -> [Self::F; 2];
    /// As [`i_from_f`](Self::i_from_f).
    unsafe fn i16_from_f(a: Self::F16) -> Self::I16;
}

/// [`Simd`]'s vectors of 16 lanes as two of eight.
macro_rules! panel_pairs {
    () => {
        type F16 = [Self::F; 2];
        type I16 = [Self::I; 2];

        #[inline(always)]
        unsafe fn f16_load(p: *const f32) -> Self::F16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { [Self::f_load(p), Self::f_load(p.add(LANES))] }
        }
        #[inline(always)]
        unsafe fn f16_store(p: *mut f32, v: Self::F16) {
            // SAFETY: as the caller gives it, for each half.
            unsafe {
                Self::f_store(p, v[0]);
                Self::f_store(p.add(LANES), v[1]);
            }
        }
        #[inline(always)]
        unsafe fn f16_splat(v: f32) -> Self::F16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { [Self::f_splat(v); 2] }
        }
        #[inline(always)]
        unsafe fn f16_add(a: Self::F16, b: Self::F16) -> Self::F16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { [Self::f_add(a[0], b[0]), Self::f_add(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn f16_sub(a: Self::F16, b: Self::F16) -> Self::F16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { [Self::f_sub(a[0], b[0]), Self::f_sub(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn f16_mul(a: Self::F16, b: Self::F16) -> Self::F16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { [Self::f_mul(a[0], b[0]), Self::f_mul(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn f16_from_i(a: Self::I16) -> Self::F16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { [Self::f_from_i(a[0]), Self::f_from_i(a[1])] }
        }
        #[inline(always)]
        unsafe fn sum_of(a: i32, b: i32) -> Self::I16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { [Self::i_dot16(Self::i_splat(a), Self::i_splat(b)); 2] }
        }
        #[inline(always)]
        unsafe fn sum_of_none() -> Self::I16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { [Self::i_splat(0); 2] }
        }
        #[inline(always)]
        unsafe fn f16_from_sum(sum: Self::I16) -> Self::F16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { Self::f16_from_i(sum) }
        }
        #[inline(always)]
        unsafe fn f16_from_scaled_sum(sum: Self::I16, scale: Self::F16) -> Self::F16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { Self::f16_mul(Self::f16_from_i(sum), scale) }
        }
        #[inline(always)]
        unsafe fn i16_load_high(p: *const i32) -> Self::I16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe {
                [Self::i_sar(Self::i_load(p.cast()), 16), Self::i_sar(Self::i_load(p.add(LANES).cast()), 16)]
            }
        }
        #[inline(always)]
        unsafe fn i16_from(low: Self::I, high: Self::I) -> Self::I16 {
            [low, high]
        }
        #[inline(always)]
        unsafe fn f16_from(low: Self::F, high: Self::F) -> Self::F16 {
            [low, high]
        }
        #[inline(always)]
        unsafe fn f16_halves(a: Self::F16) -> [Self::F; 2] {
            a
        }
        #[inline(always)]
        unsafe fn i16_from_f(a: Self::F16) -> Self::I16 {
            // SAFETY: as the caller gives it, for each half.
            unsafe { [Self::i_from_f(a[0]), Self::i_from_f(a[1])] }
        }
    };
}
pub(crate) use panel_pairs;

/// Products of unsigned quants that are summed in 16 bits for a while before they are widened.
///
/// # Safety
/// As [`Simd`].
#[allow(unsafe_code)]
pub(crate) trait ShortDot: Simd {
    /// What takes the products of four bytes a lane for a while.
    type Short: Copy;

    unsafe fn s_zero() -> Self::Short;
    /// Adds in each lane the products of four unsigned bytes of `w` and four signed bytes of `a`.
    ///
    /// The caller widens before 16 bits can overflow: after 8 calls for `w` ≤ 15, 4 for ≤ 31, 2 for ≤ 63 (|a| ≤ 127).
    unsafe fn s_dot(acc: Self::Short, w: Self::I, a: Self::I) -> Self::Short;
    /// The products of `STEPS` steps of four columns, of 16 rows and `T` tokens. `w` is part of a panel's block.
    #[inline(always)]
    unsafe fn s_sums<const STEPS: usize, const T: usize>(
        w: *const u8,
        a: [*const i8; T],
    ) -> [[Self::Short; T]; 2] {
        // SAFETY: as the caller gives it.
        unsafe {
            let mut short = [[Self::s_zero(); T]; 2];
            for i in 0..STEPS {
                let w = w.add(2 * VECTOR * i);
                let w = [Self::i_load(w), Self::i_load(w.add(VECTOR))];
                for t in 0..T {
                    let a = Self::i_splat(a[t].add(4 * i).cast::<i32>().read_unaligned());
                    for r in 0..2 {
                        short[r][t] = Self::s_dot(short[r][t], w[r], a);
                    }
                }
            }
            short
        }
    }
    /// The sums of each lane times its scale, which stands twice in the lane of `scale`, as two 16-bit halves.
    unsafe fn s_widen(acc: Self::Short, scale: Self::I) -> Self::I;
}

/// Products of bytes that are summed in 32 bits at once.
///
/// # Safety
/// As [`Simd`].
#[allow(unsafe_code)]
pub(crate) trait ByteDot: Simd {
    /// Where the instruction takes unsigned weights: log2 of what is added to signed ones in the panel (128, whose sum
    /// with the activations is then subtracted).
    const BIAS_SHIFT: Option<u32> = None;
    /// Whether [`store_block`](Self::store_block) is [`store_by_quads`].
    const BY_QUADS: bool = true;

    /// Stores 32 columns of eight rows, a row a vector, into a panel's block; `half` says which eight of its 16 rows.
    #[inline(always)]
    unsafe fn store_block(rows: [Self::I; LANES], half: usize, block: *mut u8) {
        // SAFETY: as the caller gives it.
        unsafe { store_by_quads::<Self>(rows, half, block) }
    }

    /// `init` plus the dot products of 16 rows and `T` tokens over `quads` (4 or 8) steps of four columns.
    ///
    /// `w` is part of a block as [`store_block`](Self::store_block) wrote it, each of `a` as many activations
    /// (never -128).
    unsafe fn sums<const T: usize>(
        w: *const u8,
        a: [*const i8; T],
        init: [Self::I16; T],
        quads: usize,
    ) -> [Self::I16; T];
}

/// [`ByteDot::sums`] by an operation `$dot(acc, w, a)` on lanes of four bytes.
macro_rules! sums_by_quads {
    ($dot:ident) => {
        #[inline(always)]
        unsafe fn sums<const T: usize>(
            w: *const u8,
            a: [*const i8; T],
            init: [Self::I16; T],
            quads: usize,
        ) -> [Self::I16; T] {
            // SAFETY: as the caller gives it.
            unsafe {
                let mut int = init;
                for i in 0..quads {
                    let at = w.add(64 * i);
                    let w = [Self::i_load(at), Self::i_load(at.add(32))];
                    for t in 0..T {
                        let a = Self::i_splat(a[t].add(4 * i).cast::<i32>().read_unaligned());
                        for r in 0..2 {
                            int[t][r] = $dot(int[t][r], w[r], a);
                        }
                    }
                }
                int
            }
        }
    };
}
use sums_by_quads;
