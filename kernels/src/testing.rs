//! Seeded random blocks and activations for the tests.

use crate::format::BlockType;
use half::f16;

/// A small seeded generator (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In -1..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Values of several magnitudes, some of them zero.
    pub(crate) fn activations(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| match self.next() % 16 {
                0 => 0.0,
                1 => self.unit() * 40.0,
                _ => self.unit(),
            })
            .collect()
    }

    /// One block: random bits, finite scales.
    pub(crate) fn block(&mut self, ty: BlockType) -> Vec<u8> {
        if ty == BlockType::F32 {
            return self.unit().to_le_bytes().to_vec();
        }
        let mut bytes: Vec<u8> = (0..ty.block_bytes()).map(|_| self.next() as u8).collect();
        for at in scale_offsets(ty) {
            let scale = f16::from_f32(self.unit() * if self.next().is_multiple_of(8) { 1e-6 } else { 0.1 });
            bytes[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
        if ty == BlockType::BF16 {
            bytes = half::bf16::from_f32(self.unit()).to_le_bytes().to_vec();
        }
        bytes
    }
}

/// Where a block's f16 scales stand.
fn scale_offsets(ty: BlockType) -> &'static [usize] {
    match ty {
        BlockType::F32 | BlockType::BF16 => &[],
        BlockType::F16 | BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => &[0],
        BlockType::IQ4NL | BlockType::IQ4XS => &[0],
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K => &[0, 2],
        BlockType::Q2K => &[80, 82],
        BlockType::Q3K => &[108],
        BlockType::Q6K => &[208],
    }
}

/// Overwrites the scales of every block with ones.
pub(crate) fn make_scales_finite(ty: BlockType, bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for at in scale_offsets(ty) {
            block[*at..at + 2].copy_from_slice(&f16::ONE.to_le_bytes());
        }
        match ty {
            BlockType::F32 => block.copy_from_slice(&1.5f32.to_le_bytes()),
            BlockType::BF16 => block.copy_from_slice(&half::bf16::ONE.to_le_bytes()),
            _ => {}
        }
    }
}
