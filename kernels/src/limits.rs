//! What this machine can do at most: bytes that it reads, multiply-adds that it makes.
//!
//! A bench sets these beside its figures: decode cannot be faster than the weights can be read, prefill not faster than
//! the dot products can be made. The functions do work and say how much it was; the caller has the clock.
//!
//! The integer peak is that of the operation by which the kernels multiply unsigned quants, the fastest that they have.
//! On x86-64 its operands stay in registers. Elsewhere one operand comes from the first-level cache and serves as many sums
//! as in the kernels. The float peak is a multiplication and an addition: the kernels never fuse them.

use crate::isa::{Isa, Task, dispatch};
use crate::pool::Pool;
use crate::simd::Simd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a thread takes at once.
const PIECE: usize = 1 << 16;
/// Parts of the arithmetic that a thread takes one by one: the first thread must not do the work of one that wakes late.
const PARTS: usize = 8;

/// Reads all of `bytes`, `rounds` times, with the widest loads of `isa`; gives a sum of what was read, so that it was.
///
/// Threads take pieces of 64 KiB. Where `bytes` is larger than the caches this is the bandwidth of the memory, else that of
/// a cache.
///
/// # Panics
/// Where the processor lacks `isa`.
pub fn read(isa: Isa, pool: &Pool, bytes: &[u8], rounds: usize) -> u64 {
    let pieces = bytes.len().div_ceil(PIECE);
    let sum = AtomicU64::new(0);
    pool.run(pieces * rounds, &|at| {
        let start = at % pieces * PIECE;
        let piece = &bytes[start..bytes.len().min(start + PIECE)];
        sum.fetch_add(dispatch(isa, Read(piece)), Ordering::Relaxed);
    });
    sum.into_inner()
}

struct Read<'a>(&'a [u8]);

impl Task for Read<'_> {
    type Output = u64;

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) -> u64 {
        const VECTOR: usize = 32;
        const ABREAST: usize = 8;
        let mut sum = 0u64;
        let chunks = self.0.chunks_exact(VECTOR * ABREAST);
        for byte in chunks.remainder() {
            sum = sum.wrapping_add(u64::from(*byte));
        }
        // SAFETY: the caller gives the instruction set; every load lies in a chunk of 8 vectors.
        unsafe {
            let mut acc = [S::i_splat(0); ABREAST];
            for chunk in chunks {
                for i in 0..ABREAST {
                    acc[i] = S::i_add(acc[i], S::i_load(chunk.as_ptr().add(VECTOR * i)));
                }
            }
            for acc in acc {
                let mut lanes = [0u8; VECTOR];
                S::i_store(lanes.as_mut_ptr(), acc);
                for lane in lanes.chunks_exact(4) {
                    let lane = u32::from_le_bytes([lane[0], lane[1], lane[2], lane[3]]);
                    sum = sum.wrapping_add(u64::from(lane));
                }
            }
        }
        sum
    }
}

/// Makes `rounds` rounds of int8 multiply-adds on every thread of `pool`; gives how many multiply-adds that were.
///
/// # Panics
/// Where the processor lacks `isa`.
pub fn int8(isa: Isa, pool: &Pool, rounds: usize) -> u64 {
    spread(isa, pool, rounds, kernel_int8(isa))
}

/// Makes `rounds` rounds of f32 multiply-adds on every thread of `pool`; gives how many multiply-adds that were.
///
/// # Panics
/// Where the processor lacks `isa`.
pub fn float(isa: Isa, pool: &Pool, rounds: usize) -> u64 {
    spread(isa, pool, rounds, kernel_float(isa))
}

/// A loop of `rounds` turns; gives its multiply-adds.
///
/// # Safety
/// The processor has the instruction set that it was chosen for.
#[allow(unsafe_code)]
type Loop = unsafe fn(usize) -> u64;

fn spread(isa: Isa, pool: &Pool, rounds: usize, body: Loop) -> u64 {
    assert!(isa.is_available(), "this processor lacks {isa}");
    let done = AtomicU64::new(0);
    pool.run(pool.threads() * PARTS, &|_| {
        // SAFETY: the loop is the one of `isa`, which the processor has, as was just seen.
        #[allow(unsafe_code)]
        let made = unsafe { body(rounds.div_ceil(PARTS)) };
        done.fetch_add(made, Ordering::Relaxed);
    });
    done.into_inner()
}

fn kernel_int8(isa: Isa) -> Loop {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => x86::int8_avx2,
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => x86::int8_avx_vnni,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => x86::int8_avx512_vnni,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => aarch64::int8_neon,
        #[cfg(target_arch = "aarch64")]
        Isa::NeonDotprod => aarch64::int8_dotprod,
        #[cfg(target_arch = "aarch64")]
        Isa::NeonI8mm => aarch64::int8_i8mm,
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Isa::Simd128 => cached::words::<crate::simd::wasm::Simd128, 2>,
        #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
        Isa::RelaxedSimd => cached::shorts::<crate::simd::wasm::Relaxed, 2>,
        _ => cached::shorts::<crate::simd::portable::Portable, 1>,
    }
}

fn kernel_float(isa: Isa) -> Loop {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni | Isa::Avx512Vnni => x86::float_avx2,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => aarch64::float_neon,
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Isa::Simd128 => cached::float::<crate::simd::wasm::Simd128, 2>,
        #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
        Isa::RelaxedSimd => cached::float::<crate::simd::wasm::Relaxed, 2>,
        _ => cached::float::<crate::simd::portable::Portable, 2>,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::asm;
    use core::arch::x86_64::*;

    /// A loop over `$n` independent sums. The empty `asm!` makes a value of `$w` that the compiler knows nothing of, in the
    /// register where it is: no product can be taken out of the loop.
    macro_rules! peak {
        ($name:ident, $features:literal, $class:ident, $n:literal, $each:literal, $zero:expr, $one:expr, $op:expr) => {
            /// # Safety
            /// The processor has the features.
            #[target_feature(enable = $features)]
            #[allow(unsafe_code, unused_unsafe)]
            pub(super) unsafe fn $name(rounds: usize) -> u64 {
                let mut acc = [$zero; $n];
                let mut w = $one;
                let a = core::hint::black_box($one);
                for _ in 0..rounds {
                    for acc in &mut acc {
                        // SAFETY: no instruction at all.
                        unsafe {
                            asm!("/* {0} */", inout($class) w, options(nomem, nostack, preserves_flags));
                        }
                        *acc = $op(*acc, w, a);
                    }
                }
                core::hint::black_box(acc);
                rounds as u64 * $n * $each
            }
        };
    }

    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn shorts(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
        _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, a))
    }

    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn multiply_add(acc: __m256, w: __m256, a: __m256) -> __m256 {
        _mm256_add_ps(acc, _mm256_mul_ps(w, a))
    }

    peak!(int8_avx2, "avx2", ymm_reg, 12, 32, _mm256_setzero_si256(), _mm256_set1_epi8(1), shorts);
    peak!(
        int8_avx_vnni,
        "avx2,avxvnni",
        ymm_reg,
        12,
        32,
        _mm256_setzero_si256(),
        _mm256_set1_epi8(1),
        _mm256_dpbusd_avx_epi32
    );
    peak!(
        int8_avx512_vnni,
        "avx512f,avx512bw,avx512vl,avx512vnni",
        zmm_reg,
        16,
        64,
        _mm512_setzero_si512(),
        _mm512_set1_epi8(1),
        _mm512_dpbusd_epi32
    );
    peak!(float_avx2, "avx2", ymm_reg, 12, 8, _mm256_setzero_ps(), _mm256_set1_ps(1.0), multiply_add);
}

/// Loops whose weights come from the first-level cache, each of them for `T` sums.
mod cached {
    use crate::simd::{LANES, ShortDot, Simd};
    use core::hint::black_box;

    /// Vectors of weights: 2 KiB.
    const VECTORS: usize = 64;

    #[repr(align(64))]
    struct Weights([[u8; 4 * LANES]; VECTORS]);

    /// Weights of one, which the compiler does not know to be that.
    static ONES: Weights = Weights([[1; 4 * LANES]; VECTORS]);

    /// Turns of a loop: two vectors in each, as the 16 rows of a panel are.
    const TURNS: usize = VECTORS / ROWS;
    const ROWS: usize = 2;

    /// Calls `$body` with a pointer to each two of the weights' vectors.
    ///
    /// A loop that stays one, as in the kernels: in WebAssembly LLVM unrolls a counted one whole, all loads come first, and
    /// everything spills (seen: the peak stood below what the kernels reach).
    macro_rules! each_pair {
        (|$at:ident| $body:block) => {
            let mut $at = black_box(&ONES).0.as_ptr().cast::<u8>();
            let mut left = black_box(1u32 << (TURNS - 1));
            loop {
                $body
                left >>= 1;
                if left == 0 {
                    break;
                }
                $at = $at.add(4 * LANES * ROWS);
            }
        };
    }

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) unsafe fn shorts<S: ShortDot, const T: usize>(rounds: usize) -> u64 {
        // SAFETY: the caller gives the instruction set; every load is a whole vector of the array.
        unsafe {
            let mut a = [S::i_splat(0); T];
            for a in &mut a {
                *a = S::i_splat(black_box(0x0101_0101));
            }
            let mut sum = S::i_splat(0);
            for _ in 0..rounds {
                // Anew in each round: sums of 16 bits must not overflow.
                let mut acc = [[S::s_zero(); T]; ROWS];
                each_pair!(|at| {
                    let w = [S::i_load(at), S::i_load(at.add(4 * LANES))];
                    for t in 0..T {
                        for r in 0..ROWS {
                            acc[r][t] = S::s_dot(acc[r][t], w[r], a[t]);
                        }
                    }
                });
                for acc in acc.into_iter().flatten() {
                    sum = S::i_add(sum, S::s_widen(acc, S::i_splat(0x0001_0001)));
                }
            }
            black_box(sum);
        }
        rounds as u64 * (VECTORS * T * 4 * LANES) as u64
    }

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) unsafe fn words<S: Simd, const T: usize>(rounds: usize) -> u64 {
        // SAFETY: the caller gives the instruction set; every load is a whole vector of the array.
        unsafe {
            let mut a = [S::i_splat(0); T];
            for a in &mut a {
                *a = S::i_splat(black_box(0x0001_0001));
            }
            let mut acc = [[S::i_splat(0); T]; ROWS];
            for _ in 0..rounds {
                each_pair!(|at| {
                    let w = [S::i_load(at), S::i_load(at.add(4 * LANES))];
                    for t in 0..T {
                        for r in 0..ROWS {
                            acc[r][t] = S::i_add(acc[r][t], S::i_dot16(w[r], a[t]));
                        }
                    }
                });
            }
            black_box(acc);
        }
        rounds as u64 * (VECTORS * T * 2 * LANES) as u64
    }

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) unsafe fn float<S: Simd, const T: usize>(rounds: usize) -> u64 {
        // SAFETY: the caller gives the instruction set; every load is a whole vector of the array.
        unsafe {
            let mut a = [S::f_splat(0.0); T];
            for a in &mut a {
                *a = S::f_splat(black_box(1.0));
            }
            let mut acc = [[S::f_splat(0.0); T]; ROWS];
            for _ in 0..rounds {
                each_pair!(|at| {
                    let w = [S::f_load(at.cast()), S::f_load(at.add(4 * LANES).cast())];
                    for t in 0..T {
                        for r in 0..ROWS {
                            acc[r][t] = S::f_add(acc[r][t], S::f_mul(w[r], a[t]));
                        }
                    }
                });
            }
            black_box(acc);
        }
        rounds as u64 * (VECTORS * T * LANES) as u64
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use crate::simd::ByteDot;
    use crate::simd::neon::{Dotprod, I8mm, Neon};
    use core::hint::black_box;

    /// Quads of columns in the loop: 16 rows of them are 2 KiB.
    const QUADS: usize = 32;

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn bytes<S: ByteDot>(rounds: usize) -> u64 {
        const T: usize = 4;
        let (w, a) = ([1u8; 64 * QUADS], [1i8; 4 * QUADS]);
        for _ in 0..rounds {
            let (w, a) = (black_box(&w), black_box(&a));
            // SAFETY: the caller gives the instruction set; both arrays hold as many quads.
            black_box(unsafe { S::sums::<T>(w.as_ptr(), [a.as_ptr(); T], [S::sum_of_none(); T], QUADS) });
        }
        rounds as u64 * (QUADS * 4 * 16 * T) as u64
    }

    /// # Safety
    /// The processor has Advanced SIMD.
    #[target_feature(enable = "neon")]
    #[allow(unsafe_code)]
    pub(super) unsafe fn int8_neon(rounds: usize) -> u64 {
        // SAFETY: as the caller gives it.
        unsafe { super::cached::shorts::<Neon, 4>(rounds) }
    }

    /// # Safety
    /// The processor has FEAT_DotProd.
    #[target_feature(enable = "neon,dotprod")]
    #[allow(unsafe_code)]
    pub(super) unsafe fn int8_dotprod(rounds: usize) -> u64 {
        // SAFETY: as the caller gives it.
        unsafe { bytes::<Dotprod>(rounds) }
    }

    /// # Safety
    /// The processor has FEAT_I8MM.
    #[target_feature(enable = "neon,dotprod,i8mm")]
    #[allow(unsafe_code)]
    pub(super) unsafe fn int8_i8mm(rounds: usize) -> u64 {
        // SAFETY: as the caller gives it.
        unsafe { bytes::<I8mm>(rounds) }
    }

    /// # Safety
    /// The processor has Advanced SIMD.
    #[target_feature(enable = "neon")]
    #[allow(unsafe_code)]
    pub(super) unsafe fn float_neon(rounds: usize) -> u64 {
        // SAFETY: as the caller gives it.
        unsafe { super::cached::float::<Neon, 4>(rounds) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_read_once_a_round_whatever_the_length() {
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            for len in [0, 1, 255, 256, PIECE - 1, PIECE + 300] {
                // Bytes of a whole vector are added as words of four bytes, the rest one by one.
                let bytes: Vec<u8> = (0..len).map(|i| (i % 7) as u8).collect();
                let expected: u64 = bytes
                    .chunks(PIECE)
                    .map(|piece| {
                        let whole = piece.chunks_exact(256);
                        let rest: u64 = whole.remainder().iter().map(|b| u64::from(*b)).sum();
                        // Lanes are summed in 32 bits.
                        let mut lanes = [0u32; 64];
                        for chunk in whole {
                            for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(4)) {
                                *lane = lane
                                    .wrapping_add(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                            }
                        }
                        rest + lanes.iter().map(|lane| u64::from(*lane)).sum::<u64>()
                    })
                    .sum();
                for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                    for rounds in [1, 3] {
                        assert_eq!(
                            read(isa, &pool, &bytes, rounds),
                            rounds as u64 * expected,
                            "{isa}, {len} bytes, {threads} threads"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn twice_the_rounds_are_twice_the_multiply_adds_on_every_thread() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let (one, two) = (Pool::single(), Pool::new(2));
            for work in [int8, float] {
                let made = work(isa, &one, 64);
                assert!(made > 0 && made.is_multiple_of(64), "{isa}: {made}");
                assert_eq!(work(isa, &one, 128), 2 * made, "{isa}");
                assert_eq!(work(isa, &two, 64), two.threads() as u64 * made, "{isa}");
            }
        }
    }
}
