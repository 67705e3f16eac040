//! Multinomial logistic regression: class-balanced, L2 on the weights, by L-BFGS.
//!
//! The vectors are centred and divided by one number for each part of the read-out, so that L2 means the same for any
//! backbone; the result is folded back and reads raw vectors. Single coordinates are not standardised unless asked: a
//! read-out's geometry is itself a prior, and to flatten it cost the default pack four points on unseen sources.

use super::lbfgs::{self, Ended, minimise};
use super::matrix::Matrix;
use std::collections::HashMap;

/// How vectors are brought to one scale before the fit. It is folded back into the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// What is taken off each coordinate.
    pub mean: Vec<f64>,
    /// What each coordinate is then multiplied by.
    pub scale: Vec<f64>,
}

impl Scaling {
    /// One number for each part (`widths` add up to the columns), so that all parts have the same mean square norm, that of
    /// the widest part at one a coordinate; or with `standardize` one for each coordinate.
    pub fn of(x: &Matrix, widths: &[usize], standardize: bool) -> Self {
        let mean = x.mean();
        let variance = x.variance(&mean);
        let inverse = |variance: f64| if variance > 1e-20 { 1.0 / variance.sqrt() } else { 0.0 };
        let scale = if standardize {
            variance.iter().map(|v| inverse(*v)).collect()
        } else {
            let widest = widths.iter().copied().max().unwrap_or(1) as f64;
            let mut scale = Vec::with_capacity(x.cols);
            for &width in widths {
                let square: f64 = variance[scale.len()..][..width].iter().sum();
                scale.extend(std::iter::repeat_n(inverse(square / widest), width));
            }
            scale
        };
        Self { mean, scale }
    }

    /// The rows at one scale.
    pub fn apply(&self, x: &Matrix) -> Matrix {
        let mut data = Vec::with_capacity(x.data.len());
        for row in x.iter() {
            let scaled = row.iter().zip(&self.mean).zip(&self.scale);
            data.extend(scaled.map(|((x, mean), scale)| ((f64::from(*x) - mean) * scale) as f32));
        }
        Matrix { cols: x.cols, data }
    }

    /// A head over scaled rows (`weight` of `rows` rows, row-major) as one over raw rows.
    pub fn fold(&self, weight: &[f64], bias: &[f64]) -> Head {
        let d = self.mean.len();
        let mut head = Head { cols: d, weight: Vec::with_capacity(weight.len()), bias: Vec::new() };
        for (row, bias) in weight.chunks_exact(d.max(1)).zip(bias) {
            let raw: Vec<f64> = row.iter().zip(&self.scale).map(|(w, scale)| w * scale).collect();
            let moved: f64 = raw.iter().zip(&self.mean).map(|(w, mean)| w * mean).sum();
            head.weight.extend(raw.iter().map(|w| *w as f32));
            head.bias.push((bias - moved) as f32);
        }
        head
    }
}

/// A linear head: `y = W·x + b`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The length of a vector.
    pub cols: usize,
    /// `W`, row-major.
    pub weight: Vec<f32>,
    /// `b`.
    pub bias: Vec<f32>,
}

impl Head {
    /// A head whose logits are all 0.
    pub fn zero(rows: usize, cols: usize) -> Self {
        Self { cols, weight: vec![0.0; rows * cols], bias: vec![0.0; rows] }
    }

    /// How many logits it gives.
    pub fn rows(&self) -> usize {
        self.bias.len()
    }

    /// The logits of a vector.
    pub fn apply(&self, x: &[f32]) -> Vec<f32> {
        let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>();
        let rows = self.weight.chunks_exact(self.cols.max(1));
        rows.zip(&self.bias).map(|(row, b)| (dot(row) + f64::from(*b)) as f32).collect()
    }

    /// The logits of all rows.
    pub fn apply_all(&self, x: &Matrix) -> Matrix {
        Matrix { cols: self.rows(), data: x.iter().flat_map(|row| self.apply(row)).collect() }
    }

    /// Whether all of it is finite.
    pub fn is_finite(&self) -> bool {
        self.weight.iter().chain(&self.bias).all(|value| value.is_finite())
    }
}

/// What a head is fitted to.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// How many classes there are.
    pub classes: usize,
    /// The probability of each class for each row, row-major; each row adds up to 1.
    pub wanted: Vec<f32>,
    /// What each row counts.
    pub weight: Vec<f32>,
    /// Which classes take part in each row, row-major; empty: all. A class that was not tried is neither right nor wrong.
    pub known: Vec<bool>,
}

impl Targets {
    /// One class a row, each class counting the same over all rows.
    pub fn balanced(labels: &[usize], classes: usize) -> Self {
        let mut count = vec![0usize; classes];
        labels.iter().for_each(|&label| count[label] += 1);
        let present = count.iter().filter(|n| **n > 0).count().max(1);
        let mut wanted = vec![0.0; labels.len() * classes];
        labels.iter().enumerate().for_each(|(row, &label)| wanted[row * classes + label] = 1.0);
        let each = |&label: &usize| (labels.len() as f64 / (present * count[label].max(1)) as f64) as f32;
        Self { classes, wanted, weight: labels.iter().map(each).collect(), known: Vec::new() }
    }

    /// As [`balanced`](Self::balanced), and within a class each group of rows counts the same, however many rows it has.
    pub fn balanced_by(labels: &[usize], groups: &[usize], classes: usize) -> Self {
        let mut rows: HashMap<(usize, usize), usize> = HashMap::new();
        labels.iter().zip(groups).for_each(|key| *rows.entry((*key.0, *key.1)).or_default() += 1);
        let mut groups_of = vec![0usize; classes];
        rows.keys().for_each(|(label, _)| groups_of[*label] += 1);
        let present = groups_of.iter().filter(|n| **n > 0).count().max(1);
        let each = |(&label, &group): (&usize, &usize)| {
            let shares = present * groups_of[label] * rows[&(label, group)];
            (labels.len() as f64 / shares as f64) as f32
        };
        Self { weight: labels.iter().zip(groups).map(each).collect(), ..Self::balanced(labels, classes) }
    }
}

/// Classes are computed eight at a time.
const LANES: usize = 8;
/// What `p·(1 − p)` comes to, about: a row's share in the curvature.
const CURVATURE: f64 = 0.1;
/// Rows whose gradients are summed as f32 before they are added up as f64.
const BLOCK: usize = 256;

/// Fits weights and biases to scaled rows: the least of `(Σ weight·cross-entropy + l2/2·|W|²) / rows`. `start` is where the
/// search begins, as [`Solution::parameters`] of another fit.
pub fn fit(x: &Matrix, targets: &Targets, l2: f64, start: Option<&[f64]>) -> Solution {
    let (n, d, k) = (x.rows(), x.cols, targets.classes);
    let lanes = k.next_multiple_of(LANES);
    // Parameters stand column by column, classes together, so that the inner loops run over classes; the biases come last.
    let mut parameters = vec![0.0; (d + 1) * lanes];
    if let Some(start) = start {
        parameters.copy_from_slice(start);
    }
    // The search runs in units in which every coordinate curves about alike: a length that is one coordinate of sixteen times
    // the others' size would take it five times as many steps.
    let unit: Vec<f64> = {
        let mean = x.mean();
        let curve = |variance: f64| CURVATURE * n as f64 * variance + l2;
        let variance = x.variance(&mean);
        let of = |variance: f64| (curve(1.0) / curve(variance).max(1e-12)).sqrt();
        let each = variance.into_iter().map(of).chain([1.0]);
        each.flat_map(|unit| std::iter::repeat_n(unit, lanes)).collect()
    };
    parameters.iter_mut().zip(&unit).for_each(|(p, unit)| *p /= unit);
    let mut raw = vec![0.0; parameters.len()];
    let mut objective = |p: &[f64], gradient: &mut [f64]| {
        raw.iter_mut().zip(p).zip(&unit).for_each(|((raw, p), unit)| *raw = p * unit);
        let p = raw.as_slice();
        let weights: Vec<f32> = p.iter().map(|p| *p as f32).collect();
        gradient.fill(0.0);
        let mut loss = 0.0;
        let mut part = vec![0f32; (d + 1) * lanes];
        for from in (0..n).step_by(BLOCK) {
            part.fill(0.0);
            let rows = from..(from + BLOCK).min(n);
            let mut residuals = logits(x, rows.clone(), &weights, lanes);
            for (row, residual) in rows.clone().zip(residuals.chunks_exact_mut(lanes)) {
                loss += residual_of(residual, targets, row, k);
            }
            accumulate(x, rows, &residuals, &mut part, lanes);
            gradient.iter_mut().zip(&part).for_each(|(g, part)| *g += f64::from(*part));
        }
        let share = 1.0 / n.max(1) as f64;
        let (weights, _) = p.split_at(d * lanes);
        gradient.iter_mut().zip(weights).for_each(|(g, w)| *g += l2 * w);
        gradient.iter_mut().zip(&unit).for_each(|(g, unit)| *g *= share * unit);
        (loss + 0.5 * l2 * weights.iter().map(|w| w * w).sum::<f64>()) * share
    };
    let ended = minimise(&mut parameters, lbfgs::Options::default(), &mut objective);
    parameters.iter_mut().zip(&unit).for_each(|(p, unit)| *p *= unit);
    let column = |class: usize| (0..d).map(move |j| (j, class));
    let weight = (0..k).flat_map(column).map(|(j, class)| parameters[j * lanes + class]).collect();
    let bias = parameters[d * lanes..][..k].to_vec();
    Solution { weight, bias, parameters, ended }
}

/// A fitted head over scaled rows.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The weights, row-major.
    pub weight: Vec<f64>,
    /// The biases.
    pub bias: Vec<f64>,
    /// Both, for the next fit to start from.
    pub parameters: Vec<f64>,
    /// How the search ended.
    pub ended: Ended,
}

/// The logits of some rows, `lanes` a row. Two rows go together: one alone would wait for its own sums.
fn logits(x: &Matrix, rows: std::ops::Range<usize>, weights: &[f32], lanes: usize) -> Vec<f32> {
    let d = x.cols;
    let mut out = vec![0f32; rows.len() * lanes];
    let data = &x.data[rows.start * d..rows.end * d];
    for block in (0..lanes).step_by(LANES) {
        let bias = &weights[d * lanes + block..][..LANES];
        let mut put = |row: usize, z: [f32; LANES]| {
            let out = &mut out[row * lanes + block..][..LANES];
            out.iter_mut().zip(z).zip(bias).for_each(|((out, z), b)| *out = z + b);
        };
        for (pair, rows) in data.chunks(2 * d).enumerate() {
            let (a, b) = rows.split_at(d);
            let (mut z, mut y) = ([0f32; LANES], [0f32; LANES]);
            if b.is_empty() {
                for (x, w) in a.iter().zip(weights.chunks_exact(lanes)) {
                    let w = &w[block..][..LANES];
                    (0..LANES).for_each(|l| z[l] += x * w[l]);
                }
            } else {
                for ((x0, x1), w) in a.iter().zip(b).zip(weights.chunks_exact(lanes)) {
                    let w = &w[block..][..LANES];
                    for l in 0..LANES {
                        z[l] += x0 * w[l];
                        y[l] += x1 * w[l];
                    }
                }
                put(2 * pair + 1, y);
            }
            put(2 * pair, z);
        }
    }
    out
}

/// Turns a row's logits into what its gradient is made of, weight · (p − wanted), and gives its loss.
fn residual_of(z: &mut [f32], targets: &Targets, row: usize, k: usize) -> f64 {
    let (wanted, weight) = (&targets.wanted[row * k..][..k], targets.weight[row]);
    let known = |class: usize| targets.known.is_empty() || targets.known[row * k + class];
    let top = (0..k).filter(|&c| known(c)).map(|c| z[c]).fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = (0..k).filter(|&c| known(c)).map(|c| f64::from(z[c] - top).exp()).sum();
    let mut loss = 0.0;
    for class in 0..k {
        if !known(class) || weight == 0.0 {
            z[class] = 0.0;
            continue;
        }
        let log_p = f64::from(z[class] - top) - sum.ln();
        if wanted[class] != 0.0 {
            loss -= f64::from(wanted[class]) * log_p;
        }
        z[class] = weight * (log_p.exp() as f32 - wanted[class]);
    }
    z[k..].fill(0.0);
    if weight == 0.0 { 0.0 } else { f64::from(weight) * loss }
}

/// Adds the rows' gradients. Four rows go together, so that a sum is loaded and stored once for four.
fn accumulate(x: &Matrix, rows: std::ops::Range<usize>, residuals: &[f32], part: &mut [f32], lanes: usize) {
    let d = x.cols;
    let data = &x.data[rows.start * d..rows.end * d];
    let zeros = vec![0f32; d];
    let none = [0f32; LANES];
    for block in (0..lanes).step_by(LANES) {
        for (rows, r) in data.chunks(4 * d).zip(residuals.chunks(4 * lanes)) {
            let row = |i: usize| rows.get(i * d..(i + 1) * d).unwrap_or(&zeros);
            let lane = |i: usize| r.get(i * lanes + block..i * lanes + block + LANES).unwrap_or(&none);
            let (x0, x1, x2, x3) = (row(0), row(1), row(2), row(3));
            let (r0, r1, r2, r3) = (lane(0), lane(1), lane(2), lane(3));
            for (j, g) in part[..d * lanes].chunks_exact_mut(lanes).enumerate() {
                let g = &mut g[block..][..LANES];
                for l in 0..LANES {
                    g[l] += (x0[j] * r0[l] + x1[j] * r1[l]) + (x2[j] * r2[l] + x3[j] * r3[l]);
                }
            }
            let bias = &mut part[d * lanes + block..][..LANES];
            (0..LANES).for_each(|l| bias[l] += (r0[l] + r1[l]) + (r2[l] + r3[l]));
        }
    }
}

/// A head for raw vectors: scaled, fitted, folded back.
pub fn fit_raw(x: &Matrix, targets: &Targets, l2: f64, widths: &[usize], standardize: bool) -> (Head, Ended) {
    let scaling = Scaling::of(x, widths, standardize);
    let solution = fit(&scaling.apply(x), targets, l2, None);
    (scaling.fold(&solution.weight, &solution.bias), solution.ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize) -> Vec<f32> {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn each_group_of_a_class_counts_the_same() {
        let (labels, groups) = ([0, 0, 0, 0, 1, 1], [5, 5, 5, 6, 5, 5]);
        let targets = Targets::balanced_by(&labels, &groups, 3);
        assert_eq!(targets.weight, [0.5, 0.5, 0.5, 1.5, 1.5, 1.5]);
        assert_eq!(targets.wanted, Targets::balanced(&labels, 3).wanted);
        // Where every row is a group of its own, or all are one, it is the balance of classes alone.
        for groups in [[0, 1, 2, 3, 4, 5], [0; 6]] {
            assert_eq!(
                Targets::balanced_by(&labels, &groups, 3).weight,
                Targets::balanced(&labels, 3).weight
            );
        }
    }

    #[test]
    fn one_coordinate_has_the_optimum_that_can_be_worked_out() {
        // x = ±1, right three times out of four on either side. By symmetry the logits are ±a, so the loss of a row is
        // ¾ ln(1+e^(−2a)) + ¼ ln(1+e^(2a)), least without L2 at e^(2a) = 3.
        let x = Matrix { cols: 1, data: vec![1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0] };
        let targets = Targets::balanced(&[0, 0, 0, 1, 1, 1, 1, 0], 2);
        let solution = fit(&x, &targets, 0.0, None);
        let gap = solution.weight[0] - solution.weight[1];
        assert!((gap - 3f64.ln()).abs() < 1e-3, "{solution:?}");
        assert!(solution.ended.gradient <= 1e-5);
        // With L2 the condition is 2·l2·a = 8·(¾ − σ(2a))·2 with a weight of ±a: it holds at what was found.
        let l2 = 2.0;
        let solution = fit(&x, &targets, l2, None);
        let a = solution.weight[0];
        let sigma = 1.0 / (1.0 + (-2.0 * a).exp());
        assert!((l2 * a - 8.0 * (0.75 - sigma)).abs() < 1e-3, "{a}");
        assert!(a < gap / 2.0 && (solution.weight[0] + solution.weight[1]).abs() < 1e-4);
    }

    /// The gradient at the solution, in plain arithmetic, for any shape that is no multiple of the lanes.
    #[test]
    fn the_gradient_vanishes_at_the_solution() {
        let (n, d, k) = (301, 7, 11);
        let x = Matrix { cols: d, data: noise(n * d) };
        let labels: Vec<usize> = (0..n).map(|i| (i * i + i / 3) % k).collect();
        let mut targets = Targets::balanced(&labels, k);
        // Some classes were not tried in some rows.
        targets.known = (0..n * k).map(|at| at % k == labels[at / k] || at % 5 != 0).collect();
        let l2 = 1.5;
        let s = fit(&x, &targets, l2, None);
        assert_eq!((s.weight.len(), s.bias.len()), (k * d, k));
        let mut gradient: Vec<f64> = s.weight.iter().map(|w| l2 * w).chain(vec![0.0; k]).collect();
        for (row, x) in x.iter().enumerate() {
            let z = |c: usize| s.bias[c] + (0..d).map(|j| s.weight[c * d + j] * f64::from(x[j])).sum::<f64>();
            let known: Vec<usize> = (0..k).filter(|c| targets.known[row * k + c]).collect();
            let sum: f64 = known.iter().map(|&c| z(c).exp()).sum();
            for &c in &known {
                let r = f64::from(targets.weight[row])
                    * (z(c).exp() / sum - f64::from(targets.wanted[row * k + c]));
                (0..d).for_each(|j| gradient[c * d + j] += r * f64::from(x[j]));
                gradient[k * d + c] += r;
            }
        }
        let worst = gradient.iter().fold(0f64, |m, g| m.max(g.abs())) / n as f64;
        assert!(worst < 1e-4, "{worst}");
        assert!(
            fit(&x, &targets, l2, Some(&s.parameters)).ended.iterations <= 2,
            "a solution is where it ends"
        );
    }

    #[test]
    fn a_coordinate_of_another_size_does_not_slow_the_search() {
        let (n, d, k) = (400, 12, 4);
        let mut x = Matrix { cols: d, data: noise(n * d) };
        let labels: Vec<usize> =
            x.iter().map(|r| (((r[0] + r[1] + r[2]) * 1.5 + 2.0) as usize).min(3)).collect();
        let targets = Targets::balanced(&labels, k);
        let plain = fit(&x, &targets, 1.0, None).ended;
        x.data.chunks_exact_mut(d).for_each(|row| row[0] *= 64.0);
        let uneven = fit(&x, &targets, 1.0, None).ended;
        assert!(uneven.iterations <= plain.iterations + 20, "{plain:?} {uneven:?}");
    }

    #[test]
    fn what_can_be_separated_is_and_raw_vectors_are_read() {
        let n = 90;
        let mut x = Matrix { cols: 3, data: noise(n * 3) };
        let labels: Vec<usize> = (0..n).map(|i| i % 3).collect();
        for (i, row) in x.data.chunks_exact_mut(3).enumerate() {
            row[i % 3] += 4.0;
            row.iter_mut().for_each(|v| *v = *v * 20.0 + 300.0);
        }
        let (head, _) = fit_raw(&x, &Targets::balanced(&labels, 3), 0.1, &[3], false);
        let z = head.apply_all(&x);
        for (row, &label) in z.iter().zip(&labels) {
            assert!((0..3).all(|c| c == label || row[c] < row[label]), "{row:?} {label}");
        }
    }

    #[test]
    fn parts_of_a_read_out_are_brought_to_one_norm() {
        let data =
            (0..40).flat_map(|i| [i as f32, (i * 7 % 11) as f32, (i % 3) as f32 * 1e-3, 5.0]).collect();
        let x = Matrix { cols: 4, data };
        let scaling = Scaling::of(&x, &[2, 1, 1], false);
        let y = scaling.apply(&x);
        let square = |from: usize, to: usize| {
            y.iter().map(|r| r[from..to].iter().map(|v| f64::from(v * v)).sum::<f64>()).sum::<f64>() / 40.0
        };
        assert!((square(0, 2) - 2.0).abs() < 1e-3 && (square(2, 3) - 2.0).abs() < 1e-3);
        assert_eq!(square(3, 4), 0.0, "what never changes says nothing");
        assert_eq!(scaling.scale[0], scaling.scale[1], "a part keeps its geometry");
        let each = Scaling::of(&x, &[2, 1, 1], true).apply(&x);
        assert!((each.variance(&each.mean())[0] - 1.0).abs() < 1e-3);
    }
}
