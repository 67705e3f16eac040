//! Decisions, and the rewards that they learn from.

use super::app::{Asked as Body, Server, answer, body, timed};
use super::fields::Fields;
use super::refusal::Refusal;
use crate::ask::Asked;
use crate::engine::{Call, Engine, Input};
use crate::failure::Failure;
use crate::state::State as Kept;
use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use zen_edge_core::backbone::Cancel;
use zen_edge_core::bandit::OutcomeId;
use zen_edge_core::decision::{Context, Limits, Source};
use zen_edge_core::router::{Reward, View};

/// The longest name of a user or a conversation, in bytes.
const NAME: usize = 256;

/// What a body asks.
struct Question {
    prompt: String,
    asked: Asked,
    user: Option<String>,
    conversation: Option<String>,
}

impl Question {
    fn take(mut fields: Fields) -> Result<Self, Refusal> {
        let prompt = fields.take("prompt")?.ok_or(Refusal::Missing("prompt"))?;
        let limits = fields.take::<Limits>("limits")?.unwrap_or_default();
        for (name, value, high) in [
            ("limits.max_cost", limits.max_cost, f64::MAX),
            ("limits.max_latency_ms", limits.max_latency_ms, f64::MAX),
            ("limits.min_quality", limits.min_quality, 1.0),
            ("limits.lambda", limits.lambda, f64::MAX),
            ("limits.mu", limits.mu, f64::MAX),
            ("limits.min_confidence", limits.min_confidence.map(f64::from), 1.0),
        ] {
            if value.is_some_and(|value| !(0.0..=high).contains(&value)) {
                let range = if high == 1.0 { "from 0 to 1" } else { "of at least 0" };
                return Err(Refusal::value(name, format!("give a number {range}")));
            }
        }
        let asked = Asked {
            limits,
            context: fields.take::<Context>("context")?.unwrap_or_default(),
            task: fields.take("task")?,
            media: fields.take("media")?.unwrap_or(false),
            rules: fields.take("rules")?.unwrap_or(false),
            deadline_ms: fields.number("deadline_ms", 0.0, 1e9)?,
            conversation: false,
        };
        let user = fields.word("user", NAME)?;
        let conversation = fields.word("conversation", NAME)?;
        fields.end()?;
        Ok(Self { prompt, asked, user, conversation })
    }

    fn answer(&self, server: &Server, cancel: &Cancel) -> Result<View, Refusal> {
        let engine = server.embedder.engine().ok_or(Refusal::NoHeads)?;
        self.asked
            .check(engine.router().catalog())
            .map_err(|failure| Refusal::value("limits", failure.message))?;
        let (user, conversation) = (self.user.as_deref(), self.conversation.as_deref());
        let call = Call { asked: &self.asked, user, conversation, cancel };
        let answer =
            || engine.answer(&self.prompt, &call).map_err(|error| Refusal::of_backbone(&error, "prompt"));
        if user.is_none() {
            return answer();
        }
        let blank = self.prompt.trim().is_empty();
        if self.asked.deadline_ms.is_none() && !self.asked.rules && !blank {
            // The pass before the lock: then the answer finds its vector, and nobody waits for a pass.
            let read = server.embedder.read(Input::Text(&self.prompt), server.max_tokens, cancel);
            read.map_err(|error| Refusal::of_read(&error, "prompt"))?;
        }
        learning(engine, answer)
    }
}

/// Does something with what was learned. The file is locked meanwhile, and only then: it is the other commands', too.
fn learning<T>(engine: &Engine, act: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    let refuse = |failure: Failure| Refusal::State(failure.message);
    let state = Kept::open().map_err(refuse)?;
    state.load_learning(engine.router()).map_err(refuse)?;
    let done = act()?;
    state.save_learning(engine.router()).map_err(refuse)?;
    Ok(done)
}

/// `/v1/route`: which task a prompt is and which model should answer it, in the JSON of `zen-edge route`.
pub async fn route(State(server): State<Arc<Server>>, asked: Body) -> Result<Response, Refusal> {
    let Body { fields, deadline } = asked;
    let question = Question::take(fields)?;
    let bytes = server.compute(deadline, move |server, cancel| {
        let start = Instant::now();
        let view = question.answer(server, cancel)?;
        let took = start.elapsed();
        if view.tokens > 0 {
            server.metrics.tokens(view.tokens, view.reused, view.cached);
        }
        server.metrics.decided(match view.source {
            Source::Learned => "learned",
            Source::Rules => "rules",
            Source::Fallback => "fallback",
            Source::Tag => "tag",
            Source::Both => "both",
        });
        Ok((body(&view)?, took))
    });
    Ok(timed(bytes.await?))
}

/// `/v1/observe`: how an answer turned out.
pub async fn observe(State(server): State<Arc<Server>>, asked: Body) -> Result<Response, Refusal> {
    let Body { mut fields, deadline } = asked;
    let outcome: OutcomeId = fields.take("outcome")?.ok_or(Refusal::Missing("outcome"))?;
    let reward = Reward {
        quality: fields.number("quality", 0.0, 1.0)?.ok_or(Refusal::Missing("quality"))?,
        cost_per_1k: fields.number("cost", 0.0, f64::MAX)?,
        latency_ms: fields.number("latency_ms", 0.0, f64::MAX)?,
    };
    fields.end()?;
    let done = server.compute(deadline, move |server, _| {
        let engine = server.embedder.engine().ok_or(Refusal::NoHeads)?;
        learning(engine, || {
            engine.router().observe(outcome, reward).map_err(|error| Refusal::Outcome(error.to_string()))
        })
    });
    done.await?;
    Ok(answer(json!({"observed": outcome}).to_string()))
}

/// `/v1/stats`: what the router has done since the server began, and what it holds.
pub async fn stats(State(server): State<Arc<Server>>) -> Result<Response, Refusal> {
    let engine = server.embedder.engine().ok_or(Refusal::NoHeads)?;
    Ok(answer(body(&engine.router().stats())?))
}
