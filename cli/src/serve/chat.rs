//! `/v1/chat/completions`, as OpenAI answers it: whole, or piece by piece.

use super::app::{Asked, Deadline, Guarded, Server, answer, body};
use super::fields::Fields;
use super::refusal::Refusal;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use zen_edge_core::backbone::Cancel;
use zen_edge_core::generate::{
    GenerateError, GenerateOptions, Generated, Generation, Generator, Message, Sampling, StopReason,
};

/// Tokens of an answer where a request does not say how many it may have.
const TOKENS: usize = 1024;
/// Stop texts of a request, and the bytes of one.
const STOPS: usize = 16;
const STOP_BYTES: usize = 1024;

/// What OpenAI's clients send and what changes nothing of a text here. docs/serve.md lists them.
const IGNORED: [&str; 13] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "reasoning_effort",
    "verbosity",
    "prediction",
    "moderation",
    "top_logprobs",
];

/// A message as a client sends it.
#[derive(Deserialize)]
struct Said {
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(flatten)]
    more: serde_json::Map<String, Value>,
}

/// What a body asks.
struct Question {
    messages: Vec<Message>,
    options: GenerateOptions,
    stream: bool,
    /// Whether a stream ends with the tokens' count.
    usage: bool,
}

#[derive(Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
    // OpenAI pads its chunks against an observer on the network; nobody observes a loopback.
    #[serde(default, rename = "include_obfuscation")]
    _obfuscation: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Many(Vec<String>),
}

fn message(at: usize, said: Said) -> Result<Message, Refusal> {
    let param = |field: &str| format!("messages[{at}].{field}");
    let role = match said.role.as_str() {
        // OpenAI's newer word for it; templates do not know it.
        "developer" => "system".to_owned(),
        "system" | "user" | "assistant" => said.role,
        _ => return Err(Refusal::value(param("role"), "give system, developer, user or assistant")),
    };
    for field in ["tool_calls", "function_call", "audio"] {
        let asks = said.more.get(field).is_some_and(|value| !value.is_null() && value != &json!([]));
        if asks {
            return Err(Refusal::Unsupported { param: param(field), hint: ": only text is" });
        }
    }
    let content = match said.content {
        Value::String(text) => text,
        Value::Null if role == "assistant" => String::new(),
        Value::Array(parts) => {
            let mut whole = String::new();
            for (i, part) in parts.iter().enumerate() {
                let text = match &part["type"] {
                    Value::String(kind) if kind == "text" => part["text"].as_str(),
                    _ => None,
                };
                let Some(text) = text else {
                    let param = param(&format!("content[{i}]"));
                    return Err(Refusal::Unsupported { param, hint: ": only parts of type text are" });
                };
                whole.push_str(text);
            }
            whole
        }
        _ => return Err(Refusal::value(param("content"), "give a text, or a list of parts of type text")),
    };
    Ok(Message { role, content })
}

impl Question {
    fn take(mut fields: Fields) -> Result<Self, Refusal> {
        let said: Vec<Said> = fields.take("messages")?.ok_or(Refusal::Missing("messages"))?;
        if said.is_empty() {
            return Err(Refusal::value("messages", "give at least one"));
        }
        let messages: Result<_, _> =
            said.into_iter().enumerate().map(|(at, said)| message(at, said)).collect();
        let stop = match fields.take("stop")? {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Many(texts)) => texts,
        };
        if stop.len() > STOPS || stop.iter().any(|text| text.is_empty() || text.len() > STOP_BYTES) {
            return Err(Refusal::value(
                "stop",
                format!("give at most {STOPS} texts of 1 to {STOP_BYTES} bytes"),
            ));
        }
        let default = Sampling::default();
        let sampling = Sampling {
            temperature: fields.number("temperature", 0.0, 2.0)?.map_or(default.temperature, |t| t as f32),
            top_p: fields.take("top_p")?.unwrap_or(default.top_p),
            top_k: fields.take("top_k")?.unwrap_or(default.top_k),
            min_p: fields.take("min_p")?.unwrap_or(default.min_p),
            repetition_penalty: fields.take("repetition_penalty")?.unwrap_or(default.repetition_penalty),
            // Whoever asks for chance and names no seed does not want the same answer again.
            seed: fields
                .take::<i64>("seed")?
                .map_or_else(|| RandomState::new().hash_one(SystemTime::now()), |seed| seed as u64),
            ..default
        };
        let (new, old) = (fields.take("max_completion_tokens")?, fields.take("max_tokens")?);
        let options = GenerateOptions {
            max_tokens: new.or(old).unwrap_or(TOKENS),
            sampling,
            stop,
            // A template's control tokens are to be read as such.
            plain_text: false,
            ..GenerateOptions::default()
        };
        let stream = fields.take("stream")?.unwrap_or(false);
        let usage = fields.take::<StreamOptions>("stream_options")?.and_then(|options| options.include_usage);
        fields.ignore(&IGNORED);
        let nothing = |value: &Value| value == 0 || value == 0.0 || value == false || value == &json!([]);
        let none = |value: &Value| value == &json!([]) || value == &json!({});
        for name in ["frequency_penalty", "presence_penalty"] {
            fields.unsupported(name, ": repetition_penalty is", nothing)?;
        }
        fields.unsupported("n", ": one answer at a time is", |value| value == 1)?;
        fields.unsupported("logprobs", "", nothing)?;
        fields.unsupported("tool_choice", "", |value| value == "none" || value == "auto")?;
        fields.unsupported("function_call", "", |value| value == "none" || value == "auto")?;
        fields.unsupported("response_format", ": text is", |value| value["type"] == "text")?;
        fields.unsupported("modalities", ": text is", |value| value == &json!(["text"]))?;
        for name in ["tools", "functions", "logit_bias", "audio", "web_search_options"] {
            fields.unsupported(name, "", none)?;
        }
        fields.end()?;
        Ok(Self { messages: messages?, options, stream, usage: usage.unwrap_or(false) })
    }

    /// Begins the answer: everything but the passes.
    fn begin(&self, generator: &Generator, model: &str, cancel: &Arc<Cancel>) -> Result<Generation, Refusal> {
        let options = GenerateOptions { cancel: Some(cancel.clone()), ..self.options.clone() };
        let prompt = generator.render(&self.messages).map_err(|error| refusal(error, model))?;
        generator.begin(&prompt, &options).map_err(|error| refusal(error, model))
    }
}

fn refusal(error: GenerateError, model: &str) -> Refusal {
    match error {
        GenerateError::NoTemplate => Refusal::NoTemplate(model.to_owned()),
        GenerateError::Messages { why } => Refusal::Template(why),
        GenerateError::PromptTooLong { .. } => Refusal::TooLong(error.to_string()),
        GenerateError::Option { option, why, .. } => Refusal::value(option, why),
        GenerateError::Backbone(error) => Refusal::of_backbone(&error, "messages"),
        _ => Refusal::Engine(error.to_string()),
    }
}

/// OpenAI's word for why an answer ended.
const fn finish(reason: StopReason) -> &'static str {
    match reason {
        StopReason::EndOfText | StopReason::StopString => "stop",
        StopReason::Length | StopReason::Context | StopReason::Cancelled => "length",
    }
}

fn usage(done: &Generated) -> Value {
    let (prompt, new) = (done.prompt_tokens, done.ids.len());
    json!({"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new})
}

/// What every part of one answer says of it.
struct Head {
    id: String,
    created: u64,
}

impl Head {
    fn new(server: &Server) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let id = format!("chatcmpl-{:x}-{:x}", server.since, COUNT.fetch_add(1, Ordering::Relaxed));
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { id, created }
    }

    fn object(&self, kind: &str, model: &str, choices: Value) -> Value {
        json!({"id": self.id, "object": kind, "created": self.created, "model": model, "choices": choices})
    }
}

/// `/v1/chat/completions`.
pub async fn completions(State(server): State<Arc<Server>>, asked: Asked) -> Result<Response, Refusal> {
    let Asked { mut fields, deadline } = asked;
    server.check_model(fields.take("model")?)?;
    let question = Question::take(fields)?;
    // Before it takes a place: no waiting changes it.
    let generator =
        server.generator.clone().map_err(|why| Refusal::NoGenerator(server.names[0].clone(), why))?;
    if !generator.has_template() {
        return Err(Refusal::NoTemplate(server.names[0].clone()));
    }
    if question.stream {
        return streamed(server, generator, question, deadline).await;
    }
    let bytes = server.compute(deadline, move |server, cancel| {
        let model = &server.names[0];
        let mut generation = question.begin(&generator, model, cancel)?;
        while generation.next_piece().map_err(|error| refusal(error, model))?.is_some() {}
        let done = generation.finish();
        count(server, &done);
        if done.reason == StopReason::Cancelled {
            return Err(Refusal::Cancelled);
        }
        let message = json!({"role": "assistant", "content": done.text, "refusal": null});
        let finish = finish(done.reason);
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish});
        let mut whole = Head::new(server).object("chat.completion", model, json!([choice]));
        whole["usage"] = usage(&done);
        body(&whole)
    });
    Ok(answer(bytes.await?))
}

fn count(server: &Server, done: &Generated) {
    if !done.ids.is_empty() {
        server.metrics.tokens(done.prompt_tokens, 0, false);
        server.metrics.generated(done.ids.len());
    }
}

/// What the thread that generates tells the one that sends.
enum Part {
    /// The question is in order.
    Begun,
    Text(String),
    Done(Generated),
    Failed(Refusal),
}

/// Generates and tells. Ends when nobody listens any more.
fn tell(
    server: &Server,
    generator: &Generator,
    question: &Question,
    cancel: &Arc<Cancel>,
    to: &mpsc::UnboundedSender<Part>,
) {
    let model = &server.names[0];
    let mut generation = match question.begin(generator, model, cancel) {
        Ok(generation) => generation,
        Err(refusal) => return drop(to.send(Part::Failed(refusal))),
    };
    let mut listening = to.send(Part::Begun).is_ok();
    while listening {
        match generation.next_piece() {
            Ok(None) => break,
            Ok(Some(piece)) if piece.text.is_empty() => {}
            Ok(Some(piece)) => listening = to.send(Part::Text(piece.text)).is_ok(),
            Err(error) => return drop(to.send(Part::Failed(refusal(error, model)))),
        }
    }
    let done = generation.finish();
    count(server, &done);
    drop(to.send(match done.reason {
        StopReason::Cancelled => Part::Failed(Refusal::Cancelled),
        _ => Part::Done(done),
    }));
}

async fn streamed(
    server: Arc<Server>,
    generator: Generator,
    question: Question,
    deadline: Deadline,
) -> Result<Response, Refusal> {
    let cancel = Guarded(Arc::new(Cancel::new()));
    let late = || Refusal::Timeout(server.timeout.as_secs_f64());
    let place = timeout_at(deadline.0, server.gate.enter()).await.map_err(|_| late())??;
    // Without a bound: a client that reads slowly holds no thread, and an answer is no longer than the context.
    let (to, mut from) = mpsc::unbounded_channel();
    let with_usage = question.usage;
    let job = {
        let (server, cancel) = (server.clone(), cancel.0.clone());
        move || {
            let _place = place;
            tell(&server, &generator, &question, &cancel, &to);
        }
    };
    drop(tokio::task::spawn_blocking(job));
    // A question that makes no sense has its status, not a stream.
    match timeout_at(deadline.0, from.recv()).await.map_err(|_| late())? {
        Some(Part::Begun) => {}
        Some(Part::Failed(refusal)) => return Err(refusal),
        _ => return Err(Refusal::Panicked),
    }
    let parts =
        Parts { head: Head::new(&server), server, from, deadline, with_usage, over: false, _cancel: cancel };
    Ok(Sse::new(parts.events()).into_response())
}

/// A stream on its way. Dropped with its connection, and then it cancels.
struct Parts {
    head: Head,
    server: Arc<Server>,
    from: mpsc::UnboundedReceiver<Part>,
    deadline: Deadline,
    with_usage: bool,
    over: bool,
    _cancel: Guarded,
}

impl Parts {
    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Value {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        let mut chunk = self.head.object("chat.completion.chunk", &self.server.names[0], json!([choice]));
        if self.with_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn last(&self, done: &Generated) -> Vec<String> {
        let mut events = vec![self.chunk(&json!({}), Some(finish(done.reason))).to_string()];
        if self.with_usage {
            let mut chunk = self.head.object("chat.completion.chunk", &self.server.names[0], json!([]));
            chunk["usage"] = usage(done);
            events.push(chunk.to_string());
        }
        events.push("[DONE]".to_owned());
        events
    }

    /// The next events, as their data; `None` at the end.
    async fn next(&mut self) -> Option<Vec<String>> {
        if self.over {
            return None;
        }
        let part = match timeout_at(self.deadline.0, self.from.recv()).await {
            Ok(part) => part.unwrap_or(Part::Failed(Refusal::Panicked)),
            Err(_) => Part::Failed(Refusal::Timeout(self.server.timeout.as_secs_f64())),
        };
        Some(match part {
            Part::Begun => Vec::new(),
            Part::Text(text) => vec![self.chunk(&json!({"content": text}), None).to_string()],
            Part::Done(done) => {
                self.over = true;
                self.last(&done)
            }
            // The status is sent already: OpenAI's clients know an event of this form as an error.
            Part::Failed(refusal) => {
                self.over = true;
                vec![refusal.json().to_string()]
            }
        })
    }

    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        let first = self.chunk(&json!({"role": "assistant", "content": ""}), None).to_string();
        let waiting = std::collections::VecDeque::from([first]);
        stream::unfold((self, waiting), async |(mut parts, mut waiting)| {
            loop {
                if let Some(data) = waiting.pop_front() {
                    return Some((Ok(Event::default().data(data)), (parts, waiting)));
                }
                waiting.extend(parts.next().await?);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(body: &Value) -> Result<Question, Refusal> {
        Question::take(Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn messages_are_texts_of_three_roles() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let body = json!({"messages": [
            {"role": "developer", "content": "s"},
            {"role": "user", "content": parts, "name": "ann"},
            {"role": "assistant", "content": null, "tool_calls": []},
        ]});
        let expected = [("system", "s"), ("user", "ab"), ("assistant", "")];
        let messages = take(&body).unwrap().messages;
        assert_eq!(messages, expected.map(|(role, content)| Message::new(role, content)));
        for (wrong, param) in [
            (json!({"role": "tool", "content": "x"}), "messages[0].role"),
            (json!({"role": "user"}), "messages[0].content"),
            (json!({"role": "user", "content": [{"type": "image_url"}]}), "messages[0].content[0]"),
            (json!({"role": "assistant", "tool_calls": [{}]}), "messages[0].tool_calls"),
            (json!({"role": 3}), "messages"),
        ] {
            let refusal = take(&json!({"messages": [wrong]})).err().unwrap();
            assert_eq!(refusal.json()["error"]["param"], param, "{refusal}");
        }
        assert_eq!(take(&json!({})).err(), Some(Refusal::Missing("messages")));
        assert!(take(&json!({"messages": []})).is_err());
    }

    #[test]
    fn what_would_change_the_answer_is_done_or_refused_by_name() {
        let with = |more: Value| {
            let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            take(&body)
        };
        let plain = with(json!({})).unwrap();
        assert_eq!((plain.options.sampling.temperature, plain.options.max_tokens), (0.0, TOKENS));
        assert!(!plain.stream && !plain.usage && plain.options.stop.is_empty());
        let all = with(json!({
            "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.5, "seed": -1,
            "max_tokens": 3, "stop": "x", "stream": true, "stream_options": {"include_usage": true},
        }))
        .unwrap();
        let sampling = Sampling {
            temperature: 0.5,
            top_p: 0.9,
            top_k: 7,
            min_p: 0.1,
            repetition_penalty: 1.5,
            seed: u64::MAX,
            ..Sampling::default()
        };
        assert_eq!((all.options.sampling, all.options.max_tokens), (sampling, 3));
        assert!(all.stream && all.usage && all.options.stop == ["x"]);
        let newer = with(json!({"max_tokens": 3, "max_completion_tokens": 4, "stop": ["a", "b"]})).unwrap();
        assert_eq!((newer.options.max_tokens, newer.options.stop.len()), (4, 2));
        let nothing = json!({
            "n": 1, "tools": [], "tool_choice": "none", "logprobs": false, "frequency_penalty": 0, "presence_penalty": 0.0,
            "logit_bias": {}, "response_format": {"type": "text"}, "modalities": ["text"], "user": "u", "store": true,
            "functions": null, "stop": null,
        });
        assert!(with(nothing).is_ok());
        for (field, value) in [
            ("n", json!(2)),
            ("tools", json!([{}])),
            ("tool_choice", json!("required")),
            ("logprobs", json!(true)),
            ("frequency_penalty", json!(0.5)),
            ("presence_penalty", json!(-0.5)),
            ("logit_bias", json!({"5": 1})),
            ("response_format", json!({"type": "json_object"})),
            ("modalities", json!(["text", "audio"])),
        ] {
            let refusal = with(json!({field: value})).err().unwrap();
            assert_eq!(
                (refusal.code(), &refusal.json()["error"]["param"]),
                ("unsupported_field", &json!(field))
            );
        }
        for (field, value) in [
            ("temperature", json!(3)),
            ("top_k", json!(-1)),
            ("max_tokens", json!(-1)),
            ("stop", json!("")),
            ("stop", json!(vec!["x"; 17])),
            ("seed", json!(0.5)),
            ("stream", json!("yes")),
        ] {
            assert_eq!(with(json!({field: value})).err().unwrap().code(), "invalid_value", "{field}");
        }
        assert_eq!(with(json!({"temprature": 1})).err().unwrap().code(), "unknown_field");
    }
}
