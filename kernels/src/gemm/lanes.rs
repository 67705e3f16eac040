//! Unpacking of eight rows at once, a lane a row: what a panel is made of where a byte of it is a quant, and what one token is
//! multiplied with.
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

/// Who takes the parts of eight rows' group, a lane a row.
///
/// # Safety
/// Every function may only be called where the processor has the instruction set of `S`, with indices inside a group; the
/// implementation states the rest.
#[allow(unsafe_code)]
pub(super) trait Sink<S: Simd> {
    /// Four columns of a block: bytes, four a lane.
    unsafe fn quad(&mut self, block: usize, quad: usize, q: S::I);
    /// The integer scale of a sub-block.
    unsafe fn scale(&mut self, sub: usize, scale: S::I);
    /// The integer min of a sub-block.
    unsafe fn min(&mut self, sub: usize, min: S::F);
    /// The float scale of the group, and that of its mins.
    unsafe fn floats(&mut self, d: S::F, dmin: S::F);
}

/// A panel as a sink; each pointer is that of the group's first value of the first of these rows.
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
    /// What quants are changed by, bit for bit: 128 where a kernel wants signed bytes biased, else 0.
    pub flip: u8,
}

/// The pointers must have room for a group of eight rows among a panel's 16.
#[allow(unsafe_code)]
impl<S: Simd> Sink<S> for Parts {
    #[inline(always)]
    unsafe fn quad(&mut self, block: usize, quad: usize, q: S::I) {
        // SAFETY: as the caller gives it.
        unsafe {
            let q =
                if self.flip == 0 { q } else { S::i_xor(q, S::i_splat(i32::from_ne_bytes([self.flip; 4]))) };
            S::i_store(self.q.add(BLOCK * PANEL_ROWS * block + 4 * PANEL_ROWS * quad), q);
        }
    }

    #[inline(always)]
    unsafe fn scale(&mut self, sub: usize, scale: S::I) {
        // SAFETY: as the caller gives it.
        unsafe {
            let twice = S::i_blend16(scale, S::i_shl(scale, 16));
            S::i_store(self.scale.add(PANEL_ROWS * sub).cast(), twice);
        }
    }

    #[inline(always)]
    unsafe fn min(&mut self, sub: usize, min: S::F) {
        // SAFETY: as the caller gives it.
        unsafe { S::f_store(self.min.add(PANEL_ROWS * sub), min) }
    }

    #[inline(always)]
    unsafe fn floats(&mut self, d: S::F, dmin: S::F) {
        // SAFETY: as the caller gives it.
        unsafe {
            S::f_store(self.d, d);
            S::f_store(self.dmin, dmin);
        }
    }
}

/// Scales of four sub-blocks, signed bytes.
///
/// # Safety
/// As [`Sink`].
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn scales<S: Simd, K: Sink<S>>(sink: &mut K, first: usize, bytes: S::I) {
    // SAFETY: as the caller gives it.
    unsafe {
        for i in 0..4 {
            sink.scale(first + i, S::i_sar(S::i_shl(bytes, 24 - 8 * i as u32), 24));
        }
    }
}

/// Mins of four sub-blocks, bytes of at most 63.
///
/// # Safety
/// As [`Sink`].
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn mins<S: Simd, K: Sink<S>>(sink: &mut K, first: usize, bytes: S::I) {
    // SAFETY: as the caller gives it.
    unsafe {
        for i in 0..4 {
            sink.min(first + i, S::f_from_i(S::i_sar(S::i_shl(bytes, 24 - 8 * i as u32), 24)));
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
        let mut from = *rows;
        for row in &mut from {
            *row = row.add(at);
        }
        S::i_load_transposed(from)
    }
}

/// [`words`] of 16 bytes: the first four.
///
/// # Safety
/// As [`words`].
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn four_words<S: Simd>(rows: &[*const u8; LANES], at: usize) -> [S::I; 4] {
    // SAFETY: as the caller gives it.
    unsafe {
        let mut bytes = [[0u8; 32]; LANES];
        for r in 0..LANES {
            rows[r].add(at).copy_to_nonoverlapping(bytes[r].as_mut_ptr(), 16);
        }
        let mut from = [bytes[0].as_ptr(); LANES];
        for r in 0..LANES {
            from[r] = bytes[r].as_ptr();
        }
        let [a, b, c, d, ..] = S::i_load_transposed(from);
        [a, b, c, d]
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

/// Gives `sink` the parts of one group of eight rows, whose blocks' first bytes are `rows`.
///
/// # Safety
/// The processor has the instruction set of `S`; `rows` are whole blocks of `ty`, which [`knows`] names; the sink takes a group of it.
#[inline(always)]
#[allow(unsafe_code)]
pub(super) unsafe fn unpack<S: Simd, K: Sink<S>>(ty: BlockType, rows: &[*const u8; LANES], sink: &mut K) {
    // SAFETY: as the caller gives it; no read passes the block's last byte.
    unsafe {
        match ty {
            BlockType::Q4_0 => q4_0::<S, K>(rows, sink),
            BlockType::Q8_0 => q8_0::<S, K>(rows, sink),
            BlockType::Q4K => q4_k::<S, K>(rows, sink),
            BlockType::Q5K => q5_k::<S, K>(rows, sink),
            _ => q6_k::<S, K>(rows, sink),
        }
    }
}

const NIBBLE: i32 = 0x0f0f_0f0f;

/// `d: f16, qs: [u8; 16]`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q4_0<S: Simd, K: Sink<S>>(rows: &[*const u8; LANES], sink: &mut K) {
    // SAFETY: as `unpack`.
    unsafe {
        sink.floats(halves_at::<S>(rows, 0), S::f_splat(0.0));
        sink.scale(0, S::i_splat(1));
        let words = four_words::<S>(rows, 2);
        for w in 0..4 {
            sink.quad(0, w, S::i_and(words[w], S::i_splat(NIBBLE)));
            sink.quad(0, 4 + w, S::i_and(S::i_sar(words[w], 4), S::i_splat(NIBBLE)));
        }
    }
}

/// `d: f16, qs: [i8; 32]`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q8_0<S: Simd, K: Sink<S>>(rows: &[*const u8; LANES], sink: &mut K) {
    // SAFETY: as `unpack`.
    unsafe {
        sink.floats(halves_at::<S>(rows, 0), S::f_splat(0.0));
        sink.scale(0, S::i_splat(1));
        let words = words::<S>(rows, 2);
        for w in 0..LANES {
            sink.quad(0, w, words[w]);
        }
    }
}

/// The first 16 bytes of Q4_K and Q5_K: `d: f16, dmin: f16, scales: [u8; 12]`, six bits each.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn head<S: Simd, K: Sink<S>>(words: [S::I; LANES], sink: &mut K) {
    // SAFETY: as `unpack`.
    unsafe {
        let [halfs, a, b, c, ..] = words;
        sink.floats(halves::<S>(halfs), halves::<S>(S::i_sar(halfs, 16)));
        let six = S::i_splat(0x3f3f_3f3f);
        let top = S::i_splat(0x3030_3030);
        let low = S::i_splat(NIBBLE);
        scales::<S, K>(sink, 0, S::i_and(a, six));
        scales::<S, K>(sink, 4, S::i_add(S::i_and(c, low), S::i_and(S::i_sar(a, 2), top)));
        mins::<S, K>(sink, 0, S::i_and(b, six));
        mins::<S, K>(sink, 4, S::i_add(S::i_and(S::i_sar(c, 4), low), S::i_and(S::i_sar(b, 2), top)));
    }
}

// What follows goes on in steps whose numbers are constants: a sink that keeps sums in registers can have them only where the compiler sees
// which one is meant, and it does not unroll loops of this size by itself (half the speed).

/// `d: f16, dmin: f16, scales: [u8; 12], qs: [u8; 128]`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q4_k<S: Simd, K: Sink<S>>(rows: &[*const u8; LANES], sink: &mut K) {
    // SAFETY: as `unpack`.
    unsafe {
        head::<S, K>(words::<S>(rows, 0), sink);
        q4_k_run::<S, K, 0>(rows, sink);
        q4_k_run::<S, K, 1>(rows, sink);
        q4_k_run::<S, K, 2>(rows, sink);
        q4_k_run::<S, K, 3>(rows, sink);
    }
}

/// Blocks `2 · RUN` and the next.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q4_k_run<S: Simd, K: Sink<S>, const RUN: usize>(rows: &[*const u8; LANES], sink: &mut K) {
    // SAFETY: as `unpack`.
    unsafe {
        let words = words::<S>(rows, 16 + 32 * RUN);
        for w in 0..LANES {
            sink.quad(2 * RUN, w, S::i_and(words[w], S::i_splat(NIBBLE)));
            sink.quad(2 * RUN + 1, w, S::i_and(S::i_sar(words[w], 4), S::i_splat(NIBBLE)));
        }
    }
}

/// `d: f16, dmin: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128]`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q5_k<S: Simd, K: Sink<S>>(rows: &[*const u8; LANES], sink: &mut K) {
    // SAFETY: as `unpack`.
    unsafe {
        head::<S, K>(words::<S>(rows, 0), sink);
        let fifth = words::<S>(rows, 16);
        q5_k_run::<S, K, 0>(rows, fifth, sink);
        q5_k_run::<S, K, 1>(rows, fifth, sink);
        q5_k_run::<S, K, 2>(rows, fifth, sink);
        q5_k_run::<S, K, 3>(rows, fifth, sink);
    }
}

/// Blocks `2 · RUN` and the next.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q5_k_run<S: Simd, K: Sink<S>, const RUN: usize>(
    rows: &[*const u8; LANES],
    fifth: [S::I; LANES],
    sink: &mut K,
) {
    // SAFETY: as `unpack`.
    unsafe {
        let (nibble, bit) = (S::i_splat(NIBBLE), S::i_splat(0x1010_1010));
        let words = words::<S>(rows, 48 + 32 * RUN);
        for w in 0..LANES {
            for half in 0..2 {
                let b = 2 * RUN + half;
                let low = S::i_and(if half == 0 { words[w] } else { S::i_sar(words[w], 4) }, nibble);
                let high =
                    if b < 4 { S::i_shl(fifth[w], 4 - b as u32) } else { S::i_sar(fifth[w], b as u32 - 4) };
                sink.quad(b, w, S::i_add(low, S::i_and(high, bit)));
            }
        }
    }
}

/// `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q6_k<S: Simd, K: Sink<S>>(rows: &[*const u8; LANES], sink: &mut K) {
    // SAFETY: as `unpack`.
    unsafe {
        sink.floats(halves_at::<S>(rows, 208), S::f_splat(0.0));
        let bytes = four_words::<S>(rows, 192);
        for w in 0..4 {
            scales::<S, K>(sink, 4 * w, bytes[w]);
        }
        q6_k_half::<S, K, 0>(rows, sink);
        q6_k_half::<S, K, 1>(rows, sink);
    }
}

/// Blocks `4 · HALF` and the next three.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q6_k_half<S: Simd, K: Sink<S>, const HALF: usize>(rows: &[*const u8; LANES], sink: &mut K) {
    // SAFETY: as `unpack`.
    unsafe {
        let high = words::<S>(rows, 128 + 32 * HALF);
        q6_k_pair::<S, K, HALF, 0>(words::<S>(rows, 64 * HALF), high, sink);
        q6_k_pair::<S, K, HALF, 1>(words::<S>(rows, 64 * HALF + 32), high, sink);
    }
}

/// Blocks `4 · HALF + RUN` and `4 · HALF + RUN + 2`, which share their bytes.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn q6_k_pair<S: Simd, K: Sink<S>, const HALF: usize, const RUN: usize>(
    low: [S::I; LANES],
    high: [S::I; LANES],
    sink: &mut K,
) {
    // SAFETY: as `unpack`.
    unsafe {
        let (nibble, pair) = (S::i_splat(NIBBLE), S::i_splat(0x3030_3030));
        for w in 0..LANES {
            let tops = if RUN == 0 {
                [S::i_shl(high[w], 4), high[w]]
            } else {
                [S::i_shl(high[w], 2), S::i_sar(high[w], 2)]
            };
            let lows = [low[w], S::i_sar(low[w], 4)];
            for i in 0..2 {
                let q = S::i_add(S::i_and(lows[i], nibble), S::i_and(tops[i], pair));
                sink.quad(4 * HALF + RUN + 2 * i, w, q);
            }
        }
    }
}
