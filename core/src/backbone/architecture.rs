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
    /// What full attention's rotation multiplies the length of queries and keys by (YaRN's temperature).
    pub magnitude: f32,
    /// Sliding window of each layer.
    pub windows: Vec<Option<usize>>,
}

/// Most layers that are believed; a real file has fewer than 200.
const MAX_LAYERS: usize = 4096;
/// Largest dimension that is believed.
const MAX_DIMENSION: u32 = 1 << 24;

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
            if value == 0 || value > MAX_DIMENSION {
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
        // The queries' width is a dimension too; it must not overflow where a word has 32 bits.
        if heads > MAX_DIMENSION as usize / head_dim {
            let why = format!("{heads} heads of {head_dim} values are more than any model has");
            return Err(BackboneError::impossible(gguf, key("attention.head_count"), heads, why));
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
            "linear" | "yarn" => gguf.require_f32(&key("rope.scaling.factor"))?,
            other => {
                let why = "we run unscaled, linearly and YaRN scaled rotations";
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
        let base = theta("rope.freq_base", 10_000.0)?;
        let (mut inverse_freq, magnitude) = if scaling == "yarn" {
            Yarn::read(gguf, shape, f64::from(factor))?.frequencies(base, rotary)
        } else {
            (frequencies(base, factor), 1.0)
        };
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
            magnitude,
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

/// YaRN (Peng et al. 2023, arXiv 2309.00071): pairs that turn often keep their angle, those that turn seldom are
/// stretched by the factor, those between are mixed; queries and keys grow by `0.1 · ln(factor) + 1`.
///
/// The keys and their defaults are those of llama.cpp, whose rotation `transformers` shares.
struct Yarn {
    factor: f64,
    /// Positions that the model was trained for before it was stretched.
    original: f64,
    /// Turns over the original context from which a pair keeps its angle, and to which it is stretched.
    fast: f64,
    slow: f64,
    /// Factor of the magnitude.
    attention: f64,
}

impl Yarn {
    fn read(gguf: &Gguf, shape: &Shape, factor: f64) -> Result<Self, BackboneError> {
        let key = |suffix: &str| format!("{}.rope.scaling.{suffix}", shape.architecture.name());
        let positive = |suffix: &str, default: f32| -> Result<f64, BackboneError> {
            let value = gguf.f32(&key(suffix))?.unwrap_or(default);
            if !(value.is_finite() && value > 0.0) {
                return Err(BackboneError::impossible(
                    gguf,
                    key(suffix),
                    value,
                    "YaRN takes a positive number",
                ));
            }
            Ok(f64::from(value))
        };
        let original = match gguf.u32(&key("original_context_length"))? {
            Some(0) => {
                let why = "YaRN stretches a context of at least one position";
                return Err(BackboneError::impossible(gguf, key("original_context_length"), 0, why));
            }
            Some(n) => f64::from(n),
            None => shape.context as f64,
        };
        Ok(Self {
            factor,
            original,
            fast: positive("yarn_beta_fast", 32.0)?,
            slow: positive("yarn_beta_slow", 1.0)?,
            attention: positive("attn_factor", 1.0)?,
        })
    }

    /// The angle that a position adds to each pair, and the magnitude.
    fn frequencies(&self, base: f64, rotary: usize) -> (Vec<f32>, f32) {
        // The pair that turns `turns` times over the original context.
        let pair = |turns: f64| {
            rotary as f64 * math::ln(self.original / (turns * 2.0 * std::f64::consts::PI))
                / (2.0 * math::ln(base))
        };
        let low = pair(self.fast).floor().max(0.0);
        let high = pair(self.slow).ceil().min(rotary as f64 - 1.0);
        let angle = |i: usize| {
            let kept = 1.0 / math::pow(base, (2 * i) as f64 / rotary as f64);
            let ramp = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            (kept / self.factor * (1.0 - ramp) + kept * ramp) as f32
        };
        let magnitude = self.attention * (1.0 + 0.1 * math::ln(self.factor));
        ((0..rotary / 2).map(angle).collect(), magnitude as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::Yarn;

    /// `transformers` 5 (`_compute_yarn_parameters`, theta 1e6, heads of 128, factor 4 over 32,768: what Qwen3's card
    /// gives): its frequencies at these pairs.
    #[test]
    fn yarn_turns_as_transformers_does() {
        let yarn = Yarn { factor: 4.0, original: 32_768.0, fast: 32.0, slow: 1.0, attention: 1.0 };
        let (angles, magnitude) = yarn.frequencies(1e6, 128);
        assert!((magnitude - 1.138_629_4).abs() < 1e-6);
        for (pair, expected) in EXPECTED {
            assert!(
                (angles[pair] / expected - 1.0).abs() < 1e-5,
                "pair {pair}: {} is not {expected}",
                angles[pair]
            );
        }
    }
    const EXPECTED: [(usize, f32); 8] = [
        (0, 1.0),
        (10, 0.115_478_2),
        (23, 0.006_978_306),
        (25, 0.004_131_738),
        (30, 0.001_064_361),
        (35, 0.000_246_258_4),
        (39, 6.490_394e-5),
        (63, 3.102_344e-7),
    ];
}
