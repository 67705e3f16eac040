//! The parts of a group to a block's bytes: each format's `decode`, backwards.

use super::super::decode::{Format, Group, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use half::f16;

/// A format whose blocks can be written.
pub(super) trait Pack: Format {
    /// Writes `group`, whose parts are within the format's ranges and whose floats are values of f16, to `block`, which has
    /// exactly the format's bytes and is zero.
    fn pack(group: &Group, block: &mut [u8]);
}

fn put_half(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// The low four bits of `q[..n]` and `q[n..2 * n]`, as the low and high nibbles of `out[..n]`.
fn nibbles(q: &[u8], n: usize, out: &mut [u8]) {
    for i in 0..n {
        out[i] = (q[i] & 15) | (q[n + i] & 15) << 4;
    }
}

fn fifth_bits(q: &[u8]) -> [u8; 4] {
    let bits = (0..32).fold(0u32, |bits, i| bits | u32::from(q[i] >> 4) << i);
    bits.to_le_bytes()
}

impl Pack for Q4_0 {
    fn pack(group: &Group, block: &mut [u8]) {
        put_half(block, 0, group.d);
        nibbles(&group.q, 16, &mut block[2..]);
    }
}

impl Pack for Q4_1 {
    fn pack(group: &Group, block: &mut [u8]) {
        put_half(block, 0, group.d);
        put_half(block, 2, -group.dmin);
        nibbles(&group.q, 16, &mut block[4..]);
    }
}

impl Pack for Q5_0 {
    fn pack(group: &Group, block: &mut [u8]) {
        put_half(block, 0, group.d);
        block[2..6].copy_from_slice(&fifth_bits(&group.q));
        nibbles(&group.q, 16, &mut block[6..]);
    }
}

impl Pack for Q5_1 {
    fn pack(group: &Group, block: &mut [u8]) {
        put_half(block, 0, group.d);
        put_half(block, 2, -group.dmin);
        block[4..8].copy_from_slice(&fifth_bits(&group.q));
        nibbles(&group.q, 16, &mut block[8..]);
    }
}

impl Pack for Q8_0 {
    fn pack(group: &Group, block: &mut [u8]) {
        put_half(block, 0, group.d);
        block[2..34].copy_from_slice(&group.q[..32]);
    }
}

impl Pack for Q2K {
    fn pack(group: &Group, block: &mut [u8]) {
        for s in 0..16 {
            block[s] = group.scale[s] as u8 | group.min[s] << 4;
        }
        for (i, byte) in block[16..80].iter_mut().enumerate() {
            let first = 128 * (i / 32) + i % 32;
            *byte = (0..4).fold(0, |byte, run| byte | group.q[first + 32 * run] << (2 * run));
        }
        put_half(block, 80, group.d);
        put_half(block, 82, group.dmin);
    }
}

impl Pack for Q3K {
    fn pack(group: &Group, block: &mut [u8]) {
        for i in 0..32 {
            block[i] = (0..8).fold(0, |byte, run| byte | (group.q[32 * run + i] >> 2) << run);
        }
        for i in 0..64 {
            let first = 128 * (i / 32) + i % 32;
            block[32 + i] = (0..4).fold(0, |byte, run| byte | (group.q[first + 32 * run] & 3) << (2 * run));
        }
        for s in 0..16 {
            let scale = (group.scale[s] + 32) as u8;
            block[96 + s % 8] |= (scale & 15) << (4 * (s / 8));
            block[104 + s % 4] |= (scale >> 4) << (2 * (s / 4));
        }
        put_half(block, 108, group.d);
    }
}

/// The eight six-bit scales and mins of Q4_K and Q5_K: the first four whole, of the others four bits apart and the two high
/// bits above the first four.
fn scales_and_mins(group: &Group, out: &mut [u8]) {
    for s in 0..4 {
        let (scale, min) = (group.scale[s] as u8, group.min[s]);
        let (later_scale, later_min) = (group.scale[s + 4] as u8, group.min[s + 4]);
        out[s] = scale | (later_scale >> 4) << 6;
        out[s + 4] = min | (later_min >> 4) << 6;
        out[s + 8] = (later_scale & 15) | (later_min & 15) << 4;
    }
}

impl Pack for Q4K {
    fn pack(group: &Group, block: &mut [u8]) {
        put_half(block, 0, group.d);
        put_half(block, 2, group.dmin);
        scales_and_mins(group, &mut block[4..16]);
        for run in 0..4 {
            nibbles(&group.q[64 * run..], 32, &mut block[16 + 32 * run..]);
        }
    }
}

impl Pack for Q5K {
    fn pack(group: &Group, block: &mut [u8]) {
        put_half(block, 0, group.d);
        put_half(block, 2, group.dmin);
        scales_and_mins(group, &mut block[4..16]);
        for i in 0..32 {
            block[16 + i] = (0..8).fold(0, |byte, run| byte | (group.q[32 * run + i] >> 4) << run);
        }
        for run in 0..4 {
            nibbles(&group.q[64 * run..], 32, &mut block[48 + 32 * run..]);
        }
    }
}

impl Pack for Q6K {
    fn pack(group: &Group, block: &mut [u8]) {
        for half in 0..2 {
            let q = &group.q[128 * half..128 * half + 128];
            for i in 0..64 {
                block[64 * half + i] = (q[i] & 15) | (q[64 + i] & 15) << 4;
            }
            for i in 0..32 {
                block[128 + 32 * half + i] =
                    (0..4).fold(0, |byte, run| byte | (q[32 * run + i] >> 4) << (2 * run));
            }
        }
        for s in 0..16 {
            block[192 + s] = group.scale[s] as u8;
        }
        put_half(block, 208, group.d);
    }
}
