//! The feature head: the read-out in its principal axes, softly whitened.
//!
//! A bandit learns from few rewards, so it needs directions that differ between prompts, on one scale: plain coordinates let
//! one large direction drown the rest, full whitening blows noise up to the size of what counts. Axis `i` is therefore
//! divided by the root of (its variance + the mean variance): what varies more than the average comes near unit variance,
//! what varies less stays small.

use super::logistic::{Head, Scaling};
use super::matrix::Matrix;
use zen_edge_kernels::pool::Pool;

/// The most features unless another number is asked for: the default pack's, and 28 kB a user for 28 models.
pub const MOST: usize = 256;

/// A projection onto the first `dim` principal axes of the rows, each divided as the module says, and the share of the
/// (scaled) variance that these axes hold.
pub fn fit(x: &Matrix, widths: &[usize], dim: usize, pool: &Pool) -> (Head, f64) {
    let scaling = Scaling::of(x, widths, false);
    let scaled = scaling.apply(x);
    let n = scaled.rows().max(1) as f64;
    let covariance: Vec<f64> = scaled.gram(pool).into_iter().map(|v| v / n).collect();
    let (values, vectors) = symmetric_eigen(&covariance, x.cols);
    let total: f64 = values.iter().map(|v| v.max(0.0)).sum();
    let mean = total / x.cols.max(1) as f64;
    let mut weight = Vec::with_capacity(dim * x.cols);
    let mut held = 0.0;
    for (value, axis) in values.iter().zip(vectors.chunks_exact(x.cols.max(1))).take(dim) {
        held += value.max(0.0);
        let scale = (value.max(0.0) + mean).sqrt().max(1e-12);
        // An axis has no sign of its own: its largest component is made positive.
        let largest = axis.iter().copied().fold(0f64, |most, a| if a.abs() > most.abs() { a } else { most });
        let sign = if largest < 0.0 { -1.0 } else { 1.0 };
        weight.extend(axis.iter().map(|a| sign * a / scale));
    }
    let bias = vec![0.0; dim];
    (scaling.fold(&weight, &bias), if total > 0.0 { held / total } else { 0.0 })
}

/// The eigenvalues of a symmetric matrix of `n` rows, largest first, and the unit eigenvectors as rows: Householder's
/// tridiagonalisation and implicit QL steps, as EISPACK's `tred2` and `tql2`.
pub fn symmetric_eigen(matrix: &[f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    if n == 0 {
        return (Vec::new(), Vec::new());
    }
    // v[j·n + k]: columns are kept as rows of memory, for every inner loop runs along one.
    let mut v = matrix.to_vec();
    let (mut d, mut e) = (vec![0.0; n], vec![0.0; n]);
    tridiagonal(&mut v, &mut d, &mut e, n);
    implicit_ql(&mut v, &mut d, &mut e, n);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| d[b].total_cmp(&d[a]));
    let vectors = order.iter().flat_map(|&at| v[at * n..][..n].iter().copied()).collect();
    (order.into_iter().map(|at| d[at]).collect(), vectors)
}

/// To tridiagonal form: `d` its diagonal, `e[1..]` beside it; `v` becomes the transformation, column `j` at `v[j·n..]`.
fn tridiagonal(v: &mut [f64], d: &mut [f64], e: &mut [f64], n: usize) {
    let at = |row: usize, col: usize| col * n + row;
    for j in 0..n {
        d[j] = v[at(n - 1, j)];
    }
    for i in (1..n).rev() {
        let scale: f64 = d[..i].iter().map(|d| d.abs()).sum();
        let mut h = 0.0;
        if scale == 0.0 {
            e[i] = d[i - 1];
            for j in 0..i {
                d[j] = v[at(i - 1, j)];
                v[at(i, j)] = 0.0;
                v[at(j, i)] = 0.0;
            }
        } else {
            for d in &mut d[..i] {
                *d /= scale;
                h += *d * *d;
            }
            let f = d[i - 1];
            let g = if f > 0.0 { -h.sqrt() } else { h.sqrt() };
            e[i] = scale * g;
            h -= f * g;
            d[i - 1] = f - g;
            e[..i].fill(0.0);
            for j in 0..i {
                let f = d[j];
                v[at(j, i)] = f;
                let column = &v[j * n..][..n];
                let mut g = e[j] + column[j] * f;
                for k in j + 1..i {
                    g += column[k] * d[k];
                    e[k] += column[k] * f;
                }
                e[j] = g;
            }
            let mut f = 0.0;
            for j in 0..i {
                e[j] /= h;
                f += e[j] * d[j];
            }
            let hh = f / (h + h);
            for j in 0..i {
                e[j] -= hh * d[j];
            }
            for j in 0..i {
                let (f, g) = (d[j], e[j]);
                let column = &mut v[j * n..][..n];
                for k in j..i {
                    column[k] -= f * e[k] + g * d[k];
                }
                d[j] = column[i - 1];
                column[i] = 0.0;
            }
        }
        d[i] = h;
    }
    for i in 0..n - 1 {
        v[at(n - 1, i)] = v[at(i, i)];
        v[at(i, i)] = 1.0;
        let h = d[i + 1];
        if h != 0.0 {
            for k in 0..=i {
                d[k] = v[at(k, i + 1)] / h;
            }
            let (done, next) = v.split_at_mut((i + 1) * n);
            let next = &mut next[..=i];
            for column in done.chunks_exact_mut(n) {
                let g: f64 = next.iter().zip(&column[..=i]).map(|(a, b)| a * b).sum();
                column[..=i].iter_mut().zip(&d[..=i]).for_each(|(c, d)| *c -= g * d);
            }
        }
        v[(i + 1) * n..][..=i].fill(0.0);
    }
    for j in 0..n {
        d[j] = v[at(n - 1, j)];
        v[at(n - 1, j)] = 0.0;
    }
    v[at(n - 1, n - 1)] = 1.0;
    e[0] = 0.0;
}

/// From tridiagonal form to eigenvalues in `d`, eigenvectors in the columns of `v`.
fn implicit_ql(v: &mut [f64], d: &mut [f64], e: &mut [f64], n: usize) {
    e.rotate_left(1);
    e[n - 1] = 0.0;
    let (mut f, mut largest) = (0.0, 0f64);
    for l in 0..n {
        largest = largest.max(d[l].abs() + e[l].abs());
        let mut m = l;
        while m < n - 1 && e[m].abs() > f64::EPSILON * largest {
            m += 1;
        }
        if m > l {
            // Each eigenvalue takes two or three rounds; the bound is for what is no number.
            for _ in 0..64 {
                let g = d[l];
                let p = (d[l + 1] - g) / (2.0 * e[l]);
                let r = if p < 0.0 { -p.hypot(1.0) } else { p.hypot(1.0) };
                d[l] = e[l] / (p + r);
                d[l + 1] = e[l] * (p + r);
                let dl1 = d[l + 1];
                let h = g - d[l];
                d[l + 2..].iter_mut().for_each(|d| *d -= h);
                f += h;
                let mut p = d[m];
                let (mut c, mut c2, mut c3) = (1.0, 1.0, 1.0);
                let el1 = e[l + 1];
                let (mut s, mut s2) = (0.0, 0.0);
                for i in (l..m).rev() {
                    c3 = c2;
                    c2 = c;
                    s2 = s;
                    let g = c * e[i];
                    let h = c * p;
                    let r = p.hypot(e[i]);
                    e[i + 1] = s * r;
                    s = e[i] / r;
                    c = p / r;
                    p = c * d[i] - s * g;
                    d[i + 1] = h + s * (c * g + s * d[i]);
                    let (low, high) = v.split_at_mut((i + 1) * n);
                    for (a, b) in low[i * n..].iter_mut().zip(&mut high[..n]) {
                        let h = *b;
                        *b = s * *a + c * h;
                        *a = c * *a - s * h;
                    }
                }
                p = -s * s2 * c3 * el1 * e[l] / dl1;
                e[l] = s * p;
                d[l] = c * p;
                if e[l].abs() <= f64::EPSILON * largest || !e[l].is_finite() {
                    break;
                }
            }
        }
        d[l] += f;
        e[l] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenvectors_are_turned_into_themselves() {
        for n in [1, 2, 3, 40] {
            let mut a = vec![0.0; n * n];
            for i in 0..n {
                for j in 0..=i {
                    let value = ((i * 31 + j * 17) % 23) as f64 / 7.0 - 1.5 + if i == j { 3.0 } else { 0.0 };
                    (a[i * n + j], a[j * n + i]) = (value, value);
                }
            }
            let (values, vectors) = symmetric_eigen(&a, n);
            assert!(values.is_sorted_by(|a, b| a >= b));
            for (k, axis) in vectors.chunks_exact(n).enumerate() {
                for i in 0..n {
                    let turned: f64 = (0..n).map(|j| a[i * n + j] * axis[j]).sum();
                    assert!((turned - values[k] * axis[i]).abs() < 1e-9, "n {n}, axis {k}");
                }
                for (other, b) in vectors.chunks_exact(n).enumerate() {
                    let dot: f64 = axis.iter().zip(b).map(|(a, b)| a * b).sum();
                    assert!((dot - f64::from(u8::from(k == other))).abs() < 1e-10);
                }
            }
            let trace: f64 = (0..n).map(|i| a[i * n + i]).sum();
            assert!((values.iter().sum::<f64>() - trace).abs() < 1e-9);
        }
        assert_eq!(symmetric_eigen(&[0.0; 9], 3).0, [0.0; 3]);
    }

    #[test]
    fn features_are_uncorrelated_and_noise_is_not_blown_up() {
        // Two coordinates that go together, large, and one of little noise.
        let data = (0..200).flat_map(|i| {
            let (a, b) = ((i % 17) as f32 - 8.0, (i % 5) as f32 - 2.0);
            [10.0 * a + b, 10.0 * a - b, 0.01 * ((i * 7 % 13) as f32)]
        });
        let x = Matrix { cols: 3, data: data.collect() };
        let (head, held) = fit(&x, &[3], 2, &Pool::single());
        let y = head.apply_all(&x);
        let mean = y.mean();
        let variance = y.variance(&mean);
        assert!(mean.iter().all(|m| m.abs() < 1e-3), "{mean:?}");
        assert!(variance[0] > 0.5 && variance[0] < 1.0 && variance[1] < variance[0], "{variance:?}");
        let across: f64 = y.iter().map(|r| f64::from(r[0]) * f64::from(r[1])).sum::<f64>() / 200.0;
        assert!(across.abs() < 1e-3 && held > 0.999, "{across} {held}");
    }
}
