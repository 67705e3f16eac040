//! What a single stream can reach at most: bytes over bandwidth, multiply-adds over their peak.

use super::BenchError;
use super::record::{Bound, Limiter, Limits, Model, Phase};
use crate::backbone::{Architecture, BackboneError, KvType, Shape};
use crate::gguf::{Gguf, TensorInfo};
use zen_edge_kernels::format::BlockType;

/// Parts of a layer of which the last layer needs the last token's output alone.
const LAST_TOKEN: [&str; 5] = ["attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
/// Matrices of a layer.
const MATRICES: [&str; 7] = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

/// Multiply-adds, by what the activations are in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MultiplyAdds {
    int8: u64,
    float: u64,
}

impl MultiplyAdds {
    fn add(&mut self, ty: BlockType, n: u64) {
        match ty {
            BlockType::F32 | BlockType::F16 | BlockType::BF16 => self.float += n,
            _ => self.int8 += n,
        }
    }

    fn total(self) -> u64 {
        self.int8 + self.float
    }
}

/// What a pass costs, as a GGUF's tensors tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The backbone, without its file's name and hash.
    pub model: Model,
    /// Of the layers' multiply-adds for one token.
    layers: MultiplyAdds,
    /// Of these, those that a prompt needs of its last token alone.
    last: MultiplyAdds,
    head: MultiplyAdds,
    /// Values that a token leaves in the keys and values of all layers.
    kv_values: u64,
}

impl Facts {
    /// Reads the facts of a backbone.
    ///
    /// # Errors
    /// What [`Shape::read`] says, and tensors of unknown types.
    pub fn read(gguf: &Gguf) -> Result<Self, BenchError> {
        let shape = Shape::read(gguf)?;
        let (mut layers, mut last, mut weight_bytes) = (MultiplyAdds::default(), MultiplyAdds::default(), 0);
        for layer in 0..shape.layers {
            for part in MATRICES {
                let tensor = require(gguf, &format!("blk.{layer}.{part}.weight"))?;
                let ty = tensor.block_type().map_err(BackboneError::from)?;
                layers.add(ty, tensor.elements());
                weight_bytes += tensor.bytes;
                if layer + 1 == shape.layers && LAST_TOKEN.contains(&part) {
                    last.add(ty, tensor.elements());
                }
            }
        }
        // Where there is no matrix of its own the embedding is the LM head.
        let output = match gguf.tensor("output.weight") {
            Some(output) => output,
            None => require(gguf, "token_embd.weight")?,
        };
        let mut head = MultiplyAdds::default();
        head.add(output.block_type().map_err(BackboneError::from)?, output.elements());
        let model = Model {
            name: None,
            architecture: Architecture::name(shape.architecture).to_owned(),
            layers: shape.layers,
            hidden_size: shape.hidden,
            sha256: None,
            file_bytes: Some(gguf.source().len()),
            multiply_adds: layers.total(),
            float_multiply_adds: layers.float,
            weight_bytes,
            head_bytes: Some(output.bytes),
        };
        let kv_values = 2 * (shape.layers * shape.kv_heads * shape.head_dim) as u64;
        Ok(Self { model, layers, last, head, kv_values })
    }

    /// Bytes that a decode step reads of weights, with the LM head: the size of the buffer that tells its bandwidth.
    pub fn step_bytes(&self) -> u64 {
        self.model.weight_bytes + self.model.head_bytes.unwrap_or(0)
    }

    /// The bound of one repetition over `tokens` tokens, whose median speed is `speed` tokens a second, with keys and
    /// values kept as `kv`. `None` where the limits have no bandwidth.
    #[must_use]
    pub fn bound(
        &self,
        limits: &Limits,
        phase: Phase,
        tokens: usize,
        kv: KvType,
        speed: f64,
    ) -> Option<Bound> {
        let n = tokens as f64;
        let (int8, float, bytes, pass) = match phase {
            Phase::Prefill => {
                let most = |all: u64, last: u64| (all - last) as f64 * n + last as f64;
                let bytes = self.model.weight_bytes;
                (
                    most(self.layers.int8, self.last.int8),
                    most(self.layers.float, self.last.float),
                    bytes as f64,
                    bytes,
                )
            }
            Phase::Decode => {
                let each = self.step_bytes();
                // Token i reads the keys and values of the i before it. The scales of int8 are not counted.
                let size = match kv {
                    KvType::F32 => 4.0,
                    KvType::F16 => 2.0,
                    KvType::Int8 => 1.0,
                };
                let kv = self.kv_values as f64 * size * n * (n - 1.0) / 2.0;
                (
                    (self.layers.int8 + self.head.int8) as f64 * n,
                    (self.layers.float + self.head.float) as f64 * n,
                    each as f64 * n + kv,
                    each,
                )
            }
        };
        let memory = n * limits.bandwidth(pass)? / bytes;
        let seconds =
            int8 / limits.int8_multiply_adds_per_second + float / limits.float_multiply_adds_per_second;
        let compute = n / seconds;
        let limiter = if memory < compute { Limiter::Memory } else { Limiter::Compute };
        let tokens_per_second = memory.min(compute);
        Some(Bound {
            tokens_per_second,
            memory_tokens_per_second: memory,
            compute_tokens_per_second: compute,
            limiter,
            bytes,
            multiply_adds: int8 + float,
            share: speed / tokens_per_second,
        })
    }
}

fn require<'a>(gguf: &'a Gguf, name: &str) -> Result<&'a TensorInfo, BenchError> {
    gguf.require_tensor(name).map_err(|error| BenchError::Backbone(error.into()))
}
