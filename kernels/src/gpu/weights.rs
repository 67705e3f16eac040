//! Weights on the device: packed for coalesced reads, exact to the bit of what they stand for.
//!
//! A matrix is split by rows into parts. A part is one buffer of words with four sections; `n_pad` is its rows rounded up to whole
//! tiles of 64:
//!
//! | section | order | what |
//! |---|---|---|
//! | quants | `[block of 32][row][words]` | four-bit quants, signed bytes, or the float itself |
//! | ints | `[block of 32][row]` | K-quants: integer scales of the two halves in the low bytes, mins in the high ones |
//! | d | `[group][row]` | the float scale, as f32 |
//! | dmin | `[group][row]` | the float scale of the mins, as f32, where there are mins |
//!
//! Scales stand as f32 because a device may flush f16 subnormals, and those of K-quants are often below 6e-5. Formats of five,
//! six and eight bits take a byte a weight.

use super::device::Gpu;
use super::error::GpuError;
use super::shader::{Decode, Kind};
use crate::format::BlockType;
use crate::format::decode::{Format, Group, quant_value, with_format};
use crate::gemm::Matrix;

/// Most bytes of a part: what the host holds of a matrix while it goes to the device, twice where the driver copies it.
pub(super) const PART_BYTES: usize = 16 << 20;

/// Rows of a tile.
const TILE: usize = 64;

/// Where the sections of a part begin, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub n_pad: usize,
    pub ints: usize,
    pub d: usize,
    pub dmin: usize,
    pub words: usize,
}

impl Layout {
    fn new(ty: BlockType, rows: usize, cols: usize) -> Self {
        let decode = Decode::of(ty);
        let (n_pad, blocks) = (rows.next_multiple_of(TILE), cols / 32);
        let ints = blocks * n_pad * decode.kind.words();
        let d = ints + if decode.group == 256 { blocks * n_pad } else { 0 };
        let groups = if decode.group == 0 { 0 } else { cols / decode.group as usize * n_pad };
        let dmin = d + groups;
        Self { n_pad, ints, d, dmin, words: dmin + if decode.min { groups } else { 0 } }
    }

    /// Rows of a part of at most `bytes`, whole tiles.
    fn rows(ty: BlockType, cols: usize, bytes: usize) -> usize {
        let tile = 4 * Self::new(ty, TILE, cols).words;
        (bytes / tile.max(1)).max(1) * TILE
    }
}

/// Packs rows `first..first + rows` of a matrix.
pub(super) fn pack(matrix: &Matrix, first: usize, rows: usize) -> (Layout, Vec<u32>) {
    let (ty, cols) = (matrix.block_type(), matrix.cols());
    let layout = Layout::new(ty, rows, cols);
    let mut words = vec![0u32; layout.words];
    let row_bytes = matrix.bytes().len() / matrix.rows();
    for row in 0..rows {
        let bytes = &matrix.bytes()[(first + row) * row_bytes..][..row_bytes];
        with_format!(ty, F => quantized::<F>(bytes, row, &layout, &mut words),
            float => floats(ty, bytes, row, &layout, &mut words));
    }
    (layout, words)
}

fn floats(ty: BlockType, bytes: &[u8], row: usize, layout: &Layout, words: &mut [u32]) {
    let count = Decode::of(ty).kind.words();
    for (kb, block) in bytes.chunks_exact(4 * count).enumerate() {
        let out = &mut words[(kb * layout.n_pad + row) * count..][..count];
        for (out, b) in out.iter_mut().zip(block.chunks_exact(4)) {
            *out = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        }
    }
}

fn quantized<F: Format>(bytes: &[u8], row: usize, layout: &Layout, words: &mut [u32]) {
    let decode = Decode::of(F::TYPE);
    let blocks = F::LEN / 32;
    let mut group = Group::new();
    for (g, block) in bytes.chunks_exact(F::TYPE.block_bytes()).enumerate() {
        F::decode(block, &mut group);
        let at = g * layout.n_pad + row;
        words[layout.d + at] = group.d.to_bits();
        if F::MIN {
            words[layout.dmin + at] = group.dmin.to_bits();
        }
        for b in 0..blocks {
            let at = (g * blocks + b) * layout.n_pad + row;
            let quants = &group.q[32 * b..32 * (b + 1)];
            match decode.kind {
                Kind::Nibbles => {
                    for (out, q) in words[at * 4..at * 4 + 4].iter_mut().zip(quants.chunks_exact(8)) {
                        *out = q.iter().rev().fold(0, |word, q| word << 4 | u32::from(*q));
                    }
                }
                _ => {
                    for (out, q) in words[at * 8..at * 8 + 8].iter_mut().zip(quants.chunks_exact(4)) {
                        let byte = |q: &u8| u32::from(quant_value::<F>(*q) as i8 as u8);
                        *out = q.iter().rev().fold(0, |word, q| word << 8 | byte(q));
                    }
                }
            }
            if decode.group == 256 {
                let per = 32 / F::SUB;
                let (mut scales, mut mins) = (0, 0);
                for s in 0..per {
                    scales |= u32::from(group.scale[per * b + s] as u8) << (8 * s);
                    mins |= u32::from(group.min[per * b + s]) << (8 * s);
                }
                words[layout.ints + at] = scales | mins << 16;
            }
        }
    }
}

/// Rows of a matrix in one buffer.
pub(super) struct Part {
    pub buffer: wgpu::Buffer,
    pub layout: Layout,
    pub first: usize,
    pub rows: usize,
}

/// A weight matrix on the device.
pub struct GpuMatrix {
    pub(super) ty: BlockType,
    rows: usize,
    cols: usize,
    pub(super) parts: Vec<Part>,
}

impl GpuMatrix {
    /// Outputs.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.buffer.size()).sum()
    }
}

impl Gpu {
    /// Puts a matrix on the device, a part of at most 16 MiB at a time: the host holds no more of it than two of those.
    ///
    /// # Errors
    /// Inputs that are not whole blocks of 32, or no memory for them.
    pub async fn upload(&self, matrix: &Matrix) -> Result<GpuMatrix, GpuError> {
        self.upload_parts(matrix, PART_BYTES).await
    }

    pub(super) async fn upload_parts(&self, matrix: &Matrix, bytes: usize) -> Result<GpuMatrix, GpuError> {
        let (ty, rows, cols) = (matrix.block_type(), matrix.rows(), matrix.cols());
        if cols == 0 || !cols.is_multiple_of(32) {
            return Err(GpuError::Unsupported {
                what: format!("matrices of {cols} columns, not whole blocks of 32"),
            });
        }
        let most = bytes.min(usize::try_from(self.binding_limit()).unwrap_or(usize::MAX));
        let step = Layout::rows(ty, cols, most);
        let mut parts = Vec::new();
        for first in (0..rows).step_by(step) {
            let count = step.min(rows - first);
            let (layout, words) = pack(matrix, first, count);
            let buffer = self.weights_buffer(&words).await?;
            parts.push(Part { buffer, layout, first, rows: count });
        }
        Ok(GpuMatrix { ty, rows, cols, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn a_part_is_never_larger_than_asked_for() {
        for ty in BlockType::ALL {
            let rows = Layout::rows(ty, 1024, PART_BYTES);
            assert!(rows.is_multiple_of(TILE) && 4 * Layout::new(ty, rows, 1024).words <= PART_BYTES, "{ty}");
        }
    }

    #[test]
    fn packing_loses_no_bit() {
        let mut random = Random::new(5);
        for ty in BlockType::ALL {
            let (rows, cols) = (3, 512);
            let bytes: Vec<u8> = (0..rows * cols / ty.block_len()).flat_map(|_| random.block(ty)).collect();
            let matrix = Matrix::new(ty, rows, cols, bytes.clone().into()).unwrap();
            let (layout, words) = pack(&matrix, 0, rows);
            let mut expected = vec![0.0; rows * cols];
            crate::format::dequantize(ty, &bytes, &mut expected);
            let decode = Decode::of(ty);
            for row in 0..rows {
                for k in 0..cols {
                    let (kb, i) = (k / 32, k % 32);
                    let at = kb * layout.n_pad + row;
                    let word = |per: usize| words[at * decode.kind.words() + i / per];
                    let q = match decode.kind {
                        Kind::Nibbles => (word(8) >> (4 * (i % 8)) & 15) as i32 - decode.offset,
                        Kind::Bytes => i32::from((word(4) >> (8 * (i % 4))) as u8 as i8),
                        Kind::F16 | Kind::BF16 => (word(2) >> (16 * (i % 2)) & 0xffff) as i32,
                        Kind::F32 => word(1) as i32,
                    };
                    let value = match decode.kind {
                        Kind::F32 => f32::from_bits(q as u32),
                        Kind::F16 => half::f16::from_bits(q as u16).to_f32(),
                        Kind::BF16 => half::bf16::from_bits(q as u16).to_f32(),
                        Kind::Nibbles | Kind::Bytes => {
                            let group = k / decode.group as usize * layout.n_pad + row;
                            let (mut scale, mut min) = (1, 1);
                            if decode.group == 256 {
                                let s = i / decode.sub as usize;
                                let ints = words[layout.ints + at] >> (8 * s);
                                (scale, min) = (i32::from(ints as u8 as i8), ints >> 16 & 255);
                            }
                            let scale = f32::from_bits(words[layout.d + group]) * scale as f32;
                            let min = if decode.min {
                                f32::from_bits(words[layout.dmin + group]) * min as f32
                            } else {
                                0.0
                            };
                            scale * q as f32 - min
                        }
                    };
                    assert_eq!(value, expected[row * cols + k], "{ty} row {row} column {k}");
                }
            }
        }
    }
}
