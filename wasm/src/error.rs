//! Errors as JavaScript sees them: an `Error` with a `code`, one for a cause.

use wasm_bindgen::JsValue;
use zen_edge_core::backbone::BackboneError;
use zen_edge_core::generate::GenerateError;
use zen_edge_core::gguf::GgufError;
use zen_edge_core::pack::LoadError;

/// The codes; npm/src/errors.ts describes them.
#[derive(Clone, Copy)]
pub enum Code {
    Aborted,
    BadRequest,
    Catalog,
    ChatTemplate,
    Config,
    Heads,
    Io,
    Messages,
    ModelDamaged,
    ModelUnsupported,
    NoChatTemplate,
    NoTokens,
    OutOfMemory,
    Policy,
    PromptTooLong,
    Tokenizer,
    UnknownModel,
    UnknownOutcome,
}

impl Code {
    const fn name(self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::BadRequest => "bad_request",
            Self::Catalog => "catalog",
            Self::ChatTemplate => "chat_template",
            Self::Config => "config",
            Self::Heads => "heads",
            Self::Io => "io",
            Self::Messages => "messages",
            Self::ModelDamaged => "model_damaged",
            Self::ModelUnsupported => "model_unsupported",
            Self::NoChatTemplate => "no_chat_template",
            Self::NoTokens => "no_tokens",
            Self::OutOfMemory => "out_of_memory",
            Self::Policy => "policy",
            Self::PromptTooLong => "prompt_too_long",
            Self::Tokenizer => "tokenizer",
            Self::UnknownModel => "unknown_model",
            Self::UnknownOutcome => "unknown_outcome",
        }
    }
}

/// An error of this code.
pub fn fail(code: Code, message: &str) -> JsValue {
    let error = js_sys::Error::new(message);
    // A fresh object takes any property.
    let _ = js_sys::Reflect::set(&error, &"code".into(), &code.name().into());
    error.into()
}

/// Why a router does not load.
pub fn load(error: &LoadError) -> JsValue {
    let code = match error {
        LoadError::Gguf(error) => container(error),
        LoadError::Backbone(error) => return backbone(error),
        LoadError::Tokenizer(_) => Code::Tokenizer,
        LoadError::Config(_) => Code::Config,
        LoadError::Heads(_) => Code::Heads,
        LoadError::Catalog(_) => Code::Catalog,
        LoadError::Policy(_) => Code::Policy,
        _ => Code::Io,
    };
    fail(code, &error.to_string())
}

/// Why a prompt is not read.
pub fn backbone(error: &BackboneError) -> JsValue {
    let code = match error {
        BackboneError::Cancelled => Code::Aborted,
        BackboneError::NoTokens => Code::NoTokens,
        BackboneError::Gguf(error) => container(error),
        BackboneError::Architecture { .. }
        | BackboneError::UnknownTensor { .. }
        | BackboneError::Impossible { .. }
        | BackboneError::Isa(_) => Code::ModelUnsupported,
        _ => Code::ModelDamaged,
    };
    fail(code, &error.to_string())
}

/// Why no text is generated, or no option chosen.
pub fn generate(error: &GenerateError) -> JsValue {
    let code = match error {
        GenerateError::Backbone(error) => return backbone(error),
        GenerateError::Tokenizer(_) => Code::Tokenizer,
        GenerateError::PromptTooLong { .. } => Code::PromptTooLong,
        GenerateError::NoTemplate => Code::NoChatTemplate,
        GenerateError::Template { .. } => Code::ChatTemplate,
        GenerateError::Messages { .. } => Code::Messages,
        // Options that cannot be.
        _ => Code::BadRequest,
    };
    fail(code, &error.to_string())
}

fn container(error: &GgufError) -> Code {
    match error {
        GgufError::Io { .. } => Code::Io,
        GgufError::OutOfMemory { .. } => Code::OutOfMemory,
        GgufError::UnsupportedType { .. } => Code::ModelUnsupported,
        _ => Code::ModelDamaged,
    }
}
