//! Rotations by random signs and a Hadamard matrix: what outliers a row has, they spread over its values.

/// `Q = diag(±1) · H / √n` on the input dimension, in blocks of `n`, the largest power of two that divides it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotation {
    /// ±1, one for each input.
    signs: Vec<f32>,
    block: usize,
}

impl Rotation {
    /// The rotation of rows of `cols` values with signs drawn by `seed`, or nothing where no power of two from 2 on divides
    /// `cols`: there would be signs and no rotation.
    pub fn new(cols: usize, seed: u64) -> Option<Self> {
        if cols == 0 || !cols.is_multiple_of(2) {
            return None;
        }
        let block = 1 << cols.trailing_zeros();
        // Another width has other signs; the same width the same ones in every matrix, as inputs are shared.
        let mut random = fastrand::Rng::with_seed(seed ^ (cols as u64).rotate_left(32));
        let signs = (0..cols).map(|_| if random.bool() { 1.0 } else { -1.0 }).collect();
        Some(Self { signs, block })
    }

    /// `n`.
    pub const fn block(&self) -> usize {
        self.block
    }

    /// A row times `Q`.
    ///
    /// # Panics
    /// Where the row has another length than the rotation's.
    pub fn turn(&self, row: &mut [f32]) {
        self.sign(row);
        self.mix(row);
    }

    /// A row times the transpose of `Q`, which is its inverse.
    ///
    /// # Panics
    /// As [`turn`](Self::turn).
    pub fn turn_back(&self, row: &mut [f32]) {
        // H is symmetric.
        self.mix(row);
        self.sign(row);
    }

    fn sign(&self, row: &mut [f32]) {
        assert_eq!(row.len(), self.signs.len(), "a row of the rotation's width");
        for (value, sign) in row.iter_mut().zip(&self.signs) {
            *value *= sign;
        }
    }

    fn mix(&self, row: &mut [f32]) {
        let scale = (1.0 / (self.block as f64).sqrt()) as f32;
        for block in row.chunks_exact_mut(self.block) {
            let mut half = 1;
            while half < self.block {
                for pair in block.chunks_exact_mut(2 * half) {
                    let (left, right) = pair.split_at_mut(half);
                    for (a, b) in left.iter_mut().zip(right) {
                        (*a, *b) = (*a + *b, *a - *b);
                    }
                }
                half *= 2;
            }
            block.iter_mut().for_each(|value| *value *= scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of Q: what each unit vector becomes.
    fn matrix(rotation: &Rotation, cols: usize) -> Vec<Vec<f32>> {
        let unit = |at: usize| (0..cols).map(|i| f32::from(u8::from(i == at))).collect::<Vec<_>>();
        (0..cols)
            .map(|at| {
                let mut row = unit(at);
                rotation.turn(&mut row);
                row
            })
            .collect()
    }

    #[test]
    fn q_is_orthogonal_in_its_blocks() {
        for (cols, block) in [(2, 2), (64, 64), (96, 32), (160, 32), (256, 256)] {
            let rotation = Rotation::new(cols, 7).unwrap();
            assert_eq!(rotation.block(), block);
            let q = matrix(&rotation, cols);
            for (i, a) in q.iter().enumerate() {
                for (j, b) in q.iter().enumerate() {
                    let dot: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-5, "{cols}: {i} {j} {dot}");
                }
                // Every entry is ±1/√n within its block, and 0 outside it.
                for (j, value) in a.iter().enumerate() {
                    let want = if i / block == j / block { 1.0 / (block as f32).sqrt() } else { 0.0 };
                    assert!((value.abs() - want).abs() < 1e-6, "{cols}: {i} {j} {value}");
                }
            }
        }
    }

    #[test]
    fn there_and_back_is_the_identity() {
        for cols in [2, 96, 640, 2048] {
            let rotation = Rotation::new(cols, 3).unwrap();
            let row: Vec<f32> = (0..cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 9.0).collect();
            let mut turned = row.clone();
            rotation.turn(&mut turned);
            assert!(turned.iter().zip(&row).any(|(a, b)| (a - b).abs() > 0.1));
            rotation.turn_back(&mut turned);
            let off = turned.iter().zip(&row).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-5, "{cols}: {off}");
        }
    }

    #[test]
    fn an_odd_width_has_no_rotation_and_a_seed_has_its_own() {
        assert_eq!(Rotation::new(33, 0), None);
        assert_eq!(Rotation::new(0, 0), None);
        assert_eq!(Rotation::new(64, 1), Rotation::new(64, 1));
        assert_ne!(Rotation::new(64, 1), Rotation::new(64, 2));
    }
}
