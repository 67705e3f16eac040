//! Text that is generated piece by piece.

use crate::engine::{CancelToken, Engine};
use crate::error::ZenEdgeError;
use crate::worker::Worker;
use std::sync::{Arc, Mutex, PoisonError};
use zen_edge_core::backbone::Cancel;
use zen_edge_core::generate;
use zen_edge_core::lifecycle::ManagedGeneration;
use zen_edge_kernels::attention::KvType;

type Message = generate::Message;
type Piece = generate::Piece;
type StopReason = generate::StopReason;

/// A turn of a chat.
#[uniffi::remote(Record)]
pub struct Message {
    /// `system`, `user` or `assistant`; what the model's template knows.
    pub role: String,
    /// Its text.
    pub content: String,
}

/// One generated token.
#[uniffi::remote(Record)]
pub struct Piece {
    /// The token.
    pub id: u32,
    /// What there is of the text now and was not before. It may be empty: half a character is held back.
    pub text: String,
}

/// Why a generation ended.
#[uniffi::remote(Enum)]
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

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, uniffi::Enum)]
pub enum KvPrecision {
    /// As they are computed.
    #[default]
    F32,
    /// Half of the memory.
    F16,
    /// A quarter, and a little.
    Int8,
}

/// What is generated, and how.
#[derive(Clone, Debug, uniffi::Record)]
pub struct GenerateOptions {
    /// Most tokens that are generated.
    #[uniffi(default = 256)]
    pub max_tokens: u32,
    /// 0 takes the most probable token each time; 1 samples as the model was trained.
    #[uniffi(default = 0.0)]
    pub temperature: f32,
    /// How many of the most probable tokens are kept; 0 keeps all.
    #[uniffi(default = 0)]
    pub top_k: u32,
    /// The probability that the kept ones reach together; 1 keeps all.
    #[uniffi(default = 1.0)]
    pub top_p: f32,
    /// The share of the largest probability that a kept one has at least; 0 keeps all.
    #[uniffi(default = 0.0)]
    pub min_p: f32,
    /// Makes tokens that came before less probable; 1 does not.
    #[uniffi(default = 1.0)]
    pub repetition_penalty: f32,
    /// Tokens that the penalty looks back on.
    #[uniffi(default = 64)]
    pub penalty_window: u32,
    /// The same seed gives the same text.
    #[uniffi(default = 0)]
    pub seed: u64,
    /// Texts that end the generation; they are not part of its text.
    #[uniffi(default = [])]
    pub stop: Vec<String>,
    /// How keys and values are kept; `F32` where it is not said.
    #[uniffi(default = None)]
    pub kv: Option<KvPrecision>,
    /// Whether control tokens that stand in the prompt are text like any other.
    #[uniffi(default = false)]
    pub plain_text: bool,
    /// Whether the BOS token begins the prompt; as the GGUF says where it is not said.
    #[uniffi(default = None)]
    pub add_bos: Option<bool>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: 256,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            penalty_window: 64,
            seed: 0,
            stop: Vec::new(),
            kv: None,
            plain_text: false,
            add_bos: None,
        }
    }
}

impl GenerateOptions {
    fn core(&self, cancel: Arc<Cancel>) -> generate::GenerateOptions {
        generate::GenerateOptions {
            max_tokens: self.max_tokens as usize,
            sampling: generate::Sampling {
                temperature: self.temperature,
                repetition_penalty: self.repetition_penalty,
                penalty_window: self.penalty_window as usize,
                top_k: self.top_k as usize,
                top_p: self.top_p,
                min_p: self.min_p,
                seed: self.seed,
            },
            stop: self.stop.clone(),
            kv: match self.kv.unwrap_or_default() {
                KvPrecision::F32 => KvType::F32,
                KvPrecision::F16 => KvType::F16,
                KvPrecision::Int8 => KvType::Int8,
            },
            plain_text: self.plain_text,
            add_bos: self.add_bos,
            cancel: Some(cancel),
            ..generate::GenerateOptions::default()
        }
    }
}

/// How given texts are compared.
#[derive(Clone, Debug, Default, PartialEq, uniffi::Record)]
pub struct ChooseOptions {
    /// A prompt without content in the same form ("N/A" in the place of the text): what an option has there is taken off, so
    /// that a frequent word does not win by being frequent.
    #[uniffi(default = None)]
    pub content_free: Option<String>,
    /// Whether to compare by the mean over an option's tokens instead of the sum: for options of very different lengths.
    #[uniffi(default = false)]
    pub by_token: bool,
    /// Whether control tokens that stand in the texts are text like any other.
    #[uniffi(default = false)]
    pub plain_text: bool,
    /// Whether the BOS token begins the prompt; as the GGUF says where it is not said.
    #[uniffi(default = None)]
    pub add_bos: Option<bool>,
}

/// One option's share.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Choice {
    /// The option.
    pub option: String,
    /// Its probability among the options; all of them sum to 1.
    pub probability: f64,
    /// The natural logarithm of the probability that the model continues the prompt with it, over its whole vocabulary.
    pub log_likelihood: f64,
    /// The same behind the content-free prompt, where one was given.
    pub content_free: Option<f64>,
    /// Its tokens.
    pub tokens: u32,
}

/// A whole generation.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Generated {
    /// The text.
    pub text: String,
    /// Its tokens, with the one that ended it.
    pub ids: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Why it ended.
    pub reason: StopReason,
}

/// A generation on its way. Dropping it ends it.
#[derive(uniffi::Object)]
pub struct Generation {
    worker: Arc<Worker>,
    cancel: Arc<Cancel>,
    /// `None` after [`Self::finish`].
    generation: Arc<Mutex<Option<ManagedGeneration>>>,
}

#[uniffi::export]
impl Engine {
    /// The prompt that a chat's turns make, by the model's own template.
    pub async fn render(&self, messages: Vec<Message>) -> Result<String, ZenEdgeError> {
        let managed = self.managed.clone();
        self.worker.run(Arc::default(), move |_| Ok(managed.generator()?.render(&messages)?)).await
    }

    /// Begins to generate; the text comes by `next`.
    pub async fn generate(
        &self,
        prompt: String,
        options: GenerateOptions,
        token: Option<Arc<CancelToken>>,
    ) -> Result<Arc<Generation>, ZenEdgeError> {
        let managed = self.managed.clone();
        let cancel = crate::engine::cancel(token);
        let options = options.core(cancel.clone());
        let begun =
            self.worker.run(cancel.clone(), move |_| Ok(managed.generate(&prompt, &options)?)).await?;
        let generation = Arc::new(Mutex::new(Some(begun)));
        Ok(Arc::new(Generation { worker: self.worker.clone(), cancel, generation }))
    }

    /// How probable each of `options` is as what follows `prompt`, in their order. They are compared as whole texts: one that
    /// another begins with ("A", "All") is never less probable than it, so end such ones alike ("A.", "All.").
    pub async fn choose(
        &self,
        prompt: String,
        options: Vec<String>,
        how: ChooseOptions,
        token: Option<Arc<CancelToken>>,
    ) -> Result<Vec<Choice>, ZenEdgeError> {
        let managed = self.managed.clone();
        let cancel = crate::engine::cancel(token);
        let ChooseOptions { content_free, by_token, plain_text, add_bos } = how;
        let how = generate::ChooseOptions {
            content_free,
            by_token,
            plain_text,
            add_bos,
            cancel: Some(cancel.clone()),
        };
        let run = self.worker.run(cancel, move |_| {
            let choices = managed.choose(&prompt, &options, &how)?;
            let choice = |(option, choice): (String, generate::Choice)| Choice {
                option,
                probability: choice.probability,
                log_likelihood: choice.log_likelihood,
                content_free: choice.content_free,
                tokens: u32::try_from(choice.tokens).unwrap_or(u32::MAX),
            };
            Ok(options.into_iter().zip(choices).map(choice).collect())
        });
        run.await
    }
}

#[uniffi::export]
impl Generation {
    /// The next piece of the text; nothing when it has ended. The first one takes as long as the prompt is.
    pub async fn next(&self) -> Result<Option<Piece>, ZenEdgeError> {
        let generation = self.generation.clone();
        // A token's cancel ends the generation and is no error; that the future is dropped ends it too.
        let run = self.worker.run_always(self.cancel.clone(), move |_| {
            match &mut *generation.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(generation) => Ok(generation.next_piece()?),
                None => Ok(None),
            }
        });
        run.await
    }

    /// What was generated; where it had not ended, it ends now, as cancelled. Asked twice it is an error.
    pub async fn finish(&self) -> Result<Generated, ZenEdgeError> {
        let generation = self.generation.clone();
        let run = self.worker.run_always(self.cancel.clone(), move |_| {
            let taken = generation.lock().unwrap_or_else(PoisonError::into_inner).take();
            let finished = taken.ok_or_else(|| ZenEdgeError::BadRequest {
                detail: "the generation was finished before".into(),
            })?;
            let generate::Generated { text, ids, prompt_tokens, reason } = finished.finish()?;
            Ok(Generated { text, ids, prompt_tokens: prompt_tokens as u64, reason })
        });
        run.await
    }

    /// Ends it: the next piece is none.
    pub fn stop(&self) {
        self.cancel.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_what_the_engine_takes() {
        let cancel: Arc<Cancel> = Arc::default();
        let ours = GenerateOptions::default().core(cancel.clone());
        let theirs = generate::GenerateOptions { cancel: Some(cancel), ..Default::default() };
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }
}
