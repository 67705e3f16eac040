//! What answers prompts: a router of the core with its parts from the command line, and the machine's state for it.

use crate::ask::Asked;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model::locate;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zen_edge_core::backbone::{Backbone, BackboneOptions};
use zen_edge_core::decision::{Context, MemorySnapshot};
use zen_edge_core::generate::Generator;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::pack::{LoadError, Pack};
use zen_edge_core::router::{
    BackendInfo, Milliseconds, Reading, Request, Router, RouterOptions, Timings, View,
};
use zen_edge_core::source::{Memory, Source};
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
use zen_edge_default_pack as inside;
use zen_edge_kernels::isa::Isa;

/// The arguments that choose the backbone and how it runs.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Args {
    /// The backbone: a GGUF file, or the name of a pulled one [default: the pack inside the program]
    #[arg(short, long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// Threads [default: as many as the machine has cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The instruction set, by its name in the output; the result has the same bits on each [default: the fastest here]
    #[arg(long, value_name = "NAME", value_parser = Isa::from_name)]
    isa: Option<Isa>,
    /// Take special tokens that stand in the prompt, such as <|im_end|>, as plain text [default: as the heads' config says]
    #[arg(long)]
    plain_text: bool,
}

/// The arguments that choose a backbone with its heads.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct PackArgs {
    #[command(flatten)]
    pub engine: Args,
    /// A folder with the heads that belong to the backbone: heads.safetensors, router_config.json and, where they
    /// are there, catalog.yaml and router_policy.yaml [default: the pack inside the program]
    #[arg(long, value_name = "DIR")]
    pub heads: Option<PathBuf>,
}

impl Args {
    fn threads(&self) -> Option<usize> {
        self.threads.map(usize::from)
    }

    /// Whether control tokens in a prompt are plain text, where the caller said so.
    pub const fn plain_text(&self) -> bool {
        self.plain_text
    }

    /// The backbone as a language model.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn generator(&self) -> Result<Generator, Failure> {
        let options =
            BackboneOptions { isa: self.isa, threads: self.threads(), ..BackboneOptions::default() };
        Ok(Generator::open(self.model()?, &options)?)
    }

    fn model(&self) -> Result<Arc<dyn Source>, Failure> {
        match &self.model {
            Some(word) => {
                let path = locate(word)?;
                Ok(Arc::new(Memory::open(&path).map_err(|error| Failure::file(&path, &error))?))
            }
            None => Ok(inside::pack().model),
        }
    }
}

/// The vector of a prompt, as `zen-edge embed --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Embedding {
    /// The last token's hidden state after the final norm, not normalised.
    pub embedding: Vec<f32>,
    /// The Euclidean norm.
    pub norm: f32,
    /// How many tokens were read.
    pub tokens: usize,
    /// Whether the prompt was longer than what was read of it.
    pub truncated: bool,
    /// What ran.
    pub backend: BackendInfo,
    /// Milliseconds.
    pub timings: Milliseconds,
}

impl Embedding {
    fn new(embedding: Vec<f32>, reading: Reading) -> Self {
        let norm = embedding.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt() as f32;
        let timings = Milliseconds::new(&reading.timings);
        Self {
            embedding,
            norm,
            tokens: reading.tokens,
            truncated: reading.truncated,
            backend: reading.backend,
            timings,
        }
    }
}

/// A router that is ready.
pub struct Engine {
    router: Router,
    context: Context,
    plain_text: Option<bool>,
    asked: Asked,
    user: Option<String>,
}

/// The key of the one conversation that a run may be.
const CONVERSATION: &str = "run";

impl Engine {
    /// A backbone with heads: each from the command line, or from the default pack.
    ///
    /// # Errors
    /// With the exit code of the cause: a missing file, a damaged one, one that this version cannot run, parts that do
    /// not fit.
    pub fn open(args: &Args, heads: Option<&Path>) -> Result<Self, Failure> {
        let model = args.model()?;
        let pack = match heads {
            Some(folder) => Pack::with_heads(model, folder)?,
            None => Pack { model, ..inside::pack() },
        };
        let options = RouterOptions { threads: args.threads(), isa: args.isa, ..RouterOptions::default() };
        let router = Router::load(&pack, &options).map_err(|error| {
            let mut failure = Failure::from(error);
            // The commonest mistake has a simpler word than the two sizes that the message names.
            if failure.exit == Exit::Mismatch && args.model.is_some() && heads.is_none() {
                failure.message.push_str("; give the heads that belong to this backbone by --heads");
            }
            failure
        })?;
        let context = Context { memory: memory(), ..Context::default() };
        let plain_text = args.plain_text.then_some(true);
        Ok(Self { router, context, plain_text, asked: Asked::default(), user: None })
    }

    /// The router.
    pub const fn router(&self) -> &Router {
        &self.router
    }

    /// From now on every prompt is asked with these limits, and this user's rewards count.
    ///
    /// # Errors
    /// Ids that the catalog does not have.
    pub fn ask(&mut self, asked: Asked, user: Option<String>) -> Result<(), Failure> {
        asked.check(self.router.catalog())?;
        if asked.deadline_ms.is_some() {
            // A deadline is promised by the measured speed: one pass before the first prompt.
            self.router.warm_up().map_err(LoadError::from)?;
        }
        // What the caller says of the device goes before what was found.
        let memory = asked.context.memory.or(self.context.memory);
        self.context = Context { memory, ..asked.context.clone() };
        (self.asked, self.user) = (asked, user);
        Ok(())
    }

    fn request(&self) -> Request<'_> {
        Request {
            limits: self.asked.limits.clone(),
            context: self.context.clone(),
            task: self.asked.task,
            has_media: self.asked.media,
            plain_text: self.plain_text,
            rules_only: self.asked.rules,
            deadline_ms: self.asked.deadline_ms,
            user: self.user.as_deref(),
            conversation: self.asked.conversation.then_some(CONVERSATION),
            cancel: None,
        }
    }

    /// Which task the prompt is, and which model should answer it.
    ///
    /// # Errors
    /// What the backbone says.
    pub fn route(&self, prompt: &str) -> Result<View, Failure> {
        let outcome = self.router.route(prompt, &self.request()).map_err(LoadError::from)?;
        Ok(View::new(&self.router, &self.asked.limits, outcome))
    }
}

/// What gives vectors: a router by the contract of its config, or a backbone alone.
pub enum Embedder {
    /// The default pack: the prompt is cut as its heads expect it.
    Routed(Box<Engine>),
    /// A GGUF: the whole prompt, with the tokens before and after it that the file asks for.
    Alone { backbone: Box<Backbone>, tokenizer: Box<Tokenizer>, options: EncodeOptions },
}

impl Embedder {
    /// Loads what `args` name.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open(args: &Args) -> Result<Self, Failure> {
        if args.model.is_none() {
            return Ok(Self::Routed(Box::new(Engine::open(args, None)?)));
        }
        let gguf = Gguf::open(args.model()?).map_err(LoadError::from)?;
        let options =
            BackboneOptions { isa: args.isa, threads: args.threads(), ..BackboneOptions::default() };
        let backbone = Box::new(Backbone::load(&gguf, &options).map_err(LoadError::from)?);
        let tokenizer = Box::new(Tokenizer::from_gguf(&gguf).map_err(LoadError::from)?);
        let options = EncodeOptions { plain_text: args.plain_text, ..EncodeOptions::default() };
        Ok(Self::Alone { backbone, tokenizer, options })
    }

    /// The prompt's vector.
    ///
    /// # Errors
    /// What the backbone says; a prompt without a token has no vector.
    pub fn embed(&self, prompt: &str) -> Result<Embedding, Failure> {
        match self {
            Self::Routed(engine) => {
                let embedding = engine.router.embed(prompt, &engine.request()).map_err(LoadError::from)?;
                Ok(Embedding::new(embedding.vector, embedding.reading))
            }
            Self::Alone { backbone, tokenizer, options } => {
                let start = Instant::now();
                let ids = tokenizer.encode(prompt, options);
                let tokenize = start.elapsed();
                let vector = backbone.embed(&ids).map_err(LoadError::from)?;
                let prefill = start.elapsed() - tokenize;
                let backend =
                    BackendInfo { device: "cpu", isa: backbone.isa().name(), threads: backbone.threads() };
                let timings = Timings { tokenize, prefill, heads: Duration::ZERO };
                Ok(Embedding::new(
                    vector,
                    Reading {
                        tokens: ids.len(),
                        reused: 0,
                        truncated: false,
                        cached: false,
                        backend,
                        timings,
                    },
                ))
            }
        }
    }
}

/// The machine's memory now, for the decision whether a local model fits.
fn memory() -> Option<MemorySnapshot> {
    if !sysinfo::IS_SUPPORTED_SYSTEM {
        return None;
    }
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let (total, available) = (system.total_memory(), system.available_memory());
    // Apple's own processors have one memory for all; elsewhere this program does not ask a GPU.
    let unified = cfg!(all(target_vendor = "apple", target_arch = "aarch64"));
    (total > 0).then_some(MemorySnapshot { available, total, unified })
}
