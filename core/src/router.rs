//! Prompt in, outcome out: tokenizer, backbone, heads and decision together.

use crate::backbone::{Backbone, BackboneError, BackboneOptions, Cancel};
use crate::cache::{self, Entry, Key, VectorCache};
use crate::catalog::{Catalog, CatalogReport, Task};
use crate::config::{Keep, RouterConfig};
use crate::decision::{Absent, Binding, Context, Decision, Evidence, Learned, Limits, decide};
use crate::gguf::Gguf;
use crate::heads::{Heads, HeadsError, Logits};
use crate::pack::{LoadError, Pack};
use crate::policy::Policy;
use crate::rules::{self, RuleSet};
use crate::tensors::TensorFile;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use zen_edge_kernels::isa::Isa;

/// A clock that only goes forward. A browser has no `Instant`: it hands in its own.
pub trait Clock: Send + Sync {
    /// The time since any fixed moment.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock.
#[cfg(not(target_family = "wasm"))]
#[derive(Debug)]
pub struct SystemClock(std::time::Instant);

#[cfg(not(target_family = "wasm"))]
impl Default for SystemClock {
    fn default() -> Self {
        Self(std::time::Instant::now())
    }
}

#[cfg(not(target_family = "wasm"))]
impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock that stands still: every timing is zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// How a router runs.
#[derive(Clone, Default)]
pub struct RouterOptions {
    /// Threads; as many as the process may use where none are given.
    pub threads: Option<usize>,
    /// The instruction set; the best of this processor where none is given.
    pub isa: Option<Isa>,
    /// What timings are taken with; the system's clock natively, none in a browser.
    pub clock: Option<Arc<dyn Clock>>,
    /// Bytes that the vectors of earlier prompts may take; [`cache::DEFAULT_BYTES`] where none are given, 0 keeps none.
    pub cache_bytes: Option<usize>,
}

/// What a caller asks beside the prompt.
#[derive(Default)]
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
    /// Stops the forward pass.
    pub cancel: Option<&'a Cancel>,
}

/// What was read of a prompt, and how long it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Tokens that the backbone read.
    pub tokens: usize,
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
    /// The device: `cpu`.
    pub device: &'static str,
    /// The instruction set of the kernels.
    pub isa: &'static str,
    /// Threads.
    pub threads: usize,
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
    /// After the final norm, not normalised: `hidden_size` values.
    pub vector: Vec<f32>,
    /// What was read.
    pub reading: Reading,
}

/// The answer to one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The decision, with every candidate and why.
    pub decision: Decision,
    /// What the heads said; `None` where they were not asked, and the decision says why.
    pub logits: Option<Logits>,
    /// What was read.
    pub reading: Reading,
}

/// A loaded router. Shared by reference between threads.
pub struct Router {
    backbone: Backbone,
    tokenizer: Tokenizer,
    config: RouterConfig,
    heads: Heads,
    catalog: Catalog,
    binding: Binding,
    policy: Policy,
    clock: Arc<dyn Clock>,
    vectors: VectorCache,
}

impl Router {
    /// Loads a pack's parts and checks them against each other.
    ///
    /// # Errors
    /// [`LoadError`], by part and cause.
    pub fn load(pack: &Pack, options: &RouterOptions) -> Result<Self, LoadError> {
        // The small parts first: what contradicts them need not be read.
        let config = RouterConfig::parse(&pack.config.bytes, &pack.config.name)?;
        let heads = Heads::load(&TensorFile::open(pack.heads.clone()).map_err(HeadsError::from)?, &config)?;
        let catalog = match &pack.catalog {
            Some(part) => Catalog::parse(&part.bytes, &part.name)?,
            None => Catalog::of_ids(&config)?,
        };
        let binding = Binding::new(&config, heads.trained(), &catalog)?;
        let policy = match &pack.policy {
            Some(part) => Policy::parse(&part.bytes, &part.name)?,
            None => Policy::default(),
        };
        let gguf = Gguf::open(pack.model.clone())?;
        let backbone_options = BackboneOptions { isa: options.isa, threads: options.threads, chunk: None };
        let backbone = Backbone::load(&gguf, &backbone_options)?;
        let pooling = gguf.u32(&format!("{}.pooling_type", gguf.architecture()?))?;
        config.check_backbone(backbone.hidden_size(), pooling)?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        let clock = options.clock.clone().unwrap_or_else(default_clock);
        let vectors = VectorCache::new(options.cache_bytes.unwrap_or(cache::DEFAULT_BYTES));
        Ok(Self { backbone, tokenizer, config, heads, catalog, binding, policy, clock, vectors })
    }

    /// The backbone.
    pub const fn backbone(&self) -> &Backbone {
        &self.backbone
    }

    /// The tokenizer.
    pub const fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The config.
    pub const fn config(&self) -> &RouterConfig {
        &self.config
    }

    /// The heads.
    pub const fn heads(&self) -> &Heads {
        &self.heads
    }

    /// The catalog.
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What is to be said of the catalog: models without a row, untrained rows, unknown keys.
    pub fn report(&self) -> CatalogReport {
        self.catalog.report(Some((&self.config, self.heads.trained().rows())))
    }

    /// The last token's hidden state of a prompt, by the config's token and length contract.
    ///
    /// # Errors
    /// An empty prompt, and what the backbone says.
    pub fn embed(&self, prompt: &str, request: &Request<'_>) -> Result<Embedding, BackboneError> {
        let start = self.clock.now();
        let (text, cut) = clip(prompt, self.config.max_chars, self.config.keep);
        let plain_text = request.plain_text.unwrap_or(self.config.plain_text);
        let key = Key { plain_text, text: text.into() };
        if let Some(Entry { vector, tokens, truncated }) = self.vectors.get(&key) {
            let timings = Timings { tokenize: self.clock.now().saturating_sub(start), ..Timings::default() };
            let reading = Reading { cached: true, ..self.reading(tokens, cut || truncated, timings) };
            return Ok(Embedding { vector, reading });
        }
        let (ids, truncated) = self.encode_clipped(text, plain_text);
        let tokenized = self.clock.now();
        let vector = match request.cancel {
            Some(cancel) => self.backbone.embed_cancellable(&ids, cancel),
            None => self.backbone.embed(&ids),
        }?;
        let timings = Timings {
            tokenize: tokenized.saturating_sub(start),
            prefill: self.clock.now().saturating_sub(tokenized),
            heads: Duration::ZERO,
        };
        self.vectors.put(key, Entry { vector: vector.clone(), tokens: ids.len(), truncated });
        Ok(Embedding { vector, reading: self.reading(ids.len(), cut || truncated, timings) })
    }

    /// Forgets the vectors of earlier prompts.
    pub fn clear_cache(&self) {
        self.vectors.clear();
    }

    /// Earlier prompts whose vectors are kept, and the bytes they take.
    pub fn cache_len(&self) -> (usize, usize) {
        self.vectors.len()
    }

    /// Decides which model should answer a prompt.
    ///
    /// A blank prompt, and a request for rules alone, are decided without the backbone.
    ///
    /// # Errors
    /// What the backbone says; [`BackboneError::Cancelled`].
    pub fn route(&self, prompt: &str, request: &Request<'_>) -> Result<Outcome, BackboneError> {
        let start = self.clock.now();
        let blank = prompt.trim().is_empty();
        let absent = match (request.rules_only, blank) {
            (true, _) => Some(Absent::RulesOnly),
            (_, true) => Some(Absent::EmptyInput),
            _ => None,
        };
        if let Some(absent) = absent {
            let decision = self.decide(prompt, request, None, Err(absent));
            let timings = Timings { heads: self.clock.now().saturating_sub(start), ..Timings::default() };
            return Ok(Outcome { decision, logits: None, reading: self.reading(0, false, timings) });
        }
        let Embedding { vector, mut reading } = self.embed(prompt, request)?;
        let embedded = self.clock.now();
        let logits = self.heads.logits(&vector).map_err(|_| BackboneError::NotFinite)?;
        let learned = Learned { binding: &self.binding, logits: &logits, quality: None };
        let tokens = (!reading.truncated).then_some(reading.tokens as u64);
        let decision = self.decide(prompt, request, tokens, Ok(learned));
        reading.timings.heads = self.clock.now().saturating_sub(embedded);
        Ok(Outcome { decision, logits: Some(logits), reading })
    }

    fn decide(
        &self,
        prompt: &str,
        request: &Request<'_>,
        tokens: Option<u64>,
        heads: Result<Learned<'_>, Absent>,
    ) -> Decision {
        let asked = rules::Request {
            text: prompt,
            tokens,
            has_media: request.has_media,
            task: request.task,
            modality: None,
        };
        let evidence =
            Evidence { rules: rules::classify(RuleSet::Ours, &asked), has_media: request.has_media, heads };
        decide(&evidence, &self.catalog, &self.policy, &request.limits, &request.context)
    }

    /// A prompt's ids under the config's length rule, and whether anything was cut.
    ///
    /// Characters are counted first, as the training did: Unicode scalar values, then tokens.
    pub fn encode(&self, prompt: &str, plain_text: Option<bool>) -> (Vec<u32>, bool) {
        let (text, cut) = clip(prompt, self.config.max_chars, self.config.keep);
        let (ids, truncated) = self.encode_clipped(text, plain_text.unwrap_or(self.config.plain_text));
        (ids, cut || truncated)
    }

    fn encode_clipped(&self, text: &str, plain_text: bool) -> (Vec<u32>, bool) {
        let options =
            EncodeOptions { plain_text, add_bos: self.config.add_bos, add_eos: self.config.add_eos };
        match self.config.keep {
            Keep::Start => self.tokenizer.encode_limited(text, &options, self.config.max_tokens),
            Keep::End => {
                let mut ids = self.tokenizer.encode(text, &options);
                let over = ids.len().saturating_sub(self.config.max_tokens);
                ids.drain(..over);
                (ids, over > 0)
            }
        }
    }

    fn reading(&self, tokens: usize, truncated: bool, timings: Timings) -> Reading {
        let backend =
            BackendInfo { device: "cpu", isa: self.backbone.isa().name(), threads: self.backbone.threads() };
        Reading { tokens, truncated, cached: false, backend, timings }
    }
}

/// At most `max` characters of the start or the end of a text.
fn clip(text: &str, max: usize, keep: Keep) -> (&str, bool) {
    let at = match keep {
        Keep::Start => text.char_indices().nth(max).map(|(at, _)| at),
        Keep::End => text.char_indices().nth_back(max).map(|(at, c)| at + c.len_utf8()),
    };
    match (at, keep) {
        (None, _) => (text, false),
        (Some(at), Keep::Start) => (&text[..at], true),
        (Some(at), Keep::End) => (&text[at..], true),
    }
}

#[cfg(not(target_family = "wasm"))]
fn default_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}

#[cfg(target_family = "wasm")]
fn default_clock() -> Arc<dyn Clock> {
    Arc::new(NoClock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_counts_characters_and_says_so() {
        assert_eq!(clip("zëñ", 3, Keep::Start), ("zëñ", false));
        assert_eq!(clip("zëñ", 2, Keep::Start), ("zë", true));
        assert_eq!(clip("zëñ", 2, Keep::End), ("ëñ", true));
        assert_eq!(clip("zëñ", 3, Keep::End), ("zëñ", false));
        assert_eq!(clip("", 1, Keep::End), ("", false));
    }
}
