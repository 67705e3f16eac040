//! Floats to the blocks of a format: the way back from [`dequantize`](super::dequantize).
//!
//! What is minimised is the squared error of what the decoder will give, `Σ weight · (value − decoded)²`, over a whole block;
//! nothing else is. A block's quants, its sub-blocks' integer scales and mins, and its stored f16 scales depend on one another,
//! so each is chosen in turn with the others held: `search` says how. The result depends on values and weights alone: not on
//! the instruction set, nor on the number of threads.

mod pack;
mod search;

use super::BlockType;
use super::decode::Group;
use crate::isa::{Isa, Task, dispatch_plain};
use crate::pool::Pool;
use half::{bf16, f16};
use search::{Affine, Search, Symmetric};
use std::sync::Mutex;

/// Why floats cannot be stored in a format.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// There is a decoder for this type and no encoder.
    #[error("{ty} can be read but not made: choose another type, such as Q4_K or Q8_0")]
    Unsupported {
        /// The type.
        ty: BlockType,
    },
    /// The values are not whole blocks.
    #[error("{len} values are not whole blocks of {ty}, which holds {} together", ty.block_len())]
    Length {
        /// The type.
        ty: BlockType,
        /// How many values there are.
        len: usize,
    },
    /// An infinity or NaN.
    #[error("value {index} is {value}: only finite numbers can be quantised; the weights are damaged")]
    NotFinite {
        /// Which value, from 0.
        index: usize,
        /// What it is.
        value: f32,
    },
    /// A finite number that the type's largest scale does not reach.
    #[error("the values from {index} on are too large for {ty}: keep this tensor in F32")]
    TooLarge {
        /// The type.
        ty: BlockType,
        /// The first value of the block.
        index: usize,
    },
    /// The importance weights do not stand for the values' columns.
    #[error(
        "{weights} importance weights for {values} values of {ty}: give one for each column of a row, or for each value"
    )]
    WeightsLength {
        /// The type.
        ty: BlockType,
        /// How many weights there are.
        weights: usize,
        /// How many values there are.
        values: usize,
    },
    /// An importance weight that is negative, infinite or NaN.
    #[error("importance weight {index} is {value}: a weight is finite and not negative")]
    Weight {
        /// Which weight, from 0.
        index: usize,
        /// What it is.
        value: f32,
    },
}

/// Encodes `values` as blocks of `ty`, on the caller's thread: see [`encode_in`].
///
/// # Errors
/// As [`encode_in`].
pub fn encode(ty: BlockType, values: &[f32], weights: Option<&[f32]>) -> Result<Vec<u8>, EncodeError> {
    encode_in(&Pool::single(), ty, values, weights)
}

/// Encodes `values` as blocks of `ty`, little-endian, as a GGUF stores them.
///
/// `values` are whole blocks: a row, or several rows one after the other. `weights` say how much an error counts, by column:
/// there are as many as a row has values, the same for every row (or one for each value, which is one long row). The float
/// types and a block whose weights are all zero take no notice of them.
///
/// # Errors
/// [`EncodeError`]: a type without an encoder (IQ4_NL, IQ4_XS), values that are not whole blocks, are not finite or are too
/// large for the type, weights of another length or no weights.
///
/// ```
/// use zen_edge_kernels::format::{BlockType, dequantize, encode};
///
/// let values: Vec<f32> = (0..256).map(|i| (i as f32 * 0.37).sin()).collect();
/// let bytes = encode(BlockType::Q4K, &values, None)?;
/// assert_eq!(bytes.len(), 144);
/// let mut back = vec![0.0; 256];
/// dequantize(BlockType::Q4K, &bytes, &mut back);
/// assert!(values.iter().zip(&back).all(|(a, b)| (a - b).abs() < 0.1));
/// # Ok::<(), zen_edge_kernels::format::EncodeError>(())
/// ```
pub fn encode_in(
    pool: &Pool,
    ty: BlockType,
    values: &[f32],
    weights: Option<&[f32]>,
) -> Result<Vec<u8>, EncodeError> {
    // Two builds of the search: wide vectors where x86-64 has them, the target's own elsewhere. Both give the same bits.
    let isa = if cfg!(target_arch = "x86_64") && Isa::Avx2.is_available() { Isa::Avx2 } else { Isa::Scalar };
    encode_on(isa, pool, ty, values, weights)
}

/// Values that a thread takes at a time: whole blocks of every type.
const CHUNK: usize = 1 << 14;

fn encode_on(
    isa: Isa,
    pool: &Pool,
    ty: BlockType,
    values: &[f32],
    weights: Option<&[f32]>,
) -> Result<Vec<u8>, EncodeError> {
    if matches!(ty, BlockType::IQ4NL | BlockType::IQ4XS) {
        return Err(EncodeError::Unsupported { ty });
    }
    let bytes = ty.row_bytes(values.len()).ok_or(EncodeError::Length { ty, len: values.len() })?;
    if let Some(index) = values.iter().position(|value| !value.is_finite()) {
        return Err(EncodeError::NotFinite { index, value: values[index] });
    }
    if let Some(weights) = weights {
        let whole = !weights.is_empty()
            && values.len().is_multiple_of(weights.len())
            && weights.len().is_multiple_of(ty.block_len());
        if !whole && !values.is_empty() {
            return Err(EncodeError::WeightsLength { ty, weights: weights.len(), values: values.len() });
        }
        if let Some(index) = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
            return Err(EncodeError::Weight { index, value: weights[index] });
        }
    }
    let mut out = vec![0; bytes];
    let chunk_bytes = CHUNK / ty.block_len() * ty.block_bytes();
    let chunks: Vec<Mutex<&mut [u8]>> = out.chunks_mut(chunk_bytes).map(Mutex::new).collect();
    let failed: Mutex<Option<usize>> = Mutex::new(None);
    pool.run(chunks.len(), &|i| {
        let values = &values[CHUNK * i..values.len().min(CHUNK * (i + 1))];
        // Each chunk is locked once, by the thread that runs it: a poisoned lock is a panic that is on its way already.
        let Ok(mut out) = chunks[i].lock() else { return };
        let done = dispatch_plain(isa, Chunk { ty, values, weights, first: CHUNK * i, out: &mut out });
        if let (Err(index), Ok(mut failed)) = (done, failed.lock()) {
            // The first of several, whichever thread was first.
            *failed = Some(failed.map_or(index, |other| other.min(index)));
        }
    });
    drop(chunks);
    match failed.into_inner() {
        Ok(Some(index)) => Err(EncodeError::TooLarge { ty, index }),
        _ => Ok(out),
    }
}

/// A run of whole blocks. It gives the index of the first value of a block whose values are too large.
struct Chunk<'a> {
    ty: BlockType,
    values: &'a [f32],
    weights: Option<&'a [f32]>,
    /// Where the values stand among all.
    first: usize,
    out: &'a mut [u8],
}

impl Task for Chunk<'_> {
    type Output = Result<(), usize>;

    // SAFETY: nothing in it needs the instruction set: the compiler's own vectors are what `S` is for.
    #[allow(unsafe_code)]
    #[inline(always)]
    unsafe fn run<S: crate::simd::Simd>(self) -> Self::Output {
        use super::decode as f;
        match self.ty {
            BlockType::F32 => {
                for (out, value) in self.out.chunks_exact_mut(4).zip(self.values) {
                    out.copy_from_slice(&value.to_le_bytes());
                }
                Ok(())
            }
            BlockType::F16 => self.halves(|value| {
                let half = f16::from_f32(value);
                half.is_finite().then_some(half.to_bits())
            }),
            BlockType::BF16 => self.halves(|value| {
                let half = bf16::from_f32(value);
                half.is_finite().then_some(half.to_bits())
            }),
            BlockType::Q4_0 => self.blocks::<f::Q4_0>(Symmetric::<32, 1>::new(-8, 7, 1, 1)),
            BlockType::Q5_0 => self.blocks::<f::Q5_0>(Symmetric::<32, 1>::new(-16, 15, 1, 1)),
            BlockType::Q8_0 => self.blocks::<f::Q8_0>(Symmetric::<32, 1>::new(-128, 127, 1, 1)),
            BlockType::Q6K => self.blocks::<f::Q6K>(Symmetric::<16, 16>::new(-32, 31, -128, 127)),
            BlockType::Q3K => self.blocks::<f::Q3K>(Symmetric::<16, 16>::new(-4, 3, -32, 31)),
            BlockType::Q4_1 => self.blocks::<f::Q4_1>(Affine::<32, 1>::new(15, 1)),
            BlockType::Q5_1 => self.blocks::<f::Q5_1>(Affine::<32, 1>::new(31, 1)),
            BlockType::Q4K => self.blocks::<f::Q4K>(Affine::<32, 8>::new(15, 63)),
            BlockType::Q5K => self.blocks::<f::Q5K>(Affine::<32, 8>::new(31, 63)),
            BlockType::Q2K => self.blocks::<f::Q2K>(Affine::<16, 16>::new(3, 15)),
            // Refused before.
            BlockType::IQ4NL | BlockType::IQ4XS => Ok(()),
        }
    }
}

impl Chunk<'_> {
    #[inline(always)]
    fn halves(self, half: impl Fn(f32) -> Option<u16>) -> Result<(), usize> {
        for (i, (out, value)) in self.out.chunks_exact_mut(2).zip(self.values).enumerate() {
            out.copy_from_slice(&half(*value).ok_or(self.first + i)?.to_le_bytes());
        }
        Ok(())
    }

    #[inline(always)]
    fn blocks<F: pack::Pack>(self, search: impl Search) -> Result<(), usize> {
        let mut group = Group::new();
        let ones = [1.0f32; 256];
        let blocks = self.values.chunks_exact(F::LEN).zip(self.out.chunks_exact_mut(F::TYPE.block_bytes()));
        for (i, (values, out)) in blocks.enumerate() {
            let at = self.first + F::LEN * i;
            let weights = self.weights.map_or(&ones[..F::LEN], |weights| {
                let column = at % weights.len();
                &weights[column..column + F::LEN]
            });
            if !search.search(values, weights, &mut group) {
                return Err(at);
            }
            F::pack(&group, out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
