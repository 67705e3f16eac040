//! Text from a backbone: decoding, a token a pass.
//!
//! The router never decodes. Who wants text, or probabilities over given texts, opens a [`Generator`] beside it: it shares
//! the backbone and the tokenizer and opens the LM head.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//! use zen_edge_core::backbone::BackboneOptions;
//! use zen_edge_core::generate::{GenerateOptions, Generator, Message};
//! use zen_edge_core::source::Memory;
//!
//! let model = Arc::new(Memory::open("model.gguf")?);
//! let generator = Generator::open(model, &BackboneOptions::default())?;
//! let prompt = generator.render(&[Message::new("user", "Name three rivers.")])?;
//! let options = GenerateOptions { max_tokens: 64, ..GenerateOptions::default() };
//! let done = generator.generate(&prompt, &options, &mut |text| {
//!     print!("{text}");
//!     ControlFlow::Continue(())
//! })?;
//! println!("\n{} tokens, ended by {}", done.ids.len(), done.reason.name());
//! # Ok(())
//! # }
//! ```
//!
//! For one GGUF, one prompt and one set of options the text is the same on every CPU: logits have the same bits on every
//! instruction set ([`crate::backbone`]), and sampling uses one generator of random numbers and no function of the system's
//! mathematics library.

mod choose;
mod error;
mod sample;
mod tag;
mod template;
#[cfg(test)]
mod tests;
mod text;

pub use choose::{Choice, ChooseOptions};
pub use error::GenerateError;
pub use sample::Sampling;
pub use tag::{RouteTag, TagError, TagFrame};
#[cfg(feature = "chat-template")]
pub use template::ChatTemplate;
pub use template::Message;

use crate::backbone::{
    Backbone, BackboneError, BackboneOptions, Cancel, Context, Interrupt, KvType, LmHead, Pass, Pooling,
};
use crate::gguf::{Gguf, GgufError};
use crate::source::Source;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use sample::Sampler;
use std::ops::ControlFlow;
use std::sync::Arc;
use text::TextStream;

/// How a text is continued.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Most tokens that are generated.
    pub max_tokens: usize,
    /// How a token is taken from the logits. The default is greedy.
    pub sampling: Sampling,
    /// Texts that end the generation; they are not part of its text. Empty ones are ignored.
    pub stop: Vec<String>,
    /// How the context keeps keys and values.
    pub kv: KvType,
    /// Whether control tokens that stand in the prompt are text like any other. A rendered chat needs them parsed.
    pub plain_text: bool,
    /// Whether the BOS token begins the prompt; `None`: as the GGUF says, but not twice.
    pub add_bos: Option<bool>,
    /// Whether to go on behind a token that ends a text: for measuring.
    pub ignore_end: bool,
    /// Ends the generation from another thread, also while the prompt is read.
    pub cancel: Option<Arc<Cancel>>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: 256,
            sampling: Sampling::default(),
            stop: Vec::new(),
            kv: KvType::F32,
            plain_text: false,
            add_bos: None,
            ignore_end: false,
            cancel: None,
        }
    }
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model ended its text.
    EndOfText,
    /// A stop text came.
    StopString,
    /// As many tokens as were asked for.
    Length,
    /// The model's context is full.
    Context,
    /// The caller cancelled.
    Cancelled,
}

impl StopReason {
    /// Its name in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndOfText => "end_of_text",
            Self::StopString => "stop_string",
            Self::Length => "length",
            Self::Context => "context",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One generated token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The token.
    pub id: u32,
    /// What there is of the text now and was not before. It may be empty: half a character is held back, and what may be
    /// the beginning of a stop text.
    pub text: String,
}

/// What a step of a generation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It read a part of the prompt.
    Reading,
    /// It generated a token.
    Piece(Piece),
    /// Nothing: it has ended.
    Ended,
}

/// A whole generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The text.
    pub text: String,
    /// Its tokens, with the one that ended it.
    pub ids: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it ended.
    pub reason: StopReason,
}

/// A backbone with its LM head, tokenizer and chat template. Cheap to clone; shared by threads.
#[derive(Clone)]
pub struct Generator {
    parts: Arc<Parts>,
}

struct Parts {
    backbone: Arc<Backbone>,
    tokenizer: Arc<Tokenizer>,
    head: LmHead,
    template: Option<String>,
    /// Tokens that end a text.
    ends: Vec<u32>,
}

impl Generator {
    /// Opens a GGUF.
    ///
    /// # Errors
    /// [`GenerateError`], by cause.
    pub fn open(source: Arc<dyn Source>, options: &BackboneOptions) -> Result<Self, GenerateError> {
        let gguf = Gguf::open(source).map_err(BackboneError::from)?;
        let backbone = Arc::new(Backbone::load(&gguf, options)?);
        let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf)?);
        Self::with(&gguf, backbone, tokenizer)
    }

    /// Opens what is missing beside a loaded backbone and its tokenizer.
    ///
    /// # Errors
    /// [`GenerateError`], by cause.
    pub fn new(backbone: Arc<Backbone>, tokenizer: Arc<Tokenizer>) -> Result<Self, GenerateError> {
        let gguf = Gguf::open(backbone.source().clone()).map_err(BackboneError::from)?;
        Self::with(&gguf, backbone, tokenizer)
    }

    fn with(gguf: &Gguf, backbone: Arc<Backbone>, tokenizer: Arc<Tokenizer>) -> Result<Self, GenerateError> {
        let head = backbone.head(gguf)?;
        let string = |key| gguf.str(key).map_err(BackboneError::from);
        let template = string("tokenizer.chat_template")?.map(str::to_owned);
        let ends = ends(gguf, &tokenizer).map_err(BackboneError::from)?;
        Ok(Self { parts: Arc::new(Parts { backbone, tokenizer, head, template, ends }) })
    }

    /// The backbone.
    pub fn backbone(&self) -> &Backbone {
        &self.parts.backbone
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.parts.tokenizer
    }

    /// The LM head.
    pub fn head(&self) -> &LmHead {
        &self.parts.head
    }

    /// The tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.parts.ends
    }

    /// Whether the GGUF has a chat template.
    pub fn has_template(&self) -> bool {
        self.parts.template.is_some()
    }

    /// Bytes that one decoded token reads, keys and values of its context not counted: the weights of every layer and
    /// the LM head.
    pub fn bytes_per_token(&self) -> u64 {
        self.backbone().decode_bytes() + self.head().bytes()
    }

    /// The prompt of a conversation, by the GGUF's chat template, up to where the assistant's answer begins.
    ///
    /// Control tokens that stand in a message's text become control tokens of the prompt, as everywhere: who passes on
    /// what strangers wrote should take them out.
    ///
    /// # Errors
    /// No template; one that cannot be read, or that refuses the messages; a build without the feature `chat-template`.
    pub fn render(&self, messages: &[Message]) -> Result<String, GenerateError> {
        let source = self.parts.template.as_deref().ok_or(GenerateError::NoTemplate)?;
        self.render_by(source, messages)
    }

    #[cfg(not(feature = "chat-template"))]
    fn render_by(&self, _: &str, _: &[Message]) -> Result<String, GenerateError> {
        Err(GenerateError::TemplateNotBuilt)
    }

    #[cfg(feature = "chat-template")]
    fn render_by(&self, source: &str, messages: &[Message]) -> Result<String, GenerateError> {
        let text = |id: Option<u32>| {
            let bytes = id.and_then(|id| self.tokenizer().token_bytes(id)).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let template = ChatTemplate::parse(source)?;
        template.render(messages, &text(self.tokenizer().bos()), &text(self.tokenizer().eos()), true)
    }

    /// Begins a generation. The prompt is tokenised here and read by the first steps.
    ///
    /// # Errors
    /// A prompt without a token, or longer than the model's context; options that cannot be.
    pub fn begin(&self, prompt: &str, options: &GenerateOptions) -> Result<Generation, GenerateError> {
        let ids = self.encode(prompt, options.plain_text, options.add_bos);
        self.begin_ids(ids, options)
    }

    /// [`begin`](Self::begin) with the prompt's tokens.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_ids(
        &self,
        prompt: Vec<u32>,
        options: &GenerateOptions,
    ) -> Result<Generation, GenerateError> {
        let context = self.backbone().shape().context;
        if prompt.len() >= context {
            return Err(GenerateError::PromptTooLong { tokens: prompt.len(), context });
        }
        let sampler = Sampler::new(&options.sampling)?;
        let pass = self.backbone().begin_as(
            &prompt,
            Some(self.backbone().context_of(options.kv)),
            &Pooling::default(),
        )?;
        Ok(Generation {
            generator: self.clone(),
            state: State::Reading(Box::new(pass)),
            sampler,
            text: TextStream::new(&options.stop),
            done: Generated {
                text: String::new(),
                ids: Vec::new(),
                prompt_tokens: prompt.len(),
                reason: StopReason::Cancelled,
            },
            ids: prompt,
            limit: options.max_tokens,
            ignore_end: options.ignore_end,
            cancel: options.cancel.clone(),
        })
    }

    /// Continues a prompt; `on` sees the text piece by piece and may end it.
    ///
    /// # Errors
    /// As [`begin`](Self::begin), and what the backbone says.
    pub fn generate(
        &self,
        prompt: &str,
        options: &GenerateOptions,
        on: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Generated, GenerateError> {
        let mut generation = self.begin(prompt, options)?;
        while let Some(piece) = generation.next_piece()? {
            if !piece.text.is_empty() && on(&piece.text).is_break() {
                break;
            }
        }
        Ok(generation.finish())
    }

    /// A prompt's tokens, BOS as asked for: where nothing is asked for as the GGUF says, but never a second one.
    fn encode(&self, prompt: &str, plain_text: bool, add_bos: Option<bool>) -> Vec<u32> {
        let options = EncodeOptions { plain_text, add_bos, add_eos: Some(false) };
        let mut ids = self.tokenizer().encode(prompt, &options);
        let bos = self.tokenizer().bos();
        if add_bos.is_none() && bos.is_some() && ids.first().copied() == bos && ids.get(1).copied() == bos {
            ids.remove(0);
        }
        ids
    }
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generator").field("backbone", self.backbone()).finish_non_exhaustive()
    }
}

/// The tokens that end a text: those that the GGUF names, and control tokens that are known by their text, since many a
/// chat model's file names another one.
fn ends(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Vec<u32>, GgufError> {
    const KNOWN: [&[u8]; 9] = [
        b"<|im_end|>",
        b"<|eot_id|>",
        b"<|eom_id|>",
        b"<|end_of_text|>",
        b"<|endoftext|>",
        b"<|end|>",
        b"<end_of_turn>",
        b"<end_of_utterance>",
        b"</s>",
    ];
    let mut ends: Vec<u32> = tokenizer.eos().into_iter().collect();
    for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
        ends.extend(gguf.u32(key)?);
    }
    let known = |id: &u32| {
        tokenizer.is_control(*id) && tokenizer.token_bytes(*id).is_some_and(|bytes| KNOWN.contains(&bytes))
    };
    ends.extend((0..tokenizer.vocab_len() as u32).filter(known));
    ends.sort_unstable();
    ends.dedup();
    Ok(ends)
}

enum State {
    /// The prompt is being read.
    Reading(Box<Pass>),
    /// A token a pass.
    Decoding(Context),
    Ended,
}

/// A generation on its way: step by step, for callers that stream or must do other things in between.
pub struct Generation {
    generator: Generator,
    state: State,
    sampler: Sampler,
    text: TextStream,
    /// The prompt's tokens and those generated.
    ids: Vec<u32>,
    done: Generated,
    limit: usize,
    ignore_end: bool,
    cancel: Option<Arc<Cancel>>,
}

impl Generation {
    /// Makes one step: a part of a layer of a chunk of the prompt, or one token.
    ///
    /// # Errors
    /// What the backbone says; the generation has then ended. Being cancelled is no error: see [`StopReason::Cancelled`].
    pub fn step(&mut self) -> Result<Progress, GenerateError> {
        if self.limit == 0 {
            self.end(StopReason::Length);
        }
        if self.cancel.as_deref().is_some_and(Cancel::is_cancelled) {
            self.end(StopReason::Cancelled);
        }
        let generator = self.generator.clone();
        let backbone = generator.backbone();
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Reading(mut pass) => match backbone.step(&mut pass)? {
                Some(hidden) => {
                    let context = pass.into_context().ok_or(BackboneError::NoTokens)?;
                    Ok(Progress::Piece(self.take(&hidden, context)?))
                }
                None => {
                    self.state = State::Reading(pass);
                    Ok(Progress::Reading)
                }
            },
            State::Decoding(mut context) => {
                let interrupt = self.cancel.clone();
                let interrupt = interrupt.as_deref().map(|cancel| cancel as &dyn Interrupt);
                match backbone.embed_as(&mut context, &self.ids, interrupt, &Pooling::default()) {
                    Ok(hidden) => Ok(Progress::Piece(self.take(&hidden, context)?)),
                    Err(BackboneError::Cancelled) => {
                        self.end(StopReason::Cancelled);
                        Ok(Progress::Ended)
                    }
                    Err(error) => Err(error.into()),
                }
            }
            State::Ended => Ok(Progress::Ended),
        }
    }

    /// The next token; `None` when it has ended. The first one takes as long as the prompt is.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn next_piece(&mut self) -> Result<Option<Piece>, GenerateError> {
        loop {
            match self.step()? {
                Progress::Reading => {}
                Progress::Piece(piece) => return Ok(Some(piece)),
                Progress::Ended => return Ok(None),
            }
        }
    }

    /// Tokens of the prompt.
    pub const fn prompt_tokens(&self) -> usize {
        self.done.prompt_tokens
    }

    /// The tokens generated so far.
    pub fn ids(&self) -> &[u32] {
        &self.ids[self.done.prompt_tokens..]
    }

    /// Why it ended; `None` while it has not.
    pub const fn reason(&self) -> Option<StopReason> {
        match self.state {
            State::Ended => Some(self.done.reason),
            _ => None,
        }
    }

    /// What was generated. Where it had not ended, the reason is [`StopReason::Cancelled`].
    pub fn finish(mut self) -> Generated {
        if !matches!(self.state, State::Ended) {
            self.end(StopReason::Cancelled);
        }
        let rest = self.text.flush();
        self.done.text.push_str(&rest);
        self.done.ids = self.ids.split_off(self.done.prompt_tokens);
        self.done
    }

    fn end(&mut self, reason: StopReason) {
        if !matches!(self.state, State::Ended) {
            self.state = State::Ended;
            self.done.reason = reason;
        }
    }

    /// Takes a token from a hidden state.
    fn take(&mut self, hidden: &[f32], context: Context) -> Result<Piece, BackboneError> {
        let generator = self.generator.clone();
        let logits = generator.backbone().logits(generator.head(), hidden)?;
        let id = self.sampler.sample(logits, &self.ids);
        self.ids.push(id);
        let generated = self.ids.len() - self.done.prompt_tokens;
        let bytes = generator.tokenizer().token_bytes(id).unwrap_or_default();
        let ended = !self.ignore_end && generator.ends().contains(&id);
        let mut text = String::new();
        let reason = if ended {
            Some(StopReason::EndOfText)
        } else {
            if !generator.tokenizer().is_control(id) {
                self.text.push(bytes, &mut text);
            }
            if self.text.stopped() {
                Some(StopReason::StopString)
            } else if generated >= self.limit {
                Some(StopReason::Length)
            } else if self.ids.len() >= generator.backbone().shape().context {
                Some(StopReason::Context)
            } else {
                None
            }
        };
        match reason {
            Some(reason) => {
                text.push_str(&self.text.flush());
                self.done.reason = reason;
                self.state = State::Ended;
            }
            None => self.state = State::Decoding(context),
        }
        self.done.text.push_str(&text);
        Ok(Piece { id, text })
    }
}
