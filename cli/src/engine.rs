//! What answers prompts: a router of the core with its parts from the command line, and the machine's state for it.

use crate::ask::Asked;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model::locate;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zen_edge_core::backbone::{Backbone, BackboneError, BackboneOptions, Cancel};
use zen_edge_core::config::Keep;
use zen_edge_core::decision::{Context, MemorySnapshot};
use zen_edge_core::generate::{GenerateError, Generator};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::pack::{LoadError, Pack};
use zen_edge_core::router::{
    BackendInfo, Clock, Device, GpuReader, Milliseconds, Reading, Request, Router, RouterOptions,
    SystemClock, TagRequest, Timings, View,
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
    /// What reads the prompt: the cpu, a gpu once it has proved itself against the CPU, or auto, which takes a GPU for the prompts
    /// for which it measures it to be faster. Where the GPU does not answer the CPU does, and says why
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = device())]
    device: Device,
}

fn device() -> impl clap::builder::TypedValueParser<Value = Device> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(Device::ALL.map(Device::name))
        .map(|name| Device::from_name(&name).unwrap_or_default())
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

    fn router_options(&self) -> RouterOptions {
        RouterOptions {
            threads: self.threads(),
            isa: self.isa,
            device: self.device,
            #[cfg(feature = "gpu")]
            gpu_notes: match self.device {
                Device::Cpu => None,
                Device::Gpu | Device::Auto => crate::state::gpu_notes().map(|notes| Arc::new(notes) as _),
            },
            ..RouterOptions::default()
        }
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
        if self.device != Device::Cpu {
            let why = "--device is for route, embed and serve: a text is generated on the CPU";
            return Err(Failure::new(Exit::Usage, why));
        }
        let options =
            BackboneOptions { isa: self.isa, threads: self.threads(), ..BackboneOptions::default() };
        Ok(Generator::open(self.model()?, &options)?)
    }

    /// The backbone alone, on the CPU.
    ///
    /// # Errors
    /// As [`Engine::open`].
    #[cfg(feature = "gpu")]
    pub fn backbone(&self) -> Result<Arc<Backbone>, Failure> {
        let gguf = Gguf::open(self.model()?).map_err(LoadError::from)?;
        let options =
            BackboneOptions { isa: self.isa, threads: self.threads(), ..BackboneOptions::default() };
        Ok(Arc::new(Backbone::load(&gguf, &options).map_err(LoadError::from)?))
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
    /// What the heads read: the last token's hidden state after the final norm, or what their config's `pooling` says.
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
    /// Whether the backbone is the default pack's.
    inside: bool,
    context: Context,
    plain_text: Option<bool>,
    asked: Asked,
    user: Option<String>,
    /// What the backbone is asked for beside the heads.
    tag: Option<(Generator, TagRequest)>,
}

/// A prompt of a server: each is asked in its own way.
pub struct Call<'a> {
    /// Limits and situation; its `conversation` does not count.
    pub asked: &'a Asked,
    /// Whose rewards count.
    pub user: Option<&'a str>,
    /// The conversation's key.
    pub conversation: Option<&'a str>,
    /// Ends the pass.
    pub cancel: &'a Cancel,
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
        let options = args.router_options();
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
        Ok(Self {
            router,
            inside: args.model.is_none(),
            context,
            plain_text,
            asked: Asked::default(),
            user: None,
            tag: None,
        })
    }

    /// The router.
    pub const fn router(&self) -> &Router {
        &self.router
    }

    /// From now on the backbone is asked for its route tag too.
    ///
    /// # Errors
    /// Where the backbone has no LM head that can be run.
    pub fn ask_tag(&mut self, tag: TagRequest) -> Result<(), Failure> {
        self.tag = Some((self.router.generator()?, tag));
        Ok(())
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
            cpu_only: false,
            rules_only: self.asked.rules,
            deadline_ms: self.asked.deadline_ms,
            user: self.user.as_deref(),
            conversation: self.asked.conversation.then_some(CONVERSATION),
            cancel: None,
        }
    }

    /// As [`Engine::route`], asked as `call` says and not as [`Engine::ask`] did. The machine's memory is that of this
    /// moment, where the caller says nothing of it.
    ///
    /// # Errors
    /// What the backbone says.
    pub fn answer(&self, prompt: &str, call: &Call<'_>) -> Result<View, BackboneError> {
        let Asked { limits, context, task, media, rules, deadline_ms, .. } = call.asked;
        let context = Context { memory: context.memory.or_else(memory), ..context.clone() };
        let request = Request {
            limits: limits.clone(),
            context,
            task: *task,
            has_media: *media,
            plain_text: self.plain_text,
            cpu_only: false,
            rules_only: *rules,
            deadline_ms: *deadline_ms,
            user: call.user,
            conversation: call.conversation,
            cancel: Some(call.cancel),
        };
        let outcome = self.router.route(prompt, &request)?;
        Ok(View::new(&self.router, limits, outcome))
    }

    /// Which task the prompt is, and which model should answer it.
    ///
    /// # Errors
    /// What the backbone says.
    pub fn route(&self, prompt: &str) -> Result<View, Failure> {
        let outcome = match &self.tag {
            Some((generator, tag)) => self.router.route_by_tag(generator, prompt, &self.request(), tag)?,
            None => self.router.route(prompt, &self.request()).map_err(LoadError::from)?,
        };
        Ok(View::new(&self.router, &self.asked.limits, outcome))
    }
}

/// What gives vectors: a router by the contract of its config, or a backbone alone.
pub enum Embedder {
    /// The default pack: the prompt is cut as its heads expect it.
    Routed(Box<Engine>),
    /// A GGUF: the whole prompt, with the tokens before and after it that the file asks for.
    Alone(Box<Alone>),
}

/// A backbone without heads.
pub struct Alone {
    backbone: Arc<Backbone>,
    gpu: Arc<GpuReader>,
    tokenizer: Arc<Tokenizer>,
    options: EncodeOptions,
}

/// What is embedded.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A text, tokenised here.
    Text(&'a str),
    /// Token ids, taken as they are: nothing is put before or after them.
    Ids(&'a [u32]),
}

/// Why there is no vector.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// What the backbone says.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// Nothing cuts the prompt, and it is longer than the caller allows.
    #[error("the prompt has {tokens} tokens, and at most {most} are read")]
    TooLong { tokens: usize, most: usize },
}

impl Embedder {
    /// Loads what `args` name.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open(args: &Args) -> Result<Self, Failure> {
        Self::open_with(args, None)
    }

    /// Loads what `args` name, with the heads in a folder where there is one.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_with(args: &Args, heads: Option<&Path>) -> Result<Self, Failure> {
        if args.model.is_none() || heads.is_some() {
            return Ok(Self::Routed(Box::new(Engine::open(args, heads)?)));
        }
        let model = args.model()?;
        let gguf = Gguf::open(model).map_err(LoadError::from)?;
        let options =
            BackboneOptions { isa: args.isa, threads: args.threads(), ..BackboneOptions::default() };
        let backbone = Arc::new(Backbone::load(&gguf, &options).map_err(LoadError::from)?);
        let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).map_err(LoadError::from)?);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let gpu = GpuReader::open(&backbone, &args.router_options(), &clock);
        let options = EncodeOptions { plain_text: args.plain_text, ..EncodeOptions::default() };
        Ok(Self::Alone(Box::new(Alone { backbone, gpu, tokenizer, options })))
    }

    /// The router, where there are heads.
    pub fn engine(&self) -> Option<&Engine> {
        match self {
            Self::Routed(engine) => Some(engine),
            Self::Alone(_) => None,
        }
    }

    /// The backbone.
    pub fn backbone(&self) -> &Backbone {
        match self {
            Self::Routed(engine) => engine.router.backbone(),
            Self::Alone(alone) => &alone.backbone,
        }
    }

    /// What the model is called: its file's name without the ending, or that of the pack inside the program.
    pub fn name(&self) -> String {
        if matches!(self, Self::Routed(engine) if engine.inside) {
            return "zen-edge-default".to_owned();
        }
        let name = Path::new(self.backbone().source().name());
        name.file_stem().unwrap_or(name.as_os_str()).to_string_lossy().into_owned()
    }

    /// The backbone as a language model: it is the same one, with its LM head opened.
    ///
    /// # Errors
    /// A head that this version cannot run.
    pub fn generator(&self) -> Result<Generator, GenerateError> {
        match self {
            Self::Routed(engine) => engine.router.generator(),
            Self::Alone(alone) => Generator::new(alone.backbone.clone(), alone.tokenizer.clone()),
        }
    }

    /// The prompt's vector.
    ///
    /// # Errors
    /// What the backbone says; a prompt without a token has no vector.
    pub fn embed(&self, prompt: &str) -> Result<Embedding, Failure> {
        match self.read(Input::Text(prompt), usize::MAX, &Cancel::new()) {
            Ok((vector, reading)) => Ok(Embedding::new(vector, reading)),
            Err(ReadError::Backbone(error)) => Err(LoadError::from(error).into()),
            Err(error @ ReadError::TooLong { .. }) => Err(Failure::new(Exit::Other, error.to_string())),
        }
    }

    /// The vector of a text or of token ids, not normalised, and what was read for it. Where no config cuts a prompt,
    /// one of more than `most` tokens is refused.
    ///
    /// # Errors
    /// [`ReadError::TooLong`], and what the backbone says: [`BackboneError::Cancelled`] where `cancel` ended it.
    pub fn read(
        &self,
        input: Input<'_>,
        most: usize,
        cancel: &Cancel,
    ) -> Result<(Vec<f32>, Reading), ReadError> {
        match self {
            Self::Routed(engine) => match input {
                Input::Text(prompt) => {
                    let request = Request { cancel: Some(cancel), ..engine.request() };
                    let embedding = engine.router.embed(prompt, &request)?;
                    Ok((embedding.vector, embedding.reading))
                }
                Input::Ids(ids) => {
                    let config = engine.router.config();
                    let over = ids.len().saturating_sub(config.max_tokens);
                    let kept = match config.keep {
                        Keep::Start => &ids[..ids.len() - over],
                        Keep::End => &ids[over..],
                    };
                    Ok(pass(engine.router.backbone(), None, kept, over > 0, Duration::ZERO, cancel)?)
                }
            },
            Self::Alone(alone) => {
                let start = Instant::now();
                let ids = match input {
                    Input::Text(prompt) => &alone.tokenizer.encode(prompt, &alone.options),
                    Input::Ids(ids) => ids,
                };
                if ids.len() > most {
                    return Err(ReadError::TooLong { tokens: ids.len(), most });
                }
                Ok(pass(&alone.backbone, Some(&alone.gpu), ids, false, start.elapsed(), cancel)?)
            }
        }
    }
}

/// A pass over ids by the backbone alone: nothing is looked up, nothing is kept.
fn pass(
    backbone: &Backbone,
    gpu: Option<&GpuReader>,
    ids: &[u32],
    truncated: bool,
    tokenize: Duration,
    cancel: &Cancel,
) -> Result<(Vec<f32>, Reading), BackboneError> {
    let start = Instant::now();
    let by_gpu = gpu.and_then(|gpu| gpu.embed(ids, Some(cancel)));
    let on_gpu = by_gpu.is_some();
    let vector = match by_gpu {
        Some(vector) => vector?,
        None => backbone.embed_cancellable(ids, cancel)?,
    };
    let timings = Timings { tokenize, prefill: start.elapsed(), heads: Duration::ZERO };
    let mut backend = BackendInfo::cpu(backbone);
    if let Some(gpu) = gpu {
        backend.fallback = gpu.fallback();
        if on_gpu {
            gpu.sign(&mut backend);
        }
    }
    Ok((vector, Reading { tokens: ids.len(), reused: 0, truncated, cached: false, backend, timings }))
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
