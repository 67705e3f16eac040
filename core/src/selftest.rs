//! Whether the engine gives on this device what it should: against answers that came with a pack, and against itself.

use crate::backbone::{Backbone, BackboneError, BackboneOptions};
use crate::gguf::Gguf;
use crate::router::Router;
use crate::source::Source;
use serde::Deserialize;
use std::sync::Arc;
use zen_edge_kernels::isa::Isa;

/// The cosine below which a vector is not the stored one. Stored vectors are those of float32 arithmetic, ours have 8-bit
/// activations: they are close, not equal.
pub const CLOSE: f64 = 0.99;

/// Answers that came with a pack: `selftest.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct SelfTest {
    /// The prompts with their answers.
    pub prompts: Vec<Expected>,
}

/// A prompt and what is to come out.
#[derive(Clone, Debug, Deserialize)]
pub struct Expected {
    /// The prompt.
    pub prompt: String,
    /// Its token ids.
    pub ids: Vec<u32>,
    /// Its vector, by float32 arithmetic on the dequantised weights.
    pub hidden: Vec<f32>,
}

/// What a self-test found.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfTestReport {
    /// The instruction set that was tested.
    pub isa: &'static str,
    /// Prompts that were compared with stored answers; 0 where none came with the pack.
    pub prompts: usize,
    /// Of these, how many had other token ids.
    pub other_ids: usize,
    /// The worst cosine between a vector and the stored one; 1 where there are none.
    pub worst_cosine: f64,
    /// Whether this device's instruction set gives the bits of the plain code, which defines them.
    pub same_bits: bool,
}

impl SelfTestReport {
    /// Whether all is as it should be.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.other_ids == 0 && self.worst_cosine >= CLOSE && self.same_bits
    }
}

/// Why a self-test does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfTestError {
    /// The stored answers cannot be read.
    #[error("the stored answers of the self-test cannot be read: {0}")]
    Answers(#[from] serde_json::Error),
    /// The backbone does not run.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
}

/// Reads the stored prompts and compares; then reads one prompt by the plain code, and compares the bits. `model` is the GGUF that
/// the router was loaded from; `answers` is a pack's `selftest.json`, where it has one.
///
/// # Errors
/// [`SelfTestError`]. That something differs is no error: the report says it.
pub fn run(
    router: &Router,
    model: &Arc<dyn Source>,
    answers: Option<&[u8]>,
) -> Result<SelfTestReport, SelfTestError> {
    let expected = match answers {
        Some(bytes) => serde_json::from_slice::<SelfTest>(bytes)?.prompts,
        None => Vec::new(),
    };
    let backbone = router.backbone();
    let mut report = SelfTestReport {
        isa: backbone.isa().name(),
        prompts: expected.len(),
        other_ids: 0,
        worst_cosine: 1.0,
        same_bits: false,
    };
    for Expected { prompt, ids, hidden } in &expected {
        let (ours, _) = router.encode(prompt, None);
        report.other_ids += usize::from(ours != *ids);
        report.worst_cosine = report.worst_cosine.min(cosine(&backbone.embed(ids)?, hidden));
    }
    // Odd in number, and more than a vector of any instruction set holds.
    let vocab = backbone.shape().vocab as u32;
    let ids: Vec<u32> = (0..21u32).map(|i| (i * 37 + 5) % vocab.max(1)).collect();
    let plain = Backbone::load(
        &Gguf::open(model.clone()).map_err(BackboneError::from)?,
        &BackboneOptions { isa: Some(Isa::Scalar), threads: Some(1), ..BackboneOptions::default() },
    )?;
    let bits = |vector: Vec<f32>| vector.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    report.same_bits = bits(plain.embed(&ids)?) == bits(backbone.embed(&ids)?);
    Ok(report)
}

/// The cosine of two vectors; −1, the least there is, where their lengths differ or it is no number.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    if a.len() != b.len() {
        return -1.0;
    }
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    if cosine.is_nan() { -1.0 } else { cosine }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cosine_is_never_better_than_what_was_compared() {
        assert!((cosine(&[1.0, 2.0], &[2.0, 4.0]) - 1.0).abs() < 1e-12);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 1.0]), 0.0);
        for (a, b) in [(&[1.0][..], &[1.0, 0.0][..]), (&[0.0], &[1.0]), (&[f32::NAN], &[1.0]), (&[], &[])] {
            assert_eq!(cosine(a, b), -1.0);
        }
    }
}
