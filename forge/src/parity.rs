//! The harness of [`verify`](crate::verify) and [`ablate`](crate::ablate): a list of prompts through a backbone, and two
//! such runs side by side.
//!
//! Prompts become token ids once, by the heads' config ([`router::encode`]): both runs read the very same ids. Of a run
//! only the vectors are kept; what the heads make of them is worked out when two runs are compared.

mod figures;

pub use figures::{Accuracy, Bootstrap, Comparison, Cosine, Figures, Share, Spread, Stratum, Worst, compare};

use crate::rows::{Row, RowsError};
use std::path::Path;
use std::sync::Arc;
use zen_edge_core::backbone::{Backbone, BackboneError, DEFAULT_CHUNK};
use zen_edge_core::bench::STRATA;
use zen_edge_core::catalog::Task;
use zen_edge_core::config::{ConfigError, RouterConfig};
use zen_edge_core::gguf::{Gguf, GgufError};
use zen_edge_core::heads::{Heads, HeadsError};
use zen_edge_core::pack::{LoadError, Pack};
use zen_edge_core::router;
use zen_edge_core::source::Source;
use zen_edge_core::tensors::TensorFile;
use zen_edge_core::tokenizer::{Tokenizer, TokenizerError};

/// Why two backbones cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParityError {
    /// The rows cannot be read.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// A backbone, heads or a config cannot be loaded, or do not fit each other.
    #[error(transparent)]
    Load(Box<LoadError>),
    /// A file cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The two backbones are of different models.
    #[error(
        "{reference} has {what} {of_reference}, but {model} has {of_model}: a reference is the same model in another format"
    )]
    Shapes {
        /// The reference's file.
        reference: Box<str>,
        /// The other file.
        model: Box<str>,
        /// What differs.
        what: &'static str,
        /// The reference's.
        of_reference: Box<str>,
        /// The other's.
        of_model: Box<str>,
    },
    /// The two files' tokenizers make different ids of a prompt.
    #[error("{reference} and {model} make different tokens of row {row}: their tokenizers are not the same")]
    Tokens {
        /// The reference's file.
        reference: String,
        /// The other file.
        model: String,
        /// The row that shows it, from 1.
        row: usize,
    },
    /// Not one row has text.
    #[error("not one of the {rows} rows has text to read")]
    NoPrompts {
        /// The rows that were looked at.
        rows: usize,
    },
    /// A figure of decisions without heads to decide.
    #[error("{what} is a figure of decisions: give the heads that belong to the backbone by --heads")]
    NoHeads {
        /// The figure.
        what: &'static str,
    },
    /// A threshold that no figure can be held to.
    #[error("{what}: {found} is not a share from 0 to 1")]
    Threshold {
        /// Whose.
        what: &'static str,
        /// What was given.
        found: f64,
    },
    /// A name that is no part of the backbone.
    #[error("--float {name}: no matrix is called so; name a part (ffn_down), a layer (blk.3) or a tensor")]
    Part {
        /// The name.
        name: String,
    },
    /// The caller broke it off.
    #[error("cancelled")]
    Cancelled,
}

impl From<LoadError> for ParityError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Cancelled | LoadError::Backbone(BackboneError::Cancelled) => Self::Cancelled,
            other => Self::Load(Box::new(other)),
        }
    }
}

macro_rules! through_load {
    ($($error:ty),*) => {$(
        impl From<$error> for ParityError {
            fn from(error: $error) -> Self {
                LoadError::from(error).into()
            }
        }
    )*};
}
through_load!(BackboneError, GgufError, ConfigError, HeadsError, TokenizerError);

/// What judges vectors: the heads, and the config that says how a prompt is read.
#[derive(Clone, Debug)]
pub struct Judge {
    /// How a prompt is read.
    pub config: RouterConfig,
    /// Without them only vectors are compared.
    pub heads: Option<Heads>,
}

impl Judge {
    /// The heads and the config of a pack.
    ///
    /// # Errors
    /// Damaged heads or config, or parts that contradict each other.
    pub fn of(pack: &Pack) -> Result<Self, ParityError> {
        let config = RouterConfig::parse(&pack.config.bytes, &pack.config.name)?;
        let heads = TensorFile::open(pack.heads.clone()).map_err(HeadsError::from)?;
        let heads = Some(Heads::load(&heads, &config)?);
        Ok(Self { config, heads })
    }

    /// No heads, and zen-router's way to read a prompt: no chat template, the first 4,000 characters and 2,048 tokens, the
    /// last token's hidden state. BOS and EOS are added where the GGUF says so.
    ///
    /// # Errors
    /// A file that is no backbone.
    pub fn without_heads(gguf: &Gguf) -> Result<Self, ParityError> {
        let hidden = gguf.require_u32(&format!("{}.embedding_length", gguf.architecture()?))?;
        let config = serde_json::json!({
            "tasks": Task::NAMES, "catalog": ["none"], "hidden_size": hidden, "feature_dim": 1,
        });
        let config = RouterConfig::parse(config.to_string().as_bytes(), gguf.source().name())?;
        Ok(Self { config, heads: None })
    }

    /// Reads no more than `tokens` of a prompt. The vector is then another one than the heads were trained on wherever a
    /// prompt is longer.
    #[must_use]
    pub fn reading_at_most(mut self, tokens: Option<usize>) -> Self {
        self.config.max_tokens = self.config.max_tokens.min(tokens.unwrap_or(usize::MAX).max(1));
        self
    }

    /// Checks that a backbone gives what the heads read.
    ///
    /// # Errors
    /// [`ConfigError`], naming both sides.
    pub fn check(&self, gguf: &Gguf, backbone: &Backbone) -> Result<(), ParityError> {
        let pooling = gguf.u32(&format!("{}.pooling_type", gguf.architecture()?))?;
        Ok(self.config.check_backbone(backbone.hidden_size(), pooling)?)
    }
}

/// A prompt as backbones read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its number among the rows of the file, from 0.
    pub row: usize,
    /// What its row calls it.
    pub id: Option<String>,
    /// Its token ids, at least one.
    pub ids: Vec<u32>,
    /// Whether it was longer.
    pub truncated: bool,
    /// The task that its row states.
    pub task: Option<Task>,
}

impl Prompt {
    /// The stratum of its length, an index into [`STRATA`].
    pub fn stratum(&self) -> usize {
        STRATA.iter().position(|(_, _, to)| self.ids.len() <= *to).unwrap_or(STRATA.len() - 1)
    }
}

/// `limit` of the rows, drawn by `seed` without replacement, in the order of the file; each with its number.
pub fn sample(rows: Vec<Row>, limit: Option<usize>, seed: u64) -> Vec<(usize, Row)> {
    let all = rows.into_iter().enumerate();
    let Some(limit) = limit else { return all.collect() };
    let mut rows: Vec<_> = all.collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut rows);
    rows.truncate(limit);
    rows.sort_unstable_by_key(|(at, _)| *at);
    rows
}

/// The prompts of rows, and how many rows were blank: a router decides those by rules.
///
/// # Errors
/// [`ParityError::NoPrompts`].
pub fn encode(
    rows: &[(usize, Row)],
    config: &RouterConfig,
    tokenizer: &Tokenizer,
) -> Result<(Vec<Prompt>, usize), ParityError> {
    let prompts: Vec<Prompt> = rows
        .iter()
        .filter(|(_, row)| !row.prompt.trim().is_empty())
        .map(|(at, row)| {
            let (ids, truncated) = router::encode(config, tokenizer, &row.prompt, config.plain_text);
            Prompt { row: *at, id: row.id.clone(), ids, truncated, task: row.task() }
        })
        .filter(|prompt| !prompt.ids.is_empty())
        .collect();
    let blank = rows.len() - prompts.len();
    if prompts.is_empty() { Err(ParityError::NoPrompts { rows: rows.len() }) } else { Ok((prompts, blank)) }
}

/// Checks that another file's tokenizer makes the same ids.
///
/// # Errors
/// [`ParityError::Tokens`].
pub fn check_tokens(
    rows: &[(usize, Row)],
    prompts: &[Prompt],
    config: &RouterConfig,
    [reference, model]: [&Gguf; 2],
) -> Result<(), ParityError> {
    let tokenizer = Tokenizer::from_gguf(reference)?;
    let mut prompts = prompts.iter().peekable();
    for (at, row) in rows {
        let Some(prompt) = prompts.next_if(|prompt| prompt.row == *at) else { continue };
        if router::encode(config, &tokenizer, &row.prompt, config.plain_text).0 != prompt.ids {
            return Err(ParityError::Tokens {
                reference: reference.source().name().to_owned(),
                model: model.source().name().to_owned(),
                row: at + 1,
            });
        }
    }
    Ok(())
}

/// Checks that two backbones are of one model: what differs is named.
///
/// # Errors
/// [`ParityError::Shapes`].
pub fn check_shapes(reference: &Backbone, model: &Backbone) -> Result<(), ParityError> {
    let (a, b) = (reference.shape(), model.shape());
    let pairs = [
        ("the architecture", a.architecture.name().to_owned(), b.architecture.name().to_owned()),
        ("a hidden state of", a.hidden.to_string(), b.hidden.to_string()),
        ("layers:", a.layers.to_string(), b.layers.to_string()),
        ("query heads:", a.heads.to_string(), b.heads.to_string()),
        ("KV heads:", a.kv_heads.to_string(), b.kv_heads.to_string()),
        ("heads of", a.head_dim.to_string(), b.head_dim.to_string()),
        ("an inner state of", a.ffn.to_string(), b.ffn.to_string()),
        ("a vocabulary of", a.vocab.to_string(), b.vocab.to_string()),
    ];
    match pairs.into_iter().find(|(_, a, b)| a != b) {
        None => Ok(()),
        Some((what, of_reference, of_model)) => Err(ParityError::Shapes {
            reference: reference.source().name().into(),
            model: model.source().name().into(),
            what,
            of_reference: of_reference.into(),
            of_model: of_model.into(),
        }),
    }
}

/// The vectors of prompts, in order. Short prompts go through the layers together; each gets the bits that it gets alone.
///
/// `watch` is told how many tokens have been read so far, and may break off.
///
/// # Errors
/// [`ParityError::Cancelled`], and what the backbone says.
pub fn vectors(
    backbone: &Backbone,
    prompts: &[Prompt],
    watch: &mut dyn FnMut(usize) -> std::ops::ControlFlow<()>,
) -> Result<Vec<Vec<f32>>, ParityError> {
    let (mut out, mut done, mut rest) = (Vec::with_capacity(prompts.len()), 0, prompts);
    while !rest.is_empty() {
        let mut tokens = 0;
        let fits = rest.iter().take_while(|prompt| {
            tokens += prompt.ids.len();
            tokens <= DEFAULT_CHUNK
        });
        let (batch, after) = rest.split_at(fits.count().max(1));
        let ids: Vec<&[u32]> = batch.iter().map(|prompt| &*prompt.ids).collect();
        out.extend(backbone.embed_batch(&ids)?);
        done += ids.iter().map(|ids| ids.len()).sum::<usize>();
        if watch(done).is_break() {
            return Err(ParityError::Cancelled);
        }
        rest = after;
    }
    Ok(out)
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What is being done, as `reference` or a scheme's name.
    pub what: &'a str,
    /// Tokens that have been read of all that are to be read.
    pub done: usize,
    /// All that are to be read.
    pub of: usize,
}

/// What is told how far a command is, and may break it off.
pub type Watch<'a> = &'a mut dyn FnMut(Progress<'_>) -> std::ops::ControlFlow<()>;

/// What a report says of a file: its name without its folder, and its SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileMark {
    /// The file's own name.
    pub file: String,
    /// The SHA-256 of its bytes.
    pub sha256: String,
}

impl FileMark {
    /// Of a source.
    ///
    /// # Errors
    /// [`ParityError::Io`].
    pub fn of(source: &Arc<dyn Source>) -> Result<Self, ParityError> {
        let name = source.name();
        let sha256 = zen_edge_core::source::sha256(&**source)
            .map_err(|source| ParityError::Io { file: name.to_owned(), source })?;
        let file = Path::new(name).file_name().map_or_else(|| name.into(), |name| name.to_string_lossy());
        Ok(Self { file: file.into_owned(), sha256 })
    }
}

/// What a report says of its prompts.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct PromptsMark {
    /// The prompts that were read.
    pub n: usize,
    /// Their tokens.
    pub tokens: usize,
    /// How many were longer than what is read of a prompt.
    pub truncated: usize,
    /// Rows without text, passed over.
    pub blank: usize,
    /// Rows of the file.
    pub rows: usize,
    /// The seed that drew them, where not all rows were taken.
    pub seed: Option<u64>,
    /// Most tokens that are read of a prompt.
    pub max_tokens: usize,
}

impl PromptsMark {
    /// Of prompts drawn from `rows` rows.
    pub fn of(
        prompts: &[Prompt],
        blank: usize,
        rows: usize,
        seed: Option<u64>,
        config: &RouterConfig,
    ) -> Self {
        Self {
            n: prompts.len(),
            tokens: prompts.iter().map(|prompt| prompt.ids.len()).sum(),
            truncated: prompts.iter().filter(|prompt| prompt.truncated).count(),
            blank,
            rows,
            seed: seed.filter(|_| prompts.len() + blank < rows),
            max_tokens: config.max_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_drawn_once_by_its_seed_and_kept_in_order() {
        let rows = || (0..100).map(|i| Row { prompt: i.to_string(), ..Row::default() }).collect::<Vec<_>>();
        let numbers = |limit, seed| -> Vec<usize> {
            sample(rows(), limit, seed)
                .into_iter()
                .map(|(at, row)| {
                    assert_eq!(row.prompt, at.to_string());
                    at
                })
                .collect()
        };
        let ten = numbers(Some(10), 1);
        assert_eq!(ten.len(), 10);
        assert!(ten.windows(2).all(|pair| pair[0] < pair[1]), "{ten:?}");
        assert_eq!(ten, numbers(Some(10), 1));
        assert_ne!(ten, numbers(Some(10), 2));
        assert_eq!(numbers(None, 1), (0..100).collect::<Vec<_>>());
        assert_eq!(numbers(Some(1000), 1).len(), 100);
    }
}
