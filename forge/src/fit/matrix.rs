//! Dense rows of numbers, and what is solved over them. Everything is summed in a fixed order, so that the same rows give the
//! same heads on any number of cores.

use std::sync::Mutex;
use zen_edge_kernels::pool::Pool;

/// Rows of `cols` values, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// The values of a row.
    pub cols: usize,
    /// All values.
    pub data: Vec<f32>,
}

impl Matrix {
    /// A matrix without rows.
    pub const fn new(cols: usize) -> Self {
        Self { cols, data: Vec::new() }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.data.len().checked_div(self.cols).unwrap_or(0)
    }

    /// A row.
    pub fn row(&self, at: usize) -> &[f32] {
        &self.data[at * self.cols..][..self.cols]
    }

    /// All rows in order.
    pub fn iter(&self) -> std::slice::ChunksExact<'_, f32> {
        self.data.chunks_exact(self.cols.max(1))
    }

    /// Some of the rows, in the order of `at`.
    pub fn gather(&self, at: &[usize]) -> Self {
        let mut data = Vec::with_capacity(at.len() * self.cols);
        at.iter().for_each(|&row| data.extend_from_slice(self.row(row)));
        Self { cols: self.cols, data }
    }

    /// The mean of each column; zeros where there are no rows.
    pub fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.cols];
        for row in self.iter() {
            mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += f64::from(*x));
        }
        let n = self.rows().max(1) as f64;
        mean.iter_mut().for_each(|mean| *mean /= n);
        mean
    }

    /// The variance of each column around `mean`.
    pub fn variance(&self, mean: &[f64]) -> Vec<f64> {
        let mut variance = vec![0.0; self.cols];
        for row in self.iter() {
            for ((variance, mean), x) in variance.iter_mut().zip(mean).zip(row) {
                *variance += (f64::from(*x) - mean).powi(2);
            }
        }
        let n = self.rows().max(1) as f64;
        variance.iter_mut().for_each(|variance| *variance /= n);
        variance
    }

    /// `XᵀX` of the rows, all of it (symmetric), summed in blocks of 512 rows.
    pub fn gram(&self, pool: &Pool) -> Vec<f64> {
        const STRIPE: usize = 64;
        let d = self.cols;
        let stripes = par_map(pool, d.div_ceil(STRIPE), |stripe| {
            let columns = stripe * STRIPE..((stripe + 1) * STRIPE).min(d);
            let mut out = vec![0f64; columns.len() * d];
            let mut part = vec![0f32; columns.len() * d];
            for block in self.data.chunks(512 * d) {
                part.fill(0.0);
                for row in block.chunks_exact(d) {
                    for (i, out) in columns.clone().zip(part.chunks_exact_mut(d)) {
                        let x = row[i];
                        out[..=i].iter_mut().zip(&row[..=i]).for_each(|(out, y)| *out += x * y);
                    }
                }
                out.iter_mut().zip(&part).for_each(|(out, part)| *out += f64::from(*part));
            }
            out
        });
        let mut gram: Vec<f64> = stripes.concat();
        for i in 0..d {
            for j in 0..i {
                gram[j * d + i] = gram[i * d + j];
            }
        }
        gram
    }
}

/// What `body` gives for each of `0..n`, in order, computed on the pool's threads.
pub fn par_map<T: Send>(pool: &Pool, n: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let slots: Vec<Mutex<Option<T>>> = (0..n).map(|_| Mutex::new(None)).collect();
    pool.run(n, &|at| {
        let value = body(at);
        *slots[at].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(value);
    });
    let value = |slot: Mutex<Option<T>>| slot.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    slots.into_iter().filter_map(value).collect()
}

/// The Cholesky factor of a symmetric positive definite matrix of `n` rows; `None` where it is not one.
pub fn cholesky(matrix: &[f64], n: usize) -> Option<Vec<f64>> {
    let mut factor = matrix.to_vec();
    for i in 0..n {
        for j in 0..=i {
            let (head, tail) = factor.split_at(i * n);
            let known = if i == j { &tail[..j] } else { &head[j * n..][..j] };
            let sum: f64 = tail[..j].iter().zip(known).map(|(a, b)| a * b).sum();
            let rest = factor[i * n + j] - sum;
            factor[i * n + j] = if i == j {
                if rest <= 0.0 || !rest.is_finite() {
                    return None;
                }
                rest.sqrt()
            } else {
                rest / factor[j * n + j]
            };
        }
    }
    Some(factor)
}

/// Solves `L·Lᵀ·x = b` in place.
pub fn cholesky_solve(factor: &[f64], b: &mut [f64]) {
    let n = b.len();
    for i in 0..n {
        let sum: f64 = factor[i * n..][..i].iter().zip(&b[..i]).map(|(a, b)| a * b).sum();
        b[i] = (b[i] - sum) / factor[i * n + i];
    }
    for i in (0..n).rev() {
        b[i] /= factor[i * n + i];
        let x = b[i];
        b[..i].iter_mut().zip(&factor[i * n..][..i]).for_each(|(b, a)| *b -= a * x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_of_equations_is_solved() {
        // [[4,2],[2,3]]·x = [8,7] has x = [1.25, 1.5].
        let factor = cholesky(&[4.0, 2.0, 2.0, 3.0], 2).unwrap();
        let mut b = [8.0, 7.0];
        cholesky_solve(&factor, &mut b);
        assert!((b[0] - 1.25).abs() < 1e-12 && (b[1] - 1.5).abs() < 1e-12, "{b:?}");
        assert_eq!(cholesky(&[1.0, 2.0, 2.0, 1.0], 2), None);
    }

    #[test]
    fn the_gram_matrix_is_the_same_on_any_number_of_threads() {
        let x =
            Matrix { cols: 70, data: (0..70 * 600).map(|i| ((i * 37 % 101) as f32) / 50.0 - 1.0).collect() };
        let gram = x.gram(&Pool::single());
        assert_eq!(gram, x.gram(&Pool::new(3)));
        let exact = |i: usize, j: usize| x.iter().map(|r| f64::from(r[i]) * f64::from(r[j])).sum::<f64>();
        for (i, j) in [(0, 0), (3, 69), (69, 3), (64, 65)] {
            assert!((gram[i * 70 + j] - exact(i, j)).abs() < 1e-2, "{i} {j}");
        }
    }
}
