//! Text on its way, and probabilities over given texts: JSON in, JSON out.

use crate::error::{self, Code, fail};
use crate::{json, now_ms, text};
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::*;
use zen_edge_core::backbone::KvType;
use zen_edge_core::generate::{self, ChooseOptions, GenerateOptions, Generator, Message, Progress, Sampling};

/// What is continued and how, as JSON; what is left out is the core's own.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Ask {
    prompt: Option<String>,
    /// In place of the prompt: a conversation, for the model's chat template.
    messages: Option<Vec<Message>>,
    max_tokens: usize,
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    repetition_penalty: f32,
    seed: u64,
    stop: Vec<String>,
    kv: String,
}

impl Default for Ask {
    fn default() -> Self {
        let GenerateOptions { max_tokens, sampling, stop, kv, .. } = GenerateOptions::default();
        let Sampling { temperature, repetition_penalty, top_k, top_p, min_p, seed, .. } = sampling;
        let kv = kv.name().to_owned();
        Self {
            prompt: None,
            messages: None,
            max_tokens,
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            seed,
            stop,
            kv,
        }
    }
}

/// How options are compared, as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Which {
    prompt: String,
    options: Vec<String>,
    content_free: Option<String>,
    #[serde(default)]
    by_token: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Done<'a> {
    text: &'a str,
    tokens: usize,
    prompt_tokens: usize,
    ended_by: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Share<'a> {
    option: &'a str,
    probability: f64,
    log_likelihood: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_free: Option<f64>,
    tokens: usize,
}

/// A text on its way. Freeing it ends it.
#[wasm_bindgen]
pub struct Generation {
    generation: generate::Generation,
    /// What has come of the text and was not taken yet.
    fresh: String,
}

impl Generation {
    pub fn new(generator: &Generator, ask: &str) -> Result<Self, JsValue> {
        let ask: Ask = json(ask)?;
        let kv = KvType::from_name(&ask.kv)
            .ok_or_else(|| fail(Code::BadRequest, &format!("kv is f32, f16 or int8, not {:?}", ask.kv)))?;
        let prompt = match (ask.prompt, ask.messages) {
            (Some(prompt), None) => prompt,
            (None, Some(messages)) => generator.render(&messages).map_err(|error| error::generate(&error))?,
            _ => return Err(fail(Code::BadRequest, "a prompt is a text, or a list of { role, content }")),
        };
        let options = GenerateOptions {
            max_tokens: ask.max_tokens,
            sampling: Sampling {
                temperature: ask.temperature,
                repetition_penalty: ask.repetition_penalty,
                top_k: ask.top_k,
                top_p: ask.top_p,
                min_p: ask.min_p,
                seed: ask.seed,
                ..Sampling::default()
            },
            stop: ask.stop,
            kv,
            ..GenerateOptions::default()
        };
        let generation = generator.begin(&prompt, &options).map_err(|error| error::generate(&error))?;
        Ok(Self { generation, fresh: String::new() })
    }
}

#[wasm_bindgen]
impl Generation {
    /// Works for about `ms` milliseconds, at least one step of the prompt or one token; whether the text has ended.
    pub fn step(&mut self, ms: f64) -> Result<bool, JsValue> {
        let until = now_ms() + ms;
        loop {
            match self.generation.step().map_err(|error| error::generate(&error))? {
                Progress::Ended => return Ok(true),
                Progress::Reading => {}
                Progress::Piece(piece) => self.fresh.push_str(&piece.text),
            }
            if now_ms() >= until {
                return Ok(self.generation.reason().is_some());
            }
        }
    }

    /// What has come of the text since it was last asked for; it may be empty.
    pub fn fresh(&mut self) -> String {
        std::mem::take(&mut self.fresh)
    }

    /// The whole text with its figures, as JSON; where it had not ended, it is cancelled.
    pub fn finish(self) -> String {
        let done = self.generation.finish();
        text(&Done {
            text: &done.text,
            tokens: done.ids.len(),
            prompt_tokens: done.prompt_tokens,
            ended_by: done.reason.name(),
        })
    }
}

/// How probable each option is; both sides are JSON.
pub fn choose(generator: &Generator, which: &str) -> Result<String, JsValue> {
    let Which { prompt, options, content_free, by_token } = json(which)?;
    let how = ChooseOptions { content_free, by_token, ..ChooseOptions::default() };
    let choices = generator.choose(&prompt, &options, &how).map_err(|error| error::generate(&error))?;
    let shares: Vec<Share<'_>> = options
        .iter()
        .zip(&choices)
        .map(|(option, choice)| Share {
            option,
            probability: choice.probability,
            log_likelihood: choice.log_likelihood,
            content_free: choice.content_free,
            tokens: choice.tokens,
        })
        .collect();
    Ok(text(&shares))
}
