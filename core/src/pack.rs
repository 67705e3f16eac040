//! A backbone and what belongs to it: heads, config, catalog, policy. Opened from a folder or from parts.

use crate::backbone::BackboneError;
use crate::catalog::CatalogError;
use crate::config::{ConfigError, FieldError};

use crate::gguf::GgufError;
use crate::heads::HeadsError;
#[cfg(not(target_family = "wasm"))]
use crate::source::Memory;
use crate::source::Source;
use crate::tokenizer::TokenizerError;
use std::sync::Arc;

/// Names of a pack's files in its folder.
pub mod files {
    /// The backbone.
    pub const MODEL: &str = "model.gguf";
    /// The heads.
    pub const HEADS: &str = "heads.safetensors";
    /// The config.
    pub const CONFIG: &str = "router_config.json";
    /// The catalog, by any of these names.
    pub const CATALOG: [&str; 3] = ["catalog.yaml", "catalog.yml", "catalog.json"];
    /// The policy; optional.
    pub const POLICY: &str = "router_policy.yaml";
}

/// A text part of a pack: its bytes and what messages call it.
#[derive(Clone, Debug)]
pub struct Part {
    /// What messages call it.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Part {
    /// A part over bytes.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

/// What a router is loaded from.
#[derive(Clone)]
pub struct Pack {
    /// The backbone: a GGUF.
    pub model: Arc<dyn Source>,
    /// The heads: a safetensors file.
    pub heads: Arc<dyn Source>,
    /// `router_config.json`.
    pub config: Part,
    /// The catalog, YAML or JSON. Where there is none, the models are the config's ids, of which nothing else is known.
    pub catalog: Option<Part>,
    /// `router_policy.yaml`.
    pub policy: Option<Part>,
}

/// Why a pack does not open, or its parts do not make a router.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file that must be there is not.
    #[error("{folder} has no {file}: a heads folder holds heads.safetensors and router_config.json")]
    Missing {
        /// The folder.
        folder: String,
        /// The file.
        file: &'static str,
    },
    /// A file cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The backbone's container is damaged.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The backbone cannot be run.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// The backbone's tokenizer cannot be built.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The config is damaged, or contradicts the backbone.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The heads are damaged, or contradict the config.
    #[error(transparent)]
    Heads(#[from] HeadsError),
    /// The catalog is damaged, or lacks a model that the heads know.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The policy is damaged.
    #[error(transparent)]
    Policy(#[from] FieldError),
    /// The caller broke it off.
    #[error("cancelled")]
    Cancelled,
}

impl Pack {
    /// A pack of a backbone and the files of a heads folder: `heads.safetensors`, `router_config.json` and, where they
    /// are there, a catalog and a policy.
    ///
    /// # Errors
    /// [`LoadError::Missing`] and [`LoadError::Io`].
    #[cfg(not(target_family = "wasm"))]
    pub fn with_heads(
        model: Arc<dyn Source>,
        folder: impl AsRef<std::path::Path>,
    ) -> Result<Self, LoadError> {
        let folder = folder.as_ref();
        let part = |file: &'static str| -> Result<Option<Part>, LoadError> {
            let path = folder.join(file);
            let name = path.display().to_string();
            match std::fs::read(&path) {
                Ok(bytes) => Ok(Some(Part { name, bytes })),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(LoadError::Io { file: name, source }),
            }
        };
        let missing = |file| LoadError::Missing { folder: folder.display().to_string(), file };
        let mut catalog = None;
        for file in files::CATALOG {
            if catalog.is_none() {
                catalog = part(file)?;
            }
        }
        Ok(Self {
            model,
            heads: open(&folder.join(files::HEADS)).map_err(|error| match error {
                LoadError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                    missing(files::HEADS)
                }
                other => other,
            })?,
            config: part(files::CONFIG)?.ok_or_else(|| missing(files::CONFIG))?,
            catalog,
            policy: part(files::POLICY)?,
        })
    }

    /// A folder that holds a whole pack: a heads folder with the backbone as `model.gguf`.
    ///
    /// # Errors
    /// [`LoadError::Missing`] and [`LoadError::Io`].
    #[cfg(not(target_family = "wasm"))]
    pub fn open(folder: impl AsRef<std::path::Path>) -> Result<Self, LoadError> {
        Self::with_heads(open(&folder.as_ref().join(files::MODEL))?, folder)
    }
}

#[cfg(not(target_family = "wasm"))]
fn open(path: &std::path::Path) -> Result<Arc<dyn Source>, LoadError> {
    match Memory::open(path) {
        Ok(source) => Ok(Arc::new(source)),
        Err(source) => Err(LoadError::Io { file: path.display().to_string(), source }),
    }
}
