//! What is known of one user. The model stands on the page of [`super`].

/// The intercept and the leading features that a row's estimate is linear in.
pub const DIMENSIONS: usize = 16;

/// The shared weights: those of `z`, then `β` of the prior.
pub(super) const SHARED: usize = DIMENSIONS + 1;

/// A packed lower triangle, row by row.
const fn triangle(n: usize) -> usize {
    n * (n + 1) / 2
}
pub(super) const ROW_TRIANGLE: usize = triangle(DIMENSIONS);
pub(super) const SHARED_TRIANGLE: usize = triangle(SHARED);

/// A prompt: an intercept of 1, then its scaled features.
pub(super) type Z = [f64; DIMENSIONS];

/// The standard deviation of a quality around what could be known of it: outcomes are near 0 or 1 as a rule.
const NOISE: f64 = 0.4;
/// The prior spread of a row's own intercept, and of its own weights, whose `z` has length 1.
const ROW_INTERCEPT: f64 = 0.2;
const ROW_WEIGHT: f64 = 0.2;
/// The same of what all rows share.
const SHARED_INTERCEPT: f64 = 0.5;
const SHARED_WEIGHT: f64 = 0.3;
/// `β`: the route head's say is taken at its word until rewards tell how far it goes.
const PRIOR_WEIGHT: f64 = 1.0;
const PRIOR_WEIGHT_SPREAD: f64 = 0.3;

/// The prior covariance of `δ_a`, in units of the noise's variance; diagonal.
pub(super) const fn row_variance(i: usize) -> f64 {
    let spread = if i == 0 { ROW_INTERCEPT } else { ROW_WEIGHT };
    spread * spread / (NOISE * NOISE)
}

/// The prior precision of the shared weights, in units of the noise's; diagonal.
const fn shared_precision(i: usize) -> f64 {
    let spread = match i {
        0 => SHARED_INTERCEPT,
        DIMENSIONS => PRIOR_WEIGHT_SPREAD,
        _ => SHARED_WEIGHT,
    };
    NOISE * NOISE / (spread * spread)
}

/// The prior's part of the right-hand side.
const fn shared_target(i: usize) -> f64 {
    if i == DIMENSIONS { PRIOR_WEIGHT * shared_precision(i) } else { 0.0 }
}

/// What is known of one row's own weights, given the shared ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The covariance of `δ_a` over the noise's variance.
    pub(super) covariance: [f32; ROW_TRIANGLE],
    /// The weights that explain the qualities, were `w` and `β` 0.
    pub(super) quality: [f32; DIMENSIONS],
    /// The weights that explain the priors in the same way: what `β` would count twice.
    pub(super) prior: [f32; DIMENSIONS],
    /// Rewards.
    pub(super) pulls: u64,
    /// The weight that forgetting left of them, and of their qualities' sum.
    pub(super) weight: f64,
    pub(super) sum: f64,
}

impl Default for Row {
    fn default() -> Self {
        let mut covariance = [0.0; ROW_TRIANGLE];
        for i in 0..DIMENSIONS {
            covariance[triangle(i + 1) - 1] = row_variance(i) as f32;
        }
        let zero = [0.0; DIMENSIONS];
        Self { covariance, quality: zero, prior: zero, pulls: 0, weight: 0.0, sum: 0.0 }
    }
}

/// One row seen from one prompt.
struct View {
    /// Covariance times `z`.
    direction: Z,
    /// How the shared weights enter the estimate.
    shared: [f64; SHARED],
    /// The part of the estimate that is the row's own.
    own: f64,
    /// The variance of the row's own part, in units of the noise's.
    variance: f64,
}

impl Row {
    fn view(&self, z: &Z, prior: f64) -> View {
        let direction = symmetric(&self.covariance, z);
        View::new(direction, z, prior - dot(&self.prior, z), dot(&self.quality, z))
    }

    /// The view of a row that was never tried.
    fn untried(z: &Z, prior: f64) -> View {
        let mut direction = *z;
        for (i, x) in direction.iter_mut().enumerate() {
            *x *= row_variance(i);
        }
        View::new(direction, z, prior, 0.0)
    }

    pub(super) fn mean_quality(&self) -> f64 {
        self.sum / self.weight
    }
}

impl View {
    fn new(direction: Z, z: &Z, prior: f64, own: f64) -> Self {
        let mut shared = [0.0; SHARED];
        let mut variance = 0.0;
        for i in 0..DIMENSIONS {
            shared[i] = direction[i] / row_variance(i);
            variance += direction[i] * z[i];
        }
        shared[DIMENSIONS] = prior;
        // Rounding must not make a variance negative.
        Self { direction, shared, own, variance: variance.max(0.0) }
    }
}

/// What is known of one user.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct User {
    /// The rows that were tried; empty until the first observation.
    pub(super) rows: Vec<Option<Box<Row>>>,
    /// The precision of the shared weights, over the noise's, and its right-hand side.
    pub(super) precision: [f64; SHARED_TRIANGLE],
    pub(super) target: [f64; SHARED],
    pub(super) observations: u64,
    pub(super) effective: f64,
    pub(super) last_used: u64,
}

impl Default for User {
    fn default() -> Self {
        let mut precision = [0.0; SHARED_TRIANGLE];
        let mut target = [0.0; SHARED];
        for i in 0..SHARED {
            precision[triangle(i + 1) - 1] = shared_precision(i);
            target[i] = shared_target(i);
        }
        Self { rows: Vec::new(), precision, target, observations: 0, effective: 0.0, last_used: 0 }
    }
}

impl User {
    /// The mean and the standard deviation of each row's quality.
    pub(super) fn estimate(&self, z: &Z, prior: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let factor = cholesky(&self.precision);
        let weights = backward(&factor, &forward(&factor, &self.target));
        let each = prior.iter().enumerate().map(|(row, &prior)| {
            let view = match self.rows.get(row) {
                Some(Some(row)) => row.view(z, prior),
                _ => Row::untried(z, prior),
            };
            let mean = view.own + view.shared.iter().zip(&weights).map(|(u, w)| u * w).sum::<f64>();
            let spread = forward(&factor, &view.shared);
            let variance = view.variance + spread.iter().map(|x| x * x).sum::<f64>();
            (mean, NOISE * variance.sqrt())
        });
        each.unzip()
    }

    /// Learns one quality of one row, of `rows` in all; `keep` is the share of the evidence that stays.
    pub(super) fn observe(&mut self, rows: usize, row: usize, z: &Z, prior: f64, quality: f64, keep: f64) {
        if keep < 1.0 {
            self.fade(keep);
        }
        self.rows.resize_with(rows, || None);
        let state = self.rows[row].get_or_insert_default();
        let view = state.view(z, prior);
        let variance = 1.0 + view.variance;
        let surprise = quality - view.own;
        // What this reward says of the shared weights, the row's own being integrated out.
        for i in 0..SHARED {
            let step = view.shared[i] / variance;
            self.target[i] += step * surprise;
            for j in 0..=i {
                self.precision[triangle(i) + j] += step * view.shared[j];
            }
        }
        // And of the row's own, given the shared: a Kalman step for the qualities and one for the priors.
        let unexplained = view.shared[DIMENSIONS];
        for i in 0..DIMENSIONS {
            let gain = view.direction[i] / variance;
            state.quality[i] = (f64::from(state.quality[i]) + gain * surprise) as f32;
            state.prior[i] = (f64::from(state.prior[i]) + gain * unexplained) as f32;
            for j in 0..=i {
                let entry = &mut state.covariance[triangle(i) + j];
                *entry = (f64::from(*entry) - gain * view.direction[j]) as f32;
            }
        }
        state.pulls += 1;
        state.weight += 1.0;
        state.sum += quality;
        self.observations += 1;
        self.effective += 1.0;
    }

    /// Moves everything towards what holds of an unknown user.
    fn fade(&mut self, keep: f64) {
        let lost = 1.0 - keep;
        for i in 0..SHARED {
            self.target[i] = keep * self.target[i] + lost * shared_target(i);
            for j in 0..=i {
                self.precision[triangle(i) + j] *= keep;
            }
            self.precision[triangle(i + 1) - 1] += lost * shared_precision(i);
        }
        for row in self.rows.iter_mut().flatten() {
            for x in row.covariance.iter_mut().chain(&mut row.quality).chain(&mut row.prior) {
                *x *= keep as f32;
            }
            for i in 0..DIMENSIONS {
                row.covariance[triangle(i + 1) - 1] += (lost * row_variance(i)) as f32;
            }
            row.weight *= keep;
            row.sum *= keep;
        }
        self.effective *= keep;
    }

    /// The rows that were tried.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, &Row)> {
        self.rows.iter().enumerate().filter_map(|(i, row)| Some((i, &**row.as_ref()?)))
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.rows.len() * size_of::<Option<Box<Row>>>()
            + self.rows().count() * size_of::<Row>()
    }

    /// Whether the numbers can be those of a user: what a file claims is checked before it is believed.
    pub(super) fn is_possible(&self) -> bool {
        // Beyond any evidence; far enough from overflow that products of several stay finite.
        const MOST: f64 = 1e12;
        let small = |x: f64| x.abs() <= MOST;
        let counts = (0.0..=MOST).contains(&self.effective);
        let shared = self.precision.iter().chain(&self.target).all(|&x| small(x))
            && (0..SHARED).all(|i| self.precision[triangle(i + 1) - 1] > 0.0)
            && cholesky(&self.precision).iter().all(|x| x.is_finite());
        counts && shared && self.rows().all(|(_, row)| row.is_possible())
    }
}

impl Row {
    fn is_possible(&self) -> bool {
        const MOST: f32 = 1e6;
        let weights = self.quality.iter().chain(&self.prior).all(|x| x.abs() <= MOST);
        let diagonal = |i: usize| f64::from(self.covariance[triangle(i + 1) - 1]);
        let covariance = (0..DIMENSIONS).all(|i| {
            // Observing can only narrow the prior, and no covariance exceeds its variances. Some room for rounding.
            diagonal(i) >= 0.0
                && diagonal(i) <= 1.01 * row_variance(i)
                && (0..i).all(|j| {
                    let entry = f64::from(self.covariance[triangle(i) + j]);
                    entry * entry <= 1.01 * diagonal(i) * diagonal(j) + 1e-9
                })
        });
        let sums = self.pulls > 0 && self.weight > 0.0 && self.weight <= 1e12 && self.sum.abs() <= 2e12;
        weights && covariance && sums
    }
}

fn dot(a: &[f32; DIMENSIONS], z: &Z) -> f64 {
    a.iter().zip(z).map(|(&a, z)| f64::from(a) * z).sum()
}

/// A packed symmetric matrix times a vector.
fn symmetric(matrix: &[f32; ROW_TRIANGLE], z: &Z) -> Z {
    let mut y = [0.0; DIMENSIONS];
    let mut at = 0;
    for i in 0..DIMENSIONS {
        let mut sum = 0.0;
        for j in 0..i {
            let m = f64::from(matrix[at + j]);
            sum += m * z[j];
            y[j] += m * z[i];
        }
        y[i] += sum + f64::from(matrix[at + i]) * z[i];
        at += i + 1;
    }
    y
}

/// The Cholesky factor of a packed positive matrix, with its diagonal inverted.
fn cholesky(matrix: &[f64; SHARED_TRIANGLE]) -> [f64; SHARED_TRIANGLE] {
    let mut factor = [0.0; SHARED_TRIANGLE];
    for i in 0..SHARED {
        for j in 0..=i {
            let mut sum = matrix[triangle(i) + j];
            for k in 0..j {
                sum -= factor[triangle(i) + k] * factor[triangle(j) + k];
            }
            factor[triangle(i) + j] = if i == j {
                // The precision never falls below its prior's: only rounding could bring a pivot near zero.
                1.0 / sum.max(1e-9).sqrt()
            } else {
                sum * factor[triangle(j + 1) - 1]
            };
        }
    }
    factor
}

/// Solves `L·x = b`.
fn forward(factor: &[f64; SHARED_TRIANGLE], b: &[f64; SHARED]) -> [f64; SHARED] {
    let mut x = *b;
    for i in 0..SHARED {
        for j in 0..i {
            x[i] -= factor[triangle(i) + j] * x[j];
        }
        x[i] *= factor[triangle(i + 1) - 1];
    }
    x
}

/// Solves `Lᵀ·x = b`.
fn backward(factor: &[f64; SHARED_TRIANGLE], b: &[f64; SHARED]) -> [f64; SHARED] {
    let mut x = *b;
    for i in (0..SHARED).rev() {
        for j in i + 1..SHARED {
            x[i] -= factor[triangle(j) + i] * x[j];
        }
        x[i] *= factor[triangle(i + 1) - 1];
    }
    x
}
