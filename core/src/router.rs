//! Prompt in, outcome out: tokenizer, backbone, heads and decision together.
//!
//! A [`Router`] is loaded once and shared by reference between threads. What it remembers is bounded and can be erased:
//!
//! | what | keyed by | erased by |
//! |---|---|---|
//! | vectors of earlier prompts, with their text | the prompt | [`Router::clear_cache`] |
//! | keys and values of earlier prompts, with their token ids | what they begin with | [`Router::clear_cache`] |
//! | the model of a conversation | [`Request::conversation`] | [`Router::forget_conversation`] |
//! | what a user's rewards taught, without any text | [`Request::user`] | [`Router::forget_user`] |
//! | counts | | they end with the router |

mod clock;
mod device;
mod job;
mod kept;
mod learning;
mod prefixes;
mod session;
mod speed;
mod stats;
mod tagging;
mod types;
mod view;

#[cfg(not(target_family = "wasm"))]
pub use clock::SystemClock;
pub use clock::{Clock, NoClock};
pub use device::{GpuRead, GpuReader};
pub use job::{Job, Step};
pub use kept::{Kept, Stage};
pub use learning::ObserveError;
pub use prefixes::DEFAULT_BYTES as PREFIX_BYTES;
pub use session::Session;
pub use stats::{Counts, Held, RouterStats};
pub use tagging::TagRequest;
pub use types::{
    Adapter, BackendInfo, Device, Embedding, Outcome, Reading, Request, Reward, RouterOptions, Timings,
};
pub use view::{Milliseconds, Scored, Scores, Shares, View};

use crate::backbone::{
    Arithmetic, Backbone, BackboneError, BackboneOptions, Cancel, Context, Interrupt, KvType,
};
use crate::bandit::Bandit;
use crate::cache::{self, Entry, Key, VectorCache};
use crate::catalog::{Catalog, CatalogReport};
use crate::config::{Keep, RouterConfig, Temperature};
use crate::decision::session::{Conversation, PATIENCE, hold};
use crate::decision::{Absent, Binding, Decision, Evidence, Learned, Speed, check_deadline, decide};
use crate::generate::{GenerateError, Generator};
use crate::gguf::Gguf;
use crate::heads::{Heads, HeadsError};
use crate::pack::{LoadError, Pack};
use crate::policy::Policy;
use crate::rules::{self, RuleSet};
use crate::tensors::TensorFile;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Conversations that are remembered; of more, those that spoke last.
const CONVERSATIONS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Whether the confidences are probabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calibration {
    /// Temperatures were fitted with the heads, and hold for this backbone.
    Fitted,
    /// The config has none.
    Absent,
    /// They were fitted to another backbone's vectors: they are left out.
    OtherBackbone {
        /// The SHA-256 of the file that they belong to.
        fitted: String,
        /// That of the file that was loaded.
        loaded: String,
    },
}

/// A loaded router. Shared by reference between threads.
pub struct Router {
    backbone: Arc<Backbone>,
    /// What else may run it.
    gpu: Arc<GpuReader>,
    tokenizer: Arc<Tokenizer>,
    config: RouterConfig,
    calibration: Calibration,
    heads: Heads,
    catalog: Catalog,
    binding: Binding,
    policy: Policy,
    clock: Arc<dyn Clock>,
    vectors: VectorCache,
    prefixes: prefixes::Prefixes,
    /// What another router over the same pack may share.
    speed: Arc<speed::SpeedMeter>,
    counts: Arc<stats::Counter>,
    conversations: Arc<Mutex<LruCache<String, Conversation>>>,
    bandit: Arc<Mutex<Bandit>>,
}

/// Where a prompt's keys and values are kept.
enum Place<'a> {
    /// With those of other prompts, under one bound.
    Pool,
    /// In a typing session's own context.
    Own(&'a mut Context),
}

/// A prompt as it was found.
enum Opened<'a> {
    /// Its vector is known.
    Known(Embedding),
    /// It is to be read.
    Unread(Box<Unread>, Home<'a>),
}

/// The context that a prompt is read in, by its [`Place`]; `None`: nothing is kept of it.
enum Home<'a> {
    Pool(Option<Context>),
    Own(Option<&'a mut Context>),
}

/// What is to be read of a prompt.
struct Unread {
    key: Key,
    ids: Vec<u32>,
    /// Of these, the first so many are known.
    reused: usize,
    /// And so many are not.
    new: usize,
    /// Whether characters were cut off, and tokens.
    cut: bool,
    truncated: bool,
    start: Duration,
    tokenized: Duration,
    deadline_ms: Option<f64>,
}

impl Unread {
    /// Milliseconds that went before the pass.
    fn spent_ms(&self) -> f64 {
        self.tokenized.saturating_sub(self.start).as_secs_f64() * 1e3
    }

    /// When the clock ends the pass.
    fn deadline(&self) -> Option<Duration> {
        self.deadline_ms.map(|ms| after(self.start, ms))
    }

    fn missed(&self, estimate_ms: Option<f64>) -> Missed {
        Missed::Unread(Absent::Deadline { estimate_ms, deadline_ms: self.deadline_ms.unwrap_or_default() })
    }
}

/// So many milliseconds later.
fn after(start: Duration, ms: f64) -> Duration {
    // What is no number is no time either.
    let ms = if ms > 0.0 { ms.min(1e9) } else { 0.0 };
    start + Duration::from_secs_f64(ms / 1e3)
}

/// Why a prompt is not to be read at all.
fn unread(prompt: &str, request: &Request<'_>) -> Option<Absent> {
    match (request.rules_only, prompt.trim().is_empty()) {
        (true, _) => Some(Absent::RulesOnly),
        (_, true) => Some(Absent::EmptyInput),
        _ => None,
    }
}

/// What counts of a request where only a vector is asked for.
fn timeless<'a>(request: &Request<'a>) -> Request<'a> {
    let Request { plain_text, cpu_only, cancel, .. } = *request;
    Request { plain_text, cpu_only, cancel, ..Request::default() }
}

/// How a prompt is answered.
struct Manner<'a> {
    place: Place<'a>,
    /// Makes the answer stale.
    stale: Option<&'a Cancel>,
    /// Whether the answer is one of a text that is still being typed: nothing is remembered of it but its vector.
    draft: bool,
}

impl Manner<'_> {
    const PLAIN: Self = Self { place: Place::Pool, stale: None, draft: false };
}

/// Why there is no vector.
enum Missed {
    Backbone(BackboneError),
    Unread(Absent),
}

impl Missed {
    /// Why there is no vector, for a request without a deadline: it misses none.
    fn into_error(self) -> BackboneError {
        match self {
            Self::Backbone(error) => error,
            Self::Unread(_) => BackboneError::Cancelled,
        }
    }
}

impl From<BackboneError> for Missed {
    fn from(error: BackboneError) -> Self {
        Self::Backbone(error)
    }
}

/// Ends a pass when its caller, a newer text or the clock says so.
struct Until<'a> {
    cancels: [Option<&'a Cancel>; 2],
    clock: &'a dyn Clock,
    deadline: Option<Duration>,
}

impl Until<'_> {
    fn cancelled(&self) -> bool {
        self.cancels.iter().flatten().any(|cancel| cancel.is_cancelled())
    }
}

impl Interrupt for Until<'_> {
    fn stops(&self) -> bool {
        self.cancelled() || self.deadline.is_some_and(|at| self.clock.now() >= at)
    }
}

impl Router {
    /// Loads a pack's parts and checks them against each other.
    ///
    /// # Errors
    /// [`LoadError`], by part and cause.
    pub fn load(pack: &Pack, options: &RouterOptions) -> Result<Self, LoadError> {
        Self::load_watched(pack, options, None, &mut |_| ControlFlow::Continue(()))
    }

    /// [`Self::load`], telling before each stage what comes, and going on from what an earlier router of the same pack
    /// kept.
    ///
    /// # Errors
    /// [`LoadError::Cancelled`] where `watch` breaks it off; else as [`Self::load`].
    pub fn load_watched(
        pack: &Pack,
        options: &RouterOptions,
        kept: Option<&Kept>,
        watch: &mut dyn FnMut(Stage) -> ControlFlow<()>,
    ) -> Result<Self, LoadError> {
        let mut at = |stage| match watch(stage) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(LoadError::Cancelled),
        };
        at(Stage::Heads)?;
        // The small parts first: what contradicts them need not be read.
        let mut config = RouterConfig::parse(&pack.config.bytes, &pack.config.name)?;
        let heads = Heads::load(&TensorFile::open(pack.heads.clone()).map_err(HeadsError::from)?, &config)?;
        let catalog = match &pack.catalog {
            Some(part) => Catalog::parse(&part.bytes, &part.name)?,
            None => Catalog::of_ids(&config)?,
        };
        let policy = match &pack.policy {
            Some(part) => Policy::parse(&part.bytes, &part.name)?,
            None => Policy::default(),
        };
        at(Stage::Weights)?;
        let gguf = Gguf::open(pack.model.clone())?;
        let backbone_options = BackboneOptions {
            isa: options.isa,
            threads: options.threads,
            pool: options.pool.clone(),
            chunk: options.chunk,
            arithmetic: Arithmetic::Int8,
            pooling: config.pooling.clone(),
        };
        let backbone = Arc::new(Backbone::load(&gguf, &backbone_options)?);
        let pooling = gguf.u32(&format!("{}.pooling_type", gguf.architecture()?))?;
        config.check_backbone(backbone.hidden_size(), pooling)?;
        at(Stage::Tokenizer)?;
        let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf)?);
        let calibration = calibration(&config, pack, &mut at)?;
        if let Calibration::OtherBackbone { .. } = calibration {
            config.temperature = Temperature::default();
        }
        let binding = Binding::new(&config, heads.trained(), &catalog)?;
        let clock = options.clock.clone().unwrap_or_else(clock::default_clock);
        let gpu = GpuReader::open(&backbone, options, &clock);
        let kept = match kept {
            Some(kept) => kept.clone(),
            None => Kept::new(Bandit::new(learning::arms(&config, &heads), options.bandit.clone())),
        };
        Ok(Self {
            backbone,
            gpu,
            tokenizer,
            config,
            calibration,
            heads,
            catalog,
            binding,
            policy,
            clock,
            vectors: VectorCache::new(options.cache_bytes.unwrap_or(cache::DEFAULT_BYTES)),
            prefixes: prefixes::Prefixes::new(options.prefix_bytes.unwrap_or(PREFIX_BYTES)),
            speed: kept.speed,
            counts: kept.counts,
            conversations: kept.conversations,
            bandit: kept.bandit,
        })
    }

    /// The backbone.
    pub fn backbone(&self) -> &Backbone {
        &self.backbone
    }

    /// The GPU that reads prompts, where one was asked for, proved itself and did not break since.
    #[cfg(feature = "gpu")]
    pub fn gpu(&self) -> Option<Arc<crate::backbone::gpu::GpuBackbone>> {
        self.gpu.ready()
    }

    /// Starts the GPU that the options asked for, while the CPU answers; then prompts are read by it. For a router that was
    /// loaded with `gpu_later`, and in a browser.
    ///
    /// # Errors
    /// Why the CPU goes on; [`gpu_fallback`](Self::gpu_fallback) and every answer tell it too.
    #[cfg(feature = "gpu")]
    pub async fn start_gpu(&self) -> Result<(), crate::backbone::gpu::GpuFailure> {
        self.gpu.start(&self.backbone).await
    }

    /// The shortest prompt that the GPU reads, in tokens, where one runs.
    #[cfg(feature = "gpu")]
    pub fn gpu_from_tokens(&self) -> Option<usize> {
        self.gpu.from_tokens()
    }

    /// Why the CPU runs where a GPU was asked for.
    pub fn gpu_fallback(&self) -> Option<String> {
        self.gpu.fallback()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// A generator that shares the router's backbone and tokenizer: the LM head is opened here, and the router goes on as
    /// before.
    ///
    /// # Errors
    /// [`GenerateError`], by cause.
    pub fn generator(&self) -> Result<Generator, GenerateError> {
        Generator::new(self.backbone.clone(), self.tokenizer.clone())
    }

    /// The config. Its temperatures are those that are used: none where they belong to another backbone.
    pub const fn config(&self) -> &RouterConfig {
        &self.config
    }

    /// Whether the confidences are probabilities.
    pub const fn calibration(&self) -> &Calibration {
        &self.calibration
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

    /// What the router has done and what it holds.
    pub fn stats(&self) -> RouterStats {
        self.kept().stats_with(self.vectors.len().into(), self.prefixes.len().into())
    }

    /// How fast the backbone reads on this device, from the passes so far; `None` before the first.
    pub fn speed(&self) -> Option<Speed> {
        self.speed.get()
    }

    /// Measures the speed by one short pass, so that a deadline can be promised before the first prompt. Call it after
    /// loading, off the thread that draws.
    ///
    /// # Errors
    /// What the backbone says.
    pub fn warm_up(&self) -> Result<Option<Speed>, BackboneError> {
        self.warm(false)
    }

    pub(crate) fn warm(&self, cpu_only: bool) -> Result<Option<Speed>, BackboneError> {
        let ids: Vec<u32> = (0..16.min(self.backbone.shape().vocab as u32)).collect();
        // The first pass over a mapped file pays for its pages: the second one is what is to come.
        let on_gpu = || if cpu_only { None } else { self.gpu.embed(&ids, None) };
        let pass = || match on_gpu() {
            Some(vector) => vector,
            None => self.backbone.embed(&ids),
        };
        pass()?;
        let start = self.clock.now();
        pass()?;
        self.speed.add(ids.len(), self.clock.now().saturating_sub(start));
        Ok(self.speed())
    }

    /// The last token's hidden state of a prompt, by the config's token and length contract. Of the request, only how
    /// special tokens are taken and what cancels count.
    ///
    /// # Errors
    /// An empty prompt, and what the backbone says.
    pub fn embed(&self, prompt: &str, request: &Request<'_>) -> Result<Embedding, BackboneError> {
        self.read(prompt, &timeless(request), Manner::PLAIN).map_err(Missed::into_error)
    }

    /// Decides which model should answer a prompt.
    ///
    /// A blank prompt, a request for rules alone and one whose deadline the heads cannot keep are decided by rules.
    ///
    /// # Errors
    /// What the backbone says; [`BackboneError::Cancelled`].
    pub fn route(&self, prompt: &str, request: &Request<'_>) -> Result<Outcome, BackboneError> {
        self.answer(prompt, request, Manner::PLAIN)
    }

    /// Decides by rules, without the backbone, for a reason that the caller has: a device that is too hot.
    ///
    /// # Errors
    /// None at present; as [`Self::route`].
    pub fn route_by_rules(
        &self,
        prompt: &str,
        request: &Request<'_>,
        why: Absent,
    ) -> Result<Outcome, BackboneError> {
        self.by_rules(prompt, request, why, false)
    }

    pub(crate) fn by_rules(
        &self,
        prompt: &str,
        request: &Request<'_>,
        why: Absent,
        draft: bool,
    ) -> Result<Outcome, BackboneError> {
        self.settle(prompt, request, Err(Missed::Unread(why)), self.clock.now(), draft)
    }

    fn answer(
        &self,
        prompt: &str,
        request: &Request<'_>,
        manner: Manner<'_>,
    ) -> Result<Outcome, BackboneError> {
        let start = self.clock.now();
        let draft = manner.draft;
        let read = match unread(prompt, request) {
            Some(absent) => Err(Missed::Unread(absent)),
            None => self.read(prompt, request, manner),
        };
        self.settle(prompt, request, read, start, draft)
    }

    /// From what was read to an outcome, which is counted.
    fn settle(
        &self,
        prompt: &str,
        request: &Request<'_>,
        read: Result<Embedding, Missed>,
        start: Duration,
        draft: bool,
    ) -> Result<Outcome, BackboneError> {
        let outcome = match read {
            Err(Missed::Backbone(error)) => Err(error),
            Err(Missed::Unread(absent)) => {
                let decision = self.decide(prompt, request, None, Err(absent));
                let decision = self.converse(decision, request, draft);
                let timings = Timings { heads: self.clock.now().saturating_sub(start), ..Timings::default() };
                Ok(Outcome { id: None, decision, logits: None, reading: self.reading(0, timings) })
            }
            Ok(embedding) => self.judge(prompt, request, embedding, draft),
        };
        // A text that is still being typed is no prompt yet: ten keys are not ten decisions.
        match &outcome {
            _ if draft => {}
            Ok(outcome) => self.counts.decided(&outcome.decision),
            Err(BackboneError::Cancelled) => self.counts.with(|counts| counts.cancelled += 1),
            Err(_) => self.counts.with(|counts| counts.failed += 1),
        }
        outcome
    }

    /// From a vector to an outcome.
    fn judge(
        &self,
        prompt: &str,
        request: &Request<'_>,
        embedding: Embedding,
        draft: bool,
    ) -> Result<Outcome, BackboneError> {
        let Embedding { vector, mut reading } = embedding;
        let start = self.clock.now();
        let logits = self.heads.logits(&vector).map_err(|_| BackboneError::NotFinite)?;
        let estimate = request.user.and_then(|user| self.estimate(user, &vector, &logits));
        let quality = estimate.as_ref().map(|estimate| &*estimate.quality);
        let learned = Learned { binding: &self.binding, logits: &logits, quality };
        let tokens = (!reading.truncated).then_some(reading.tokens as u64);
        let decision = self.decide(prompt, request, tokens, Ok(learned));
        let decision = self.converse(decision, request, draft);
        let id = match (request.user, &estimate) {
            (Some(user), Some(estimate)) if !draft => self.record(user, &decision, estimate),
            _ => None,
        };
        reading.timings.heads = self.clock.now().saturating_sub(start);
        Ok(Outcome { id, decision, logits: Some(logits), reading })
    }

    fn decide(
        &self,
        prompt: &str,
        request: &Request<'_>,
        tokens: Option<u64>,
        heads: Result<Learned<'_>, Absent>,
    ) -> Decision {
        let evidence = evidence(prompt, request, tokens, heads);
        decide(&evidence, &self.catalog, &self.policy, &request.limits, &request.context)
    }

    /// Holds a conversation at its model. A draft is shown what a turn would get, and is none.
    fn converse(&self, decision: Decision, request: &Request<'_>, draft: bool) -> Decision {
        let Some(key) = request.conversation else { return decision };
        let mut conversations = lock(&self.conversations);
        let (decision, after) = hold(decision, conversations.get(key), PATIENCE, &self.catalog);
        if let (Some(after), false) = (after, draft) {
            conversations.put(key.to_owned(), after);
        }
        decision
    }

    /// Forgets a conversation's model. Whether there was one.
    pub fn forget_conversation(&self, conversation: &str) -> bool {
        lock(&self.conversations).pop(conversation).is_some()
    }

    /// A prompt's vector: looked up, or read as far as it is new.
    fn read(&self, prompt: &str, request: &Request<'_>, manner: Manner<'_>) -> Result<Embedding, Missed> {
        let (unread, mut home) = match self.open(prompt, request, manner.place)? {
            Opened::Known(embedding) => return Ok(embedding),
            Opened::Unread(unread, home) => (unread, home),
        };
        let until = Until {
            cancels: [request.cancel, manner.stale],
            clock: &*self.clock,
            deadline: unread.deadline(),
        };
        let by_gpu = match home {
            Home::Pool(None) if !request.cpu_only => self.gpu.embed(&unread.ids, Some(&until)),
            Home::Pool(_) | Home::Own(_) => None,
        };
        let on_gpu = by_gpu.is_some();
        let vector = match (by_gpu, &mut home) {
            (Some(vector), _) => vector,
            (None, Home::Pool(Some(context))) => self.backbone.embed_in(context, &unread.ids, Some(&until)),
            (None, Home::Own(Some(context))) => self.backbone.embed_in(context, &unread.ids, Some(&until)),
            (None, _) => self.backbone.embed_cancellable(&unread.ids, &until),
        };
        let mut read = self.close(*unread, vector, until.cancelled());
        if let (Ok(embedding), true) = (&mut read, on_gpu) {
            self.gpu.sign(&mut embedding.reading.backend);
        }
        if let Home::Pool(Some(context)) = home {
            self.prefixes.put(context);
        }
        read
    }

    /// Looks a prompt up; where it is not known, what is to be read of it and where its keys and values go.
    fn open<'a>(&self, prompt: &str, request: &Request<'_>, place: Place<'a>) -> Result<Opened<'a>, Missed> {
        let start = self.clock.now();
        let (text, cut) = clip(prompt, self.config.max_chars, self.config.keep);
        let plain_text = request.plain_text.unwrap_or(self.config.plain_text);
        let key = Key { plain_text, text: text.into() };
        if let Some(Entry { vector, tokens, truncated }) = self.vectors.get(&key) {
            self.counts.with(|counts| {
                counts.cache_hits += 1;
                counts.truncated += u64::from(cut || truncated);
            });
            let timings = Timings { tokenize: self.clock.now().saturating_sub(start), ..Timings::default() };
            let reading = self.reading(tokens, timings);
            let reading = Reading { cached: true, truncated: cut || truncated, ..reading };
            return Ok(Opened::Known(Embedding { vector, reading }));
        }
        let (ids, truncated) = encode_clipped(&self.config, &self.tokenizer, text, plain_text);
        let tokenized = self.clock.now();

        let home = match place {
            Place::Own(context) => {
                let fits = self.backbone.context_bytes(KvType::F32, ids.len()) <= self.prefixes.limit();
                Home::Own(fits.then_some(context))
            }
            // On a GPU nothing is kept of a prompt but its vector.
            Place::Pool if !request.cpu_only && self.gpu.takes(ids.len()) => Home::Pool(None),
            Place::Pool => Home::Pool(self.prefixes.take(&self.backbone, &ids)),
        };
        let context = match &home {
            Home::Pool(context) => context.as_ref(),
            Home::Own(context) => context.as_deref(),
        };
        // The last token is always computed: its hidden state is what is asked for.
        let reused = context.map_or(0, |context| context.shared(&ids).min(ids.len().saturating_sub(1)));
        let unread = Unread {
            new: ids.len() - reused,
            reused,
            key,
            ids,
            cut,
            truncated,
            start,
            tokenized,
            deadline_ms: request.deadline_ms,
        };
        let left = unread.deadline_ms.map(|ms| ms - unread.spent_ms());
        let Err(absent) = check_deadline(unread.new as u64, self.speed().as_ref(), left) else {
            return Ok(Opened::Unread(Box::new(unread), home));
        };
        if let Home::Pool(Some(context)) = home {
            self.prefixes.put(context);
        }
        Err(match absent {
            Absent::Deadline { estimate_ms, .. } => {
                unread.missed(estimate_ms.map(|ms| ms + unread.spent_ms()))
            }
            other => Missed::Unread(other),
        })
    }

    /// Measures, counts and keeps what a pass gave; `cancelled`: it was not the clock that ended it.
    fn close(
        &self,
        unread: Unread,
        vector: Result<Vec<f32>, BackboneError>,
        cancelled: bool,
    ) -> Result<Embedding, Missed> {
        let prefill = self.clock.now().saturating_sub(unread.tokenized);
        let vector = match vector {
            Ok(vector) => vector,
            Err(BackboneError::Cancelled) if !cancelled => {
                // Slower than was thought: the next estimate knows it.
                self.speed.add(unread.new, prefill);
                return Err(unread.missed(Some(unread.spent_ms() + prefill.as_secs_f64() * 1e3)));
            }
            Err(error) => return Err(error.into()),
        };
        let Unread { key, ids, new, reused, cut, truncated, start, tokenized, .. } = unread;
        self.speed.add(new, prefill);
        self.counts.with(|counts| {
            counts.tokens_read += new as u64;
            counts.tokens_reused += reused as u64;
            counts.prefix_hits += u64::from(reused > 0);
            counts.truncated += u64::from(cut || truncated);
        });
        self.vectors.put(key, Entry { vector: vector.clone(), tokens: ids.len(), truncated });
        let timings = Timings { tokenize: tokenized.saturating_sub(start), prefill, heads: Duration::ZERO };
        let reading = Reading { reused, truncated: cut || truncated, ..self.reading(ids.len(), timings) };
        Ok(Embedding { vector, reading })
    }

    /// Forgets the vectors, keys and values of earlier prompts.
    pub fn clear_cache(&self) {
        self.vectors.clear();
        self.prefixes.clear();
    }

    /// Forgets the keys and values of earlier prompts alone: the larger part of what [`Self::clear_cache`] forgets.
    pub fn clear_contexts(&self) {
        self.prefixes.clear();
    }

    /// A prompt's ids under the config's length rule, and whether anything was cut.
    ///
    /// Characters are counted first, as the training did: Unicode scalar values, then tokens.
    pub fn encode(&self, prompt: &str, plain_text: Option<bool>) -> (Vec<u32>, bool) {
        encode(&self.config, &self.tokenizer, prompt, plain_text.unwrap_or(self.config.plain_text))
    }

    fn reading(&self, tokens: usize, timings: Timings) -> Reading {
        let backend = BackendInfo { fallback: self.gpu.fallback(), ..BackendInfo::cpu(&self.backbone) };
        Reading { tokens, reused: 0, truncated: false, cached: false, backend, timings }
    }
}

/// A prompt's ids under a config's length rule, and whether anything was cut: as [`Router::encode`], for who has the parts
/// and no router.
pub fn encode(
    config: &RouterConfig,
    tokenizer: &Tokenizer,
    prompt: &str,
    plain_text: bool,
) -> (Vec<u32>, bool) {
    let (text, cut) = clip(prompt, config.max_chars, config.keep);
    let (ids, truncated) = encode_clipped(config, tokenizer, text, plain_text);
    (ids, cut || truncated)
}

fn encode_clipped(
    config: &RouterConfig,
    tokenizer: &Tokenizer,
    text: &str,
    plain_text: bool,
) -> (Vec<u32>, bool) {
    let options = EncodeOptions { plain_text, add_bos: config.add_bos, add_eos: config.add_eos };
    match config.keep {
        Keep::Start => tokenizer.encode_limited(text, &options, config.max_tokens),
        Keep::End => {
            let mut ids = tokenizer.encode(text, &options);
            let over = ids.len().saturating_sub(config.max_tokens);
            ids.drain(..over);
            (ids, over > 0)
        }
    }
}

/// What is known of a prompt: the rules' word and the heads'.
fn evidence<'a>(
    prompt: &str,
    request: &Request<'_>,
    tokens: Option<u64>,
    heads: Result<Learned<'a>, Absent>,
) -> Evidence<'a> {
    let asked = rules::Request {
        text: prompt,
        tokens,
        has_media: request.has_media,
        task: request.task,
        modality: None,
    };
    Evidence { rules: rules::classify(RuleSet::Ours, &asked), has_media: request.has_media, heads }
}

/// Whether the config's temperatures hold for the pack's backbone. The file is hashed only where it matters.
fn calibration(
    config: &RouterConfig,
    pack: &Pack,
    at: &mut dyn FnMut(Stage) -> Result<(), LoadError>,
) -> Result<Calibration, LoadError> {
    if config.temperature == Temperature::default() {
        return Ok(Calibration::Absent);
    }
    let Some(fitted) = &config.backbone_sha256 else { return Ok(Calibration::Fitted) };
    let model = &*pack.model;
    let mut watch = |done| match at(Stage::Hash { done, of: model.len() }) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let loaded = crate::source::sha256_watched(model, &mut watch).map_err(|source| match source.kind() {
        std::io::ErrorKind::Interrupted => LoadError::Cancelled,
        _ => LoadError::Io { file: model.name().to_owned(), source },
    })?;
    Ok(match *fitted == loaded {
        true => Calibration::Fitted,
        false => Calibration::OtherBackbone { fitted: fitted.clone(), loaded },
    })
}

/// What is behind a mutex, whatever befell another thread: every change leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
