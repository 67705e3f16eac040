//! What predictions are worth.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use zen_edge_core::decision::calibrate::fit_temperature;

/// Bins of confidence in a reliability diagram and in the calibration error.
pub const BINS: usize = 15;

/// How often predictions are right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Rows.
    pub n: usize,
    /// The share that is right.
    pub accuracy: f64,
    /// The mean over the classes of the share that is right.
    pub balanced_accuracy: f64,
    /// For each class that occurs, the share that is right.
    pub recall: BTreeMap<String, f64>,
}

impl Scores {
    /// Scores of predicted classes beside the true ones.
    pub fn of(labels: &[usize], predicted: &[usize], names: &[&str]) -> Self {
        let (mut all, mut right) = (vec![0usize; names.len()], vec![0usize; names.len()]);
        for (&label, &guess) in labels.iter().zip(predicted) {
            all[label] += 1;
            right[label] += usize::from(label == guess);
        }
        let present = || (0..names.len()).filter(|c| all[*c] > 0);
        let share = |class: usize| right[class] as f64 / all[class] as f64;
        Self {
            n: labels.len(),
            accuracy: right.iter().sum::<usize>() as f64 / labels.len().max(1) as f64,
            balanced_accuracy: present().map(share).sum::<f64>() / present().count().max(1) as f64,
            recall: present().map(|class| (names[class].to_owned(), share(class))).collect(),
        }
    }
}

/// The largest of some logits; the first of equals.
pub fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in logits.iter().enumerate() {
        if *value > logits[best] {
            best = at;
        }
    }
    best
}

/// How often each class was taken for each other: rows are the true ones.
pub fn confusion(labels: &[usize], predicted: &[usize], classes: usize) -> Vec<Vec<usize>> {
    let mut table = vec![vec![0; classes]; classes];
    labels.iter().zip(predicted).for_each(|(label, guess)| table[*label][*guess] += 1);
    table
}

/// A bin of a reliability diagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Rows.
    pub n: usize,
    /// Their mean confidence.
    pub confidence: f64,
    /// The share that is right.
    pub accuracy: f64,
}

/// How well confidences are probabilities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// The temperature that was fitted.
    pub temperature: f32,
    /// Expected calibration error (15 equal bins), before and after.
    pub ece: [f64; 2],
    /// Mean negative log-likelihood in nats, before and after.
    pub nll: [f64; 2],
    /// Mean confidence, after.
    pub confidence: f64,
    /// The reliability diagram, after.
    pub bins: Vec<Bin>,
}

/// Fits a temperature to the logits of rows that did not take part in the fit; `None` where there are none.
pub fn calibrate<'a>(logits: impl Iterator<Item = &'a [f32]>, labels: &[usize]) -> Option<Calibrated> {
    let examples: Vec<(&[f32], usize)> = logits.zip(labels.iter().copied()).collect();
    let fitted = fit_temperature(&examples)?;
    let mut bins = vec![Bin::default(); BINS];
    let mut confidence = 0.0;
    for (logits, label) in &examples {
        let best = argmax(logits);
        let sure = softmax(logits, fitted.temperature)[best];
        confidence += sure;
        let bin = &mut bins[((sure * BINS as f64) as usize).min(BINS - 1)];
        bin.n += 1;
        bin.confidence += sure;
        bin.accuracy += f64::from(u8::from(best == *label));
    }
    for bin in bins.iter_mut().filter(|bin| bin.n > 0) {
        bin.confidence /= bin.n as f64;
        bin.accuracy /= bin.n as f64;
    }
    Some(Calibrated {
        temperature: fitted.temperature,
        ece: fitted.ece,
        nll: fitted.nll,
        confidence: confidence / examples.len() as f64,
        bins,
    })
}

/// Probabilities of logits at a temperature.
pub fn softmax(logits: &[f32], temperature: f32) -> Vec<f64> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let each: Vec<f64> = logits.iter().map(|z| (f64::from(z - top) / f64::from(temperature)).exp()).collect();
    let sum: f64 = each.iter().sum();
    each.into_iter().map(|e| e / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_count_classes_alike() {
        let scores = Scores::of(&[0, 0, 0, 1], &[0, 0, 1, 1], &["a", "b", "c"]);
        assert_eq!((scores.n, scores.accuracy), (4, 0.75));
        assert!((scores.balanced_accuracy - (2.0 / 3.0 + 1.0) / 2.0).abs() < 1e-12);
        assert_eq!(scores.recall.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(confusion(&[0, 0, 1], &[0, 1, 1], 2), [[1, 1], [0, 1]]);
    }

    #[test]
    fn a_temperature_makes_confidences_shares() {
        // Right three times out of four, and far too sure of it.
        let logits = vec![[8.0f32, 0.0]; 400];
        let labels: Vec<usize> = (0..400).map(|i| usize::from(i % 4 == 0)).collect();
        let got = calibrate(logits.iter().map(|z| z.as_slice()), &labels).unwrap();
        assert!((f64::from(got.temperature) - 8.0 / 3f64.ln()).abs() < 1e-2, "{got:?}");
        assert!(got.ece[0] > 0.2 && got.ece[1] < 1e-3 && (got.confidence - 0.75).abs() < 1e-3);
        assert_eq!(got.bins.iter().map(|bin| bin.n).sum::<usize>(), 400);
        assert_eq!(calibrate(std::iter::empty(), &[]), None);
    }
}
