//! Why a request is not answered: one variant for a cause, as OpenAI's clients read it.

use crate::engine::ReadError;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use zen_edge_core::backbone::BackboneError;

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The body is no JSON object.
    #[error("the body is no JSON object: {0}")]
    Json(String),
    /// A field has a value that it cannot have.
    #[error("{param}: {why}")]
    Value { param: String, why: String },
    /// A field that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field that nobody here knows.
    #[error("{param} is no field of this request; it has: {known}")]
    Unknown { param: String, known: String },
    /// A field of OpenAI's that is not done here, and that would change the answer.
    #[error("{param} is not supported here{hint}; leave it out")]
    Unsupported { param: String, hint: &'static str },
    /// A prompt without a token.
    #[error("{param} has no tokens: an empty prompt has no vector")]
    Empty { param: String },
    /// A token id that the vocabulary does not have.
    #[error("{param}: {why}")]
    Token { param: String, why: String },
    /// The model has no chat template.
    #[error("{0} has no chat template, so messages cannot be put to it; serve a chat model by --model")]
    NoTemplate(String),
    /// The chat template refuses the messages.
    #[error("the model's chat template refuses the messages: {0}")]
    Template(String),
    /// The prompt leaves no room for an answer.
    #[error("{0}")]
    TooLong(String),
    /// Another model is asked for than is served.
    #[error(
        "there is no model {asked} here; this server has {served} (another name for it is given by --alias)"
    )]
    Model { asked: String, served: String },
    /// What is asked needs heads.
    #[error("this server has a backbone without heads: start it with --heads, or without --model, to route")]
    NoHeads,
    /// The served model cannot generate.
    #[error("{0} cannot generate text: {1}")]
    NoGenerator(String, String),
    /// There is nothing at this path.
    #[error("there is nothing at {0}; docs/serve.md lists what there is")]
    Path(String),
    /// The path is asked by another method.
    #[error("{0} is not answered to this method")]
    Method(String),
    /// No key, or a wrong one.
    #[error("the API key is missing or wrong; send it as `Authorization: Bearer KEY`")]
    Key,
    /// The request names a host that is not this one: a page may have bound its own name to this address.
    #[error("this server is not {0}; --allow-host lets another name in")]
    Host(String),
    /// A page of another origin asks.
    #[error("pages of {0} may not ask this server; --cors lets an origin in")]
    Origin(String),
    /// The body is larger than allowed.
    #[error("the body has more than {0} bytes; --max-body allows more")]
    TooLarge(usize),
    /// The body broke off.
    #[error("the body could not be read: {0}")]
    Broken(String),
    /// The body did not come in time.
    #[error("the body did not come within {0} s")]
    Slow(f64),
    /// As many requests run and wait as may.
    #[error("{running} requests run and {waiting} wait: try again soon")]
    Busy { running: usize, waiting: usize },
    /// The answer was not there in time.
    #[error("there was no answer within {0} s; --timeout allows more")]
    Timeout(f64),
    /// The client went away, or the server ends.
    #[error("cancelled")]
    Cancelled,
    /// The outcome is not known, or has had its reward.
    #[error("{0}")]
    Outcome(String),
    /// What was learned cannot be read or written.
    #[error("{0}")]
    State(String),
    /// The engine failed.
    #[error("{0}")]
    Engine(String),
    /// A fault of this program.
    #[error("this is a fault of zen-edge: the request's thread ended by a panic")]
    Panicked,
}

impl Refusal {
    /// A field's wrong value.
    pub fn value(param: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Value { param: param.into(), why: why.into() }
    }

    /// Why the input that `param` names has no vector.
    pub fn of_read(error: &ReadError, param: impl Into<String>) -> Self {
        match error {
            ReadError::Backbone(error) => Self::of_backbone(error, param),
            ReadError::TooLong { .. } => Self::TooLong(format!("{}: {error} (--max-tokens)", param.into())),
        }
    }

    /// What the backbone says of the input that `param` names.
    pub fn of_backbone(error: &BackboneError, param: impl Into<String>) -> Self {
        match error {
            BackboneError::NoTokens => Self::Empty { param: param.into() },
            BackboneError::Token { .. } => Self::Token { param: param.into(), why: error.to_string() },
            BackboneError::Cancelled => Self::Cancelled,
            _ => Self::Engine(error.to_string()),
        }
    }

    /// The HTTP status.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Json(_)
            | Self::Value { .. }
            | Self::Missing(_)
            | Self::Unknown { .. }
            | Self::Unsupported { .. }
            | Self::Empty { .. }
            | Self::Token { .. }
            | Self::NoTemplate(_)
            | Self::Template(_)
            | Self::TooLong(_)
            | Self::Outcome(_)
            | Self::Broken(_) => StatusCode::BAD_REQUEST,
            Self::Key => StatusCode::UNAUTHORIZED,
            Self::Host(_) | Self::Origin(_) => StatusCode::FORBIDDEN,
            Self::Model { .. } | Self::NoHeads | Self::Path(_) => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoGenerator(..) => StatusCode::NOT_IMPLEMENTED,
            Self::Busy { .. } | Self::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::State(_) | Self::Engine(_) | Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What a program tells the cause by. Part of the interface: a code keeps its meaning.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Json(_) => "invalid_json",
            Self::Value { .. } => "invalid_value",
            Self::Missing(_) => "missing_field",
            Self::Unknown { .. } => "unknown_field",
            Self::Unsupported { .. } => "unsupported_field",
            Self::Empty { .. } => "empty_input",
            Self::Token { .. } => "invalid_token",
            Self::NoTemplate(_) => "no_chat_template",
            Self::Template(_) => "chat_template_error",
            Self::TooLong(_) => "context_length_exceeded",
            Self::Model { .. } => "model_not_found",
            Self::NoHeads => "no_heads",
            Self::NoGenerator(..) => "no_generator",
            Self::Path(_) => "not_found",
            Self::Method(_) => "method_not_allowed",
            Self::Key => "invalid_api_key",
            Self::Host(_) => "host_not_allowed",
            Self::Origin(_) => "origin_not_allowed",
            Self::TooLarge(_) => "body_too_large",
            Self::Broken(_) => "body_broken",
            Self::Slow(_) => "body_timeout",
            Self::Busy { .. } => "overloaded",
            Self::Timeout(_) => "timeout",
            Self::Cancelled => "cancelled",
            Self::Outcome(_) => "unknown_outcome",
            Self::State(_) => "state_error",
            Self::Engine(_) => "engine_error",
            Self::Panicked => "internal_error",
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Value { param, .. }
            | Self::Unknown { param, .. }
            | Self::Unsupported { param, .. }
            | Self::Empty { param }
            | Self::Token { param, .. } => Some(param),
            Self::Missing(param) => Some(param),
            Self::Model { .. } => Some("model"),
            _ => None,
        }
    }

    /// The body, in OpenAI's form.
    pub fn json(&self) -> serde_json::Value {
        let kind = if self.status().is_server_error() { "server_error" } else { "invalid_request_error" };
        json!({"error": {"message": self.to_string(), "type": kind, "param": self.param(), "code": self.code()}})
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.json().to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self {
            Self::Busy { .. } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // Of the body something is left: the connection is of no more use.
            Self::TooLarge(_) | Self::Slow(_) | Self::Broken(_) => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Self::Key => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
