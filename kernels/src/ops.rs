//! What stands between products: norms, rotations, activations, sums. Each row is computed alone, in a fixed order.

use crate::isa::{Isa, Task, dispatch};
use crate::math;
use crate::pool::{Pool, SharedMut};
use crate::simd::{LANES, Simd};

/// Values in one iteration of an element-wise loop.
const SPAN: usize = 4096;

/// Root-mean-square normalisation of rows: `out = x · (1 / √(mean(x²) + eps)) · weight`.
///
/// `x` and `out` hold rows of `weight.len()` values. The sum runs in eight virtual lanes (index modulo eight) that are
/// added as `((0+4)+(2+6))+((1+5)+(3+7))`.
///
/// # Panics
/// Where the lengths do not agree.
pub fn rms_norm(isa: Isa, pool: &Pool, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let cols = weight.len();
    assert!(cols > 0 && x.len() == out.len() && x.len().is_multiple_of(cols), "rows and weights disagree");
    let shared = SharedMut::new(out);
    for_rows(pool, x.len() / cols, cols, &|row| {
        let range = row * cols..(row + 1) * cols;
        // SAFETY: each row is handed out once.
        #[allow(unsafe_code)]
        let out = unsafe { shared.slice(range.clone()) };
        out.copy_from_slice(&x[range]);
        dispatch(isa, Norm { x: out, weight, eps });
    });
}

/// [`rms_norm`] of rows that lie `stride` apart in `x`, each in place: the heads of a row of queries or keys.
///
/// # Panics
/// Where the lengths do not agree.
pub fn rms_norm_heads(
    isa: Isa,
    pool: &Pool,
    x: &mut [f32],
    stride: usize,
    heads: usize,
    weight: &[f32],
    eps: f32,
) {
    let cols = weight.len();
    assert!(cols > 0 && heads * cols <= stride && x.len().is_multiple_of(stride), "heads and rows disagree");
    let rows = x.len() / stride;
    let shared = SharedMut::new(x);
    for_rows(pool, rows, heads * cols, &|row| {
        for head in 0..heads {
            let start = row * stride + head * cols;
            // SAFETY: each head is handed out once.
            #[allow(unsafe_code)]
            let x = unsafe { shared.slice(start..start + cols) };
            dispatch(isa, Norm { x, weight, eps });
        }
    });
}

struct Norm<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Task for Norm<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        let Self { x, weight, eps } = self;
        // SAFETY: the caller gives the instruction set.
        let sum = unsafe { lane_sum::<S>(x, |v| S::f_mul(v, v)) };
        let scale = 1.0 / (sum / x.len() as f32 + eps).sqrt();
        for (x, w) in x.iter_mut().zip(weight) {
            *x = *x * scale * w;
        }
    }
}

/// Σ f(x) in eight virtual lanes, added in a fixed tree.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) unsafe fn lane_sum<S: Simd>(x: &[f32], f: impl Fn(S::F) -> S::F) -> f32 {
    // SAFETY: whole vectors lie inside `x`; the rest is copied into one, behind it zeros.
    unsafe {
        let mut acc = S::f_splat(0.0);
        let whole = x.chunks_exact(LANES);
        let rest = whole.remainder();
        for x in whole {
            acc = S::f_add(acc, f(S::f_load(x.as_ptr())));
        }
        if !rest.is_empty() {
            let mut last = [0.0f32; LANES];
            last[..rest.len()].copy_from_slice(rest);
            acc = S::f_add(acc, f(S::f_load(last.as_ptr())));
        }
        lane_tree::<S>(acc)
    }
}

/// `ln Σ exp(x)`: what turns logits into the logarithms of probabilities. Summed in the eight virtual lanes.
///
/// `NaN` where `x` holds one, minus infinity where it is empty.
pub fn log_sum_exp(isa: Isa, x: &[f32]) -> f64 {
    struct Sum<'a>(&'a [f32], f32);
    impl Task for Sum<'_> {
        type Output = f32;

        #[inline(always)]
        #[allow(unsafe_code)]
        unsafe fn run<S: Simd>(self) -> f32 {
            // SAFETY: the caller gives the instruction set. A tail is whole vectors behind it.
            unsafe {
                let max = S::f_splat(self.1);
                let whole = self.0.len() / LANES * LANES;
                let mut last = [f32::NEG_INFINITY; LANES];
                last[..self.0.len() - whole].copy_from_slice(&self.0[whole..]);
                let exp = |x| math::exp::<S>(S::f_sub(x, max));
                let tail = if whole < self.0.len() { lane_sum::<S>(&last, exp) } else { 0.0 };
                lane_sum::<S>(&self.0[..whole], exp) + tail
            }
        }
    }
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if x.iter().any(|x| x.is_nan()) {
        return f64::NAN;
    }
    if max == f32::NEG_INFINITY {
        return f64::NEG_INFINITY;
    }
    f64::from(max) + math::ln(f64::from(dispatch(isa, Sum(x, max))))
}

/// The sum of the eight virtual lanes, `((0+4)+(2+6))+((1+5)+(3+7))`.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) unsafe fn lane_tree<S: Simd>(lanes: S::F) -> f32 {
    let mut l = [0.0f32; LANES];
    // SAFETY: the caller gives the instruction set; the array holds a vector.
    unsafe { S::f_store(l.as_mut_ptr(), lanes) };
    ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`
    Silu,
    /// GELU, tanh form.
    Gelu,
}

/// `gate = f(gate) · up`, element by element.
///
/// # Panics
/// Where the lengths do not agree.
pub fn gate(isa: Isa, pool: &Pool, f: Activation, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "gate and up disagree");
    let shared = SharedMut::new(gate);
    pool.run(up.len().div_ceil(SPAN), &|i| {
        let range = i * SPAN..up.len().min((i + 1) * SPAN);
        // SAFETY: each span is handed out once.
        #[allow(unsafe_code)]
        let gate = unsafe { shared.slice(range.clone()) };
        dispatch(isa, Gate { f, gate, up: &up[range] });
    });
}

struct Gate<'a> {
    f: Activation,
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Task for Gate<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        let Self { f, gate, up } = self;
        for (gate, up) in gate.chunks_mut(LANES).zip(up.chunks(LANES)) {
            let (mut a, mut b) = ([0.0f32; LANES], [0.0f32; LANES]);
            a[..gate.len()].copy_from_slice(gate);
            b[..up.len()].copy_from_slice(up);
            // SAFETY: the caller gives the instruction set; both arrays hold a vector.
            unsafe {
                let x = S::f_load(a.as_ptr());
                let x = match f {
                    Activation::Silu => math::silu::<S>(x),
                    Activation::Gelu => math::gelu::<S>(x),
                };
                S::f_store(a.as_mut_ptr(), S::f_mul(x, S::f_load(b.as_ptr())));
            }
            gate.copy_from_slice(&a[..gate.len()]);
        }
    }
}

/// `x += y`, element by element.
///
/// # Panics
/// Where the lengths do not agree.
pub fn add(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "the sums' lengths disagree");
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// `x *= factor`, element by element.
pub fn scale(x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}

/// Which two values of a head a rotation turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// `(i, i + n/2)`: Qwen, Gemma ("neox").
    Halves,
    /// `(2i, 2i + 1)`: llama, as its GGUF stores queries and keys ("norm").
    Neighbours,
}

/// Sines and cosines of a run of positions, computed once for every layer that shares the frequencies.
#[derive(Clone, Debug, Default)]
pub struct RopeTable {
    pairs: usize,
    /// `[position][pair]`: cosine, sine.
    turns: Vec<[f32; 2]>,
}

impl RopeTable {
    /// The turns of `positions`, one row each. `inverse_freq[i]` is the angle that one position adds to pair `i`; what is
    /// turned becomes `magnitude` times as long (1 but for YaRN).
    ///
    /// The angle is rounded to f32 as the reference implementations do; its sine and cosine are exact to f32.
    pub fn fill(&mut self, inverse_freq: &[f32], magnitude: f32, positions: impl IntoIterator<Item = usize>) {
        self.pairs = inverse_freq.len();
        self.turns.clear();
        for position in positions {
            for freq in inverse_freq {
                let (sin, cos) = math::sin_cos(f64::from(position as f32 * freq));
                self.turns.push([cos as f32 * magnitude, sin as f32 * magnitude]);
            }
        }
    }
}

/// Rotary position embedding of rows in place.
///
/// `x` holds rows of `stride` values, of which the first `heads` heads of `head_dim` are rotated; row `r` takes the
/// table's position `r`. Values beyond the table's pairs stay as they are.
///
/// # Panics
/// Where the lengths do not agree.
pub fn rope(
    pool: &Pool,
    x: &mut [f32],
    stride: usize,
    heads: usize,
    head_dim: usize,
    pairs: RopePairs,
    table: &RopeTable,
) {
    let n = table.pairs;
    assert!(
        2 * n <= head_dim && heads * head_dim <= stride && x.len().is_multiple_of(stride),
        "heads and rows disagree"
    );
    let rows = x.len() / stride;
    assert!(table.turns.len() >= rows * n, "the table has fewer positions than there are rows");
    let shared = SharedMut::new(x);
    for_rows(pool, rows, heads * head_dim, &|row| {
        let start = row * stride;
        // SAFETY: each row is handed out once.
        #[allow(unsafe_code)]
        let x = unsafe { shared.slice(start..start + heads * head_dim) };
        let turns = &table.turns[row * n..][..n];
        for head in x.chunks_exact_mut(head_dim) {
            match pairs {
                RopePairs::Halves => {
                    let (a, b) = head[..2 * n].split_at_mut(n);
                    for ((a, b), turn) in a.iter_mut().zip(b).zip(turns) {
                        (*a, *b) = turned(*a, *b, *turn);
                    }
                }
                RopePairs::Neighbours => {
                    for (pair, turn) in head[..2 * n].chunks_exact_mut(2).zip(turns) {
                        (pair[0], pair[1]) = turned(pair[0], pair[1], *turn);
                    }
                }
            }
        }
    });
}

#[inline(always)]
fn turned(a: f32, b: f32, [cos, sin]: [f32; 2]) -> (f32, f32) {
    (a * cos - b * sin, b * cos + a * sin)
}

/// Runs `body` for every row, several rows in an iteration where rows are short.
fn for_rows(pool: &Pool, rows: usize, cols: usize, body: &(dyn Fn(usize) + Sync)) {
    let together = (SPAN / cols.max(1)).max(1);
    pool.run(rows.div_ceil(together), &|i| {
        for row in i * together..rows.min((i + 1) * together) {
            body(row);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn on_each(run: impl Fn(Isa, &Pool) -> Vec<f32>) -> Vec<f32> {
        let expected = run(Isa::Scalar, &Pool::single());
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let found = run(isa, &Pool::new(3));
            let same = found
                .iter()
                .zip(&expected)
                .all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
            assert!(same && found.len() == expected.len(), "{isa} differs");
        }
        expected
    }

    #[test]
    fn rms_norm_is_the_formula() {
        let mut random = Random::new(1);
        for cols in [1, 8, 13, 256, 1000] {
            let (x, w) = (random.activations(3 * cols), random.activations(cols));
            let y = on_each(|isa, pool| {
                let mut out = vec![0.0; x.len()];
                rms_norm(isa, pool, &x, &w, 1e-6, &mut out);
                out
            });
            for (x, y) in x.chunks(cols).zip(y.chunks(cols)) {
                let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / cols as f64;
                for ((x, w), y) in x.iter().zip(&w).zip(y) {
                    let exact = f64::from(*x) / (mean + 1e-6).sqrt() * f64::from(*w);
                    assert!(
                        (f64::from(*y) - exact).abs() <= 1e-6 * exact.abs().max(1e-3),
                        "{y} is not {exact}"
                    );
                }
            }
        }
    }

    #[test]
    fn heads_are_normalised_each_alone_and_the_rest_of_a_row_stays() {
        let mut random = Random::new(2);
        let x = random.activations(2 * 20);
        let w = random.activations(8);
        let y = on_each(|isa, pool| {
            let mut y = x.clone();
            rms_norm_heads(isa, pool, &mut y, 20, 2, &w, 1e-6);
            y
        });
        let mut head = vec![0.0; 8];
        rms_norm(Isa::Scalar, &Pool::single(), &x[28..36], &w, 1e-6, &mut head);
        assert_eq!(y[28..36], head);
        assert_eq!(y[36..], x[36..]);
    }

    #[test]
    fn activations_are_the_functions() {
        let xs: Vec<f32> = (-4000..4000).map(|i| i as f32 / 40.0).collect();
        let one = vec![1.0; xs.len()];
        let exact = |f: Activation, x: f64| match f {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Gelu => {
                let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                0.5 * x * (1.0 + u.tanh())
            }
        };
        for f in [Activation::Silu, Activation::Gelu] {
            let y = on_each(|isa, pool| {
                let mut y = xs.clone();
                gate(isa, pool, f, &mut y, &one);
                y
            });
            for (x, y) in xs.iter().zip(y) {
                let exact = exact(f, f64::from(*x));
                // GELU's exponent is rounded before it is raised: its error grows with it. In f64 the tanh is -1 to the bit
                // where the sigmoid is still 1e-17.
                let exponent = if f == Activation::Gelu {
                    f64::from(x.abs() + 0.05 * x.abs().powi(3)) * 1.6
                } else {
                    0.0
                };
                assert!(
                    (f64::from(y) - exact).abs() <= (4e-7 + 1.2e-7 * exponent) * exact.abs() + 1e-15,
                    "{f:?}({x}) = {y}, not {exact}"
                );
            }
        }
        let odd = on_each(|isa, pool| {
            let mut y = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
            gate(isa, pool, Activation::Silu, &mut y, &[1.0; 5]);
            y
        });
        assert!(odd[0].is_nan() && odd[1] == f32::INFINITY);
    }

    #[test]
    fn c9_rotation_keeps_its_precision_at_long_positions() {
        let freq = [1.0f32, 0.5, 1e-3];
        let mut table = RopeTable::default();
        table.fill(&freq, 1.0, 8190..8192);
        for pairs in [RopePairs::Halves, RopePairs::Neighbours] {
            // Two rows of two heads of six, then two values that stay.
            let x: Vec<f32> = (0..28).map(|i| i as f32).collect();
            let mut y = x.clone();
            rope(&Pool::new(2), &mut y, 14, 2, 6, pairs, &table);
            for (row, head, i) in [(0, 0, 0), (1, 1, 1), (1, 0, 2)] {
                let at = row * 14 + head * 6;
                let (a, b) = match pairs {
                    RopePairs::Halves => (at + i, at + i + 3),
                    RopePairs::Neighbours => (at + 2 * i, at + 2 * i + 1),
                };
                let angle = (8190 + row) as f64 * f64::from(freq[i]);
                let (u, v) = (f64::from(x[a]), f64::from(x[b]));
                assert!((f64::from(y[a]) - (u * angle.cos() - v * angle.sin())).abs() < 1e-4);
                assert!((f64::from(y[b]) - (v * angle.cos() + u * angle.sin())).abs() < 1e-4);
            }
            assert_eq!(y[12..14], x[12..14]);
        }
    }

    #[test]
    fn log_sum_exp_is_the_formula_and_the_same_on_every_instruction_set() {
        let mut random = Random::new(3);
        for n in [1, 7, 8, 9, 1000, 151_936] {
            let x: Vec<f32> = (0..n).map(|_| 20.0 * random.unit()).collect();
            let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = x.iter().map(|x| f64::from(x - max).exp()).sum();
            let expected = f64::from(max) + sum.ln();
            let scalar = log_sum_exp(Isa::Scalar, &x);
            assert!((scalar - expected).abs() < 1e-5, "{n}: {scalar} is not {expected}");
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                assert_eq!(log_sum_exp(isa, &x).to_bits(), scalar.to_bits(), "{isa}");
            }
        }
        assert!(log_sum_exp(Isa::best(), &[1.0, f32::NAN]).is_nan());
        assert_eq!(log_sum_exp(Isa::best(), &[]), f64::NEG_INFINITY);
    }
}
