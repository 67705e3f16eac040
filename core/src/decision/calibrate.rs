//! Calibration: a temperature that makes a softmax mean what it says, and thresholds for a wanted share.
//!
//! A threshold that gave half of one set of prompts to the rules gives another share of another set: fit on a sample of
//! one's own prompts, look at the share that was achieved on prompts which were not fitted, and keep the name of the set.

use super::softmax;
use serde::{Deserialize, Serialize};

/// Temperatures outside are refused by the config, and a fit that ends there has failed: the logits say nothing.
const TEMPERATURES: [f64; 2] = [0.05, 100.0];
/// Bins of the calibration error.
const BINS: usize = 15;

/// A fitted temperature and what it changed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemperatureFit {
    /// For the config's `temperature`.
    pub temperature: f32,
    /// The examples that were fitted.
    pub examples: usize,
    /// Mean negative log-likelihood in nats, before and after.
    pub nll: [f64; 2],
    /// Expected calibration error (15 equal bins of the top probability), before and after.
    pub ece: [f64; 2],
}

/// Fits one temperature to logits and the classes that were right, by the least negative log-likelihood: it is convex in
/// 1/T, so a golden-section search finds it. Fit on held-out examples: on those that trained the heads it comes out too
/// low.
///
/// `None` for no examples, for logits that are not finite, and where a class is no logit's.
#[must_use]
pub fn fit_temperature(examples: &[(&[f32], usize)]) -> Option<TemperatureFit> {
    let sound =
        |(logits, class): &(&[f32], usize)| *class < logits.len() && logits.iter().all(|l| l.is_finite());
    if examples.is_empty() || !examples.iter().all(sound) {
        return None;
    }
    let loss = |log_t: f64| nll(examples, log_t.exp() as f32);
    let (mut low, mut high) = (TEMPERATURES[0].ln(), TEMPERATURES[1].ln());
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let mut inner = [high - golden * (high - low), low + golden * (high - low)];
    let mut losses = inner.map(loss);
    // Sixty steps narrow the bracket to a part in 10^12.
    for _ in 0..60 {
        if losses[0] <= losses[1] {
            high = inner[1];
            inner = [high - golden * (high - low), inner[0]];
            losses = [loss(inner[0]), losses[0]];
        } else {
            low = inner[0];
            inner = [inner[1], low + golden * (high - low)];
            losses = [losses[1], loss(inner[1])];
        }
    }
    let temperature = ((low + high) / 2.0).exp() as f32;
    Some(TemperatureFit {
        temperature,
        examples: examples.len(),
        nll: [nll(examples, 1.0), nll(examples, temperature)],
        ece: [calibration_error(examples, 1.0), calibration_error(examples, temperature)],
    })
}

fn nll(examples: &[(&[f32], usize)], temperature: f32) -> f64 {
    let losses =
        examples.iter().map(|(logits, class)| -softmax(logits, temperature)[*class].max(1e-300).ln());
    losses.sum::<f64>() / examples.len() as f64
}

/// The mean gap between how sure the top class is and how often it is right, over bins of sureness.
fn calibration_error(examples: &[(&[f32], usize)], temperature: f32) -> f64 {
    let mut bins = [(0.0, 0.0); BINS];
    for (logits, class) in examples {
        let best = super::argmax(logits);
        let sure = softmax(logits, temperature)[best];
        let bin = &mut bins[((sure * BINS as f64) as usize).min(BINS - 1)];
        bin.0 += sure;
        bin.1 += f64::from(best == *class);
    }
    bins.iter().map(|(sure, right)| (sure - right).abs()).sum::<f64>() / examples.len() as f64
}

/// A threshold that was chosen for a share, and what it gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// For `min_confidence`.
    pub threshold: f32,
    /// The share of prompts that should lie below.
    pub wanted: f64,
    /// The share of the set that does.
    pub achieved: f64,
    /// The prompts of the set.
    pub examples: usize,
    /// The name of the set: the threshold means its share there and nowhere else.
    pub set: String,
}

/// The threshold below which the share of confidences comes closest to `wanted` (0 to 1); equal confidences stay
/// together, so `achieved` may differ.
///
/// `None` for no confidences, or one that is no number, or a share that is none.
#[must_use]
pub fn threshold_for(confidences: &[f32], wanted: f64, set: &str) -> Option<Threshold> {
    if confidences.is_empty() || confidences.iter().any(|c| !c.is_finite()) || !(0.0..=1.0).contains(&wanted)
    {
        return None;
    }
    let mut sorted = confidences.to_vec();
    sorted.sort_by(f32::total_cmp);
    let examples = sorted.len();
    // Below a confidence that occurs lie those that are smaller; above the greatest lie all.
    let firsts = (0..examples).filter(|&i| i == 0 || sorted[i] > sorted[i - 1]).map(|i| (sorted[i], i));
    let all = (sorted[examples - 1].next_up(), examples);
    let gap = |below: usize| (below as f64 / examples as f64 - wanted).abs();
    let (threshold, below) = firsts.chain([all]).min_by(|a, b| gap(a.1).total_cmp(&gap(b.1)))?;
    Some(Threshold { threshold, wanted, achieved: below as f64 / examples as f64, examples, set: set.into() })
}

/// The share of confidences below a threshold: what a threshold gives on another set.
#[must_use]
pub fn share_below(confidences: &[f32], threshold: f32) -> f64 {
    let below = confidences.iter().filter(|&&confidence| confidence < threshold).count();
    below as f64 / confidences.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two classes; the first is right with the probability that its logit says at a temperature of `t`.
    fn examples(t: f64) -> Vec<([f32; 2], usize)> {
        let mut examples = Vec::new();
        for step in 0..40 {
            let logit = f64::from(step) * 0.2;
            let p = 1.0 / (1.0 + (-logit / t).exp());
            let right = (p * 200.0).round() as usize;
            examples.extend((0..200).map(|i| ([logit as f32, 0.0], usize::from(i >= right))));
        }
        examples
    }

    #[test]
    fn the_temperature_that_made_the_labels_is_found() {
        for t in [0.5, 1.0, 3.0] {
            let examples = examples(t);
            let examples: Vec<(&[f32], usize)> = examples.iter().map(|(l, c)| (l.as_slice(), *c)).collect();
            let fit = fit_temperature(&examples).unwrap();
            assert!((f64::from(fit.temperature) / t - 1.0).abs() < 0.03, "{t}: {fit:?}");
            assert!(fit.nll[1] <= fit.nll[0] + 1e-9 && fit.ece[1] < 0.01, "{fit:?}");
            if t == 3.0 {
                assert!(fit.ece[0] > 0.1, "overconfident before: {fit:?}");
            }
        }
    }

    #[test]
    fn nothing_is_fitted_to_nonsense() {
        assert_eq!(fit_temperature(&[]), None);
        assert_eq!(fit_temperature(&[(&[0.0, 1.0], 2)]), None);
        assert_eq!(fit_temperature(&[(&[f32::NAN, 1.0], 0)]), None);
        assert_eq!(fit_temperature(&[(&[], 0)]), None);
    }

    #[test]
    fn h1_a_threshold_tells_the_share_that_it_achieved() {
        let confidences: Vec<f32> = (0..100).map(|i| i as f32 / 100.0).collect();
        let half = threshold_for(&confidences, 0.5, "ours").unwrap();
        assert_eq!(
            (half.threshold, half.achieved, half.examples, half.set.as_str()),
            (0.5, 0.5, 100, "ours")
        );
        // On another set the same threshold gives another share.
        let surer: Vec<f32> = confidences.iter().map(|c| 0.4 + c * 0.6).collect();
        assert!(share_below(&surer, half.threshold) < 0.2);
        // Confidences that are equal cannot be parted, and that is said.
        let ties = threshold_for(&[0.5; 10], 0.3, "ties").unwrap();
        assert_eq!((ties.wanted, ties.achieved), (0.3, 0.0));
        for (wanted, achieved) in [(0.0, 0.0), (1.0, 1.0)] {
            let threshold = threshold_for(&confidences, wanted, "ours").unwrap();
            assert_eq!(threshold.achieved, achieved);
            assert_eq!(share_below(&confidences, threshold.threshold), achieved);
        }
        assert_eq!(threshold_for(&[], 0.5, ""), None);
        assert_eq!(threshold_for(&[f32::NAN], 0.5, ""), None);
        assert_eq!(threshold_for(&[0.5], f64::NAN, ""), None);
    }
}
