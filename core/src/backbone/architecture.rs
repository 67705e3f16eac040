//! What a GGUF says of a backbone's shape: hyperparameters, rotations, windows.

use super::BackboneError;
use crate::gguf::Gguf;
use zen_edge_kernels::math;
use zen_edge_kernels::ops::{Activation, RopePairs};

/// The architectures that we run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Grouped queries, a norm on every query and key head, tied embedding.
    Qwen3,
    /// Llama and what shares its form (SmolLM2).
    Llama,
    /// Gemma 3, text: sliding and full attention, norms before and after each part, scaled embedding.
    Gemma3,
}

impl Architecture {
    /// Every architecture.
    pub const ALL: [Self; 3] = [Self::Qwen3, Self::Llama, Self::Gemma3];

    /// Its name in `general.architecture`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
            Self::Gemma3 => "gemma3",
        }
    }

    /// The architecture of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// A backbone's shape, as its GGUF states it.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The architecture.
    pub architecture: Architecture,
    /// Layers.
    pub layers: usize,
    /// Length of a hidden state.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Length of a head.
    pub head_dim: usize,
    /// Length of the feed-forward network's inner state.
    pub ffn: usize,
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// What the norms add to the mean square.
    pub eps: f32,
}

/// What the layers need beside the shape.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub activation: Activation,
    pub pairs: RopePairs,
    /// Factor of the embedding rows.
    pub embed_scale: Option<f32>,
    /// Factor of the queries.
    pub query_scale: f32,
    /// The angle a position adds to each pair: of full attention, and of sliding attention where it differs.
    pub inverse_freq: Vec<f32>,
    pub inverse_freq_sliding: Vec<f32>,
    /// Sliding window of each layer.
    pub windows: Vec<Option<usize>>,
}

/// Most layers that are believed; a real file has fewer than 200.
const MAX_LAYERS: usize = 4096;

impl Shape {
    /// Reads the shape of a backbone.
    ///
    /// # Errors
    /// An architecture that we do not run, a missing or impossible key: each names what it found.
    pub fn read(gguf: &Gguf) -> Result<Self, BackboneError> {
        let name = gguf.architecture()?;
        let architecture = Architecture::from_name(name).ok_or_else(|| BackboneError::Architecture {
            file: gguf.source().name().to_owned(),
            found: name.to_owned(),
        })?;
        let key = |suffix: &str| format!("{name}.{suffix}");
        let dimension = |suffix: &str| -> Result<usize, BackboneError> {
            let (key, value) = (key(suffix), gguf.require_u32(&key(suffix))?);
            // No dimension of a real model comes near; products of two stay far from overflow.
            if value == 0 || value > 1 << 24 {
                return Err(BackboneError::impossible(gguf, key, value, "a dimension is 1 to 16,777,216"));
            }
            Ok(value as usize)
        };
        let layers = dimension("block_count")?;
        if layers > MAX_LAYERS {
            return Err(BackboneError::impossible(
                gguf,
                key("block_count"),
                layers,
                "more layers than any model has",
            ));
        }
        let hidden = dimension("embedding_length")?;
        let heads = dimension("attention.head_count")?;
        let kv_heads = match gguf.u32(&key("attention.head_count_kv"))? {
            Some(0) | None => heads,
            Some(n) => n as usize,
        };
        if !heads.is_multiple_of(kv_heads) {
            let why = format!("{heads} query heads do not share {kv_heads} KV heads");
            return Err(BackboneError::impossible(gguf, key("attention.head_count_kv"), kv_heads, why));
        }
        let head_dim = match gguf.u32(&key("attention.key_length"))? {
            Some(n) => n as usize,
            None => hidden / heads,
        };
        if head_dim == 0 || head_dim > 4096 || !head_dim.is_multiple_of(16) {
            let why = "the kernels take heads of a multiple of 16 values";
            return Err(BackboneError::impossible(gguf, key("attention.key_length"), head_dim, why));
        }
        if let Some(value) = gguf.u32(&key("attention.value_length"))?
            && value as usize != head_dim
        {
            let why = format!("keys have {head_dim}; we run values of the same length only");
            return Err(BackboneError::impossible(gguf, key("attention.value_length"), value, why));
        }
        let eps = gguf.require_f32(&key("attention.layer_norm_rms_epsilon"))?;
        if !(0.0..1.0).contains(&eps) {
            let key = key("attention.layer_norm_rms_epsilon");
            return Err(BackboneError::impossible(gguf, key, eps, "an epsilon is 0 to 1"));
        }
        let embedding = gguf.require_tensor("token_embd.weight")?;
        let vocab = usize::try_from(embedding.rows()).unwrap_or(usize::MAX);
        Ok(Self {
            architecture,
            layers,
            hidden,
            heads,
            kv_heads,
            head_dim,
            ffn: dimension("feed_forward_length")?,
            vocab,
            context: dimension("context_length")?,
            eps,
        })
    }
}

impl Plan {
    pub(super) fn read(gguf: &Gguf, shape: &Shape) -> Result<Self, BackboneError> {
        let name = shape.architecture.name();
        let key = |suffix: &str| format!("{name}.{suffix}");
        let theta = |suffix: &str, default: f32| -> Result<f64, BackboneError> {
            let theta = gguf.f32(&key(suffix))?.unwrap_or(default);
            if !(theta.is_finite() && theta >= 1.0) {
                return Err(BackboneError::impossible(
                    gguf,
                    key(suffix),
                    theta,
                    "a rotation base is 1 or more",
                ));
            }
            Ok(f64::from(theta))
        };
        let rotary = match gguf.u32(&key("rope.dimension_count"))? {
            Some(n) if n as usize > shape.head_dim || !n.is_multiple_of(2) => {
                let why = format!("a head has {} values", shape.head_dim);
                return Err(BackboneError::impossible(gguf, key("rope.dimension_count"), n, why));
            }
            Some(n) => n as usize,
            None => shape.head_dim,
        };
        let scaling = gguf.str(&key("rope.scaling.type"))?.unwrap_or("none");
        let factor = match scaling {
            "none" => 1.0,
            "linear" => gguf.require_f32(&key("rope.scaling.factor"))?,
            other => {
                let why = "we run unscaled and linearly scaled rotations";
                return Err(BackboneError::impossible(gguf, key("rope.scaling.type"), other, why));
            }
        };
        if !(factor.is_finite() && factor > 0.0) {
            let why = "a scaling factor is positive";
            return Err(BackboneError::impossible(gguf, key("rope.scaling.factor"), factor, why));
        }
        let frequencies = |theta: f64, factor: f32| -> Vec<f32> {
            let pair = |i: usize| (1.0 / math::pow(theta, (2 * i) as f64 / rotary as f64)) as f32 / factor;
            (0..rotary / 2).map(pair).collect()
        };
        let mut inverse_freq = frequencies(theta("rope.freq_base", 10_000.0)?, factor);
        if let Some(tensor) = gguf.tensor("rope_freqs.weight") {
            let factors = super::weights::vector(gguf, tensor, rotary / 2)?;
            for (freq, factor) in inverse_freq.iter_mut().zip(factors) {
                *freq /= factor;
            }
        }
        let mut plan = Self {
            activation: Activation::Silu,
            pairs: RopePairs::Halves,
            embed_scale: None,
            query_scale: 1.0 / (shape.head_dim as f32).sqrt(),
            inverse_freq_sliding: Vec::new(),
            inverse_freq,
            windows: vec![None; shape.layers],
        };
        match shape.architecture {
            Architecture::Qwen3 => {}
            Architecture::Llama => plan.pairs = RopePairs::Neighbours,
            Architecture::Gemma3 => {
                plan.activation = Activation::Gelu;
                plan.embed_scale = Some((shape.hidden as f32).sqrt());
                if shape.layers == 62 {
                    // The 27B model alone scales by hidden / heads.
                    plan.query_scale = 1.0 / ((shape.hidden / shape.heads) as f32).sqrt();
                }
                plan.inverse_freq_sliding = frequencies(theta("rope.freq_base_swa", 10_000.0)?, 1.0);
                if let Some(window) = gguf.u32(&key("attention.sliding_window"))?.filter(|w| *w > 0) {
                    // Five sliding layers, then one that sees everything.
                    let period = match gguf.get(&key("attention.sliding_window_pattern")) {
                        Some(_) => gguf.require_u32(&key("attention.sliding_window_pattern"))?,
                        None => 6,
                    };
                    for (layer, slot) in plan.windows.iter_mut().enumerate() {
                        if period == 0 || layer % (period as usize) < period as usize - 1 {
                            *slot = Some(window as usize);
                        }
                    }
                }
            }
        }
        Ok(plan)
    }
}
