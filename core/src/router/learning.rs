//! What a router learns from its users' rewards.

use super::{Outcome, Reward, Router, lock};
use crate::bandit::{self, Arms, Bandit, Estimate, FreshStart, OutcomeId, UserStats};
use crate::config::RouterConfig;
use crate::decision::{Decision, LAMBDA, MU, OUTPUT_TOKENS};
use crate::heads::{Heads, Logits};
use std::sync::MutexGuard;

/// Why a reward is not taken.
pub use bandit::ObserveError;

/// What learning is bound to.
pub(super) fn arms(config: &RouterConfig, heads: &Heads) -> Arms {
    Arms {
        heads_sha256: heads.sha256().to_owned(),
        ids: config.catalog.clone(),
        features: config.feature_dim,
    }
}

impl Router {
    pub(super) fn bandit(&self) -> MutexGuard<'_, Bandit> {
        lock(&self.bandit)
    }

    /// A user's estimates; `None` where the features are of no use, and the heads' own figures stand.
    pub(super) fn estimate(&self, user: &str, vector: &[f32], logits: &Logits) -> Option<Estimate> {
        let features = self.heads.features(vector).ok()?;
        let prior = self.binding.probabilities(logits)?;
        self.bandit().estimate(user, &features, &prior).ok()
    }

    /// Remembers a decision until its reward comes. The rules' are learned from too, where the model has a route row.
    pub(super) fn record(&self, user: &str, decision: &Decision, estimate: &Estimate) -> Option<OutcomeId> {
        let card = self.catalog.find(decision.model()?)?;
        let row = self.binding.row(card)?;
        Some(self.bandit().record(user, row, estimate))
    }

    /// Tells how the answer of an [`Outcome`] with an id turned out. It may come late, in any order, after a restart (the
    /// learning file keeps what waits), or never.
    ///
    /// The decision scores `quality − λ·cost − μ·latency` with the catalog's figures. What is learned is therefore the
    /// quality, less what the answer cost and took beyond those figures: `quality − λ·(cost − the card's) − μ·(latency −
    /// the card's)`, so that what is scored next time is this reward.
    ///
    /// # Errors
    /// [`ObserveError`]: an id that was never given, was rewarded or has expired; a figure that is no number.
    pub fn observe(&self, outcome: OutcomeId, reward: impl Into<Reward>) -> Result<(), ObserveError> {
        let Reward { quality, cost_per_1k, latency_ms } = reward.into();
        let mut bandit = self.bandit();
        let row = bandit.waiting(outcome).ok_or(ObserveError::Unknown(outcome))?;
        let card = &self.catalog.cards()[self.binding.cards()[row]];
        let (lambda, mu) = (self.config.lambda_cost.unwrap_or(LAMBDA), self.config.mu_latency.unwrap_or(MU));
        // What the catalog does not know counts nothing in the score, so all of it is beyond.
        let beyond =
            |real: Option<f64>, stated: Option<f64>| real.map_or(0.0, |real| real - stated.unwrap_or(0.0));
        let cost = beyond(cost_per_1k, Some(card.cost_per_1k));
        let latency = beyond(latency_ms, card.answer_ms(OUTPUT_TOKENS)) / 1e3;
        bandit.observe(outcome, quality - lambda * cost - mu * latency)
    }

    /// Forgets what a user's rewards taught, and what waits for one. Whether there was anything.
    pub fn forget_user(&self, user: &str) -> bool {
        self.bandit().forget(user)
    }

    /// What is known of a user; `None` before the first reward.
    pub fn user(&self, user: &str) -> Option<UserStats> {
        self.bandit().user(user)
    }

    /// What was learned, as a file: versioned, with a checksum, bound to the heads. It holds no text of a prompt.
    pub fn learning(&self) -> Vec<u8> {
        self.bandit().to_bytes()
    }

    /// Takes over what [`Self::learning`] gave. A file that is damaged, or of other heads, costs the learning and never the
    /// routing: then it begins anew, and what is wrong is given back.
    pub fn restore_learning(&self, bytes: &[u8]) -> Option<FreshStart> {
        let mut bandit = self.bandit();
        let (restored, fresh) =
            Bandit::from_bytes(bytes, arms(&self.config, &self.heads), bandit.options().clone());
        *bandit = restored;
        fresh
    }

    /// [`Self::learning`] as a file of this name, written whole or not at all.
    ///
    /// # Errors
    /// What the system says.
    #[cfg(not(target_family = "wasm"))]
    pub fn save_learning(&self, path: &std::path::Path) -> std::io::Result<()> {
        self.bandit().save(path)
    }

    /// [`Self::restore_learning`] from a file. One that is not there is no fault: there is nothing to restore yet.
    ///
    /// # Errors
    /// What the system says.
    #[cfg(not(target_family = "wasm"))]
    pub fn load_learning(&self, path: &std::path::Path) -> std::io::Result<Option<FreshStart>> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(self.restore_learning(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Outcome {
    /// The chosen model's id.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.decision.model()
    }
}
