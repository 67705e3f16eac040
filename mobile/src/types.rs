//! The values that cross: core's own where they can, mirrors of them where a language needs another form.

use crate::error::ZenEdgeError;
use std::collections::HashMap;
use zen_edge_core::backbone::Cancel;
use zen_edge_core::bandit::BanditOptions;
use zen_edge_core::lifecycle::{self, ManagedOptions, ManagedStats, Work};
use zen_edge_core::router::{self, Milliseconds, Request, Router, RouterOptions, View};
use zen_edge_core::{catalog, decision, selftest};

type Task = catalog::Task;
type Level = catalog::Level;
type Thermal = decision::Thermal;
type DecisionSource = decision::Source;
type Reason = decision::Reason;
type Confidence = decision::Confidence;
type Require = decision::Require;
type Limits = decision::Limits;
type MemorySnapshot = decision::MemorySnapshot;
type Power = decision::Power;
type Provider = decision::Provider;
type Reward = router::Reward;
type Speed = decision::Speed;
type Device = router::Device;

/// What a prompt asks for.
#[uniffi::remote(Enum)]
pub enum Task {
    /// Write, explain or repair code, queries, shell commands.
    Code,
    /// Deduction, puzzles, arguments.
    Reasoning,
    /// From word problems to proofs.
    Math,
    /// Stories, poems, role-play.
    Creative,
    /// A question about an image.
    Vision,
    /// A long document and a question.
    LongContext,
    /// Small talk, and what any model answers.
    CheapChat,
    /// Everything else.
    General,
}

/// The effort to ask a model for.
#[uniffi::remote(Enum)]
pub enum Level {
    /// Short thinking, short answers.
    Fast,
    /// The usual.
    Balanced,
    /// As long as it takes.
    Max,
}

/// How hot the device is.
#[uniffi::remote(Enum)]
pub enum Thermal {
    /// Cool.
    Nominal,
    /// Warm: half of the threads.
    Fair,
    /// Hot: one thread, and nothing more is loaded.
    Serious,
    /// Too hot: the rules decide.
    Critical,
}

/// Who decided.
#[uniffi::remote(Enum)]
pub enum DecisionSource {
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
#[uniffi::remote(Enum)]
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
        /// When it would be ready, in milliseconds; nothing before a speed has been measured.
        estimate_ms: Option<f64>,
        /// When it had to be.
        deadline_ms: f64,
    },
    /// The device is too hot for the backbone.
    TooHot,
    /// The engine gave an error, or logits that are of no use.
    Failed,
}

/// How sure the heads are, 0 to 1. The rules have no figure.
#[uniffi::remote(Record)]
pub struct Confidence {
    /// The softmax of the logits as they are.
    pub raw: Option<f32>,
    /// At the temperature that was fitted with the heads; without one, the raw figure is no probability.
    pub calibrated: Option<f32>,
}

/// Abilities that a model must have.
#[uniffi::remote(Record)]
pub struct Require {
    /// It reads images.
    #[uniffi(default = false)]
    pub vision: bool,
    /// Its context has at least so many tokens. The prompt's own length counts without being asked for.
    #[uniffi(default = 0)]
    pub min_context: u64,
}

/// What the caller allows. What is not said is no limit; a limit of 0 is a limit.
#[uniffi::remote(Record)]
pub struct Limits {
    /// The most USD for 1,000 tokens.
    #[uniffi(default = None)]
    pub max_cost: Option<f64>,
    /// The most milliseconds of the whole answer.
    #[uniffi(default = None)]
    pub max_latency_ms: Option<f64>,
    /// The least quality, 0 to 1.
    #[uniffi(default = None)]
    pub min_quality: Option<f64>,
    /// The weight of cost, in place of the config's.
    #[uniffi(default = None)]
    pub lambda: Option<f64>,
    /// The weight of latency, in place of the config's.
    #[uniffi(default = None)]
    pub mu: Option<f64>,
    /// Only models on this device.
    #[uniffi(default = false)]
    pub offline: bool,
    /// Abilities.
    #[uniffi(default)]
    pub require: Require,
    /// Ids that are never chosen.
    #[uniffi(default = [])]
    pub exclude: Vec<String>,
    /// The effort that the model must offer and is asked for.
    #[uniffi(default = None)]
    pub level: Option<Level>,
    /// The confidence of the task below which the rules decide.
    #[uniffi(default = None)]
    pub min_confidence: Option<f32>,
    /// The tokens of the answer, for its cost and latency.
    #[uniffi(default = None)]
    pub output_tokens: Option<u32>,
    /// Whether a model whose latency or quality is not known passes a limit on it.
    #[uniffi(default = false)]
    pub allow_unknown: bool,
}

/// Memory at a moment, in bytes.
#[uniffi::remote(Record)]
pub struct MemorySnapshot {
    /// What could be taken: `os_proc_available_memory()` on iOS, `MemoryInfo.availMem` on Android.
    pub available: u64,
    /// What the machine has.
    pub total: u64,
    /// Whether CPU and GPU share it, as on every phone.
    #[uniffi(default = true)]
    pub unified: bool,
}

/// The device's power.
#[uniffi::remote(Record)]
pub struct Power {
    /// The battery's charge, 0 to 1; nothing where it is not known.
    #[uniffi(default = None)]
    pub battery: Option<f32>,
    /// Whether it is being charged.
    #[uniffi(default = false)]
    pub charging: bool,
    /// Whether the user asked the system to save power.
    #[uniffi(default = false)]
    pub saving: bool,
}

/// The state of a provider.
#[uniffi::remote(Record)]
pub struct Provider {
    /// USD spent in the current period.
    #[uniffi(default = 0.0)]
    pub spent_usd: f64,
    /// USD that may be spent in it.
    #[uniffi(default = None)]
    pub budget_usd: Option<f64>,
    /// Until when it refuses requests, in the time of `RouteOptions.now_ms`.
    #[uniffi(default = None)]
    pub limited_until_ms: Option<u64>,
    /// Requests that it will still take in its current window.
    #[uniffi(default = None)]
    pub requests_left: Option<u64>,
    /// Whether it is out of reach.
    #[uniffi(default = false)]
    pub down: bool,
}

/// How an answer turned out.
#[uniffi::remote(Record)]
pub struct Reward {
    /// How good it was, 0 to 1: a thumb, a grade, a test that passed.
    pub quality: f64,
    /// What it cost, in USD for 1,000 tokens; the catalog's figure where it is not said.
    #[uniffi(default = None)]
    pub cost_per_1k: Option<f64>,
    /// Milliseconds that it took; the catalog's estimate where it is not said.
    #[uniffi(default = None)]
    pub latency_ms: Option<f64>,
}

/// A measured speed.
#[uniffi::remote(Record)]
pub struct Speed {
    /// Prompt tokens that the backbone reads in a second.
    pub tokens_per_second: f64,
    /// Milliseconds that every prompt costs, however short.
    pub overhead_ms: f64,
}

/// What runs the backbone. Whatever is asked for, the CPU answers where the GPU does not, and the answer says why.
#[uniffi::remote(Enum)]
pub enum Device {
    /// The CPU.
    Cpu,
    /// A GPU, even a software adapter, once it has proved itself.
    Gpu,
    /// A GPU that is none of software, for the prompts for which it was measured to be faster than the CPU.
    Auto,
}

/// What becomes of prompts while the app is not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, uniffi::Enum)]
pub enum BackgroundPolicy {
    /// One thread of the processor answers them, never the GPU.
    #[default]
    Cpu,
    /// They fail with `Deferred`, to be asked again when the app is seen.
    Defer,
}

/// How much memory is given back; each level gives back all that the ones before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, uniffi::Enum)]
pub enum TrimLevel {
    /// Keys and values of earlier prompts.
    Contexts,
    /// Also the vectors of earlier prompts.
    Caches,
    /// Also the weights, the tokenizer and the heads. The next prompt loads them again.
    Weights,
}

impl From<TrimLevel> for lifecycle::TrimLevel {
    fn from(level: TrimLevel) -> Self {
        match level {
            TrimLevel::Contexts => Self::Contexts,
            TrimLevel::Caches => Self::Caches,
            TrimLevel::Weights => Self::Weights,
        }
    }
}

/// How a router is loaded and runs.
#[derive(Clone, Debug, Default, uniffi::Record)]
pub struct LoadOptions {
    /// Threads. Where it is not said: as many as the device has fast cores.
    #[uniffi(default = None)]
    pub threads: Option<u32>,
    /// What runs the backbone; the CPU where it is not said. A GPU wants a library that was built with the feature `gpu`.
    #[uniffi(default = None)]
    pub device: Option<Device>,
    /// The device's memory now. With it, a pack that does not fit is refused before it is loaded.
    #[uniffi(default = None)]
    pub memory: Option<MemorySnapshot>,
    /// What becomes of prompts while the app is not seen; `Cpu` where it is not said.
    #[uniffi(default = None)]
    pub background: Option<BackgroundPolicy>,
    /// Whether a short prompt is read at once, so that the weights are in memory and deadlines can be promised.
    #[uniffi(default = false)]
    pub warm_up: bool,
    /// Bytes that the vectors of earlier prompts may take.
    #[uniffi(default = None)]
    pub cache_bytes: Option<u64>,
    /// Bytes that the keys and values of earlier prompts may take.
    #[uniffi(default = None)]
    pub prefix_bytes: Option<u64>,
    /// How much learning tries what is little known; 0 never does on purpose.
    #[uniffi(default = None)]
    pub exploration: Option<f64>,
}

impl LoadOptions {
    pub(crate) fn managed(&self) -> ManagedOptions {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let standard = BanditOptions::default();
        let threads = self.threads.map(|threads| (threads as usize).max(1));
        ManagedOptions {
            router: RouterOptions {
                threads: threads.or_else(|| lifecycle::fast_cores(&crate::cores::speeds())),
                device: self.device.unwrap_or_default(),
                cache_bytes: self.cache_bytes.map(bytes),
                prefix_bytes: self.prefix_bytes.map(bytes),
                bandit: BanditOptions {
                    exploration: self.exploration.unwrap_or(standard.exploration),
                    ..standard
                },
                ..RouterOptions::default()
            },
            memory: self.memory,
            background: match self.background.unwrap_or_default() {
                BackgroundPolicy::Cpu => lifecycle::Background::Cpu,
                BackgroundPolicy::Defer => lifecycle::Background::Defer,
            },
        }
    }
}

/// What is asked beside the prompt.
#[derive(Clone, Debug, Default, uniffi::Record)]
pub struct RouteOptions {
    /// What a model may cost and must be able to do.
    #[uniffi(default)]
    pub limits: Limits,
    /// Ids of local models that run now.
    #[uniffi(default = [])]
    pub running: Vec<String>,
    /// Memory for local models; where it is not known none is loaded.
    #[uniffi(default = None)]
    pub memory: Option<MemorySnapshot>,
    /// Providers by name; one that is absent is in order.
    #[uniffi(default)]
    pub providers: HashMap<String, Provider>,
    /// Power.
    #[uniffi(default)]
    pub power: Power,
    /// The time in milliseconds, from any epoch that the providers' times share.
    #[uniffi(default = 0)]
    pub now_ms: u64,
    /// The task, where the caller knows it.
    #[uniffi(default = None)]
    pub task: Option<Task>,
    /// Whether an image, a sound or a film goes with the prompt.
    #[uniffi(default = false)]
    pub has_media: bool,
    /// Whether special tokens that stand in the prompt are plain text; the config's word where it is not said.
    #[uniffi(default = None)]
    pub plain_text: Option<bool>,
    /// Answer by rules, without the backbone.
    #[uniffi(default = false)]
    pub rules_only: bool,
    /// Milliseconds in which the answer must be there; the rules keep it where the heads cannot.
    #[uniffi(default = None)]
    pub deadline_ms: Option<f64>,
    /// Whose rewards to learn from: then the outcome has an id to be rewarded by.
    #[uniffi(default = None)]
    pub user: Option<String>,
    /// The conversation that the prompt is a turn of: it is held at its model.
    #[uniffi(default = None)]
    pub conversation: Option<String>,
}

impl RouteOptions {
    pub(crate) fn request<'a>(&'a self, cancel: &'a Cancel) -> Request<'a> {
        Request {
            limits: self.limits.clone(),
            context: decision::Context {
                running: self.running.clone(),
                memory: self.memory,
                providers: self.providers.clone().into_iter().collect(),
                power: self.power,
                thermal: Thermal::Nominal,
                now_ms: self.now_ms,
            },
            task: self.task,
            has_media: self.has_media,
            plain_text: self.plain_text,
            rules_only: self.rules_only,
            cpu_only: false,
            deadline_ms: self.deadline_ms,
            user: self.user.as_deref(),
            conversation: self.conversation.as_deref(),
            cancel: Some(cancel),
        }
    }

    /// Refuses ids that the catalog does not have: a misspelt exclusion would exclude nothing.
    pub(crate) fn check(&self, catalog: &catalog::Catalog) -> Result<(), ZenEdgeError> {
        let mut ids = self.limits.exclude.iter().chain(&self.running);
        let Some(id) = ids.find(|id| catalog.find(id).is_none()) else { return Ok(()) };
        let known: Vec<&str> = catalog.cards().iter().map(|card| &*card.id).collect();
        let detail = format!("the catalog has no model {id}; it has: {}", known.join(", "));
        Err(ZenEdgeError::UnknownModel { detail })
    }
}

/// Where a prompt goes.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Enum)]
pub enum RouteKind {
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

impl From<decision::Route> for RouteKind {
    fn from(route: decision::Route) -> Self {
        match route {
            decision::Route::Reuse { model } => Self::Reuse { model },
            decision::Route::LoadLocal { model, est_bytes } => Self::LoadLocal { model, est_bytes },
            decision::Route::Cloud { provider, model } => Self::Cloud { provider, model },
            decision::Route::NoFit => Self::NoFit,
        }
    }
}

/// Why a model cannot be taken: the first cause in the order of this list.
#[derive(Clone, Debug, PartialEq, uniffi::Enum)]
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
        /// Until when, in the time of `RouteOptions.now_ms`.
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
    /// A cause that this version of the bindings has no name for.
    Other {
        /// In words.
        detail: String,
    },
}

impl From<decision::WhyNot> for WhyNot {
    fn from(why: decision::WhyNot) -> Self {
        use decision::WhyNot as Why;
        match why {
            Why::Disabled => Self::Disabled,
            Why::Excluded => Self::Excluded,
            Why::Offline => Self::Offline,
            Why::NoVision => Self::NoVision,
            Why::ContextTooSmall { has, needs } => Self::ContextTooSmall { has, needs },
            Why::LevelUnavailable { level } => Self::LevelUnavailable { level },
            Why::TooExpensive { cost, limit } => Self::TooExpensive { cost, limit },
            Why::AboveCeiling { cost, limit } => Self::AboveCeiling { cost, limit },
            Why::QualityUnknown => Self::QualityUnknown,
            Why::QualityTooLow { quality, limit } => Self::QualityTooLow { quality, limit },
            Why::LatencyUnknown => Self::LatencyUnknown,
            Why::TooSlow { latency, limit } => Self::TooSlow { latency, limit },
            Why::ProviderDown => Self::ProviderDown,
            Why::RateLimited { until_ms } => Self::RateLimited { until_ms },
            Why::BudgetSpent { spent, expected, budget } => Self::BudgetSpent { spent, expected, budget },
            Why::Hot => Self::Hot,
            Why::LowPower => Self::LowPower,
            Why::SizeUnknown => Self::SizeUnknown,
            Why::MemoryUnknown => Self::MemoryUnknown,
            Why::DoesNotFit { needs, budget } => Self::DoesNotFit { needs, budget },
            Why::Untrained => Self::Untrained,
            Why::NotForTask => Self::NotForTask,
            other => Self::Other { detail: other.to_string() },
        }
    }
}

/// A model and how it fared.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Candidate {
    /// Its id.
    pub model: String,
    /// By the heads: `p − λ·cost − μ·latency`. By the rules: one divided by its place in the order of preference. Nothing where
    /// the deciding source did not consider it.
    pub score: Option<f64>,
    /// What `min_quality` is held against.
    pub quality: Option<f64>,
    /// The heads' probability that it is the best.
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

impl From<decision::Candidate> for Candidate {
    fn from(candidate: decision::Candidate) -> Self {
        Self {
            model: candidate.model,
            score: candidate.score,
            quality: candidate.quality,
            probability: candidate.probability,
            cost_per_1k: candidate.cost_per_1k,
            latency_ms: candidate.latency_ms,
            trained: candidate.trained,
            running: candidate.running,
            feasible: candidate.feasible,
            why_not: candidate.why_not.map(WhyNot::from),
        }
    }
}

/// A task and the task head's say.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Scored {
    /// Its name, as the config has it.
    pub task: String,
    /// At the temperature that was fitted with the heads, where there is one.
    pub probability: f32,
    /// The head's raw output.
    pub logit: f32,
}

/// What ran.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Backend {
    /// The device: `cpu` or `gpu`.
    pub device: String,
    /// The instruction set of the kernels; `wgsl` on a GPU.
    pub isa: String,
    /// Threads of the CPU.
    pub threads: u32,
    /// The GPU that read the prompt, where one did.
    pub adapter: Option<Adapter>,
    /// Why the CPU answered where a GPU was asked for.
    pub fallback: Option<String>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Adapter {
    /// Its name.
    pub name: String,
    /// The driver's, as far as it tells it.
    pub driver: String,
    /// `vulkan` or `metal`.
    pub api: String,
    /// Whether it is a processor that plays a GPU.
    pub software: bool,
    /// Whether a device was lost before, and this one took over.
    pub rebuilt: bool,
}

impl From<router::BackendInfo> for Backend {
    fn from(backend: router::BackendInfo) -> Self {
        Self {
            device: backend.device.into(),
            isa: backend.isa.into(),
            threads: u32::try_from(backend.threads).unwrap_or(u32::MAX),
            adapter: backend.adapter.map(|adapter| {
                let router::Adapter { name, driver, api, software, rebuilt } = *adapter;
                Adapter { name, driver, api, software, rebuilt }
            }),
            fallback: backend.fallback,
        }
    }
}

/// Where the time went, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, uniffi::Record)]
pub struct Timings {
    /// Text to token ids.
    pub tokenize: f64,
    /// Token ids to the hidden state.
    pub prefill: f64,
    /// Hidden state to logits, and the decision.
    pub heads: f64,
    /// Their sum.
    pub total: f64,
}

impl From<Milliseconds> for Timings {
    fn from(ms: Milliseconds) -> Self {
        Self { tokenize: ms.tokenize, prefill: ms.prefill, heads: ms.heads, total: ms.total }
    }
}

/// The answer to one prompt: what `zen-edge route --json` prints, typed.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Outcome {
    /// What a reward names it by; nothing without a user.
    pub id: Option<String>,
    /// What the prompt asks for.
    pub task: Task,
    /// The model that should answer; nothing where none fits.
    pub model: Option<String>,
    /// Where the prompt goes.
    pub route: RouteKind,
    /// The effort to ask the model for.
    pub level: Level,
    /// Who chose the model.
    pub source: DecisionSource,
    /// Why it was that source.
    pub reason: Reason,
    /// The same in words.
    pub because: String,
    /// Whether a conversation was held at its model: the scores speak for another one.
    pub held: bool,
    /// How sure the heads are of the task.
    pub task_confidence: Confidence,
    /// How sure the heads are of the model.
    pub confidence: Confidence,
    /// Every model of the catalog: the chosen one first, then the feasible by score, then the others.
    pub candidates: Vec<Candidate>,
    /// The tasks by the task head, the most probable first; empty where it was not asked.
    pub tasks: Vec<Scored>,
    /// The weight of cost in the scores.
    pub lambda: f64,
    /// The weight of latency in the scores.
    pub mu: f64,
    /// How many tokens were read.
    pub tokens: u64,
    /// Of these, the first so many were known from an earlier prompt.
    pub reused: u64,
    /// Whether the prompt was longer than what was read of it.
    pub truncated: bool,
    /// Whether an equal prompt was read before, and its vector taken.
    pub cached: bool,
    /// What ran.
    pub backend: Backend,
    /// Where the time went.
    pub timings: Timings,
}

impl Outcome {
    pub(crate) fn new(router: &Router, limits: &Limits, outcome: router::Outcome) -> Self {
        let decision = outcome.decision.clone();
        let view = View::new(router, limits, outcome);
        Self {
            id: view.outcome.map(|id| id.to_string()),
            task: decision.task,
            model: view.model,
            level: decision.level,
            source: decision.source,
            reason: decision.reason,
            because: view.reason,
            held: decision.pinned,
            task_confidence: decision.task_confidence,
            confidence: decision.confidence,
            route: decision.route.into(),
            candidates: view.scores.models.into_iter().map(Candidate::from).collect(),
            tasks: view
                .scores
                .tasks
                .into_iter()
                .map(|scored| Scored {
                    task: scored.task,
                    probability: scored.probability,
                    logit: scored.logit,
                })
                .collect(),
            lambda: view.scores.lambda,
            mu: view.scores.mu,
            tokens: view.tokens as u64,
            reused: view.reused as u64,
            truncated: view.truncated,
            cached: view.cached,
            backend: view.backend.into(),
            timings: view.timings.into(),
        }
    }
}

/// What the heads read: the last token's hidden state after the final norm, unless their config's `pooling` says otherwise;
/// not normalised.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Embedding {
    /// The vector.
    pub vector: Vec<f32>,
    /// How many tokens were read.
    pub tokens: u64,
    /// Of these, the first so many were known from an earlier prompt.
    pub reused: u64,
    /// Whether the prompt was longer than what was read of it.
    pub truncated: bool,
    /// Whether an equal prompt was read before, and its vector taken.
    pub cached: bool,
    /// What ran.
    pub backend: Backend,
    /// Where the time went.
    pub timings: Timings,
}

impl From<router::Embedding> for Embedding {
    fn from(embedding: router::Embedding) -> Self {
        let router::Embedding { vector, reading } = embedding;
        Self {
            vector,
            tokens: reading.tokens as u64,
            reused: reading.reused as u64,
            truncated: reading.truncated,
            cached: reading.cached,
            timings: Milliseconds::new(&reading.timings).into(),
            backend: reading.backend.into(),
        }
    }
}

/// How much of something is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Held {
    /// How many.
    pub entries: u64,
    /// The memory that they take.
    pub bytes: u64,
}

impl From<router::Held> for Held {
    fn from(held: router::Held) -> Self {
        Self { entries: held.entries as u64, bytes: held.bytes as u64 }
    }
}

/// What was done since the router was loaded, and what is held. It holds no text.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Stats {
    /// Prompts that got a decision.
    pub routed: u64,
    /// By what chose the model: `learned`, `rules`, `fallback`, `tag`, `both`.
    pub sources: HashMap<String, u64>,
    /// Why it was not the heads, by the reason's name.
    pub reasons: HashMap<String, u64>,
    /// Decisions for each task.
    pub tasks: HashMap<String, u64>,
    /// Decisions for each model.
    pub models: HashMap<String, u64>,
    /// The share of decisions that the heads did not make; nothing before the first.
    pub fallback_rate: Option<f64>,
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
    /// Tokens that were known from earlier prompts.
    pub tokens_reused: u64,
    /// Conversations' turns that were held at their model.
    pub held: u64,
    /// Prompts that were cancelled.
    pub cancelled: u64,
    /// Prompts on which the engine failed.
    pub failed: u64,
    /// Vectors of earlier prompts.
    pub cache: Held,
    /// Keys and values of earlier prompts.
    pub prefixes: Held,
    /// Conversations that are remembered.
    pub conversations: u64,
    /// Users of whom something was learned.
    pub users: u64,
    /// Outcomes that wait for a reward.
    pub pending: u64,
    /// The measured speed; nothing before the first pass.
    pub speed: Option<Speed>,
    /// Whether the weights are loaded now.
    pub loaded: bool,
    /// How often they were loaded again.
    pub reloads: u64,
    /// Threads that may work now; 0 where only the rules or nothing may.
    pub threads: u32,
}

impl From<ManagedStats> for Stats {
    fn from(stats: ManagedStats) -> Self {
        fn table<K: ToString>(counts: impl IntoIterator<Item = (K, u64)>) -> HashMap<String, u64> {
            counts.into_iter().map(|(key, n)| (key.to_string(), n)).collect()
        }
        let ManagedStats { router, loaded, reloads, work } = stats;
        let counts = router.counts;
        let source = |source| match source {
            DecisionSource::Learned => "learned",
            DecisionSource::Rules => "rules",
            DecisionSource::Fallback => "fallback",
            DecisionSource::Tag => "tag",
            DecisionSource::Both => "both",
        };
        Self {
            routed: counts.routed,
            sources: table(counts.sources.into_iter().map(|(key, n)| (source(key), n))),
            reasons: table(counts.reasons),
            tasks: table(counts.tasks),
            models: table(counts.models),
            fallback_rate: router.fallback_rate,
            no_fit: counts.no_fit,
            truncated: counts.truncated,
            cache_hits: counts.cache_hits,
            prefix_hits: counts.prefix_hits,
            tokens_read: counts.tokens_read,
            tokens_reused: counts.tokens_reused,
            held: counts.held,
            cancelled: counts.cancelled,
            failed: counts.failed,
            cache: router.cache.into(),
            prefixes: router.prefixes.into(),
            conversations: router.conversations as u64,
            users: router.bandit.users as u64,
            pending: router.bandit.pending as u64,
            speed: router.speed,
            loaded,
            reloads,
            threads: match work {
                Work::Run { threads, .. } => u32::try_from(threads).unwrap_or(u32::MAX),
                Work::Rules | Work::Deferred(_) => 0,
            },
        }
    }
}

/// Bytes that a router over a pack will take, estimated before it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Footprint {
    /// Weights that each prompt reads whole.
    pub weights: u64,
    /// Whether they are pages of a mapped file, which the system may take back, or memory of the process.
    pub mapped: bool,
    /// Memory of the process: heads, vocabulary, activations of the longest prompt, caches, and weights that are not mapped.
    pub own: u64,
    /// All of it.
    pub total: u64,
}

impl From<lifecycle::Footprint> for Footprint {
    fn from(footprint: lifecycle::Footprint) -> Self {
        Self {
            weights: footprint.weights,
            mapped: footprint.mapped,
            own: footprint.private(),
            total: footprint.total(),
        }
    }
}

/// What was loaded.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct About {
    /// The version of the engine.
    pub version: String,
    /// The backbone's architecture.
    pub architecture: String,
    /// Its layers.
    pub layers: u32,
    /// Length of a vector.
    pub hidden_size: u32,
    /// The instruction set of the kernels.
    pub isa: String,
    /// Threads.
    pub threads: u32,
    /// Bytes of the weights that each prompt reads.
    pub weight_bytes: u64,
    /// Multiply-adds that they cost for one token.
    pub multiply_adds: u64,
    /// The tasks of the task head.
    pub tasks: Vec<String>,
    /// The models of the catalog.
    pub models: Vec<String>,
}

impl About {
    pub(crate) fn new(router: &Router) -> Self {
        let (backbone, config) = (router.backbone(), router.config());
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            architecture: backbone.shape().architecture.name().into(),
            layers: small(backbone.shape().layers),
            hidden_size: small(backbone.hidden_size()),
            isa: backbone.isa().name().into(),
            threads: small(backbone.threads()),
            weight_bytes: backbone.weight_bytes(),
            multiply_adds: backbone.multiply_adds(),
            tasks: config.tasks.iter().map(|task| task.name().to_owned()).collect(),
            models: router.catalog().cards().iter().map(|card| card.id.clone()).collect(),
        }
    }
}

/// What a self-test found.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct SelfTestReport {
    /// Whether all is as it should be.
    pub passed: bool,
    /// The instruction set that was tested.
    pub isa: String,
    /// Prompts that were compared with stored answers; 0 where none were given.
    pub prompts: u32,
    /// Of these, how many had other token ids.
    pub other_ids: u32,
    /// The worst cosine between a vector and the stored one.
    pub worst_cosine: f64,
    /// Whether this device's instruction set gives the bits of the plain code.
    pub same_bits: bool,
}

impl From<selftest::SelfTestReport> for SelfTestReport {
    fn from(report: selftest::SelfTestReport) -> Self {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            passed: report.passed(),
            isa: report.isa.into(),
            prompts: small(report.prompts),
            other_ids: small(report.other_ids),
            worst_cosine: report.worst_cosine,
            same_bits: report.same_bits,
        }
    }
}
