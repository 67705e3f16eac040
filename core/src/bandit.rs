//! What a router learns of one user: which model does well on which prompts, from the rewards that come back.
//!
//! [`Bandit::estimate`] gives the quality to expect of each route row, [`Bandit::record`] keeps what the estimate was
//! made of until the reward is known, [`Bandit::observe`] learns from it. The estimates take the place of the route
//! head's probabilities in [`crate::decision::Learned::quality`]; cost and latency are weighed there, never here: what is
//! learned is quality, 0 to 1.
//!
//! # The model
//!
//! For user, row `a` and prompt, with `z` an intercept and the leading features (centred, one scale, [`DIMENSIONS`] in
//! all) and `p` the route head's say:
//!
//! ```text
//! quality = w_a·z + β·p + noise        w_a = w + δ_a
//! ```
//!
//! `w` and `β` are shared by all rows, `δ_a` is the row's own; all have Gaussian priors, so the posterior is exact (the
//! hybrid LinUCB of Li et al. 2010, with the shared features equal to the row's). A row's `δ_a` is integrated out by its
//! own Kalman filter, and what is left of each reward teaches `w` and `β`. So a row that was never tried is expected to
//! be as good as the others are on such prompts, plus what the route head says for it, and its uncertainty is honest.
//! A user of whom nothing is known gets the prior as it is.
//!
//! How far `δ_a` may reach is held under two beliefs side by side, that the head is right but for details and that it may
//! be wrong; their weights follow from how well each predicted. One alone either spoils a good head or learns little
//! under a bad one (docs/learning.md tells what was tried, with figures).
//!
//! The score is `mean + exploration · width`, `width` one standard deviation of the estimate.
//!
//! Forgetting pulls posterior and prior together at each observation of the user (all rows, tried or not), so what was
//! bad once is tried again. It also heals rounding: without it the filter's rank-one updates never lose an error.

mod file;
mod id;
mod learner;
mod scale;

pub use file::FreshStart;
#[cfg(all(feature = "gpu", not(target_family = "wasm")))]
pub(crate) use file::publish;
pub use id::{OutcomeId, ParseOutcomeIdError};
pub use learner::DIMENSIONS;

use learner::{User, Z};
use scale::{RAW, Scale};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;

/// The least and the most quality that is learned from; what lies outside is clamped. Wider than 0 to 1, for a reward
/// with the cost added back may lie a little outside.
pub const QUALITY_RANGE: (f64, f64) = (-1.0, 2.0);

/// How a bandit learns.
#[derive(Clone, Debug, PartialEq)]
pub struct BanditOptions {
    /// Standard deviations of the estimate that are added to it, so that what is little known is tried. 0 never explores
    /// on purpose.
    pub exploration: f64,
    /// The share of a user's evidence that each observation leaves, in (0, 1]; 1 never forgets. Values outside count as
    /// the default.
    pub forgetting: f64,
    /// Users that are kept; of more, the one that was used longest ago is forgotten.
    pub max_users: usize,
    /// Outcomes that wait for a reward, of all users together; of more, the oldest is given up.
    pub max_pending: usize,
    /// The high half of the outcomes' ids. It must differ between two starts of a program, else a late reward may meet
    /// another outcome; where none is given, the hasher's random state yields it. A browser has no such randomness: it
    /// hands in its own.
    pub epoch: Option<u32>,
}

impl Default for BanditOptions {
    fn default() -> Self {
        Self { exploration: 0.75, forgetting: 0.999, max_users: 64, max_pending: 256, epoch: None }
    }
}

/// What learning is bound to: estimates for other heads or other rows would be nonsense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arms {
    /// [`crate::heads::Heads::sha256`].
    pub heads_sha256: String,
    /// The models' ids, one a route row.
    pub ids: Vec<String>,
    /// The features of a prompt.
    pub features: usize,
}

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum BanditError {
    /// The features are not those of the heads.
    #[error(
        "the bandit reads {expected} features, these are {found}; hand in `Heads::features` of the same heads"
    )]
    Features {
        /// Their number.
        found: usize,
        /// The number that it was made for.
        expected: usize,
    },
    /// The prior is not one figure a route row.
    #[error("the bandit has {expected} route rows, the prior has {found}")]
    Prior {
        /// Its length.
        found: usize,
        /// The rows.
        expected: usize,
    },
    /// A feature is NaN or infinite.
    #[error("feature {index} is {value}")]
    Feature {
        /// The feature, from 0.
        index: usize,
        /// What stands there.
        value: f32,
    },
    /// A prior is NaN or infinite.
    #[error("the prior of route row {index} is {value}")]
    PriorValue {
        /// The row, from 0.
        index: usize,
        /// What stands there.
        value: f64,
    },
}

/// Why a reward was not learned from.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// No such outcome waits.
    #[error(
        "no outcome {0} waits for a reward: it was never given, has had its reward, or was given up for newer ones"
    )]
    Unknown(OutcomeId),
    /// The quality is NaN or infinite. The outcome still waits.
    #[error("the quality is {0}; it must be a number, as a rule from 0 to 1")]
    NotFinite(f64),
}

/// What to expect of each route row for one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// `mean + exploration · width`, one a route row: what [`crate::decision::decide`] takes.
    pub quality: Vec<f64>,
    /// The quality to expect.
    pub mean: Vec<f64>,
    /// Its standard deviation.
    pub width: Vec<f64>,
    /// The leading features, as the heads gave them.
    raw: [f32; RAW],
    /// The prior that was handed in.
    prior: Vec<f64>,
}

/// An outcome that waits for its reward. It holds a prompt's leading features, never its text.
#[derive(Clone, Debug, PartialEq)]
struct Pending {
    id: OutcomeId,
    user: UserKey,
    row: usize,
    raw: [f32; RAW],
    prior: f32,
}

/// A user's name, hashed: names have any length and may say who someone is, and neither belongs into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UserKey([u8; 16]);

impl UserKey {
    fn of(user: &str) -> Self {
        let digest = Sha256::new().chain_update(b"zen-edge bandit user\0").chain_update(user).finalize();
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        Self(key)
    }
}

/// What a bandit holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BanditStats {
    /// Users of whom something is known.
    pub users: usize,
    /// Users that were forgotten for others.
    pub evictions: u64,
    /// Outcomes that wait for a reward.
    pub pending: usize,
    /// Outcomes that were given up without one.
    pub missing: u64,
    /// Rewards that were learned from.
    pub observed: u64,
    /// Bytes that all of it takes in memory, about.
    pub bytes: usize,
}

/// What is known of a user.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UserStats {
    /// Rewards that were learned from.
    pub observations: u64,
    /// How many of them forgetting has left, in weight.
    pub effective: f64,
    /// Bytes that the user takes in memory.
    pub bytes: usize,
    /// The models that were tried, in the order of the route rows.
    pub arms: Vec<ArmStats>,
}

/// How one model fared with a user.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmStats {
    /// Its id.
    pub model: String,
    /// Rewards.
    pub pulls: u64,
    /// Their mean quality, the recent ones weighing more by the forgetting.
    pub quality: f64,
}

/// The learner of all users of one router. Not shared between threads by itself: wrap it in a lock.
#[derive(Clone, Debug)]
pub struct Bandit {
    arms: Arms,
    options: BanditOptions,
    scale: Scale,
    users: BTreeMap<UserKey, User>,
    pending: VecDeque<Pending>,
    epoch: u32,
    sequence: u32,
    /// Counts uses, to tell who was used longest ago.
    tick: u64,
    evictions: u64,
    missing: u64,
    observed: u64,
}

impl Bandit {
    /// A bandit that knows nothing.
    #[must_use]
    pub fn new(arms: Arms, options: BanditOptions) -> Self {
        let epoch = options.epoch.unwrap_or_else(id::random_epoch);
        Self {
            arms,
            options: sane(options),
            scale: Scale::default(),
            users: BTreeMap::new(),
            pending: VecDeque::new(),
            epoch,
            sequence: 0,
            tick: 0,
            evictions: 0,
            missing: 0,
            observed: 0,
        }
    }

    /// What it is bound to.
    #[must_use]
    pub fn arms(&self) -> &Arms {
        &self.arms
    }

    /// How it learns, with what was out of range replaced.
    #[must_use]
    pub fn options(&self) -> &BanditOptions {
        &self.options
    }

    /// The quality to expect of each route row for a prompt of a user: `features` from
    /// [`crate::heads::Heads::features`], `prior` the route head's probabilities (or any say of it, 0 to 1), one a row.
    ///
    /// A user of whom nothing is known gets the prior. Nothing is kept.
    ///
    /// # Errors
    /// [`BanditError`]: lengths that do not fit, values that are no numbers.
    pub fn estimate(&self, user: &str, features: &[f32], prior: &[f64]) -> Result<Estimate, BanditError> {
        if features.len() != self.arms.features {
            return Err(BanditError::Features { found: features.len(), expected: self.arms.features });
        }
        if prior.len() != self.arms.ids.len() {
            return Err(BanditError::Prior { found: prior.len(), expected: self.arms.ids.len() });
        }
        if let Some(index) = features.iter().position(|x| !x.is_finite()) {
            return Err(BanditError::Feature { index, value: features[index] });
        }
        if let Some(index) = prior.iter().position(|p| !p.is_finite()) {
            return Err(BanditError::PriorValue { index, value: prior[index] });
        }
        let raw = scale::leading(features);
        let z = self.scale.apply(&raw);
        let (mean, width) = match self.users.get(&UserKey::of(user)) {
            Some(state) => state.estimate(&z, prior),
            // The prior itself, not a sum that comes out near it.
            None => (prior.to_vec(), User::default().estimate(&z, prior).1),
        };
        let quality = mean.iter().zip(&width).map(|(m, w)| m + self.options.exploration * w).collect();
        Ok(Estimate { quality, mean, width, raw, prior: prior.to_vec() })
    }

    /// Remembers what was chosen for a prompt until its reward comes: `row` is the route row of the model that was taken,
    /// whether or not the estimate spoke for it.
    ///
    /// Over the cap the oldest outcome is given up and counted as missing. A row that the estimate does not have is not
    /// remembered: its reward will be [`ObserveError::Unknown`].
    pub fn record(&mut self, user: &str, row: usize, estimate: &Estimate) -> OutcomeId {
        let id = OutcomeId::new(self.epoch, self.sequence);
        // Four thousand million outcomes in one run: the next epoch, rather than an id twice.
        match self.sequence.checked_add(1) {
            Some(next) => self.sequence = next,
            None => (self.epoch, self.sequence) = (self.epoch.wrapping_add(1), 0),
        }
        self.tick += 1;
        let key = UserKey::of(user);
        if let Some(state) = self.users.get_mut(&key) {
            state.last_used = self.tick;
        }
        let Some(&prior) = estimate.prior.get(row).filter(|_| row < self.arms.ids.len()) else { return id };
        self.scale.learn(&estimate.raw);
        self.pending.push_back(Pending { id, user: key, row, raw: estimate.raw, prior: prior as f32 });
        self.trim_pending();
        id
    }

    /// The route row of an outcome that waits for its reward.
    #[must_use]
    pub fn waiting(&self, outcome: OutcomeId) -> Option<usize> {
        self.pending.iter().find(|pending| pending.id == outcome).map(|pending| pending.row)
    }

    /// Learns the quality (0 to 1) that an outcome turned out to have. Rewards may come late, in any order, or never.
    ///
    /// What lies outside [`QUALITY_RANGE`] is clamped.
    ///
    /// # Errors
    /// [`ObserveError`]; nothing is learned then.
    pub fn observe(&mut self, outcome: OutcomeId, quality: f64) -> Result<(), ObserveError> {
        if !quality.is_finite() {
            return Err(ObserveError::NotFinite(quality));
        }
        let place = self.pending.iter().position(|pending| pending.id == outcome);
        let Some(pending) = place.and_then(|place| self.pending.remove(place)) else {
            return Err(ObserveError::Unknown(outcome));
        };
        self.observed += 1;
        self.tick += 1;
        let rows = self.arms.ids.len();
        if !self.users.contains_key(&pending.user) {
            self.make_room(1);
            if self.options.max_users == 0 {
                return Ok(());
            }
        }
        let z: Z = self.scale.apply(&pending.raw);
        let user = self.users.entry(pending.user).or_default();
        user.last_used = self.tick;
        let quality = quality.clamp(QUALITY_RANGE.0, QUALITY_RANGE.1);
        user.observe(rows, pending.row, &z, f64::from(pending.prior), quality, self.options.forgetting);
        Ok(())
    }

    /// Forgets all of a user, also the outcomes that wait for a reward. Whether anything was known.
    ///
    /// The file still holds it until the next [`Self::save`].
    pub fn forget(&mut self, user: &str) -> bool {
        let key = UserKey::of(user);
        let waiting = self.pending.len();
        self.pending.retain(|pending| pending.user != key);
        self.users.remove(&key).is_some() | (self.pending.len() != waiting)
    }

    /// What it holds.
    #[must_use]
    pub fn stats(&self) -> BanditStats {
        BanditStats {
            users: self.users.len(),
            evictions: self.evictions,
            pending: self.pending.len(),
            missing: self.missing,
            observed: self.observed,
            bytes: size_of::<Self>()
                + self.users.values().map(User::bytes).sum::<usize>()
                + self.pending.len() * size_of::<Pending>(),
        }
    }

    /// What is known of a user; `None` where nothing was learned yet.
    #[must_use]
    pub fn user(&self, user: &str) -> Option<UserStats> {
        let state = self.users.get(&UserKey::of(user))?;
        let arms = state.rows().map(|(row, arm)| ArmStats {
            model: self.arms.ids[row].clone(),
            pulls: arm.pulls,
            quality: arm.sum / arm.weight,
        });
        Some(UserStats {
            observations: state.observations,
            effective: state.effective,
            bytes: state.bytes(),
            arms: arms.collect(),
        })
    }

    /// Makes room for `more` users under the cap.
    fn make_room(&mut self, more: usize) {
        while !self.users.is_empty() && self.users.len() + more > self.options.max_users {
            let oldest = self.users.iter().min_by_key(|(_, user)| user.last_used).map(|(&key, _)| key);
            if let Some(key) = oldest {
                self.users.remove(&key);
                self.evictions += 1;
            }
        }
    }

    fn trim_pending(&mut self) {
        while self.pending.len() > self.options.max_pending {
            self.pending.pop_front();
            self.missing += 1;
        }
    }
}

/// Options with what is out of range replaced: a typo in a config must not turn learning into noise.
fn sane(mut options: BanditOptions) -> BanditOptions {
    let default = BanditOptions::default();
    if !(options.exploration >= 0.0 && options.exploration.is_finite()) {
        options.exploration = default.exploration;
    }
    if !(options.forgetting > 0.0 && options.forgetting <= 1.0) {
        options.forgetting = default.forgetting;
    }
    options
}

#[cfg(test)]
mod tests;
