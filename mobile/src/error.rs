//! Errors as apps see them: one variant for a cause.

use zen_edge_core::backbone::BackboneError;
use zen_edge_core::bench::BenchError;
use zen_edge_core::generate::GenerateError;
use zen_edge_core::gguf::GgufError;
use zen_edge_core::lifecycle::LifecycleError;
use zen_edge_core::pack::LoadError;

/// Why something did not work. `detail` says it in words, with the file, the figures and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error, uniffi::Error)]
#[uniffi::export(Display)]
#[non_exhaustive]
pub enum ZenEdgeError {
    /// The router was closed.
    #[error("{detail}")]
    Closed {
        /// In words.
        detail: String,
    },
    /// The caller cancelled.
    #[error("{detail}")]
    Cancelled {
        /// In words.
        detail: String,
    },
    /// A newer text of the session has come.
    #[error("{detail}")]
    Superseded {
        /// In words.
        detail: String,
    },
    /// More waits already than the engine takes: wait for answers before asking on.
    #[error("{detail}")]
    Busy {
        /// In words.
        detail: String,
    },
    /// Nothing runs now: ask again when the app is seen.
    #[error("{detail}")]
    Deferred {
        /// In words.
        detail: String,
    },
    /// The pack does not fit into the memory.
    #[error("{detail}")]
    OverBudget {
        /// In words.
        detail: String,
        /// Bytes that it would take.
        needs: u64,
        /// Bytes of them that are weights.
        weights: u64,
        /// Bytes that are available.
        available: u64,
        /// Bytes of them that may be taken.
        budget: u64,
    },
    /// There is nothing to read.
    #[error("{detail}")]
    NoTokens {
        /// In words.
        detail: String,
    },
    /// A file is not there, or cannot be read.
    #[error("{detail}")]
    Io {
        /// In words.
        detail: String,
    },
    /// The backbone's file is damaged.
    #[error("{detail}")]
    ModelDamaged {
        /// In words.
        detail: String,
    },
    /// The backbone is one that is not run here.
    #[error("{detail}")]
    ModelUnsupported {
        /// In words.
        detail: String,
    },
    /// The backbone's tokenizer cannot be built.
    #[error("{detail}")]
    Tokenizer {
        /// In words.
        detail: String,
    },
    /// `router_config.json` is damaged, or contradicts the backbone.
    #[error("{detail}")]
    Config {
        /// In words.
        detail: String,
    },
    /// The heads are damaged, or contradict the config.
    #[error("{detail}")]
    Heads {
        /// In words.
        detail: String,
    },
    /// The catalog is damaged, or lacks a model that the heads know.
    #[error("{detail}")]
    Catalog {
        /// In words.
        detail: String,
    },
    /// The policy is damaged.
    #[error("{detail}")]
    Policy {
        /// In words.
        detail: String,
    },
    /// An id that the catalog does not have: a misspelt exclusion would exclude nothing.
    #[error("{detail}")]
    UnknownModel {
        /// In words.
        detail: String,
    },
    /// A reward for an outcome that was never given, was rewarded already or has expired, or a reward that is no number.
    #[error("{detail}")]
    UnknownOutcome {
        /// In words.
        detail: String,
    },
    /// The prompt fills the model's context, so that nothing can be generated.
    #[error("{detail}")]
    PromptTooLong {
        /// In words.
        detail: String,
        /// The prompt's tokens.
        tokens: u64,
        /// The model's.
        context: u64,
    },
    /// The model has no chat template, or it refuses the messages.
    #[error("{detail}")]
    Template {
        /// In words.
        detail: String,
    },
    /// An argument cannot be meant.
    #[error("{detail}")]
    BadRequest {
        /// In words.
        detail: String,
    },
    /// A fault of the engine.
    #[error("{detail}")]
    Internal {
        /// In words.
        detail: String,
    },
}

impl ZenEdgeError {
    pub(crate) fn closed() -> Self {
        LifecycleError::Closed.into()
    }

    pub(crate) fn busy(waiting: usize) -> Self {
        Self::Busy { detail: format!("{waiting} requests wait already: wait for answers before asking on") }
    }

    pub(crate) fn cancelled() -> Self {
        Self::Cancelled { detail: "cancelled".into() }
    }
}

impl From<LifecycleError> for ZenEdgeError {
    fn from(error: LifecycleError) -> Self {
        let detail = error.to_string();
        match error {
            LifecycleError::Closed => Self::Closed { detail },
            LifecycleError::Deferred(_) => Self::Deferred { detail },
            LifecycleError::OverBudget(over) => Self::OverBudget {
                detail,
                needs: over.needs,
                weights: over.footprint.weights,
                available: over.available,
                budget: over.budget,
            },
            LifecycleError::Load(error) => (*error).into(),
            LifecycleError::Backbone(error) => error.into(),
            LifecycleError::Generate(error) => (*error).into(),
            LifecycleError::Bench(error) => match *error {
                BenchError::Backbone(error) => error.into(),
                BenchError::Generate(error) => error.into(),
                _ => Self::BadRequest { detail },
            },
            LifecycleError::Observe(_) => Self::UnknownOutcome { detail },
            _ => Self::Internal { detail },
        }
    }
}

impl From<LoadError> for ZenEdgeError {
    fn from(error: LoadError) -> Self {
        let detail = error.to_string();
        match error {
            LoadError::Gguf(error) => container(&error, detail),
            LoadError::Backbone(error) => error.into(),
            LoadError::Tokenizer(_) => Self::Tokenizer { detail },
            LoadError::Config(_) => Self::Config { detail },
            LoadError::Heads(_) => Self::Heads { detail },
            LoadError::Catalog(_) => Self::Catalog { detail },
            LoadError::Policy(_) => Self::Policy { detail },
            LoadError::Cancelled => Self::Cancelled { detail },
            _ => Self::Io { detail },
        }
    }
}

impl From<BackboneError> for ZenEdgeError {
    fn from(error: BackboneError) -> Self {
        let detail = error.to_string();
        match error {
            BackboneError::Cancelled => Self::Cancelled { detail },
            BackboneError::NoTokens => Self::NoTokens { detail },
            BackboneError::Gguf(error) => container(&error, detail),
            BackboneError::Architecture { .. }
            | BackboneError::UnknownTensor { .. }
            | BackboneError::Impossible { .. }
            | BackboneError::Isa(_) => Self::ModelUnsupported { detail },
            _ => Self::ModelDamaged { detail },
        }
    }
}

impl From<GenerateError> for ZenEdgeError {
    fn from(error: GenerateError) -> Self {
        let detail = error.to_string();
        match error {
            GenerateError::Backbone(error) => error.into(),
            GenerateError::Tokenizer(_) => Self::Tokenizer { detail },
            GenerateError::PromptTooLong { tokens, context } => {
                Self::PromptTooLong { detail, tokens: tokens as u64, context: context as u64 }
            }
            GenerateError::NoTemplate
            | GenerateError::TemplateNotBuilt
            | GenerateError::Template { .. }
            | GenerateError::Messages { .. } => Self::Template { detail },
            _ => Self::BadRequest { detail },
        }
    }
}

fn container(error: &GgufError, detail: String) -> ZenEdgeError {
    match error {
        GgufError::Io { .. } => ZenEdgeError::Io { detail },
        GgufError::UnsupportedType { .. } => ZenEdgeError::ModelUnsupported { detail },
        _ => ZenEdgeError::ModelDamaged { detail },
    }
}
