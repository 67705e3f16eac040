//! What is known of one user. The model stands on the page of [`super`].

use crate::decision::softmax;

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
/// The beliefs that are held side by side.
pub(super) const BELIEFS: usize = 2;
/// How far rows may depart from what the shared part and the route head say of them: the prior spread of a row's own
/// intercept and weights (`z` has length 1), one a belief. Under the first the head is right but for details, under the
/// second it may be wrong altogether.
const SPREADS: [f64; BELIEFS] = [0.04, 0.25];
/// What `β` is expected to be under each belief, and how far it may lie from that.
const PRIOR_WEIGHTS: [f64; BELIEFS] = [1.0, 0.5];
const PRIOR_WEIGHT_SPREAD: f64 = 0.3;
/// The prior spread of what all rows share.
const SHARED_INTERCEPT: f64 = 0.5;
const SHARED_WEIGHT: f64 = 0.3;

/// The most by which one belief's loss may exceed the other's: so that a change is noticed in tens of turns.
/// A bound of 2, which always leaves the wide belief .12, cost .006 a turn in exploration under a good head.
const MOST_LOSS: f64 = 8.0;

/// The prior variance of each of a row's own weights under a belief, in units of the noise's variance.
const fn row_variance(belief: usize) -> f64 {
    SPREADS[belief] * SPREADS[belief] / (NOISE * NOISE)
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
const fn shared_target(belief: usize, i: usize) -> f64 {
    if i == DIMENSIONS { PRIOR_WEIGHTS[belief] * shared_precision(i) } else { 0.0 }
}

/// What is known of one row's own weights under a belief, given the shared ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The covariance of `δ_a` over the noise's variance.
    pub(super) covariance: [f32; ROW_TRIANGLE],
    /// The weights that explain the qualities, were `w` and `β` 0.
    pub(super) quality: [f32; DIMENSIONS],
    /// The weights that explain the priors in the same way: what `β` would count twice.
    pub(super) prior: [f32; DIMENSIONS],
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
    /// A row that was never tried.
    fn untried(variance: f64) -> Self {
        let mut covariance = [0.0; ROW_TRIANGLE];
        for i in 0..DIMENSIONS {
            covariance[triangle(i + 1) - 1] = variance as f32;
        }
        Self { covariance, quality: [0.0; DIMENSIONS], prior: [0.0; DIMENSIONS] }
    }

    fn view(&self, z: &Z, prior: f64, variance: f64) -> View {
        let direction = symmetric(&self.covariance, z);
        View::new(direction, z, prior - dot(&self.prior, z), dot(&self.quality, z), variance)
    }

    fn is_possible(&self, variance: f64) -> bool {
        const MOST: f32 = 1e6;
        let diagonal = |i: usize| f64::from(self.covariance[triangle(i + 1) - 1]);
        self.quality.iter().chain(&self.prior).all(|x| x.abs() <= MOST)
            && (0..DIMENSIONS).all(|i| {
                // Observing can only narrow the prior, and no covariance exceeds its variances. Some room for rounding.
                diagonal(i) >= 0.0
                    && diagonal(i) <= 1.01 * variance
                    && (0..i).all(|j| {
                        let entry = f64::from(self.covariance[triangle(i) + j]);
                        entry * entry <= 1.01 * diagonal(i) * diagonal(j) + 1e-9
                    })
            })
    }
}

impl View {
    fn new(direction: Z, z: &Z, prior: f64, own: f64, row_variance: f64) -> Self {
        let mut shared = [0.0; SHARED];
        let mut variance = 0.0;
        for i in 0..DIMENSIONS {
            shared[i] = direction[i] / row_variance;
            variance += direction[i] * z[i];
        }
        shared[DIMENSIONS] = prior;
        // Rounding must not make a variance negative.
        Self { direction, shared, own, variance: variance.max(0.0) }
    }
}

/// One belief on all rows: the shared weights, and what is known of each row that was tried.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Belief {
    /// Empty until the first observation, then one a route row.
    pub(super) rows: Vec<Option<Box<Row>>>,
    /// The precision of the shared weights, over the noise's, and its right-hand side.
    pub(super) precision: [f64; SHARED_TRIANGLE],
    pub(super) target: [f64; SHARED],
}

impl Belief {
    fn new(belief: usize) -> Self {
        let mut precision = [0.0; SHARED_TRIANGLE];
        let mut target = [0.0; SHARED];
        for i in 0..SHARED {
            precision[triangle(i + 1) - 1] = shared_precision(i);
            target[i] = shared_target(belief, i);
        }
        Self { rows: Vec::new(), precision, target }
    }
}

/// A belief's shared weights, solved for.
struct Solved {
    factor: [f64; SHARED_TRIANGLE],
    weights: [f64; SHARED],
}

impl Solved {
    fn mean(&self, view: &View) -> f64 {
        view.own + view.shared.iter().zip(&self.weights).map(|(u, w)| u * w).sum::<f64>()
    }

    /// In units of the noise's.
    fn variance(&self, view: &View) -> f64 {
        view.variance + forward(&self.factor, &view.shared).iter().map(|x| x * x).sum::<f64>()
    }
}

impl Belief {
    fn solve(&self) -> Solved {
        let factor = cholesky(&self.precision);
        Solved { weights: backward(&factor, &forward(&factor, &self.target)), factor }
    }

    fn view(&self, row: usize, z: &Z, prior: f64, variance: f64) -> View {
        match self.rows.get(row) {
            Some(Some(row)) => row.view(z, prior, variance),
            _ => View::new(z.map(|z| z * variance), z, prior, 0.0, variance),
        }
    }

    /// Learns a quality of a row, as `view` saw it.
    fn observe(&mut self, rows: usize, row: usize, view: &View, quality: f64, row_variance: f64) {
        self.rows.resize_with(rows, || None);
        let state = self.rows[row].get_or_insert_with(|| Box::new(Row::untried(row_variance)));
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
    }

    /// Moves everything towards what holds of an unknown user.
    fn fade(&mut self, belief: usize, keep: f64) {
        let lost = 1.0 - keep;
        for i in 0..SHARED {
            self.target[i] = keep * self.target[i] + lost * shared_target(belief, i);
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
                row.covariance[triangle(i + 1) - 1] += (lost * row_variance(belief)) as f32;
            }
        }
    }

    fn is_possible(&self, row_variance: f64) -> bool {
        // Beyond any evidence; far enough from overflow that products of several stay finite.
        const MOST: f64 = 1e12;
        let factor = cholesky(&self.precision);
        let pivot = |i: usize| factor[triangle(i + 1) - 1].powi(-2);
        self.precision.iter().chain(&self.target).all(|&x| x.abs() <= MOST)
            // Evidence adds to the prior: no pivot can fall below the prior's.
            && (0..SHARED).all(|i| pivot(i) >= 0.99 * shared_precision(i))
            && self.rows.iter().flatten().all(|row| row.is_possible(row_variance))
    }
}

/// How often a row was taken, and how it fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Rewards.
    pub(super) pulls: u64,
    /// The weight that forgetting left of them, and of their qualities' sum.
    pub(super) weight: f64,
    pub(super) sum: f64,
}

/// What is known of one user.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct User {
    pub(super) beliefs: [Belief; BELIEFS],
    /// The log loss of each belief's predictions above the better one's, forgotten like all else: what tells how far to
    /// trust each.
    pub(super) losses: [f64; BELIEFS],
    /// One a route row, once anything was observed.
    pub(super) tallies: Vec<Tally>,
    pub(super) observations: u64,
    pub(super) effective: f64,
    pub(super) last_used: u64,
}

impl Default for User {
    fn default() -> Self {
        Self {
            beliefs: std::array::from_fn(Belief::new),
            losses: [0.0; BELIEFS],
            tallies: Vec::new(),
            observations: 0,
            effective: 0.0,
            last_used: 0,
        }
    }
}

impl User {
    /// The weights of the beliefs, which sum to 1.
    fn trust(&self) -> [f64; BELIEFS] {
        let weights = softmax(&self.losses.map(|loss| -loss as f32), 1.0);
        std::array::from_fn(|belief| weights[belief])
    }

    /// The mean and the standard deviation of each row's quality.
    pub(super) fn estimate(&self, z: &Z, prior: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let solved = self.beliefs.each_ref().map(Belief::solve);
        let trust = self.trust();
        let each = prior.iter().enumerate().map(|(row, &prior)| {
            let (mut mean, mut square) = (0.0, 0.0);
            for (belief, state) in self.beliefs.iter().enumerate() {
                let view = state.view(row, z, prior, row_variance(belief));
                let of_belief = solved[belief].mean(&view);
                let variance = NOISE * NOISE * solved[belief].variance(&view);
                mean += trust[belief] * of_belief;
                square += trust[belief] * (variance + of_belief * of_belief);
            }
            (mean, (square - mean * mean).max(0.0).sqrt())
        });
        each.unzip()
    }

    /// Learns one quality of one row, of `rows` in all; `keep` is the share of the evidence that stays.
    pub(super) fn observe(&mut self, rows: usize, row: usize, z: &Z, prior: f64, quality: f64, keep: f64) {
        self.tallies.resize(rows, Tally::default());
        for (belief, state) in self.beliefs.iter_mut().enumerate() {
            let row_variance = row_variance(belief);
            if keep < 1.0 {
                state.fade(belief, keep);
            }
            let view = state.view(row, z, prior, row_variance);
            let solved = state.solve();
            let (error, variance) = (quality - solved.mean(&view), 1.0 + solved.variance(&view));
            let loss = error * error / (2.0 * NOISE * NOISE * variance) + variance.ln() / 2.0;
            self.losses[belief] = keep * self.losses[belief] + loss;
            state.observe(rows, row, &view, quality, row_variance);
        }
        // Only differences count, and none may grow so large that a belief is never heard again.
        let least = self.losses.iter().copied().fold(f64::INFINITY, f64::min);
        for loss in &mut self.losses {
            *loss = (*loss - least).min(MOST_LOSS);
        }
        for tally in &mut self.tallies {
            tally.weight *= keep;
            tally.sum *= keep;
        }
        let tally = &mut self.tallies[row];
        tally.pulls += 1;
        tally.weight += 1.0;
        tally.sum += quality;
        self.observations += 1;
        self.effective = keep * self.effective + 1.0;
    }

    /// The rows that were tried.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, &Tally)> {
        self.tallies.iter().enumerate().filter(|(_, tally)| tally.pulls > 0)
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let a_row = BELIEFS * (size_of::<Option<Box<Row>>>()) + size_of::<Tally>();
        size_of::<Self>() + self.tallies.len() * a_row + self.rows().count() * BELIEFS * size_of::<Row>()
    }

    /// Whether the numbers can be those of a user: what a file claims is checked before it is believed.
    pub(super) fn is_possible(&self) -> bool {
        let counted = |x: f64| (0.0..=1e12).contains(&x);
        counted(self.effective)
            && self.losses.iter().all(|&loss| (0.0..=MOST_LOSS).contains(&loss))
            && self.beliefs.iter().enumerate().all(|(b, belief)| belief.is_possible(row_variance(b)))
            && self
                .rows()
                .all(|(_, tally)| counted(tally.weight) && tally.sum.abs() <= 2.0 * tally.weight + 1.0)
    }
}

#[cfg(test)]
impl Belief {
    /// The mean of one row, for comparison with an exact solution.
    pub(super) fn mean(&self, belief: usize, row: usize, z: &Z, prior: f64) -> f64 {
        self.solve().mean(&self.view(row, z, prior, row_variance(belief)))
    }
}

/// A belief's prior: the variance of a row's own weights, and precision and right-hand side of the shared ones.
#[cfg(test)]
pub(super) fn priors(belief: usize) -> (f64, [(f64, f64); SHARED]) {
    (row_variance(belief), std::array::from_fn(|i| (shared_precision(i), shared_target(belief, i))))
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
