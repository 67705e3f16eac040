//! The definition of a product, written as it is stated: the twin that every kernel is held against.

use super::quantized::half_sum;
use super::{Activations, BLOCK, Input, Matrix};
use crate::format::decode::{Format, Group, quant_value, widen, with_format};

/// `out[token][row]`, one chain after the other.
pub(crate) fn matmul(w: &Matrix, input: Input<'_>, tokens: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(tokens * w.rows);
    for token in 0..tokens {
        for row in 0..w.rows {
            out.push(with_format!(w.ty, F => quantized::<F>(w.row(row), input.q, token),
                float => float(w, row, &input.x[token * w.cols..][..w.cols])));
        }
    }
    out
}

fn float(w: &Matrix, row: usize, x: &[f32]) -> f32 {
    let mut wide = vec![0.0; w.cols];
    widen(w.ty, w.row(row), &mut wide);
    let mut y = 0.0f32;
    for (w, x) in wide.iter().zip(x) {
        y += x * w;
    }
    y
}

fn quantized<F: Format>(row: &[u8], x: &Activations, token: usize) -> f32 {
    let blocks = x.cols() / BLOCK;
    let q = &x.q[token * x.cols()..][..x.cols()];
    let scale: Vec<f32> = (0..blocks).map(|b| x.scale[b * x.tokens() + token]).collect();
    let sums: Vec<i32> = (0..blocks).map(|b| x.sums[b * x.tokens() + token]).collect();
    let mut group = Group::new();
    let mut y = 0.0f32;
    for (g, bytes) in row.chunks_exact(F::TYPE.block_bytes()).enumerate() {
        F::decode(bytes, &mut group);
        let first = g * F::LEN / BLOCK;
        let mut s = 0.0f32;
        for b in 0..F::LEN / BLOCK {
            let mut int = 0i32;
            for i in 0..BLOCK {
                let at = b * BLOCK + i;
                let w = i32::from(group.scale[at / F::SUB]) * quant_value::<F>(group.q[at]);
                int += w * i32::from(q[g * F::LEN + at]);
            }
            assert!(int.abs() < 1 << 24, "{}: {int} is not exact in f32", F::TYPE);
            s += int as f32 * scale[first + b];
        }
        y += group.d * s;
        if F::MIN {
            let mut m = 0.0f32;
            for j in 0..F::LEN / F::SUB {
                let b = first + j * F::SUB / BLOCK;
                let sum = if F::SUB == BLOCK {
                    half_sum(sums[b], 0) + half_sum(sums[b], 1)
                } else {
                    half_sum(sums[b], j % 2)
                };
                m += f32::from(group.min[j]) * (sum as f32 * scale[b]);
            }
            y -= group.dmin * m;
        }
    }
    y
}
