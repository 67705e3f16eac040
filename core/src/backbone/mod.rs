//! A prompt's token ids to the vector that the heads read: the last token's hidden state, or what [`Pooling`] says.
//!
//! A pass runs prefill: of the last layer no more than the vector needs, and no LM head. Who generates opens the head
//! beside it ([`Backbone::head`]) and goes on in a [`Context`], a token a pass. Weights stay as the file has them (mapped
//! pages natively); embedding rows are gathered from the file, one by one, and where that is a call each, kept for a while.
//!
//! For one GGUF and one list of ids the vector is the same to the bit for any instruction set, any number of threads, any
//! chunk size, alone or in a batch, with or without a reused prefix.

mod architecture;
mod embedding;
mod forward;
#[cfg(feature = "gpu")]
pub mod gpu;
mod head;
mod pooling;
#[cfg(test)]
mod tests;
mod trace;
mod weights;

pub use architecture::{Architecture, Shape};
pub use forward::{Cancel, Context, FloatPass, Interrupt, Observer, Pass};
pub use head::LmHead;
pub use pooling::{MAX_PARTS, Part, Pooling, PoolingError, Tokens};
pub use trace::{Fault, LayerTrace, Trace};
pub(crate) use weights::parts;
pub use weights::{Held, Weights};

use crate::gguf::{Gguf, GgufError, TensorInfo};
use crate::source::Source;
use architecture::Plan;
use std::sync::Arc;
use weights::Layer;
pub use zen_edge_kernels::attention::KvType;
use zen_edge_kernels::gemm::MatrixError;
use zen_edge_kernels::isa::{Isa, IsaError};
use zen_edge_kernels::pool::Pool;

/// Tokens that go through a layer together where nothing else is asked for.
///
/// Larger chunks unpack the weights less often; smaller ones keep the activations in the cache.
pub const DEFAULT_CHUNK: usize = 512;

/// How a backbone runs.
#[derive(Clone, Debug, Default)]
pub struct BackboneOptions {
    /// The instruction set; the best of this processor where none is given.
    pub isa: Option<Isa>,
    /// Threads; as many as the process may use where none are given.
    pub threads: Option<usize>,
    /// Threads that are there already, in place of `threads`.
    pub pool: Option<Pool>,
    /// Tokens in a chunk of prefill; [`DEFAULT_CHUNK`] where none is given.
    pub chunk: Option<usize>,
    /// How weights and activations are multiplied.
    pub arithmetic: Arithmetic,
    /// What of a pass becomes its vector.
    pub pooling: Pooling,
}

/// How weights and activations are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// Quantised weights with int8 activations, exact sums: fast, and what users run.
    #[default]
    Int8,
    /// Every weight as f32, and products in f32: what a file's weights say, to judge the other by. Several times slower;
    /// the weights are held in memory at four bytes each.
    Float,
}

/// Why a backbone does not load or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackboneError {
    /// The container is damaged, or lacks something.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The instruction set cannot be had.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// We do not run this architecture.
    #[error("{file}: architecture {found:?} is not supported; use a qwen3, llama or gemma3 model")]
    Architecture {
        /// The file.
        file: String,
        /// What it says.
        found: String,
    },
    /// A key has a value that cannot be, or that we do not run.
    #[error("{file}: {key} = {found}: {why}")]
    Impossible {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// Why not.
        why: String,
    },
    /// A tensor's shape is not what the metadata say.
    #[error("{file}: tensor {tensor} has the shape {found:?}, the metadata say {expected:?}")]
    TensorShape {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What the metadata ask for.
        expected: Vec<u64>,
        /// What it has.
        found: Vec<u64>,
    },
    /// A tensor that we would have to leave out.
    #[error(
        "{file}: tensor {tensor} is not part of {architecture} as we run it; leaving it out would give wrong answers"
    )]
    UnknownTensor {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The architecture.
        architecture: &'static str,
    },
    /// A tensor's bytes are not a matrix.
    #[error("tensor {tensor}: {source}")]
    Matrix {
        /// The tensor.
        tensor: String,
        /// Why not.
        source: MatrixError,
    },
    /// The vector asked for cannot be had from this backbone.
    #[error("{file}: pooling: {source}")]
    Pooling {
        /// The file.
        file: String,
        /// Why not.
        source: PoolingError,
    },
    /// There is nothing to read.
    #[error("there are no tokens: an empty prompt has no hidden state")]
    NoTokens,
    /// A token id that the vocabulary does not have.
    #[error("token {id} is not in the vocabulary of {vocab}; the tokenizer belongs to another model")]
    Token {
        /// The id.
        id: u32,
        /// The vocabulary's size.
        vocab: usize,
    },
    /// The hidden state holds an infinity or NaN.
    #[error(
        "the hidden state is not finite: the file's weights are damaged or overflow (`Backbone::trace` and `zen-edge inspect --trace` tell where)"
    )]
    NotFinite,
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl BackboneError {
    fn impossible(gguf: &Gguf, key: String, found: impl ToString, why: impl Into<String>) -> Self {
        let file = gguf.source().name().to_owned();
        Self::Impossible { file, key, found: found.to_string(), why: why.into() }
    }

    fn shape(gguf: &Gguf, tensor: &TensorInfo, expected: &[usize]) -> Self {
        Self::TensorShape {
            file: gguf.source().name().to_owned(),
            tensor: tensor.name.clone(),
            expected: expected.iter().map(|n| *n as u64).collect(),
            found: tensor.dims.clone(),
        }
    }
}

/// Whether a GGUF's metadata and tensors make a backbone that we run, without making it.
///
/// # Errors
/// [`BackboneError`], as [`Backbone::load`] gives it.
pub fn check(gguf: &Gguf) -> Result<(), BackboneError> {
    let shape = Shape::read(gguf)?;
    weights::refuse_unknown(gguf, &shape)?;
    Plan::read(gguf, &shape)?;
    // Where the source maps its bytes a layer's matrices cost nothing; elsewhere they would be read whole.
    if gguf.source().view(0, 0).is_some() {
        for layer in 0..shape.layers {
            Layer::load(gguf, &shape, layer, &mut Arithmetic::Int8)?;
        }
    }
    Ok(())
}

/// A loaded backbone. Shared by reference between threads; each call brings its own [`Context`] or makes one.
pub struct Backbone {
    shape: Shape,
    plan: Plan,
    isa: Isa,
    pool: Pool,
    chunk: usize,
    arithmetic: Arithmetic,
    pooling: Pooling,
    source: Arc<dyn Source>,
    embedding: TensorInfo,
    /// Of the embedding's rows, those of late.
    rows: embedding::Rows,
    /// The embedding's values, where they are not the file's.
    changed_embedding: Option<Vec<f32>>,
    layers: Vec<Layer>,
    output_norm: Vec<f32>,
    /// A norm's weights that change nothing.
    ones: Vec<f32>,
    observer: Option<Arc<dyn Observer>>,
}

impl Backbone {
    /// Loads a backbone: every tensor is checked against the metadata, none is copied where the source maps its bytes.
    ///
    /// # Errors
    /// [`BackboneError`], by cause.
    pub fn load(gguf: &Gguf, options: &BackboneOptions) -> Result<Self, BackboneError> {
        let mut arithmetic = options.arithmetic;
        Self::load_with(gguf, options, &mut arithmetic)
    }

    /// [`load`](Self::load) of a backbone whose matrices are held, and changed, as `weights` says: to tell what a scheme of
    /// quantisation costs, or which part loses by int8 activations. Of the options, `arithmetic` then says only how an LM
    /// head is held.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(
        gguf: &Gguf,
        options: &BackboneOptions,
        weights: &mut dyn Weights,
    ) -> Result<Self, BackboneError> {
        let isa = options.isa.unwrap_or_else(Isa::best);
        if !isa.is_available() {
            Isa::from_name(isa.name())?;
        }
        let shape = Shape::read(gguf)?;
        weights::refuse_unknown(gguf, &shape)?;
        let pooling = options.pooling.clone();
        let wrong = |source| BackboneError::Pooling { file: gguf.source().name().to_owned(), source };
        pooling.check(shape.layers).map_err(wrong)?;
        let plan = Plan::read(gguf, &shape)?;
        let embedding = gguf.require_tensor("token_embd.weight")?.clone();
        embedding.block_type()?;
        if embedding.dims.len() != 2 || embedding.dims[0] != shape.hidden as u64 {
            return Err(BackboneError::shape(gguf, &embedding, &[shape.hidden, shape.vocab]));
        }
        let changed_embedding = weights::embedding(gguf, &embedding, shape.hidden, weights)?;
        let layers =
            (0..shape.layers).map(|i| Layer::load(gguf, &shape, i, weights)).collect::<Result<_, _>>()?;
        let output_norm = weights::vector(gguf, gguf.require_tensor("output_norm.weight")?, shape.hidden)?;
        Ok(Self {
            isa,
            pool: options
                .pool
                .clone()
                .unwrap_or_else(|| Pool::new(options.threads.unwrap_or_else(Pool::default_threads))),
            chunk: options.chunk.unwrap_or(DEFAULT_CHUNK).max(1),
            arithmetic: options.arithmetic,
            pooling,
            source: gguf.source().clone(),
            ones: vec![1.0; shape.hidden],
            shape,
            plan,
            embedding,
            rows: embedding::Rows::new(),
            changed_embedding,
            layers,
            output_norm,
            observer: None,
        })
    }

    /// Shows `observer` what each matrix of the layers is multiplied with, from now on.
    pub fn observe(&mut self, observer: Arc<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// The file that it was loaded from.
    pub const fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Its shape.
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Length of a hidden state.
    pub const fn hidden_size(&self) -> usize {
        self.shape.hidden
    }

    /// What of a pass becomes its vector.
    pub const fn pooling(&self) -> &Pooling {
        &self.pooling
    }

    /// Length of a pass's vector.
    pub fn vector_size(&self) -> usize {
        self.pooling.width(self.shape.hidden)
    }

    /// The instruction set that runs.
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads that run.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The threads that run, to measure what they can do at most.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes of the weights that a prompt reads whole, as the file has them: all but the embedding, and but the layers
    /// that the vector does not need.
    pub fn weight_bytes(&self) -> u64 {
        bytes(&self.layers[..self.depth()])
    }

    /// Bytes of the weights that a token of a generated text reads whole, LM head not counted.
    pub(crate) fn decode_bytes(&self) -> u64 {
        bytes(&self.layers)
    }

    /// Multiply-adds that the weights cost for one token, attention not counted.
    pub fn multiply_adds(&self) -> u64 {
        self.layers[..self.depth()]
            .iter()
            .flat_map(Layer::matrices)
            .map(|m| m.rows() as u64 * m.cols() as u64)
            .sum()
    }
}

fn bytes(layers: &[Layer]) -> u64 {
    layers.iter().flat_map(Layer::matrices).map(|matrix| matrix.bytes().len() as u64).sum()
}

impl std::fmt::Debug for Backbone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backbone").field("shape", &self.shape).field("isa", &self.isa).finish_non_exhaustive()
    }
}
