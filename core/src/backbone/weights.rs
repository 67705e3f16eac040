//! A backbone's tensors: found, checked against the shape, kept as the file has them.

use super::architecture::{Architecture, Shape};
use super::{Arithmetic, BackboneError};
use crate::gguf::{Gguf, TensorInfo};
use zen_edge_kernels::format::{BlockType, dequantize};
use zen_edge_kernels::gemm::Matrix;

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
        arithmetic: Arithmetic,
    ) -> Result<Self, BackboneError> {
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let norm = |part: &str, len: usize| vector(gguf, gguf.require_tensor(&name(part))?, len);
        let optional = |part: &str, len: usize| -> Result<Option<Vec<f32>>, BackboneError> {
            if extra(shape.architecture).contains(&part) { norm(part, len).map(Some) } else { Ok(None) }
        };
        let matrix = |part: &str, rows: usize, cols: usize| {
            matrix(gguf, gguf.require_tensor(&name(part))?, rows, cols, arithmetic)
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
    let mut out = vec![0.0; len];
    dequantize(ty, &gguf.tensor_bytes(tensor)?, &mut out);
    Ok(out)
}

/// A matrix of `rows` outputs and `cols` inputs: as the file has it, or in float arithmetic as F32.
pub(super) fn matrix(
    gguf: &Gguf,
    tensor: &TensorInfo,
    rows: usize,
    cols: usize,
    arithmetic: Arithmetic,
) -> Result<Matrix, BackboneError> {
    let mut ty = tensor.block_type()?;
    if tensor.dims != [cols as u64, rows as u64] {
        return Err(BackboneError::shape(gguf, tensor, &[cols, rows]));
    }
    let mut bytes = gguf.tensor_bytes(tensor)?;
    let failed = |source| BackboneError::Matrix { tensor: tensor.name.clone(), source };
    if arithmetic == Arithmetic::Float && ty != BlockType::F32 {
        // The shape is held against the bytes before anything is allocated by it.
        Matrix::new(ty, rows, cols, bytes.clone()).map_err(failed)?;
        let mut values = vec![0.0f32; rows * cols];
        dequantize(ty, &bytes, &mut values);
        ty = BlockType::F32;
        bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into();
    }
    Matrix::new(ty, rows, cols, bytes).map_err(failed)
}
