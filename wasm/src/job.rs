//! Prompts on their way, and what is asked of them.

use crate::error::{Code, backbone, fail};
use crate::{json, now_ms, text};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wasm_bindgen::prelude::*;
use zen_edge_core::catalog::Task;
use zen_edge_core::decision::{Context, Limits};
use zen_edge_core::router::{self, BackendInfo, Milliseconds, Request, Router, Session, View};

/// A request as JSON.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub struct Ask {
    pub limits: Limits,
    context: Context,
    task: Option<Task>,
    media: bool,
    plain_text: Option<bool>,
    rules: bool,
    deadline_ms: Option<f64>,
    user: Option<String>,
    conversation: Option<String>,
}

impl Ask {
    pub fn request(&self) -> Request<'_> {
        Request {
            limits: self.limits.clone(),
            context: self.context.clone(),
            task: self.task,
            has_media: self.media,
            plain_text: self.plain_text,
            rules_only: self.rules,
            cpu_only: false,
            deadline_ms: self.deadline_ms,
            user: self.user.as_deref(),
            conversation: self.conversation.as_deref(),
            cancel: None,
        }
    }

    /// Refuses ids that the catalog does not have: a misspelt exclusion would exclude nothing.
    pub fn check(&self, router: &Router) -> Result<(), JsValue> {
        let catalog = router.catalog();
        let ids = self.limits.exclude.iter().chain(&self.context.running);
        match ids.into_iter().find(|id| catalog.find(id).is_none()) {
            None => Ok(()),
            Some(id) => {
                let known: Vec<&str> = catalog.cards().iter().map(|card| &*card.id).collect();
                let known = known.join(", ");
                Err(fail(Code::UnknownModel, &format!("the catalog has no model {id}; it has: {known}")))
            }
        }
    }
}

/// A prompt on its way. Freeing it cancels it.
#[wasm_bindgen]
pub struct Job {
    router: Arc<Router>,
    job: router::Job,
    limits: Limits,
}

/// What `zen-edge embed --json` prints beside the vector.
#[derive(Serialize)]
struct Read {
    norm: f32,
    tokens: usize,
    reused: usize,
    truncated: bool,
    cached: bool,
    backend: BackendInfo,
    timings: Milliseconds,
}

/// A vector and what was read for it.
#[wasm_bindgen]
pub struct Embedded {
    vector: Vec<f32>,
    read: String,
}

#[wasm_bindgen]
impl Embedded {
    /// The vector.
    pub fn vector(&self) -> Vec<f32> {
        self.vector.clone()
    }

    /// What was read, as JSON.
    pub fn read(&self) -> String {
        self.read.clone()
    }
}

impl Job {
    pub fn new(router: Arc<Router>, job: router::Job, limits: Limits) -> Self {
        Self { router, job, limits }
    }
}

#[wasm_bindgen]
impl Job {
    /// Works for about `ms` milliseconds, at least one step; whether it is done.
    pub fn step(&mut self, ms: f64) -> bool {
        let until = now_ms() + ms;
        loop {
            if self.job.step() {
                return true;
            }
            if now_ms() >= until {
                return false;
            }
        }
    }

    /// The answer, as the JSON of `zen-edge route --json`.
    pub fn outcome(self) -> Result<String, JsValue> {
        let outcome = self.job.outcome().map_err(|error| backbone(&error))?;
        Ok(text(&View::new(&self.router, &self.limits, outcome)))
    }

    /// The vector.
    pub fn embedding(self) -> Result<Embedded, JsValue> {
        let router::Embedding { vector, reading } = self.job.embedding().map_err(|error| backbone(&error))?;
        let norm = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt() as f32;
        let read = text(&Read {
            norm,
            tokens: reading.tokens,
            reused: reading.reused,
            truncated: reading.truncated,
            cached: reading.cached,
            timings: Milliseconds::new(&reading.timings),
            backend: reading.backend,
        });
        Ok(Embedded { vector, read })
    }
}

/// A text that is being typed.
#[wasm_bindgen]
pub struct Typing {
    router: Arc<Router>,
    session: Arc<Session>,
}

impl Typing {
    pub fn new(router: Arc<Router>) -> Self {
        Self { session: Arc::new(Session::new(router.clone())), router }
    }
}

#[wasm_bindgen]
impl Typing {
    /// Begins to answer the text as it is now; a job of an older text ends at its next step.
    pub fn begin(&self, prompt: &str, request: &str) -> Result<Job, JsValue> {
        let ask: Ask = json(request)?;
        ask.check(&self.router)?;
        Ok(Job::new(self.router.clone(), self.session.begin(prompt, &ask.request()), ask.limits))
    }

    /// Forgets the text.
    pub fn clear(&self) {
        self.session.clear();
    }
}
