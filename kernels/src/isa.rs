//! Which instruction set runs: found once, named in every output, forced at will.

use crate::simd::portable::Portable;

/// An instruction set that the kernels have a path for.
///
/// Every path gives the same bits; they differ in speed alone. On x86-64 and aarch64 the processor is asked while the
/// program runs; a WebAssembly module has what it was built with (`-C target-feature=+simd128,+relaxed-simd`), since an
/// engine without an instruction refuses the whole module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust, for any processor.
    Scalar,
    /// x86-64 with AVX2.
    Avx2,
    /// x86-64 with AVX2 and AVX-VNNI.
    AvxVnni,
    /// x86-64 with AVX-512 (F, BW, DQ, VL) and its VNNI.
    Avx512Vnni,
    /// aarch64: Advanced SIMD, which all of them have.
    Neon,
    /// aarch64 with the dot products of FEAT_DotProd.
    NeonDotprod,
    /// aarch64 with the matrix products of FEAT_I8MM.
    NeonI8mm,
    /// WebAssembly with 128-bit vectors.
    Simd128,
    /// WebAssembly with relaxed vectors: a product of bytes.
    RelaxedSimd,
}

/// Whether the two paths with VNNI are built. Android on x86-64 is the emulator: its library is 0.5 MB smaller without them.
#[cfg(target_arch = "x86_64")]
const VNNI: bool = cfg!(not(target_os = "android"));

impl Isa {
    /// Every instruction set that has a path, on any architecture; of one architecture the slower first.
    pub const ALL: [Self; 9] = [
        Self::Scalar,
        Self::Avx2,
        Self::AvxVnni,
        Self::Avx512Vnni,
        Self::Neon,
        Self::NeonDotprod,
        Self::NeonI8mm,
        Self::Simd128,
        Self::RelaxedSimd,
    ];

    /// Its name in options and outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512Vnni => "avx512-vnni",
            Self::Neon => "neon",
            Self::NeonDotprod => "neon-dotprod",
            Self::NeonI8mm => "neon-i8mm",
            Self::Simd128 => "simd128",
            Self::RelaxedSimd => "relaxed-simd",
        }
    }

    /// Whether this processor runs it.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            match self {
                Self::Scalar => true,
                Self::Avx2 => has!("avx2"),
                Self::AvxVnni => VNNI && has!("avx2") && has!("avxvnni"),
                Self::Avx512Vnni => {
                    VNNI && has!("avx2")
                        && has!("avx512f")
                        && has!("avx512bw")
                        && has!("avx512dq")
                        && has!("avx512vl")
                        && has!("avx512vnni")
                }
                _ => false,
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            use std::arch::is_aarch64_feature_detected as has;
            match self {
                Self::Scalar => true,
                Self::Neon => has!("neon"),
                Self::NeonDotprod => has!("neon") && has!("dotprod"),
                // Every processor with smmla has sdot, which products with few tokens take.
                Self::NeonI8mm => has!("neon") && has!("dotprod") && has!("i8mm"),
                _ => false,
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            let wasm = cfg!(target_arch = "wasm32");
            self == Self::Scalar
                || self == Self::Simd128 && wasm && cfg!(target_feature = "simd128")
                || self == Self::RelaxedSimd && wasm && cfg!(target_feature = "relaxed-simd")
        }
    }

    /// The fastest that this processor runs.
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Scalar)
    }

    /// Whether panels of unsigned quants hold 16-bit words.
    pub(crate) const fn unsigned_words(self) -> bool {
        matches!(self, Self::Simd128)
    }

    /// Whether one token's products are made a lane a row: where a product of four bytes in a lane is one or three instructions.
    pub(crate) const fn dots_in_lanes(self) -> bool {
        // Said at compile time as well, so that other machines carry none of it.
        cfg!(target_arch = "x86_64") && matches!(self, Self::Avx2 | Self::AvxVnni | Self::Avx512Vnni)
    }

    /// Whether panels of signed bytes hold 16-bit words.
    pub(crate) const fn signed_words(self) -> bool {
        matches!(self, Self::Simd128 | Self::RelaxedSimd)
    }

    /// The instruction set of this name, if this processor runs it.
    ///
    /// # Errors
    /// [`IsaError`], which lists what there is.
    pub fn from_name(name: &str) -> Result<Self, IsaError> {
        let Some(isa) = Self::ALL.into_iter().find(|isa| isa.name() == name) else {
            return Err(IsaError::Unknown { name: name.to_owned(), available: Self::available_names() });
        };
        if isa.is_available() {
            Ok(isa)
        } else {
            Err(IsaError::Unavailable { isa, available: Self::available_names() })
        }
    }

    fn available_names() -> String {
        let names: Vec<_> = Self::ALL.into_iter().filter(|isa| isa.is_available()).map(Self::name).collect();
        names.join(", ")
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Why an instruction set cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// No path has this name.
    #[error("there is no instruction set called {name:?}; this processor runs: {available}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What this processor runs.
        available: String,
    },
    /// The processor lacks it.
    #[error("this processor lacks {isa}; it runs: {available}")]
    Unavailable {
        /// What was asked for.
        isa: Isa,
        /// What this processor runs.
        available: String,
    },
}

/// A computation that is generic over the vector operations.
pub(crate) trait Task {
    /// What it gives.
    type Output;
    /// Runs it with the operations of `S`.
    ///
    /// # Safety
    /// The processor must have the instruction set of `S`.
    #[allow(unsafe_code)]
    unsafe fn run<S: crate::simd::Simd>(self) -> Self::Output;
}

/// A function that has the instruction set, into which the generic code is inlined. Each lies in a module of its own, for a module
/// is what the compiler works on at a time: they are nearly all of this crate, and are compiled side by side.
#[allow(unused_macros)]
macro_rules! boundary {
    ($module:ident, $simd:ty $(, $features:literal)?) => {
        mod $module {
            /// # Safety
            /// The processor must have the instruction set.
            $(#[target_feature(enable = $features)])?
            #[inline(never)]
            #[allow(unsafe_code)]
            pub(super) unsafe fn with<T: super::Task>(task: T) -> T::Output {
                // SAFETY: the caller has seen that the processor has it.
                unsafe { task.run::<$simd>() }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
boundary!(avx2, crate::simd::x86::Avx2, "avx2");
#[cfg(all(target_arch = "x86_64", not(target_os = "android")))]
boundary!(avx_vnni, crate::simd::x86::AvxVnni, "avx2,avxvnni");
#[cfg(all(target_arch = "x86_64", not(target_os = "android")))]
boundary!(avx512_vnni, crate::simd::x86::Avx512Vnni, "avx2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");
#[cfg(target_arch = "aarch64")]
boundary!(neon, crate::simd::neon::Neon, "neon");
#[cfg(target_arch = "aarch64")]
boundary!(neon_dotprod, crate::simd::neon::Dotprod, "neon,dotprod");
#[cfg(target_arch = "aarch64")]
boundary!(neon_i8mm, crate::simd::neon::I8mm, "neon,dotprod,i8mm");
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
boundary!(simd128, crate::simd::wasm::Simd128);
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
boundary!(relaxed_simd, crate::simd::wasm::Relaxed);

/// Runs `task` with the vector operations of `isa`.
///
/// # Panics
/// Where the processor lacks it: an [`Isa`] is only made for a processor that has it, and a forged one must not fault.
pub(crate) fn dispatch<T: Task>(isa: Isa, task: T) -> T::Output {
    assert!(isa.is_available(), "this processor lacks {isa}");
    // SAFETY: it has it, as was just seen; plain Rust runs everywhere.
    #[allow(unsafe_code)]
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::with(task),
            #[cfg(all(target_arch = "x86_64", not(target_os = "android")))]
            Isa::AvxVnni => avx_vnni::with(task),
            #[cfg(all(target_arch = "x86_64", not(target_os = "android")))]
            Isa::Avx512Vnni => avx512_vnni::with(task),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::with(task),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDotprod => neon_dotprod::with(task),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonI8mm => neon_i8mm::with(task),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Isa::Simd128 => simd128::with(task),
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Isa::RelaxedSimd => relaxed_simd::with(task),
            Isa::Scalar => task.run::<Portable>(),
            #[allow(unreachable_patterns)]
            _ => panic!("this processor lacks {isa}"),
        }
    }
}

/// As [`dispatch`], for a task that leaves its vectors to the compiler: AVX2's build of it, or plain Rust's. Each build of such a
/// task is as large as a kernel, and the others would be no faster.
pub(crate) fn dispatch_plain<T: Task>(isa: Isa, task: T) -> T::Output {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            assert!(isa.is_available(), "this processor lacks {isa}");
            // SAFETY: it has it, as was just seen.
            #[allow(unsafe_code)]
            unsafe {
                avx2::with(task)
            }
        }
        // SAFETY: plain Rust runs everywhere.
        #[allow(unsafe_code)]
        _ => unsafe { task.run::<Portable>() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_errors_list_what_there_is() {
        for isa in Isa::ALL {
            match Isa::from_name(isa.name()) {
                Ok(found) => assert!(found == isa && isa.is_available()),
                Err(error) => {
                    assert!(!isa.is_available());
                    assert!(error.to_string().contains(isa.name()) && error.to_string().contains("scalar"));
                }
            }
        }
        let error = Isa::from_name("mmx").unwrap_err().to_string();
        assert!(error.contains("mmx") && error.contains(Isa::best().name()), "{error}");
    }

    #[test]
    fn the_best_is_the_last_that_there_is() {
        let available: Vec<_> = Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect();
        assert_eq!(available.last(), Some(&Isa::best()));
        // `cargo xtask test` runs this on processors and engines of which it knows what they have.
        if let Ok(expected) = std::env::var("ZEN_EDGE_EXPECT_ISA") {
            assert_eq!(Isa::best().name(), expected);
        }
    }
}
