//! Why the program ends early: a message that says what to do, and its exit code.

use crate::exit::Exit;
use crate::output::plain;
use crate::pull::PullError;
use std::io::ErrorKind;
use zen_edge_core::backbone::BackboneError;
use zen_edge_core::catalog::CatalogError;
use zen_edge_core::config::ConfigError;
use zen_edge_core::generate::GenerateError;
use zen_edge_core::gguf::GgufError;
use zen_edge_core::heads::HeadsError;
use zen_edge_core::inspect::InspectError;
use zen_edge_core::pack::LoadError;
use zen_edge_core::tensors::TensorFileError;
use zen_edge_core::tokenizer::TokenizerError;

/// A message for a person and a code for a script.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong, with what, and what to do.
    pub message: String,
}

impl Failure {
    /// A failure of one's own words.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// A file that cannot be opened or read.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        let path = path.display();
        match error.kind() {
            ErrorKind::NotFound => Self::new(Exit::Missing, format!("there is no file {path}")),
            ErrorKind::IsADirectory => Self::new(Exit::Missing, format!("{path} is a folder, not a file")),
            ErrorKind::PermissionDenied => {
                Self::new(Exit::Missing, format!("{path} may not be read: {error}"))
            }
            _ => Self::new(Exit::Missing, format!("{path} cannot be read: {error}")),
        }
    }
}

impl Failure {
    /// A file that cannot be written.
    pub fn unwritable(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new(Exit::Other, format!("{} cannot be written: {error}", path.display()))
    }
}

impl From<PullError> for Failure {
    fn from(error: PullError) -> Self {
        Self { exit: error.exit(), message: error.to_string() }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let exit = match &error {
            LoadError::Missing { .. } | LoadError::Io { .. } => Exit::Missing,
            LoadError::Gguf(error) => of_gguf(error),
            LoadError::Backbone(error) => of_backbone(error),
            LoadError::Tokenizer(error) => of_tokenizer(error),
            LoadError::Config(error) => of_config(error),
            LoadError::Heads(error) => of_heads(error),
            LoadError::Catalog(CatalogError::RouteRows { .. }) => Exit::Mismatch,
            LoadError::Catalog(_) | LoadError::Policy(_) => Exit::Format,
            _ => Exit::Other,
        };
        Self { exit, message: plain(&error.to_string()) }
    }
}

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Self {
        let exit = match &error {
            GenerateError::Backbone(error) => of_backbone(error),
            GenerateError::Tokenizer(error) => of_tokenizer(error),
            GenerateError::Template { .. } => Exit::Format,
            GenerateError::NoTemplate => Exit::Unsupported,
            _ => Exit::Usage,
        };
        Self { exit, message: plain(&error.to_string()) }
    }
}

impl From<InspectError> for Failure {
    fn from(error: InspectError) -> Self {
        let exit = match &error {
            InspectError::Io { .. } => Exit::Missing,
            InspectError::Gguf(error) => of_gguf(error),
            InspectError::Safetensors(error) => of_tensors(error),
            _ => Exit::Format,
        };
        Self { exit, message: plain(&error.to_string()) }
    }
}

/// What is wrong with a container is wrong with the file, but for what a newer or other writer may rightly do.
fn of_gguf(error: &GgufError) -> Exit {
    match error {
        GgufError::Io { .. } => Exit::Missing,
        GgufError::Version { .. } | GgufError::BigEndian { .. } | GgufError::UnsupportedType { .. } => {
            Exit::Unsupported
        }
        GgufError::OutOfMemory { .. } => Exit::Other,
        _ => Exit::Format,
    }
}

fn of_tensors(error: &TensorFileError) -> Exit {
    match error {
        TensorFileError::Io { .. } => Exit::Missing,
        TensorFileError::OutOfMemory { .. } => Exit::Other,
        _ => Exit::Format,
    }
}

fn of_backbone(error: &BackboneError) -> Exit {
    match error {
        BackboneError::Gguf(error) => of_gguf(error),
        BackboneError::Isa(_) => Exit::Usage,
        BackboneError::Architecture { .. }
        | BackboneError::Impossible { .. }
        | BackboneError::UnknownTensor { .. } => Exit::Unsupported,
        BackboneError::TensorShape { .. } | BackboneError::Matrix { .. } | BackboneError::NotFinite => {
            Exit::Format
        }
        BackboneError::Token { .. } => Exit::Mismatch,
        _ => Exit::Other,
    }
}

fn of_tokenizer(error: &TokenizerError) -> Exit {
    match error {
        TokenizerError::Metadata(error) => of_gguf(error),
        TokenizerError::UnsupportedModel { .. }
        | TokenizerError::MissingPre { .. }
        | TokenizerError::UnknownPre { .. }
        | TokenizerError::VocabTooLarge { .. }
        | TokenizerError::TooManyMerges { .. } => Exit::Unsupported,
        TokenizerError::OutOfMemory { .. } => Exit::Other,
        _ => Exit::Format,
    }
}

fn of_config(error: &ConfigError) -> Exit {
    match error {
        ConfigError::Pooling { .. }
        | ConfigError::Normalize { .. }
        | ConfigError::TrainedLength { .. }
        | ConfigError::TrainedUnknown { .. }
        | ConfigError::BackboneHidden { .. }
        | ConfigError::BackbonePooling { .. } => Exit::Mismatch,
        _ => Exit::Format,
    }
}

fn of_heads(error: &HeadsError) -> Exit {
    match error {
        HeadsError::File(error) => of_tensors(error),
        HeadsError::Shape { .. } | HeadsError::Hash { .. } | HeadsError::Length { .. } => Exit::Mismatch,
        _ => Exit::Format,
    }
}
