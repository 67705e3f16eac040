//! What a router has done: so that falling back silently is not silent.

use crate::bandit::BanditStats;
use crate::decision::{Decision, Reason, Route, Source, Speed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Counts since the router was loaded. They hold no text. Drafts of a typing session are no prompts: of them only the work
/// is counted, in tokens and hits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Prompts that got a decision.
    pub routed: u64,
    /// By what chose the model: `learned`, `rules`, `fallback`, `tag`, `both`.
    pub sources: BTreeMap<Source, u64>,
    /// Why it was not the heads, by the reason's name: `low_confidence`, `deadline`, …
    pub reasons: BTreeMap<String, u64>,
    /// Decisions for each task, by its name.
    pub tasks: BTreeMap<String, u64>,
    /// Decisions for each model.
    pub models: BTreeMap<String, u64>,
    /// Prompts for which no model was feasible.
    pub no_fit: u64,
    /// Prompts that were longer than what was read of them.
    pub truncated: u64,
    /// Prompts whose vector was known.
    pub cache_hits: u64,
    /// Prompts that went on from an earlier one.
    pub prefix_hits: u64,
    /// Tokens that the backbone read.
    pub tokens_read: u64,
    /// Tokens that were known from earlier prompts, those of cache hits not counted.
    pub tokens_reused: u64,
    /// Conversations' turns that were held at their model.
    pub held: u64,
    /// Prompts that were cancelled.
    pub cancelled: u64,
    /// Prompts on which the engine failed.
    pub failed: u64,
}

impl Counts {
    /// The share of decisions that neither the heads nor a tag made; `None` before the first.
    #[must_use]
    pub fn fallback_rate(&self) -> Option<f64> {
        let by = |source| self.sources.get(&source).copied().unwrap_or(0);
        let learned: u64 = [Source::Learned, Source::Tag, Source::Both].into_iter().map(by).sum();
        (self.routed > 0).then(|| 1.0 - learned as f64 / self.routed as f64)
    }

    /// Adds another router's counts.
    pub fn merge(&mut self, other: &Self) {
        fn add<K: Ord + Clone>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            for (key, n) in from {
                let count = to.entry(key.clone()).or_default();
                *count = count.saturating_add(*n);
            }
        }
        let Self { routed, sources, reasons, tasks, models, no_fit, truncated, .. } = self;
        add(sources, &other.sources);
        add(reasons, &other.reasons);
        add(tasks, &other.tasks);
        add(models, &other.models);
        let pairs = [
            (routed, other.routed),
            (no_fit, other.no_fit),
            (truncated, other.truncated),
            (&mut self.cache_hits, other.cache_hits),
            (&mut self.prefix_hits, other.prefix_hits),
            (&mut self.tokens_read, other.tokens_read),
            (&mut self.tokens_reused, other.tokens_reused),
            (&mut self.held, other.held),
            (&mut self.cancelled, other.cancelled),
            (&mut self.failed, other.failed),
        ];
        for (to, from) in pairs {
            *to = to.saturating_add(from);
        }
    }
}

/// A router's state, in figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RouterStats {
    /// What was decided, and how.
    #[serde(flatten)]
    pub counts: Counts,
    /// The share of decisions that the heads did not make; `None` before the first.
    pub fallback_rate: Option<f64>,
    /// Vectors of earlier prompts.
    pub cache: Held,
    /// Contexts of earlier prompts.
    pub prefixes: Held,
    /// Conversations that are remembered.
    pub conversations: usize,
    /// The measured speed; `None` before the first pass.
    pub speed: Option<Speed>,
    /// What was learned from users.
    pub bandit: BanditStats,
}

/// How much of something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// How many.
    pub entries: usize,
    /// The memory that they take.
    pub bytes: usize,
}

impl From<(usize, usize)> for Held {
    fn from((entries, bytes): (usize, usize)) -> Self {
        Self { entries, bytes }
    }
}

/// The counts of a router that several threads use.
#[derive(Debug, Default)]
pub(super) struct Counter(Mutex<Counts>);

impl Counter {
    pub fn get(&self) -> Counts {
        self.with(|counts| counts.clone())
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Counts a decision.
    pub fn decided(&self, decision: &Decision) {
        self.with(|counts| {
            counts.routed += 1;
            *counts.sources.entry(decision.source).or_default() += 1;
            if decision.reason != Reason::BestScore {
                *counts.reasons.entry(decision.reason.name().to_owned()).or_default() += 1;
            }
            *counts.tasks.entry(decision.task.name().to_owned()).or_default() += 1;
            if let Some(model) = decision.model() {
                *counts.models.entry(model.to_owned()).or_default() += 1;
            }
            counts.no_fit += u64::from(decision.route == Route::NoFit);
            counts.held += u64::from(decision.pinned);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up() {
        let mut counts = Counts { routed: 3, truncated: 1, ..Counts::default() };
        counts.sources = [(Source::Learned, 1), (Source::Rules, 2)].into();
        counts.reasons = [("deadline".to_owned(), 2)].into();
        let mut sum = counts.clone();
        sum.merge(&counts);
        assert_eq!((sum.routed, sum.truncated, sum.sources[&Source::Rules]), (6, 2, 4));
        assert_eq!(sum.reasons["deadline"], 4);
        assert_eq!(sum.fallback_rate(), Some(1.0 - 2.0 / 6.0));
        assert_eq!(Counts::default().fallback_rate(), None);
        // Every figure is added: what merges with nothing stays, what nothing merges with becomes it.
        let json = serde_json::json!({
            "routed": 1, "sources": {"learned": 2}, "reasons": {"deadline": 3}, "tasks": {"code": 4},
            "models": {"m": 5}, "no_fit": 6, "truncated": 7, "cache_hits": 8, "prefix_hits": 9, "tokens_read": 10,
            "tokens_reused": 11, "held": 12, "cancelled": 13, "failed": 14,
        });
        let all: Counts = serde_json::from_value(json.clone()).unwrap();
        let mut merged = Counts::default();
        merged.merge(&all);
        assert_eq!(serde_json::to_value(&merged).unwrap(), json);
    }
}
