//! What a pack will take, before it is loaded.

use crate::backbone::{DEFAULT_CHUNK, Shape};
use crate::cache;
use crate::decision::MemorySnapshot;
use crate::gguf::Gguf;
use crate::pack::{LoadError, Pack};
use crate::policy::Policy;
use crate::router::{PREFIX_BYTES, RouterOptions};

/// What the vocabulary's tables take for a byte of the GGUF's metadata: the strings, and maps over them.
const TABLES: u64 = 5;

/// Bytes that a router over a pack will take, by what for. An estimate, meant to be above what will be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Weights that each prompt reads whole, as the file has them.
    pub weights: u64,
    /// Whether they are pages of a mapped file, which the system may take and read again, or memory of the process.
    pub mapped: bool,
    /// The heads.
    pub heads: u64,
    /// The tokenizer's tables.
    pub vocabulary: u64,
    /// The activations of one chunk, and the residual stream and one layer's keys and values of the longest prompt.
    pub activations: u64,
    /// What earlier prompts may leave behind, at most.
    pub caches: u64,
}

/// A pack that does not fit, with the figures.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "the router would take {} MB ({} MB of them weights); of {} MB available it may take {} MB ({fraction:.2}): close \
     something, choose a smaller backbone, or load without a memory snapshot",
    mb(*.needs), mb(.footprint.weights), mb(*.available), mb(*.budget)
)]
pub struct OverBudget {
    /// What it would take.
    pub footprint: Footprint,
    /// The sum.
    pub needs: u64,
    /// Bytes that are available.
    pub available: u64,
    /// The share of them that may be taken.
    pub fraction: f64,
    /// The bytes of that share.
    pub budget: u64,
}

fn mb(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

impl Footprint {
    /// Reads the backbone's metadata; the weights are not touched.
    ///
    /// # Errors
    /// What [`crate::router::Router::load`] would say of a container that cannot be read.
    pub fn of(pack: &Pack, options: &RouterOptions) -> Result<Self, LoadError> {
        let gguf = Gguf::open(pack.model.clone())?;
        let shape = Shape::read(&gguf).map_err(LoadError::Backbone)?;
        let config = crate::config::RouterConfig::parse(&pack.config.bytes, &pack.config.name)?;
        let read =
            gguf.tensors().iter().filter(|t| !matches!(&*t.name, "token_embd.weight" | "output.weight"));
        let weights =
            read.map(|tensor| tensor.row_bytes().saturating_mul(tensor.rows())).fold(0, u64::saturating_add);
        let first = gguf.tensors().first();
        let view = first.and_then(|_| gguf.source().view(gguf.data_start(), 0));
        let longest = config.max_tokens.min(shape.context.max(1)) as u64;
        let chunk = longest.min(options.chunk.unwrap_or(DEFAULT_CHUNK).max(1) as u64);
        let (queries, keys) =
            ((shape.heads * shape.head_dim) as u64, (shape.kv_heads * shape.head_dim) as u64);
        let (hidden, ffn) = (shape.hidden as u64, shape.ffn as u64);
        // Of a chunk: the normed state, queries twice (before and after attention), keys, values, gate and up, and the
        // 8-bit activations beside the widest of them.
        let row = 4 * (hidden + 2 * queries + 2 * keys + 2 * ffn) + 2 * ffn.max(hidden).max(queries);
        let activations = chunk * row + longest * 4 * (hidden + 2 * keys);
        Ok(Self {
            weights,
            mapped: view.is_some_and(|bytes| bytes.is_mapped()),
            heads: pack.heads.len(),
            vocabulary: TABLES.saturating_mul(gguf.data_start()),
            activations,
            caches: (options.cache_bytes.unwrap_or(cache::DEFAULT_BYTES) as u64)
                .saturating_add(options.prefix_bytes.unwrap_or(PREFIX_BYTES) as u64),
        })
    }

    /// Memory of the process: all but weights that are mapped.
    #[must_use]
    pub fn private(&self) -> u64 {
        let weights = if self.mapped { 0 } else { self.weights };
        [weights, self.heads, self.vocabulary, self.activations, self.caches]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// All of it. Mapped weights count too: each prompt reads them whole, and where they do not fit each prompt reads them
    /// from the disk.
    #[must_use]
    pub fn total(&self) -> u64 {
        let mapped = if self.mapped { self.weights } else { 0 };
        self.private().saturating_add(mapped)
    }

    /// Whether it fits: at most `policy`'s share of what is available, as for any local model.
    ///
    /// # Errors
    /// [`OverBudget`], with the figures.
    pub fn check(&self, memory: &MemorySnapshot, policy: &Policy) -> Result<(), OverBudget> {
        let available = memory.available.min(memory.total);
        let fraction = policy.fraction(memory.unified);
        let budget = (available as f64 * fraction) as u64;
        let needs = self.total();
        if needs <= budget {
            return Ok(());
        }
        Err(OverBudget { footprint: *self, needs, available, fraction, budget })
    }
}
