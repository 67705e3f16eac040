//! Which instruction set runs: found once, named in every output, forced at will.

use crate::simd::portable::Portable;

/// An instruction set that the kernels have a path for.
///
/// Every path gives the same bits; they differ in speed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust, for any processor.
    Scalar,
    /// x86-64 with AVX2.
    Avx2,
}

impl Isa {
    /// Every instruction set that has a path, on any architecture.
    pub const ALL: [Self; 2] = [Self::Scalar, Self::Avx2];

    /// Its name in options and outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
        }
    }

    /// Whether this processor runs it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 => false,
        }
    }

    /// The fastest that this processor runs.
    pub fn best() -> Self {
        if Self::Avx2.is_available() { Self::Avx2 } else { Self::Scalar }
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

/// Runs `task` with the vector operations of `isa`.
///
/// # Panics
/// Where the processor lacks it: an [`Isa`] is only made for a processor that has it, and a forged one must not fault.
pub(crate) fn dispatch<T: Task>(isa: Isa, task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[inline(never)]
    #[allow(unsafe_code)]
    unsafe fn avx2<T: Task>(task: T) -> T::Output {
        // SAFETY: the caller has seen that the processor has AVX2.
        unsafe { task.run::<crate::simd::avx2::Avx2>() }
    }

    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            assert!(isa.is_available(), "this processor lacks {isa}");
            // SAFETY: it has AVX2, as was just seen.
            #[allow(unsafe_code)]
            unsafe {
                avx2(task)
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2 => panic!("this processor lacks {isa}"),
        // SAFETY: plain Rust runs everywhere.
        #[allow(unsafe_code)]
        Isa::Scalar => unsafe { task.run::<Portable>() },
    }
}
