//! What a block's bytes say: unsigned quants, integer sub-block scales and mins, and the float scales of the group.
//!
//! Every quantised format is one instance of the same form. A *group* (a block, or a superblock of a K-quant) holds
//! `LEN` weights in sub-blocks of `SUB`; weight `i` of sub-block `s` is
//!
//! ```text
//! w = (d · scale[s]) · (q[i] − OFFSET) − dmin · min[s]        (f32, in this order)
//! ```
//!
//! with `q` in `0..=MAX_Q` (or signed bytes for the [`Class::Signed`] formats), `scale` and `min` small integers and
//! `d`, `dmin` the stored f16 scales. The order of operations is ggml's, so that [`dequantize`] equals it bit for bit.
//! The kernels read the same parts: the integer products are exact and the floats are applied in a fixed order.

use super::BlockType;
use half::{bf16, f16};

/// How large a format's quants are: it bounds how many products a 16-bit accumulator may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `q` in `0..=15`: eight byte pairs fit into 16 bits.
    U4,
    /// `q` in `0..=31`: four.
    U5,
    /// `q` in `0..=63`: two.
    U6,
    /// Signed bytes over their whole range.
    Signed,
}

/// The decoded parts of one group of one row.
#[repr(C)]
pub(crate) struct Group {
    /// Unsigned quants (two's complement bytes for [`Class::Signed`]).
    pub q: [u8; 256],
    /// Integer scale of each sub-block.
    pub scale: [i8; 16],
    /// Integer min of each sub-block. The kernels load scales and mins as one vector: they stand together.
    pub min: [u8; 16],
    /// Float scale of the group.
    pub d: f32,
    /// Float scale of the mins.
    pub dmin: f32,
}

impl Group {
    pub(crate) const fn new() -> Self {
        Self { q: [0; 256], scale: [0; 16], min: [0; 16], d: 0.0, dmin: 0.0 }
    }
}

/// A quantised block format.
pub(crate) trait Format {
    /// Its name in files.
    const TYPE: BlockType;
    /// Weights in a group.
    const LEN: usize = Self::TYPE.block_len();
    /// Weights in a sub-block: 16 or 32.
    const SUB: usize = 32;
    /// The range of its quants.
    const CLASS: Class;
    /// log2 of the offset that is subtracted from a quant, where there is one.
    const OFFSET_SHIFT: Option<u32> = None;
    /// Whether sub-blocks have mins.
    const MIN: bool = false;

    /// Splits `block` (exactly the format's block bytes) into its parts.
    fn decode(block: &[u8], group: &mut Group);
}

#[inline(always)]
fn half_at(block: &[u8], at: usize) -> f32 {
    half_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// The value of an f16, in a few operations that are inlined: the library's conversion asks the processor what it has and
/// calls a function, which for two scales of 256 weights was a fifth of a decode's time.
///
/// The mantissa and exponent are a float that is 2^112 times too small; subnormals come out right by the product.
#[inline(always)]
fn half_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let finite = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let value = if magnitude >= 0x0f80_0000 { magnitude | 0x7f80_0000 } else { finite.to_bits() };
    f32::from_bits(value | u32::from(bits & 0x8000) << 16)
}

#[inline(always)]
fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// `N` bytes from `at`, as an array: loops over arrays become vector code, loops over zipped slices did not always.
#[inline(always)]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..at + N].first_chunk().expect("a range of N bytes")
}

#[inline(always)]
fn array_at_mut<const N: usize>(bytes: &mut [u8], at: usize) -> &mut [u8; N] {
    bytes[at..at + N].first_chunk_mut().expect("a range of N bytes")
}

/// Low nibbles of `N` bytes to `q[at..]`, then their high nibbles.
#[inline(always)]
fn nibbles<const N: usize>(packed: &[u8; N], q: &mut [u8], at: usize) {
    let low: &mut [u8; N] = array_at_mut(q, at);
    for i in 0..N {
        low[i] = packed[i] & 15;
    }
    let high: &mut [u8; N] = array_at_mut(q, at + N);
    for i in 0..N {
        high[i] = packed[i] >> 4;
    }
}

macro_rules! format {
    ($(#[$doc:meta])* $name:ident, $type:ident, $class:ident, { $($konst:tt)* }, |$block:ident, $g:ident| $body:block) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl Format for $name {
            const TYPE: BlockType = BlockType::$type;
            const CLASS: Class = Class::$class;
            $($konst)*
            #[inline(always)]
            fn decode($block: &[u8], $g: &mut Group) {
                let $block = &$block[..Self::TYPE.block_bytes()];
                $body
            }
        }
    };
}

format!(
    /// `d: f16, qs: [u8; 16]`
    Q4_0, Q4_0, U4, { const OFFSET_SHIFT: Option<u32> = Some(3); },
    |block, g| {
        g.d = half_at(block, 0);
        g.scale[0] = 1;
        nibbles::<16>(array_at(block, 2), &mut g.q, 0);
    }
);

format!(
    /// `d: f16, m: f16, qs: [u8; 16]`
    Q4_1, Q4_1, U4, { const MIN: bool = true; },
    |block, g| {
        g.d = half_at(block, 0);
        // The file stores what is added; a min is what is subtracted.
        g.dmin = -half_at(block, 2);
        g.scale[0] = 1;
        g.min[0] = 1;
        nibbles::<16>(array_at(block, 4), &mut g.q, 0);
    }
);

#[inline(always)]
fn fifth_bits(bits: u32, q: &mut [u8]) {
    let q: &mut [u8; 32] = array_at_mut(q, 0);
    for i in 0..32 {
        q[i] |= ((bits >> i) as u8 & 1) << 4;
    }
}

format!(
    /// `d: f16, qh: u32, qs: [u8; 16]`
    Q5_0, Q5_0, U5, { const OFFSET_SHIFT: Option<u32> = Some(4); },
    |block, g| {
        g.d = half_at(block, 0);
        g.scale[0] = 1;
        nibbles::<16>(array_at(block, 6), &mut g.q, 0);
        fifth_bits(u32_at(block, 2), &mut g.q);
    }
);

format!(
    /// `d: f16, m: f16, qh: u32, qs: [u8; 16]`
    Q5_1, Q5_1, U5, { const MIN: bool = true; },
    |block, g| {
        g.d = half_at(block, 0);
        g.dmin = -half_at(block, 2);
        g.scale[0] = 1;
        g.min[0] = 1;
        nibbles::<16>(array_at(block, 8), &mut g.q, 0);
        fifth_bits(u32_at(block, 4), &mut g.q);
    }
);

format!(
    /// `d: f16, qs: [i8; 32]`
    Q8_0, Q8_0, Signed, {},
    |block, g| {
        g.d = half_at(block, 0);
        g.scale[0] = 1;
        g.q[..32].copy_from_slice(&block[2..34]);
    }
);

format!(
    /// `scales: [u8; 16], qs: [u8; 64], d: f16, dmin: f16`
    Q2K, Q2K, U4, { const SUB: usize = 16; const MIN: bool = true; },
    |block, g| {
        g.d = half_at(block, 80);
        g.dmin = half_at(block, 82);
        for s in 0..16 {
            g.scale[s] = (block[s] & 15) as i8;
            g.min[s] = block[s] >> 4;
        }
        for half in 0..2 {
            let packed: &[u8; 32] = array_at(block, 16 + 32 * half);
            for shift in 0..4 {
                let q: &mut [u8; 32] = array_at_mut(&mut g.q, 128 * half + 32 * shift);
                for i in 0..32 {
                    q[i] = (packed[i] >> (2 * shift)) & 3;
                }
            }
        }
    }
);

format!(
    /// `hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: f16`
    Q3K, Q3K, U4, { const SUB: usize = 16; const OFFSET_SHIFT: Option<u32> = Some(2); },
    |block, g| {
        g.d = half_at(block, 108);
        // Six bits a scale: four low bits in bytes 0..8, two high bits in bytes 8..12; biased by 32.
        let scales = &block[96..108];
        for s in 0..16 {
            let low = (scales[s % 8] >> (4 * (s / 8))) & 15;
            let high = (scales[8 + s % 4] >> (2 * (s / 4))) & 3;
            g.scale[s] = (low | high << 4) as i8 - 32;
        }
        let high: &[u8; 32] = array_at(block, 0);
        for run in 0..8 {
            let packed: &[u8; 32] = array_at(block, 32 + 32 * (run / 4));
            let q: &mut [u8; 32] = array_at_mut(&mut g.q, 32 * run);
            for i in 0..32 {
                q[i] = ((packed[i] >> (2 * (run % 4))) & 3) | (((high[i] >> run) & 1) << 2);
            }
        }
    }
);

/// The eight six-bit scales and eight six-bit mins of Q4_K and Q5_K, in twelve bytes.
#[inline(always)]
fn scales_and_mins(packed: &[u8], g: &mut Group) {
    let (a, b, c) = (u32_at(packed, 0), u32_at(packed, 4), u32_at(packed, 8));
    let scales = [a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | ((a >> 2) & 0x3030_3030)];
    let mins = [b & 0x3f3f_3f3f, ((c >> 4) & 0x0f0f_0f0f) | ((b >> 2) & 0x3030_3030)];
    for half in 0..2 {
        let (scale, min) = (scales[half].to_le_bytes(), mins[half].to_le_bytes());
        for i in 0..4 {
            g.scale[4 * half + i] = scale[i] as i8;
            g.min[4 * half + i] = min[i];
        }
    }
}

format!(
    /// `d: f16, dmin: f16, scales: [u8; 12], qs: [u8; 128]`
    Q4K, Q4K, U4, { const MIN: bool = true; },
    |block, g| {
        g.d = half_at(block, 0);
        g.dmin = half_at(block, 2);
        scales_and_mins(&block[4..16], g);
        for run in 0..4 {
            nibbles::<32>(array_at(block, 16 + 32 * run), &mut g.q, 64 * run);
        }
    }
);

format!(
    /// `d: f16, dmin: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128]`
    Q5K, Q5K, U5, { const MIN: bool = true; },
    |block, g| {
        g.d = half_at(block, 0);
        g.dmin = half_at(block, 2);
        scales_and_mins(&block[4..16], g);
        let fifth: &[u8; 32] = array_at(block, 16);
        for run in 0..4 {
            nibbles::<32>(array_at(block, 48 + 32 * run), &mut g.q, 64 * run);
            for half in 0..2 {
                let q: &mut [u8; 32] = array_at_mut(&mut g.q, 64 * run + 32 * half);
                for i in 0..32 {
                    q[i] |= ((fifth[i] >> (2 * run + half)) & 1) << 4;
                }
            }
        }
    }
);

format!(
    /// `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`
    Q6K, Q6K, U6, { const SUB: usize = 16; const OFFSET_SHIFT: Option<u32> = Some(5); },
    |block, g| {
        g.d = half_at(block, 208);
        for s in 0..16 {
            g.scale[s] = block[192 + s] as i8;
        }
        for half in 0..2 {
            let high: &[u8; 32] = array_at(block, 128 + 32 * half);
            for run in 0..4 {
                let low: &[u8; 32] = array_at(block, 64 * half + 32 * (run % 2));
                let q: &mut [u8; 32] = array_at_mut(&mut g.q, 128 * half + 32 * run);
                for i in 0..32 {
                    q[i] = ((low[i] >> (4 * (run / 2))) & 15) | (((high[i] >> (2 * run)) & 3) << 4);
                }
            }
        }
    }
);

/// The sixteen values of the non-linear four-bit formats.
const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

#[inline(always)]
fn iq4_values(q: &mut [u8]) {
    for q in q {
        *q = IQ4_VALUES[usize::from(*q & 15)] as u8;
    }
}

format!(
    /// `d: f16, qs: [u8; 16]`
    IQ4NL, IQ4NL, Signed, {},
    |block, g| {
        g.d = half_at(block, 0);
        g.scale[0] = 1;
        nibbles::<16>(array_at(block, 2), &mut g.q, 0);
        iq4_values(&mut g.q[..32]);
    }
);

format!(
    /// `d: f16, scales_h: u16, scales_l: [u8; 4], qs: [u8; 128]`
    IQ4XS, IQ4XS, Signed, {},
    |block, g| {
        g.d = half_at(block, 0);
        let high = u16::from_le_bytes([block[2], block[3]]);
        for s in 0..8 {
            let low = (block[4 + s / 2] >> (4 * (s % 2))) & 15;
            let scale = u16::from(low) | (((high >> (2 * s)) & 3) << 4);
            g.scale[s] = scale as i8 - 32;
            nibbles::<16>(array_at(block, 8 + 16 * s), &mut g.q, 32 * s);
        }
        iq4_values(&mut g.q);
    }
);

/// Calls `$body` with `$format` bound to the [`Format`] of a quantised [`BlockType`]; `$float` for the float types.
macro_rules! with_format {
    ($type:expr, $format:ident => $body:expr, float => $float:expr) => {{
        use $crate::format::BlockType as T;
        use $crate::format::decode as f;
        match $type {
            T::F32 | T::F16 | T::BF16 => $float,
            T::Q4_0 => {
                type $format = f::Q4_0;
                $body
            }
            T::Q4_1 => {
                type $format = f::Q4_1;
                $body
            }
            T::Q5_0 => {
                type $format = f::Q5_0;
                $body
            }
            T::Q5_1 => {
                type $format = f::Q5_1;
                $body
            }
            T::Q8_0 => {
                type $format = f::Q8_0;
                $body
            }
            T::Q2K => {
                type $format = f::Q2K;
                $body
            }
            T::Q3K => {
                type $format = f::Q3K;
                $body
            }
            T::Q4K => {
                type $format = f::Q4K;
                $body
            }
            T::Q5K => {
                type $format = f::Q5K;
                $body
            }
            T::Q6K => {
                type $format = f::Q6K;
                $body
            }
            T::IQ4NL => {
                type $format = f::IQ4NL;
                $body
            }
            T::IQ4XS => {
                type $format = f::IQ4XS;
                $body
            }
        }
    }};
}
pub(crate) use with_format;

/// Converts whole blocks to f32, exactly as ggml does.
///
/// `bytes` holds `out.len()` elements of type `ty`, little-endian, as a GGUF stores them.
///
/// # Panics
/// Where `bytes` is not exactly the blocks of `out.len()` elements.
pub fn dequantize(ty: BlockType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(
        ty.row_bytes(out.len()),
        Some(bytes.len()),
        "{ty}: bytes and elements must be the same whole blocks"
    );
    with_format!(ty, F => dequantize_groups::<F>(bytes, out), float => widen(ty, bytes, out));
}

/// Converts F32, F16 or BF16 elements.
#[inline(always)]
pub(crate) fn widen(ty: BlockType, bytes: &[u8], out: &mut [f32]) {
    match ty {
        BlockType::F32 => {
            for (out, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *out = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        BlockType::F16 => {
            for (out, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *out = f16::from_le_bytes([b[0], b[1]]).to_f32();
            }
        }
        _ => {
            for (out, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *out = bf16::from_le_bytes([b[0], b[1]]).to_f32();
            }
        }
    }
}

fn dequantize_groups<F: Format>(bytes: &[u8], out: &mut [f32]) {
    let mut group = Group::new();
    for (block, out) in bytes.chunks_exact(F::TYPE.block_bytes()).zip(out.chunks_exact_mut(F::LEN)) {
        F::decode(block, &mut group);
        for (sub, out) in out.chunks_exact_mut(F::SUB).enumerate() {
            let scale = group.d * f32::from(group.scale[sub]);
            let min = group.dmin * f32::from(group.min[sub]);
            for (out, &q) in out.iter_mut().zip(&group.q[F::SUB * sub..]) {
                let q = quant_value::<F>(q);
                *out = if F::MIN { scale * q as f32 - min } else { scale * q as f32 };
            }
        }
    }
}

/// The integer that a stored quant stands for.
#[inline(always)]
pub(crate) fn quant_value<F: Format>(q: u8) -> i32 {
    match (F::CLASS, F::OFFSET_SHIFT) {
        (Class::Signed, _) => i32::from(q as i8),
        (_, Some(shift)) => i32::from(q) - (1 << shift),
        (_, None) => i32::from(q),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_is_what_it_says() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (half_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:#x}");
        }
    }
}
