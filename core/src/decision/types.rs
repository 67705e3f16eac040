//! The values that a decision is made of and from.

use crate::catalog::{Catalog, CatalogError, Level, Task};
use crate::config::{RouterConfig, Temperature};
use crate::heads::{Logits, TrainedMask};
use crate::rules::Classified;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What ties the heads' rows to a catalog: made once, when both are loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// The task of each row of the task head.
    pub(super) tasks: Vec<Task>,
    /// The card of each row of the route head.
    pub(super) cards: Vec<usize>,
    /// Whether a route row has seen data and its card allows the learned head.
    pub(super) trained: Vec<bool>,
    pub(super) temperature: Temperature,
    pub(super) min_confidence: Option<f32>,
    pub(super) lambda: Option<f64>,
    pub(super) mu: Option<f64>,
}

impl Binding {
    /// Binds a config's rows to a catalog. A row counts as trained where the mask says so and the card does not say
    /// `trained: false`.
    ///
    /// # Errors
    /// [`CatalogError::RouteRows`] where a route row has no model.
    pub fn new(
        config: &RouterConfig,
        trained: &TrainedMask,
        catalog: &Catalog,
    ) -> Result<Self, CatalogError> {
        let cards = catalog.bind(config)?;
        let trained = cards.iter().enumerate().map(|(row, &card)| {
            trained.rows().get(row) == Some(&true) && catalog.cards()[card].trained != Some(false)
        });
        Ok(Self {
            tasks: config.tasks.clone(),
            trained: trained.collect(),
            cards,
            temperature: config.temperature,
            min_confidence: config.min_confidence,
            lambda: config.lambda_cost,
            mu: config.mu_latency,
        })
    }

    /// The route row of a card, where it has one.
    #[must_use]
    pub fn row(&self, card: usize) -> Option<usize> {
        self.cards.iter().position(|other| *other == card)
    }

    /// The probability of each route row that it is the best: the softmax over the trained rows at the fitted temperature,
    /// 0 for the others. `None` where the logits are of no use.
    #[must_use]
    pub fn probabilities(&self, logits: &Logits) -> Option<Vec<f64>> {
        let usable = logits.route.len() == self.cards.len() && logits.route.iter().all(|x| x.is_finite());
        usable.then(|| {
            let rows = || (0..self.cards.len()).filter(|&row| self.trained[row]);
            let trained: Vec<f32> = rows().map(|row| logits.route[row]).collect();
            let shares = super::softmax(&trained, self.temperature.route.unwrap_or(1.0));
            let mut all = vec![0.0; self.cards.len()];
            for (row, share) in rows().zip(shares) {
                all[row] = share;
            }
            all
        })
    }

    /// The card of each route row.
    #[must_use]
    pub fn cards(&self) -> &[usize] {
        &self.cards
    }

    /// Whether the learned head may pick the model of a route row.
    #[must_use]
    pub fn trained(&self) -> &[bool] {
        &self.trained
    }
}

/// The heads' say.
#[derive(Clone, Copy, Debug)]
pub struct Learned<'a> {
    /// The binding of the heads.
    pub binding: &'a Binding,
    /// Their logits.
    pub logits: &'a Logits,
    /// A bandit's estimates of quality, one for each route row, in place of the route head's probabilities.
    pub quality: Option<&'a [f64]>,
}

/// Why there is no learned say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Absent {
    /// The caller asked for rules.
    RulesOnly,
    /// The backbone is not loaded (yet).
    NotLoaded,
    /// The prompt is blank.
    EmptyInput,
    /// It could not be ready in time.
    Deadline {
        /// When it would be ready; `None`: no speed has been measured yet.
        estimate_ms: Option<f64>,
        /// When it had to be.
        deadline_ms: f64,
    },
    /// The device is too hot for the backbone.
    TooHot,
    /// The engine gave an error, or logits that are of no use.
    Failed,
}

/// What is known of the prompt.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The rules' answer, with the prompt's tokens.
    pub rules: Classified,
    /// Whether media goes with the prompt: then the model must read images.
    pub has_media: bool,
    /// The heads' say, or why there is none.
    pub heads: Result<Learned<'a>, Absent>,
}

/// Abilities that a model must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Require {
    /// It reads images.
    pub vision: bool,
    /// Its context has at least so many tokens. The prompt's own length counts without being asked for.
    pub min_context: u64,
}

/// What the caller allows. `None` means no limit; a limit of 0 is a limit (`max_cost` 0: only what is free).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The most USD for 1,000 tokens.
    pub max_cost: Option<f64>,
    /// The most milliseconds of the whole answer.
    pub max_latency_ms: Option<f64>,
    /// The least quality, 0 to 1: the catalog's figure, else the route head's probability.
    pub min_quality: Option<f64>,
    /// The weight of cost, in place of the config's and of [`super::LAMBDA`].
    #[serde(alias = "lambda_cost")]
    pub lambda: Option<f64>,
    /// The weight of latency, in place of the config's and of [`super::MU`].
    #[serde(alias = "mu_latency")]
    pub mu: Option<f64>,
    /// Only models on this device.
    pub offline: bool,
    /// Abilities.
    pub require: Require,
    /// Ids that are never chosen.
    pub exclude: Vec<String>,
    /// The effort that the model must offer and is asked for.
    pub level: Option<Level>,
    /// The confidence of the task below which the rules decide, in place of the config's.
    pub min_confidence: Option<f32>,
    /// The tokens of the answer, for its cost and latency; [`super::OUTPUT_TOKENS`] where it is not said.
    pub output_tokens: Option<u32>,
    /// Whether a model whose latency or quality is not known passes a limit on it.
    pub allow_unknown: bool,
}

/// Memory at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySnapshot {
    /// Bytes that a new model could take.
    pub available: u64,
    /// Bytes of the machine.
    pub total: u64,
    /// Whether CPU and GPU share the memory.
    pub unified: bool,
}

/// The state of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provider {
    /// USD spent in the current period.
    pub spent_usd: f64,
    /// USD that may be spent in it.
    pub budget_usd: Option<f64>,
    /// Until when it refuses requests, in the time of [`Context::now_ms`].
    pub limited_until_ms: Option<u64>,
    /// Requests that it will still take in its current window.
    pub requests_left: Option<u64>,
    /// Whether it is out of reach.
    pub down: bool,
}

/// The device's power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Power {
    /// The battery's charge, 0 to 1; `None`: there is no battery or it is not known.
    pub battery: Option<f32>,
    /// Whether it is being charged.
    pub charging: bool,
    /// Whether the user asked the system to save power.
    pub saving: bool,
}

impl Power {
    /// Whether heavy work should wait: power is being saved or the battery is below a tenth, and it is not charging.
    #[must_use]
    pub fn is_low(&self) -> bool {
        !self.charging && (self.saving || self.battery.is_some_and(|charge| charge < 0.1))
    }
}

/// The device's thermal state, in the four steps that iOS has; Android's seven map onto them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thermal {
    /// Cool.
    #[default]
    Nominal,
    /// Warm.
    Fair,
    /// Hot: nothing more is loaded.
    Serious,
    /// Too hot: nothing runs here.
    Critical,
}

/// The state of the device and of the world.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Context {
    /// Ids of local models that run now.
    pub running: Vec<String>,
    /// Memory; `None`: not known, and then nothing is loaded.
    pub memory: Option<MemorySnapshot>,
    /// Providers by name; one that is absent is in order.
    pub providers: BTreeMap<String, Provider>,
    /// Power.
    pub power: Power,
    /// Heat.
    pub thermal: Thermal,
    /// The time in milliseconds, from any epoch that the providers' times share.
    pub now_ms: u64,
}

/// Where the prompt goes. The tags are hanzo-router's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "route", rename_all = "snake_case")]
pub enum Route {
    /// A local model that runs.
    Reuse {
        /// Its id.
        model: String,
    },
    /// A local model that is to be loaded.
    LoadLocal {
        /// Its id.
        model: String,
        /// What it will occupy.
        est_bytes: u64,
    },
    /// A provider's model.
    Cloud {
        /// The provider.
        provider: String,
        /// The model's id.
        model: String,
    },
    /// Nothing is feasible; the candidates say why.
    NoFit,
}

impl Route {
    /// The model's id.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Reuse { model } | Self::LoadLocal { model, .. } | Self::Cloud { model, .. } => Some(model),
            Self::NoFit => None,
        }
    }
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The heads.
    Learned,
    /// The rules.
    Rules,
    /// Neither found anything: the policy's declared default.
    Fallback,
    /// The backbone's route tag.
    Tag,
    /// The heads and the backbone's route tag.
    Both,
}

/// Why that source decided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Reason {
    /// The heads' best score among the feasible.
    BestScore,
    /// The heads were not sure enough of the task.
    LowConfidence {
        /// How sure they were.
        confidence: f32,
        /// How sure they had to be.
        threshold: f32,
        /// Whether the confidence is calibrated.
        calibrated: bool,
    },
    /// No route row has seen data.
    NoTrainedRow,
    /// No model with a trained row is feasible.
    NoTrainedFeasible,
    /// The caller asked for rules.
    RulesOnly,
    /// The backbone is not loaded (yet).
    NotLoaded,
    /// The prompt is blank.
    EmptyInput,
    /// The heads' answer could not be ready in time.
    Deadline {
        /// When it would be ready; `None`: no speed has been measured yet.
        estimate_ms: Option<f64>,
        /// When it had to be.
        deadline_ms: f64,
    },
    /// The device is too hot for the backbone.
    TooHot,
    /// The engine gave an error, or logits that are of no use.
    Failed,
}

impl Reason {
    /// Its name: the `why` of its JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::BestScore => "best_score",
            Self::LowConfidence { .. } => "low_confidence",
            Self::NoTrainedRow => "no_trained_row",
            Self::NoTrainedFeasible => "no_trained_feasible",
            Self::RulesOnly => "rules_only",
            Self::NotLoaded => "not_loaded",
            Self::EmptyInput => "empty_input",
            Self::Deadline { .. } => "deadline",
            Self::TooHot => "too_hot",
            Self::Failed => "failed",
        }
    }
}

impl From<Absent> for Reason {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::RulesOnly => Self::RulesOnly,
            Absent::NotLoaded => Self::NotLoaded,
            Absent::EmptyInput => Self::EmptyInput,
            Absent::Deadline { estimate_ms, deadline_ms } => Self::Deadline { estimate_ms, deadline_ms },
            Absent::TooHot => Self::TooHot,
            Absent::Failed => Self::Failed,
        }
    }
}

/// How sure the heads are, 0 to 1. The rules have no figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Confidence {
    /// The softmax of the logits as they are.
    pub raw: Option<f32>,
    /// At the temperature that was fitted with the heads; `None`: the config has none, and the raw figure is no
    /// probability.
    pub calibrated: Option<f32>,
}

impl Confidence {
    /// The calibrated figure, else the raw one.
    #[must_use]
    pub fn value(&self) -> Option<f32> {
        self.calibrated.or(self.raw)
    }
}

/// Why a model cannot be taken: the first cause in the order of this list.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhyNot {
    /// The catalog disables it.
    Disabled,
    /// The limits exclude it.
    Excluded,
    /// It is not on this device.
    Offline,
    /// It reads no images.
    NoVision,
    /// Its context is too small.
    ContextTooSmall {
        /// Its tokens.
        has: u64,
        /// The tokens needed.
        needs: u64,
    },
    /// It does not offer the level.
    LevelUnavailable {
        /// The level.
        level: Level,
    },
    /// It costs more than the limit.
    TooExpensive {
        /// USD for 1,000 tokens.
        cost: f64,
        /// The limit.
        limit: f64,
    },
    /// It costs more than the policy's ceiling.
    AboveCeiling {
        /// USD for 1,000 tokens.
        cost: f64,
        /// The ceiling.
        limit: f64,
    },
    /// Nothing tells its quality.
    QualityUnknown,
    /// Its quality is below the limit.
    QualityTooLow {
        /// Its quality.
        quality: f64,
        /// The limit.
        limit: f64,
    },
    /// Nothing tells its latency.
    LatencyUnknown,
    /// It takes longer than the limit.
    TooSlow {
        /// Milliseconds of the answer.
        latency: f64,
        /// The limit.
        limit: f64,
    },
    /// Its provider is out of reach.
    ProviderDown,
    /// Its provider takes no requests now.
    RateLimited {
        /// Until when, in the time of [`Context::now_ms`].
        until_ms: Option<u64>,
    },
    /// Its provider's budget does not reach.
    BudgetSpent {
        /// USD spent.
        spent: f64,
        /// USD of this answer.
        expected: f64,
        /// The budget.
        budget: f64,
    },
    /// The device is too hot.
    Hot,
    /// The device is short of power.
    LowPower,
    /// Nothing tells what it occupies.
    SizeUnknown,
    /// Nothing tells how much memory there is.
    MemoryUnknown,
    /// It does not fit.
    DoesNotFit {
        /// Bytes that it occupies.
        needs: u64,
        /// Bytes that it may.
        budget: u64,
    },
    /// Its route row has not seen data: the rules alone may pick it.
    Untrained,
    /// It is not meant for the task.
    NotForTask,
}

/// A model and how it fared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its id.
    pub model: String,
    /// By the heads: `p − λ·cost − μ·latency`. By the rules: one divided by its place in the order of preference.
    /// `None` where the deciding source did not consider it.
    pub score: Option<f64>,
    /// What `min_quality` is held against: the catalog's figure, else the heads'.
    pub quality: Option<f64>,
    /// The heads' probability that it is the best, over the trained rows.
    pub probability: Option<f64>,
    /// USD for 1,000 tokens.
    pub cost_per_1k: f64,
    /// Milliseconds of the answer.
    pub latency_ms: Option<f64>,
    /// Whether the heads may pick it.
    pub trained: bool,
    /// Whether it runs on this device now.
    pub running: bool,
    /// Whether it could have been taken.
    pub feasible: bool,
    /// Why not.
    pub why_not: Option<WhyNot>,
}

/// A decision with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Where the prompt goes.
    #[serde(flatten)]
    pub route: Route,
    /// What it asks for.
    pub task: Task,
    /// Who said so. It may differ from `source`: heads without a trained route row still know tasks.
    pub task_source: Source,
    /// The effort to ask the model for.
    pub level: Level,
    /// Who chose the model.
    pub source: Source,
    /// Why it was that source.
    pub reason: Reason,
    /// How sure the heads are of the task that they see, also where they were overruled.
    pub task_confidence: Confidence,
    /// How sure the heads are that the model is the best; empty where they did not choose it.
    pub confidence: Confidence,
    /// Whether a conversation was held at its model, see [`super::session::hold`]: the scores speak for another one.
    #[serde(default)]
    pub pinned: bool,
    /// Every model of the catalog: the chosen one first, then the feasible by score, then the others.
    pub candidates: Vec<Candidate>,
}

impl Decision {
    /// The chosen model's id.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.route.model()
    }

    /// The best `k` that were feasible: the chosen one and its alternatives.
    pub fn top(&self, k: usize) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().filter(|candidate| candidate.feasible).take(k)
    }
}
