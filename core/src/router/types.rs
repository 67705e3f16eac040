//! What is asked of a router and what it answers.

use super::clock::Clock;
use crate::backbone::{Backbone, Cancel};
use crate::bandit::{BanditOptions, OutcomeId};
use crate::catalog::Task;
use crate::decision::{Context, Decision, Limits};
use crate::heads::Logits;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use zen_edge_kernels::isa::Isa;
use zen_edge_kernels::pool::Pool;

/// How a router runs.
#[derive(Clone, Default)]
pub struct RouterOptions {
    /// Threads; as many as the process may use where none are given.
    pub threads: Option<usize>,
    /// Threads that are there already, in place of `threads`.
    pub pool: Option<Pool>,
    /// The instruction set; the best of this processor where none is given.
    pub isa: Option<Isa>,
    /// Tokens in a chunk of prefill; [`crate::backbone::DEFAULT_CHUNK`] where none is given. It bounds what one step of a
    /// [`super::Job`] takes.
    pub chunk: Option<usize>,
    /// What timings are taken with; the system's clock natively, none in a browser.
    pub clock: Option<Arc<dyn Clock>>,
    /// Bytes that the vectors of earlier prompts may take; [`crate::cache::DEFAULT_BYTES`] where none are given, 0
    /// keeps none.
    pub cache_bytes: Option<usize>,
    /// Bytes that the keys and values of earlier prompts may take, from which a prompt that begins alike goes on;
    /// [`super::PREFIX_BYTES`] where none are given, 0 keeps none.
    pub prefix_bytes: Option<usize>,
    /// How users' rewards are learned from.
    pub bandit: BanditOptions,
    /// What runs the backbone.
    pub device: Device,
    /// How a GPU is opened, where [`device`](Self::device) asks for one. Its `software` is set by that.
    #[cfg(feature = "gpu")]
    pub gpu: crate::backbone::gpu::GpuOptions,
    /// Keeps what is remembered of GPUs: proofs, so that the next start is short, and a marker while one starts, so that a
    /// driver that takes the process with it is not tried at the very next start.
    #[cfg(feature = "gpu")]
    pub gpu_notes: Option<Arc<dyn crate::backbone::gpu::NotesKeeper>>,
    /// Whether the GPU is left alone until [`Router::start_gpu`](super::Router::start_gpu) is called, and the CPU answers
    /// meanwhile. In a browser it always is.
    #[cfg(feature = "gpu")]
    pub gpu_later: bool,
    /// Why there is no GPU, where the caller knows: then none is looked for, and the answers say so.
    pub no_gpu: Option<String>,
}

/// What runs the backbone. Whatever is asked for, the CPU answers where the GPU does not, and the answer says why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// A GPU, even a software adapter, once it has proved itself.
    Gpu,
    /// A GPU that is none of software, for the prompts for which it was measured to be faster than the CPU.
    Auto,
}

impl Device {
    /// Every word for `--device`.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Cpu, Self::Gpu];

    /// Its name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }

    /// The device of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|device| device.name() == name)
    }
}

/// What a caller asks beside the prompt.
#[derive(Clone, Default)]
pub struct Request<'a> {
    /// What a model may cost and must be able to do.
    pub limits: Limits,
    /// The state of the device and of the world.
    pub context: Context,
    /// The task, where the caller knows it.
    pub task: Option<Task>,
    /// Whether an image, a sound or a film goes with the prompt.
    pub has_media: bool,
    /// Whether special tokens that stand in the prompt are plain text; the config's word where none is given.
    pub plain_text: Option<bool>,
    /// Answer by rules, without the backbone.
    pub rules_only: bool,
    /// Submit nothing to a GPU: the CPU reads this prompt, whatever the router was loaded with.
    pub cpu_only: bool,
    /// Milliseconds from now in which the answer must be there. Where the measured speed says that the heads cannot be
    /// asked in time, the rules answer at once; where a pass turns out slower than that, it is stopped and they answer
    /// then. The decision's reason says so.
    pub deadline_ms: Option<f64>,
    /// Whose rewards to learn from: the bandit's estimates for this user take part in the scores, and the outcome has an
    /// id to be rewarded by.
    pub user: Option<&'a str>,
    /// The conversation that the prompt is a turn of: it is held at its model, see [`crate::decision::session`].
    pub conversation: Option<&'a str>,
    /// Stops the forward pass.
    pub cancel: Option<&'a Cancel>,
}

/// What was read of a prompt, and how long it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Tokens that the heads' answer rests on.
    pub tokens: usize,
    /// Of these, the first so many were known from an earlier prompt that begins alike.
    pub reused: usize,
    /// Whether the prompt was longer than what was read.
    pub truncated: bool,
    /// Whether the vector of an earlier, equal prompt was taken: the same bits, without a forward pass.
    pub cached: bool,
    /// What ran.
    pub backend: BackendInfo,
    /// How long it took.
    pub timings: Timings,
}

/// What ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackendInfo {
    /// The device: `cpu` or `gpu`.
    pub device: &'static str,
    /// The instruction set of the kernels; `wgsl` on a GPU.
    pub isa: &'static str,
    /// Threads of the CPU.
    pub threads: usize,
    /// The GPU that read the prompt, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Box<Adapter>>,
    /// Why the CPU answered where a GPU was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
}

impl BackendInfo {
    /// The CPU, as this backbone runs on it.
    pub fn cpu(backbone: &Backbone) -> Self {
        Self {
            device: "cpu",
            isa: backbone.isa().name(),
            threads: backbone.threads(),
            adapter: None,
            fallback: None,
        }
    }
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Adapter {
    /// The adapter's name.
    pub name: String,
    /// The driver's, as far as it tells it.
    pub driver: String,
    /// `vulkan`, `metal`, `dx12` or `webgpu`.
    pub api: String,
    /// Whether it is a processor that plays a GPU.
    pub software: bool,
    /// Whether a device was lost before, and this one took over.
    pub rebuilt: bool,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timings {
    /// Text to token ids.
    pub tokenize: Duration,
    /// Token ids to the hidden state.
    pub prefill: Duration,
    /// Hidden state to logits, and the decision.
    pub heads: Duration,
}

/// The last token's hidden state.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// What the heads read, not normalised: the last token's hidden state after the final norm, or what the config's
    /// `pooling` says.
    pub vector: Vec<f32>,
    /// What was read.
    pub reading: Reading,
}

/// The answer to one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What a reward names it by; `None` without a user, for a prompt that the backbone did not read, and for a model
    /// that the route head has no row for.
    pub id: Option<OutcomeId>,
    /// The decision, with every candidate and why.
    pub decision: Decision,
    /// What the heads said; `None` where they were not asked, and the decision says why.
    pub logits: Option<Logits>,
    /// What was read.
    pub reading: Reading,
}

/// How an answer turned out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reward {
    /// How good the answer was, 0 to 1: a thumb, a grade, a test that passed.
    pub quality: f64,
    /// What it cost, in USD for 1,000 tokens; the catalog's figure where it is not said.
    #[serde(default)]
    pub cost_per_1k: Option<f64>,
    /// Milliseconds that it took; the catalog's estimate where it is not said.
    #[serde(default)]
    pub latency_ms: Option<f64>,
}

impl From<f64> for Reward {
    /// A quality alone.
    fn from(quality: f64) -> Self {
        Self { quality, cost_per_1k: None, latency_ms: None }
    }
}
