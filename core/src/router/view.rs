//! An outcome as it is shown: the JSON of the command line, of the browser's package and of the phones' libraries.

use super::{BackendInfo, Outcome, Router};
use crate::bandit::OutcomeId;
use crate::decision::{Candidate, Confidence, LAMBDA, Limits, MU, Route, Source, softmax};
use serde::Serialize;

/// The answer to one prompt. Its fields are the JSON of `zen-edge route --json`: part of the interface, described in
/// docs/cli.md.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// What `zen-edge observe` rewards the answer by; with `--user` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeId>,
    /// The task.
    pub task: String,
    /// The model that should answer; `null` where none fits.
    pub model: Option<String>,
    /// `cloud`, `load_local`, `reuse` or `no_fit`.
    pub route: &'static str,
    /// The provider of a cloud model.
    pub provider: Option<String>,
    /// The effort to ask the model for: `fast`, `balanced` or `max`.
    pub level: String,
    /// What chose the model: `learned`, `rules` or `fallback`.
    pub source: Source,
    /// Why that source, in words.
    pub reason: String,
    /// Whether a conversation was held at its model: the scores speak for another one.
    pub held: bool,
    /// How sure the heads are.
    pub confidence: Shares,
    /// The chosen model and its two next best.
    pub top3: Vec<Candidate>,
    /// Everything that was weighed.
    pub scores: Scores,
    /// How many tokens were read.
    pub tokens: usize,
    /// Of these, the first so many were known from an earlier prompt that begins alike.
    pub reused: usize,
    /// Whether the prompt was longer than what was read of it.
    pub truncated: bool,
    /// Whether an equal prompt was read before, and its vector taken.
    pub cached: bool,
    /// What ran.
    pub backend: BackendInfo,
    /// Milliseconds.
    pub timings: Milliseconds,
}

/// How sure the heads are, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Of the task.
    pub task: Confidence,
    /// Of the model.
    pub model: Confidence,
}

/// Everything that was weighed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// The weight of cost, for a USD a 1,000 tokens.
    pub lambda: f64,
    /// The weight of latency, for a second.
    pub mu: f64,
    /// The tasks by the task head, the most probable first; empty where it was not asked.
    pub tasks: Vec<Scored>,
    /// Every model of the catalog, the chosen one first, each with its score and, where it fell out, why.
    pub models: Vec<Candidate>,
}

/// A task and the task head's say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scored {
    /// Its name.
    pub task: String,
    /// At the temperature that was fitted with the heads, where there is one.
    pub probability: f32,
    /// The head's raw output.
    pub logit: f32,
}

/// Where the time went, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Milliseconds {
    /// Text to token ids.
    pub tokenize: f64,
    /// Token ids to the hidden state.
    pub prefill: f64,
    /// Hidden state to logits, and the decision.
    pub heads: f64,
    /// Their sum.
    pub total: f64,
}

impl Milliseconds {
    /// From what a router measured.
    #[must_use]
    pub fn new(timings: &super::Timings) -> Self {
        let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let parts = [timings.tokenize, timings.prefill, timings.heads];
        let [tokenize, prefill, heads] = parts.map(ms);
        Self { tokenize, prefill, heads, total: ms(parts.iter().sum()) }
    }
}

impl View {
    /// Of an outcome of `router`, asked with `limits`.
    #[must_use]
    pub fn new(router: &Router, limits: &Limits, outcome: Outcome) -> Self {
        let tasks = outcome.logits.map(|logits| {
            let config = router.config();
            let temperature = config.temperature.task.unwrap_or(1.0);
            let shares = softmax(&logits.task, temperature).into_iter().map(|share| share as f32);
            let rows = config.tasks.iter().zip(logits.task).zip(shares);
            let mut tasks: Vec<Scored> = rows
                .map(|((task, logit), probability)| Scored {
                    task: task.name().to_owned(),
                    probability,
                    logit,
                })
                .collect();
            tasks.sort_by(|a, b| b.logit.total_cmp(&a.logit));
            tasks
        });
        let decision = outcome.decision;
        let (route, provider) = match &decision.route {
            Route::Reuse { .. } => ("reuse", None),
            Route::LoadLocal { .. } => ("load_local", None),
            Route::Cloud { provider, .. } => ("cloud", Some(provider.clone())),
            Route::NoFit => ("no_fit", None),
        };
        let config = router.config();
        Self {
            outcome: outcome.id,
            task: decision.task.name().to_owned(),
            model: decision.model().map(str::to_owned),
            route,
            provider,
            level: decision.level.name().to_owned(),
            source: decision.source,
            reason: decision.reason.to_string(),
            held: decision.pinned,
            confidence: Shares { task: decision.task_confidence, model: decision.confidence },
            top3: decision.top(3).cloned().collect(),
            scores: Scores {
                lambda: limits.lambda.or(config.lambda_cost).unwrap_or(LAMBDA),
                mu: limits.mu.or(config.mu_latency).unwrap_or(MU),
                tasks: tasks.unwrap_or_default(),
                models: decision.candidates,
            },
            tokens: outcome.reading.tokens,
            reused: outcome.reading.reused,
            truncated: outcome.reading.truncated,
            cached: outcome.reading.cached,
            timings: Milliseconds::new(&outcome.reading.timings),
            backend: outcome.reading.backend,
        }
    }
}
