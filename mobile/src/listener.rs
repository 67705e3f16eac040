//! What an app is told while something runs.

use zen_edge_core::router::Stage;

/// Progress of loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Progress {
    /// What comes next, or is under way.
    pub stage: LoadStage,
    /// Bytes of the stage that are done; 0 where a stage has no bytes.
    pub done: u64,
    /// Of so many.
    pub total: u64,
}

/// What loading does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, uniffi::Enum)]
pub enum LoadStage {
    /// Reading config, heads, catalog and policy.
    Heads,
    /// Checking the backbone and mapping its weights.
    Weights,
    /// Building the tokenizer.
    Tokenizer,
    /// Comparing the backbone's SHA-256 with the one that the heads' temperatures were fitted to.
    Hash,
    /// Reading a short prompt, so that the weights are in memory and the speed is known.
    WarmUp,
    /// Done.
    Ready,
}

impl From<Stage> for Progress {
    fn from(stage: Stage) -> Self {
        let (stage, done, total) = match stage {
            Stage::Heads => (LoadStage::Heads, 0, 0),
            Stage::Tokenizer => (LoadStage::Tokenizer, 0, 0),
            Stage::Hash { done, of } => (LoadStage::Hash, done, of),
            _ => (LoadStage::Weights, 0, 0),
        };
        Self { stage, done, total }
    }
}

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, uniffi::Enum)]
pub enum LogLevel {
    /// For who looks into how it works.
    Debug,
    /// What was done.
    Info,
    /// What is probably not meant.
    Warning,
}

/// A listener that failed. It is passed over: the engine goes on.
#[derive(Clone, Debug, thiserror::Error, uniffi::Error)]
pub enum ListenerError {
    /// It threw.
    #[error("{detail}")]
    Failed {
        /// What.
        detail: String,
    },
}

impl From<uniffi::UnexpectedUniFFICallbackError> for ListenerError {
    fn from(error: uniffi::UnexpectedUniFFICallbackError) -> Self {
        Self::Failed { detail: error.reason }
    }
}

/// Who is told of progress and of what is worth a line in a log. It is called on the engine's own thread; what it throws is
/// passed over. No message holds any text of a prompt.
#[uniffi::export(with_foreign)]
pub trait RouterListener: Send + Sync {
    /// Loading comes to a stage, or on with one.
    fn on_progress(&self, progress: Progress) -> Result<(), ListenerError>;
    /// Something is worth a line in a log.
    fn on_log(&self, level: LogLevel, message: String) -> Result<(), ListenerError>;
}
