//! Zen Edge in a browser: what the npm package `zen-edge` (npm/) calls, and nothing but conversion. Words and figures
//! cross as the JSON of the command line, vectors as typed arrays, files through an object with a `read` method.
//!
//! Everything here runs in one worker. A call that takes long is a `Job`: the worker makes it in slices and looks at
//! its messages in between.

#![cfg(target_family = "wasm")]
#![allow(unsafe_code, reason = "wasm-bindgen's macro writes it; there is none by hand")]

mod bench;
mod error;
mod file;
mod generate;
mod job;
#[cfg(feature = "threads")]
mod pool;

use bench::Benchmark;
use error::{Code, fail};
use file::{File, Stored};
use generate::Generation;
use job::{Ask, Job, Typing};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;
use wasm_bindgen::prelude::*;
use zen_edge_core::bandit::{BanditOptions, OutcomeId};
use zen_edge_core::catalog::CatalogReport;
use zen_edge_core::generate::Generator;
use zen_edge_core::pack::{Pack, Part};
use zen_edge_core::router::{Calibration, Clock, Reward, Router, RouterOptions};

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn now_ms() -> f64;
}

struct Performance;

impl Clock for Performance {
    fn now(&self) -> Duration {
        Duration::from_secs_f64(now_ms().max(0.0) / 1e3)
    }
}

/// A panic is told with its place; then the module has trapped, and the worker that called it is of no more use.
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
}

/// What [`Engine::new`] is told beside the files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The tokens of a chunk, which bound a slice of work.
    chunk: Option<usize>,
    /// Makes the outcomes' ids differ from those of earlier loads.
    epoch: u32,
    cache_bytes: Option<usize>,
    prefix_bytes: Option<usize>,
    exploration: Option<f64>,
}

/// What was loaded.
#[derive(Serialize)]
struct About<'a> {
    architecture: &'static str,
    layers: usize,
    hidden_size: usize,
    isa: &'static str,
    threads: usize,
    tasks: Vec<&'static str>,
    models: Vec<&'a str>,
    calibration: &'static str,
    report: CatalogReport,
    weight_bytes: u64,
    multiply_adds: u64,
}

/// A loaded router.
#[wasm_bindgen]
pub struct Engine {
    router: Arc<Router>,
    /// Its LM head is read at the first text, and kept.
    generator: OnceCell<Generator>,
}

impl Engine {
    fn generator(&self) -> Result<&Generator, JsValue> {
        if let Some(generator) = self.generator.get() {
            return Ok(generator);
        }
        let generator = self.router.generator().map_err(|error| error::generate(&error))?;
        Ok(self.generator.get_or_init(|| generator))
    }
}

#[wasm_bindgen]
impl Engine {
    /// Loads a backbone with its heads. The weights are read into memory once; rows of the embedding come from `model`
    /// when a prompt needs them.
    #[wasm_bindgen(constructor)]
    pub fn new(
        model: File,
        heads: File,
        config: File,
        catalog: Option<File>,
        policy: Option<File>,
        options: &str,
    ) -> Result<Self, JsValue> {
        let options: Options = json(options)?;
        let part = |file: File| -> Result<Part, JsValue> {
            let (name, bytes) = file::whole(&file)?;
            Ok(Part::new(name, bytes))
        };
        let pack = Pack {
            model: Arc::new(Stored::new(model)),
            heads: Arc::new(Stored::new(heads)),
            config: part(config)?,
            catalog: catalog.map(part).transpose()?,
            policy: policy.map(part).transpose()?,
        };
        let standard = BanditOptions::default();
        let options = RouterOptions {
            threads: Some(1),
            #[cfg(feature = "threads")]
            pool: pool::take(),
            chunk: options.chunk,
            clock: Some(Arc::new(Performance)),
            cache_bytes: options.cache_bytes,
            prefix_bytes: options.prefix_bytes,
            bandit: BanditOptions {
                epoch: Some(options.epoch),
                exploration: options.exploration.unwrap_or(standard.exploration),
                ..standard
            },
            ..RouterOptions::default()
        };
        let router = Router::load(&pack, &options).map_err(|error| error::load(&error))?;
        Ok(Self { router: Arc::new(router), generator: OnceCell::new() })
    }

    /// What was loaded, as JSON.
    pub fn about(&self) -> String {
        let (backbone, config) = (self.router.backbone(), self.router.config());
        text(&About {
            architecture: backbone.shape().architecture.name(),
            layers: backbone.shape().layers,
            hidden_size: backbone.hidden_size(),
            isa: backbone.isa().name(),
            threads: backbone.threads(),
            tasks: config.tasks.iter().map(|task| task.name()).collect(),
            models: self.router.catalog().cards().iter().map(|card| &*card.id).collect(),
            calibration: match self.router.calibration() {
                Calibration::Fitted => "fitted",
                Calibration::Absent => "absent",
                Calibration::OtherBackbone { .. } => "other_backbone",
            },
            report: self.router.report(),
            weight_bytes: backbone.weight_bytes(),
            multiply_adds: backbone.multiply_adds(),
        })
    }

    /// Begins to answer a prompt; `request` is JSON.
    pub fn begin(&self, prompt: &str, request: &str) -> Result<Job, JsValue> {
        let ask: Ask = json(request)?;
        ask.check(&self.router)?;
        Ok(Job::new(self.router.clone(), self.router.begin(prompt, &ask.request()), ask.limits))
    }

    /// Begins to read a prompt; `plain_text` where its special tokens are text.
    pub fn begin_embed(&self, prompt: &str, request: &str) -> Result<Job, JsValue> {
        let ask: Ask = json(request)?;
        Ok(Job::new(self.router.clone(), self.router.begin_embed(prompt, &ask.request()), ask.limits))
    }

    /// A text that is being typed.
    pub fn typing(&self) -> Typing {
        Typing::new(self.router.clone())
    }

    /// Measures the speed by a short pass, so that deadlines can be promised.
    pub fn warm_up(&self) -> Result<(), JsValue> {
        self.router.warm_up().map(|_| ()).map_err(|error| error::backbone(&error))
    }

    /// Begins to measure; `ask` is JSON.
    pub fn begin_bench(&self, ask: &str) -> Result<Benchmark, JsValue> {
        Benchmark::new(self.router.clone(), ask)
    }

    /// Begins to continue a text or a conversation; `ask` is JSON.
    pub fn begin_text(&self, ask: &str) -> Result<Generation, JsValue> {
        Generation::new(self.generator()?, ask)
    }

    /// How probable each of given texts is as what follows a prompt, in one call; both sides are JSON.
    pub fn choose(&self, which: &str) -> Result<String, JsValue> {
        generate::choose(self.generator()?, which)
    }

    /// Tells how an answer turned out; `reward` is JSON.
    pub fn observe(&self, outcome: &str, reward: &str) -> Result<(), JsValue> {
        let id: OutcomeId =
            outcome.parse().map_err(|error| fail(Code::UnknownOutcome, &format!("{error}")))?;
        let reward: Reward = json(reward)?;
        self.router.observe(id, reward).map_err(|error| fail(Code::UnknownOutcome, &error.to_string()))
    }

    /// What was done and what is held, as JSON.
    pub fn stats(&self) -> String {
        text(&self.router.stats())
    }

    /// What is known of a user, as JSON; `null` before the first reward.
    pub fn user(&self, user: &str) -> String {
        text(&self.router.user(user))
    }

    /// Forgets a user. Whether there was anything.
    pub fn forget_user(&self, user: &str) -> bool {
        self.router.forget_user(user)
    }

    /// Forgets a conversation's model. Whether there was one.
    pub fn forget_conversation(&self, conversation: &str) -> bool {
        self.router.forget_conversation(conversation)
    }

    /// Forgets earlier prompts: their vectors, keys and values.
    pub fn clear_cache(&self) {
        self.router.clear_cache();
    }

    /// What was learned, as a file.
    pub fn learning(&self) -> Vec<u8> {
        self.router.learning()
    }

    /// Takes over such a file; what is wrong with it, where something is.
    pub fn restore_learning(&self, bytes: &[u8]) -> Option<String> {
        self.router.restore_learning(bytes).map(|fresh| fresh.to_string())
    }
}

/// The SHA-256 of a stream.
#[wasm_bindgen]
#[derive(Default)]
pub struct Hash(Sha256);

#[wasm_bindgen]
impl Hash {
    /// Of nothing yet.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// In small hexadecimal digits.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Reads JSON; what is wrong in it is an error of the caller.
fn json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, JsValue> {
    serde_json::from_str(text).map_err(|error| fail(Code::BadRequest, &error.to_string()))
}

/// Writes JSON. Nothing that is written here can fail: no map has keys that are no strings.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":{:?}}}", error.to_string()))
}
