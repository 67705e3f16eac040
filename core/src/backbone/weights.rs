//! A backbone's tensors: found, checked against the shape, kept as the file has them.

use super::architecture::{Architecture, Shape};
use super::{Arithmetic, BackboneError};
use crate::gguf::{Gguf, GgufError, TensorInfo};
use crate::room::{self, NoMemory};
use zen_edge_kernels::format::{BlockType, dequantize};
use zen_edge_kernels::gemm::{Matrix, MatrixError};

/// How a backbone holds a tensor's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// As the file has them: products with a quantised matrix take int8 activations. An embedding's rows are read from the
    /// file as they are needed.
    File,
    /// As f32, with products in f32. Of an embedding it is the same as [`Held::File`]: its rows are f32 in any case.
    Float,
    /// As [`Held::Float`], after [`Weights::change`]; an embedding is held in memory whole.
    Changed,
}

/// What a caller does with a backbone's weights as they are loaded, see [`Backbone::load_with`](super::Backbone::load_with).
///
/// It is asked for the embedding and for every matrix of every layer, in the order in which they are loaded. Norms are not
/// its own.
pub trait Weights {
    /// How this tensor is held.
    fn held(&mut self, tensor: &TensorInfo) -> Held;

    /// Changes the weights of a tensor that is [`Held::Changed`]: `[rows][cols]` of f32, where `cols` is the input
    /// dimension (of an embedding: the hidden state). What stays infinite or NaN ends in
    /// [`BackboneError::NotFinite`] when the backbone runs.
    fn change(&mut self, tensor: &TensorInfo, cols: usize, values: &mut [f32]) {
        let _ = (tensor, cols, values);
    }
}

/// One arithmetic for all weights, none of them changed.
impl Weights for Arithmetic {
    fn held(&mut self, _: &TensorInfo) -> Held {
        match self {
            Self::Int8 => Held::File,
            Self::Float => Held::Float,
        }
    }
}

/// One layer.
pub(super) struct Layer {
    pub attn_norm: Vec<f32>,
    pub q: Matrix,
    pub k: Matrix,
    pub v: Matrix,
    pub o: Matrix,
    /// Norms of each query and key head.
    pub q_norm: Option<Vec<f32>>,
    pub k_norm: Option<Vec<f32>>,
    /// Norms of what attention and the feed-forward network give.
    pub post_attn_norm: Option<Vec<f32>>,
    pub post_ffn_norm: Option<Vec<f32>>,
    pub ffn_norm: Vec<f32>,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
}

/// The parts of a layer, of which `blk.N.PART.weight` is the tensor.
pub(crate) fn parts(architecture: Architecture) -> impl Iterator<Item = &'static str> {
    EVERYWHERE.into_iter().chain(extra(architecture).iter().copied())
}

/// The parts of a layer that every architecture has.
const EVERYWHERE: [&str; 9] =
    ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"];

/// Those that only some have.
fn extra(architecture: Architecture) -> &'static [&'static str] {
    match architecture {
        Architecture::Qwen3 => &["attn_q_norm", "attn_k_norm"],
        Architecture::Llama => &[],
        Architecture::Gemma3 => &["attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"],
    }
}

impl Layer {
    pub(super) fn load(
        gguf: &Gguf,
        shape: &Shape,
        index: usize,
        weights: &mut dyn Weights,
    ) -> Result<Self, BackboneError> {
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let norm = |part: &str, len: usize| vector(gguf, gguf.require_tensor(&name(part))?, len);
        let optional = |part: &str, len: usize| -> Result<Option<Vec<f32>>, BackboneError> {
            if extra(shape.architecture).contains(&part) { norm(part, len).map(Some) } else { Ok(None) }
        };
        let mut matrix = |part: &str, rows: usize, cols: usize| {
            matrix(gguf, gguf.require_tensor(&name(part))?, rows, cols, weights)
        };
        let (hidden, queries, kv) =
            (shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        Ok(Self {
            attn_norm: norm("attn_norm", hidden)?,
            q: matrix("attn_q", queries, hidden)?,
            k: matrix("attn_k", kv, hidden)?,
            v: matrix("attn_v", kv, hidden)?,
            o: matrix("attn_output", hidden, queries)?,
            q_norm: optional("attn_q_norm", shape.head_dim)?,
            k_norm: optional("attn_k_norm", shape.head_dim)?,
            post_attn_norm: optional("post_attention_norm", hidden)?,
            post_ffn_norm: optional("post_ffw_norm", hidden)?,
            ffn_norm: norm("ffn_norm", hidden)?,
            gate: matrix("ffn_gate", shape.ffn, hidden)?,
            up: matrix("ffn_up", shape.ffn, hidden)?,
            down: matrix("ffn_down", hidden, shape.ffn)?,
        })
    }

    /// The same weights, as f32.
    pub(super) fn to_float(&self) -> Result<Self, NoMemory> {
        let float = |matrix: &Matrix| in_f32(matrix.rows(), matrix.cols(), &values(matrix)?);
        Ok(Self {
            attn_norm: self.attn_norm.clone(),
            q: float(&self.q)?,
            k: float(&self.k)?,
            v: float(&self.v)?,
            o: float(&self.o)?,
            q_norm: self.q_norm.clone(),
            k_norm: self.k_norm.clone(),
            post_attn_norm: self.post_attn_norm.clone(),
            post_ffn_norm: self.post_ffn_norm.clone(),
            ffn_norm: self.ffn_norm.clone(),
            gate: float(&self.gate)?,
            up: float(&self.up)?,
            down: float(&self.down)?,
        })
    }

    /// What the matrices are called, in the order of [`Layer::matrices`].
    pub(super) const MATRICES: [&'static str; 7] =
        ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

    /// Every matrix of the layer.
    pub(super) fn matrices(&self) -> [&Matrix; 7] {
        [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down]
    }
}

/// Refuses a file with tensors that the architecture, as we run it, has no use for: a bias left out would give a wrong
/// answer without a word.
pub(super) fn refuse_unknown(gguf: &Gguf, shape: &Shape) -> Result<(), BackboneError> {
    for tensor in gguf.tensors() {
        let name = tensor.name.as_str();
        let known = match name {
            // The LM head is not needed for a hidden state.
            "token_embd.weight" | "output_norm.weight" | "output.weight" | "rope_freqs.weight" => true,
            _ => name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).is_some_and(
                |(index, part)| {
                    let part = part.strip_suffix(".weight").unwrap_or(part);
                    index.parse::<usize>().is_ok_and(|i| i < shape.layers)
                        && name.ends_with(".weight")
                        && parts(shape.architecture).any(|known| known == part)
                },
            ),
        };
        if !known {
            return Err(BackboneError::UnknownTensor {
                file: gguf.source().name().to_owned(),
                tensor: name.to_owned(),
                architecture: shape.architecture.name(),
            });
        }
    }
    Ok(())
}

/// A vector of `len` values as f32.
pub(super) fn vector(gguf: &Gguf, tensor: &TensorInfo, len: usize) -> Result<Vec<f32>, BackboneError> {
    let ty = tensor.block_type()?;
    if tensor.elements() != len as u64 || tensor.dims.first() != Some(&(len as u64)) {
        return Err(BackboneError::shape(gguf, tensor, &[len]));
    }
    let mut out = room::filled(len, 0.0).map_err(|refused| no_memory(gguf, tensor, refused))?;
    dequantize(ty, &gguf.tensor_bytes(tensor)?, &mut out);
    Ok(out)
}

fn no_memory(gguf: &Gguf, tensor: &TensorInfo, NoMemory(bytes): NoMemory) -> BackboneError {
    let what = format!("the values of the tensor `{}`", tensor.name);
    GgufError::OutOfMemory { file: gguf.source().name().to_owned(), what, bytes }.into()
}

/// The embedding as f32, where it is changed; else nothing: its rows are read from the file.
pub(super) fn embedding(
    gguf: &Gguf,
    tensor: &TensorInfo,
    cols: usize,
    weights: &mut dyn Weights,
) -> Result<Option<Vec<f32>>, BackboneError> {
    if weights.held(tensor) != Held::Changed {
        return Ok(None);
    }
    let (ty, bytes) = (tensor.block_type()?, gguf.tensor_bytes(tensor)?);
    let rows = usize::try_from(tensor.rows()).unwrap_or(usize::MAX);
    floats(gguf, tensor, Matrix::new(ty, rows, cols, bytes), weights, Held::Changed).map(Some)
}

/// A matrix's values.
fn values(matrix: &Matrix) -> Result<Vec<f32>, NoMemory> {
    let mut values = room::filled(matrix.rows() * matrix.cols(), 0.0f32)?;
    dequantize(matrix.block_type(), matrix.bytes(), &mut values);
    Ok(values)
}

/// A matrix of these values, `rows * cols` of them.
fn in_f32(rows: usize, cols: usize, values: &[f32]) -> Result<Matrix, NoMemory> {
    let mut bytes = room::room(size_of_val(values))?;
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    Ok(Matrix::new(BlockType::F32, rows, cols, bytes.into()).expect("as many values as the matrix has"))
}

/// The values of a matrix, whose shape was held against its bytes before anything is allocated by it.
fn floats(
    gguf: &Gguf,
    tensor: &TensorInfo,
    matrix: Result<Matrix, MatrixError>,
    weights: &mut dyn Weights,
    held: Held,
) -> Result<Vec<f32>, BackboneError> {
    let failed = |source| BackboneError::Matrix { tensor: tensor.name.clone(), source };
    let matrix = matrix.map_err(failed)?;
    let mut values = values(&matrix).map_err(|refused| no_memory(gguf, tensor, refused))?;
    if held == Held::Changed {
        weights.change(tensor, matrix.cols(), &mut values);
    }
    Ok(values)
}

/// A matrix of `rows` outputs and `cols` inputs: as the file has it, or as F32.
pub(super) fn matrix(
    gguf: &Gguf,
    tensor: &TensorInfo,
    rows: usize,
    cols: usize,
    weights: &mut dyn Weights,
) -> Result<Matrix, BackboneError> {
    let ty = tensor.block_type()?;
    if tensor.dims != [cols as u64, rows as u64] {
        return Err(BackboneError::shape(gguf, tensor, &[cols, rows]));
    }
    let bytes = gguf.tensor_bytes(tensor)?;
    let held = weights.held(tensor);
    if held == Held::Changed || (held == Held::Float && ty != BlockType::F32) {
        let values = floats(gguf, tensor, Matrix::new(ty, rows, cols, bytes), weights, held)?;
        return in_f32(rows, cols, &values).map_err(|refused| no_memory(gguf, tensor, refused));
    }
    let failed = |source| BackboneError::Matrix { tensor: tensor.name.clone(), source };
    Matrix::new(ty, rows, cols, bytes).map_err(failed)
}
