//! Unpacking of eight rows at once, a lane a row: what a panel is made of where a byte of it is a quant.
//!
//! [`Format::decode`] splits one row's group; eight of them are then transposed, and the scales with them. Here the file's own words
//! are transposed first, two or four quants in a byte as they are, and everything after that is done for eight rows by one
//! operation: half the shuffles for four-bit formats, and no work of scales by the row. The panel has the same bytes either way.

use super::{BLOCK, PANEL_ROWS};
use crate::format::BlockType;
use crate::simd::{LANES, Simd};

/// Whether [`unpack`] knows the format.
pub(super) const fn knows(ty: BlockType) -> bool {
    use BlockType::{Q4_0, Q4K, Q5K, Q6K, Q8_0};
    matches!(ty, Q4_0 | Q8_0 | Q4K | Q5K | Q6K)
}

/// Where the parts of eight rows' group go; each pointer is that of the group's first value of the first of these rows.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    /// `[block][quad][row][4]`
    pub q: *mut u8,
    /// `[sub-block][row]`, twice in a word
    pub scale: *mut i32,
    /// `[sub-block][row]`
    pub min: *mut f32,
    /// `[row]`
    pub d: *mut f32,
    /// `[row]`
    pub dmin: *mut f32,
}

#[allow(unsafe_code)]
impl Parts {
    /// Four columns of a block.
    ///
    /// # Safety
    /// As [`unpack`], for all of these.
    #[inline(always)]
    unsafe fn quad<S: Simd>(&self, block: usize, quad: usize, q: S::I) {
        // SAFETY: as the caller gives it.
        unsafe { S::i_store(self.q.add(BLOCK * PANEL_ROWS * block + 4 * PANEL_ROWS * quad), q) }
    }

    /// The scale of a sub-block.
    #[inline(always)]
    unsafe fn scale<S: Simd>(&self, sub: usize, scale: S::I) {
        // SAFETY: as the caller gives it.
        unsafe {
            let twice = S::i_blend16(scale, S::i_shl(scale, 16));
            S::i_store(self.scale.add(PANEL_ROWS * sub).cast(), twice);
        }
    }

    /// Scales of four sub-blocks, signed bytes.
    #[inline(always)]
    unsafe fn scales<S: Simd>(&self, first: usize, bytes: S::I) {
        // SAFETY: as the caller gives it.
        unsafe {
            for i in 0..4 {
                self.scale::<S>(first + i, S::i_sar(S::i_shl(bytes, 24 - 8 * i as u32), 24));
            }
        }
    }

    /// Mins of four sub-blocks, bytes of at most 63.
    #[inline(always)]
    unsafe fn mins<S: Simd>(&self, first: usize, bytes: S::I) {
        // SAFETY: as the caller gives it.
        unsafe {
            for i in 0..4 {
                let min = S::f_from_i(S::i_sar(S::i_shl(bytes, 24 - 8 * i as u32), 24));
                S::f_store(self.min.add(PANEL_ROWS * (first + i)), min);
            }
        }
    }
}

/// 32 bytes from `at` of each row's block, a lane a row: word `w` of the result is bytes `4w..4w + 4`.
///
/// # Safety
/// The processor has the instruction set of `S`; a block has these bytes.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn words<S: Simd>(rows: &[*const u8; LANES], at: usize) -> [S::I; LANES] {
    // SAFETY: as the caller gives it.
    unsafe {
        let mut lanes = [S::i_splat(0); LANES];
        for r in 0..LANES {
            lanes[r] = S::i_load(rows[r].add(at));
        }
        S::i_transpose(lanes)
    }
}

/// The f16 at `at` of each row's block, as floats.
///
/// # Safety
/// As [`words`].
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn halves_at<S: Simd>(rows: &[*const u8; LANES], at: usize) -> S::F {
    // SAFETY: as the caller gives it.
    unsafe {
        let mut bits = [0u32; LANES];
        for r in 0..LANES {
            bits[r] = u32::from(u16::from_le(rows[r].add(at).cast::<u16>().read_unaligned()));
        }
        halves::<S>(S::i_load(bits.as_ptr().cast()))
    }
}

/// The values of eight f16 in the low halves of lanes (`format::decode` has the same for one).
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
pub(super) unsafe fn halves<S: Simd>(bits: S::I) -> S::F {
    // SAFETY: the caller gives the instruction set.
    unsafe {
        let magnitude = S::i_shl(S::i_and(bits, S::i_splat(0x7fff)), 13);
        let finite = S::f_mul(S::f_from_bits(magnitude), S::f_splat(f32::from_bits((127 + 112) << 23)));
        // An infinity or NaN has the exponent of 2^16 now: it is raised to the last one.
        let special = S::i_sar(S::i_sub(S::i_splat(0x0f7f_ffff), magnitude), 31);
        let raised = S::i_add(S::i_from_bits(finite), S::i_and(special, S::i_splat(0x3800_0000)));
        S::f_from_bits(S::i_add(raised, S::i_shl(S::i_and(bits, S::i_splat(0x8000)), 16)))
    }
}

/// The parts of one group of eight rows, whose blocks' first bytes are `rows`. `flip` is what signed bytes are changed by, bit for bit (128
/// where a kernel wants them biased, else 0).
///
/// # Safety
/// The processor has the instruction set of `S`; `rows` are whole blocks of `ty`, which [`knows`] names; `parts` have room for a group of eight
/// rows among a panel's 16.
#[inline(always)]
#[allow(unsafe_code)]
pub(super) unsafe fn unpack<S: Simd>(ty: BlockType, rows: &[*const u8; LANES], flip: u8, parts: Parts) {
    // SAFETY: as the caller gives it; no read passes the block's last byte.
    unsafe {
        match ty {
            BlockType::Q4_0 => q4_0::<S>(rows, parts),
            BlockType::Q8_0 => q8_0::<S>(rows, flip, parts),
            BlockType::Q4K => q4_k::<S>(rows, parts),
            BlockType::Q5K => q5_k::<S>(rows, parts),
            _ => q6_k::<S>(rows, parts),
        }
    }
}

const NIBBLE: i32 = 0x0f0f_0f0f;

/// `d: f16, qs: [u8; 16]`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q4_0<S: Simd>(rows: &[*const u8; LANES], parts: Parts) {
    // SAFETY: as `unpack`. Two rows' 16 bytes make one vector.
    unsafe {
        S::f_store(parts.d, halves_at::<S>(rows, 0));
        S::f_store(parts.dmin, S::f_splat(0.0));
        parts.scale::<S>(0, S::i_splat(1));
        let mut packed = [[0u8; 32]; LANES];
        for r in 0..LANES {
            rows[r].add(2).copy_to_nonoverlapping(packed[r].as_mut_ptr(), 16);
        }
        let mut lanes = [S::i_splat(0); LANES];
        for r in 0..LANES {
            lanes[r] = S::i_load(packed[r].as_ptr());
        }
        let words = S::i_transpose(lanes);
        for w in 0..4 {
            parts.quad::<S>(0, w, S::i_and(words[w], S::i_splat(NIBBLE)));
            parts.quad::<S>(0, 4 + w, S::i_and(S::i_sar(words[w], 4), S::i_splat(NIBBLE)));
        }
    }
}

/// `d: f16, qs: [i8; 32]`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q8_0<S: Simd>(rows: &[*const u8; LANES], flip: u8, parts: Parts) {
    // SAFETY: as `unpack`.
    unsafe {
        S::f_store(parts.d, halves_at::<S>(rows, 0));
        S::f_store(parts.dmin, S::f_splat(0.0));
        parts.scale::<S>(0, S::i_splat(1));
        let flip = S::i_splat(i32::from_ne_bytes([flip; 4]));
        let words = words::<S>(rows, 2);
        for w in 0..LANES {
            parts.quad::<S>(0, w, S::i_xor(words[w], flip));
        }
    }
}

/// The first 16 bytes of Q4_K and Q5_K: `d: f16, dmin: f16, scales: [u8; 12]`, six bits each.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn head<S: Simd>(words: [S::I; LANES], parts: Parts) {
    // SAFETY: as `unpack`.
    unsafe {
        let [halfs, a, b, c, ..] = words;
        S::f_store(parts.d, halves::<S>(halfs));
        S::f_store(parts.dmin, halves::<S>(S::i_sar(halfs, 16)));
        let six = S::i_splat(0x3f3f_3f3f);
        let top = S::i_splat(0x3030_3030);
        let low = S::i_splat(NIBBLE);
        parts.scales::<S>(0, S::i_and(a, six));
        parts.scales::<S>(4, S::i_add(S::i_and(c, low), S::i_and(S::i_sar(a, 2), top)));
        parts.mins::<S>(0, S::i_and(b, six));
        parts.mins::<S>(4, S::i_add(S::i_and(S::i_sar(c, 4), low), S::i_and(S::i_sar(b, 2), top)));
    }
}

/// `d: f16, dmin: f16, scales: [u8; 12], qs: [u8; 128]`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q4_k<S: Simd>(rows: &[*const u8; LANES], parts: Parts) {
    // SAFETY: as `unpack`.
    unsafe {
        head::<S>(words::<S>(rows, 0), parts);
        for run in 0..4 {
            let words = words::<S>(rows, 16 + 32 * run);
            for w in 0..LANES {
                parts.quad::<S>(2 * run, w, S::i_and(words[w], S::i_splat(NIBBLE)));
                parts.quad::<S>(2 * run + 1, w, S::i_and(S::i_sar(words[w], 4), S::i_splat(NIBBLE)));
            }
        }
    }
}

/// `d: f16, dmin: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128]`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q5_k<S: Simd>(rows: &[*const u8; LANES], parts: Parts) {
    // SAFETY: as `unpack`.
    unsafe {
        head::<S>(words::<S>(rows, 0), parts);
        let fifth = words::<S>(rows, 16);
        let (nibble, bit) = (S::i_splat(NIBBLE), S::i_splat(0x1010_1010));
        for run in 0..4u32 {
            let words = words::<S>(rows, 48 + 32 * run as usize);
            for w in 0..LANES {
                let high = |b: u32| if b < 4 { S::i_shl(fifth[w], 4 - b) } else { S::i_sar(fifth[w], b - 4) };
                let low = S::i_and(words[w], nibble);
                parts.quad::<S>(2 * run as usize, w, S::i_add(low, S::i_and(high(2 * run), bit)));
                let low = S::i_and(S::i_sar(words[w], 4), nibble);
                parts.quad::<S>(2 * run as usize + 1, w, S::i_add(low, S::i_and(high(2 * run + 1), bit)));
            }
        }
    }
}

/// `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q6_k<S: Simd>(rows: &[*const u8; LANES], parts: Parts) {
    // SAFETY: as `unpack`. The last 32 bytes of a block begin at 178: its scales are not whole words of them.
    unsafe {
        S::f_store(parts.d, halves_at::<S>(rows, 208));
        S::f_store(parts.dmin, S::f_splat(0.0));
        let mut scales = [[0u8; 32]; LANES];
        for r in 0..LANES {
            rows[r].add(192).copy_to_nonoverlapping(scales[r].as_mut_ptr(), 16);
        }
        let mut lanes = [S::i_splat(0); LANES];
        for r in 0..LANES {
            lanes[r] = S::i_load(scales[r].as_ptr());
        }
        let scales = S::i_transpose(lanes);
        for w in 0..4 {
            parts.scales::<S>(4 * w, scales[w]);
        }
        let (nibble, pair) = (S::i_splat(NIBBLE), S::i_splat(0x3030_3030));
        for half in 0..2 {
            let high = words::<S>(rows, 128 + 32 * half);
            let low = [words::<S>(rows, 64 * half), words::<S>(rows, 64 * half + 32)];
            for w in 0..LANES {
                let tops = [S::i_shl(high[w], 4), S::i_shl(high[w], 2), high[w], S::i_sar(high[w], 2)];
                for run in 0..4 {
                    let low = low[run % 2][w];
                    let low = S::i_and(if run < 2 { low } else { S::i_sar(low, 4) }, nibble);
                    parts.quad::<S>(4 * half + run, w, S::i_add(low, S::i_and(tops[run], pair)));
                }
            }
        }
    }
}
