//! Why heads are not fitted.

use crate::rows::RowsError;
use std::path::PathBuf;
use zen_edge_core::catalog::CatalogError;
use zen_edge_core::pack::LoadError;

/// Why heads are not fitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// The rows.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The backbone, or the heads that were made, do not load.
    #[error(transparent)]
    Load(Box<LoadError>),
    /// The catalog.
    #[error(transparent)]
    Catalog(Box<CatalogError>),
    /// No rows at all.
    #[error(
        "there is nothing to fit: give files of rows, such as {{\"prompt\": \"Hi!\", \"task\": \"cheap_chat\"}}"
    )]
    NoRows,
    /// A task head needs classes to tell apart.
    #[error("a task head tells at least two tasks apart, and the rows have {}: add rows of other tasks", if .0.is_empty() { "none".to_owned() } else { format!("only {}", .0.join(", ")) })]
    Classes(Vec<&'static str>),
    /// Nothing says which models there are.
    #[error(
        "no model is known: give outcomes ({{\"prompt\", \"model\", \"quality\", \"cost\"}}) or rows with `route`, or a catalog (--catalog)"
    )]
    NoModels,
    /// Outcomes of models that the catalog does not have.
    #[error("{catalog} has no {}: add a row for each, or take their outcomes out", .ids.join(", "))]
    UnknownModels {
        /// The catalog.
        catalog: String,
        /// The ids.
        ids: Vec<String>,
    },
    /// More models than a route head may have rows.
    #[error("{0} models are too many for a route head")]
    TooManyModels(usize),
    /// An option out of its range.
    #[error("{option}: {why}")]
    Option {
        /// The option.
        option: &'static str,
        /// What it must be.
        why: String,
    },
    /// A cache file cannot be read or written.
    #[error("{file}: {source}")]
    CacheIo {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A cache file is of other vectors.
    #[error(
        "{file} does not hold this backbone's vectors under this read-out and truncation: delete it, or name another cache folder"
    )]
    CacheKey {
        /// The file.
        file: PathBuf,
    },
    /// Another run has the cache.
    #[error("{file} is in use by another run: wait for it, or name another cache folder")]
    CacheBusy {
        /// The file.
        file: PathBuf,
    },
    /// The fit did not lead to numbers.
    #[error(
        "the {head} head came out with values that are no numbers: the vectors are out of any sensible range"
    )]
    Diverged {
        /// `task`, `route` or `feature`.
        head: &'static str,
    },
    /// The tensors cannot be written as a file.
    #[error("the heads cannot be written: {0}")]
    Serialize(safetensors::SafeTensorError),
    /// The report cannot be written as JSON.
    #[error("the report cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    /// A picture cannot be drawn.
    #[error("the picture cannot be drawn: {0}")]
    Picture(String),
    /// A file of the result cannot be written.
    #[error("{file}: {source}")]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

impl From<LoadError> for FitError {
    fn from(error: LoadError) -> Self {
        Self::Load(Box::new(error))
    }
}

impl From<CatalogError> for FitError {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(Box::new(error))
    }
}
