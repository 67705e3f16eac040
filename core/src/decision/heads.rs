//! The heads' logits as probabilities, with the same bits everywhere.

use super::{Absent, Confidence, Learned};
use crate::catalog::Task;

/// What the heads say of one model.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// The route row.
    pub(super) row: usize,
    /// The calibrated softmax over the trained rows; without a temperature the raw one.
    pub(super) probability: f64,
    /// The raw softmax over the trained rows.
    pub(super) raw: f64,
    /// What the score starts from: the probability or a bandit's estimate.
    pub(super) quality: f64,
}

/// The heads' logits as probabilities.
pub(super) struct Reading {
    pub(super) task: Task,
    pub(super) task_confidence: Confidence,
    /// For each card what its route row says, where that is trained.
    pub(super) cards: Vec<Option<Row>>,
    pub(super) calibrated: bool,
    pub(super) min_confidence: Option<f32>,
    pub(super) lambda: Option<f64>,
    pub(super) mu: Option<f64>,
}

impl Reading {
    /// Refuses logits that are not those of the binding or of no use: the rules answer then.
    pub(super) fn of(learned: &Learned, cards: usize) -> Result<Self, Absent> {
        let Learned { binding, logits, quality } = learned;
        let finite = logits.task.iter().chain(&logits.route).all(|logit| logit.is_finite());
        let lengths = logits.task.len() == binding.tasks.len()
            && logits.route.len() == binding.cards.len()
            && quality.is_none_or(|quality| quality.len() == binding.cards.len());
        if !finite || !lengths || binding.tasks.is_empty() || binding.cards.iter().any(|&card| card >= cards)
        {
            return Err(Absent::Failed);
        }
        let best = argmax(&logits.task);
        let task_confidence = Confidence {
            raw: Some(softmax(&logits.task, 1.0)[best] as f32),
            calibrated: binding.temperature.task.map(|t| softmax(&logits.task, t)[best] as f32),
        };
        let rows: Vec<usize> = (0..binding.cards.len()).filter(|&row| binding.trained[row]).collect();
        let trained: Vec<f32> = rows.iter().map(|&row| logits.route[row]).collect();
        let raw = softmax(&trained, 1.0);
        let calibrated = binding.temperature.route.map(|t| softmax(&trained, t));
        let mut by_card = vec![None; cards];
        for (k, &row) in rows.iter().enumerate() {
            let probability = calibrated.as_ref().unwrap_or(&raw)[k];
            // An estimate that is no number would spoil the comparison: the head's own stands in.
            let quality =
                quality.map(|quality| quality[row]).filter(|q| q.is_finite()).unwrap_or(probability);
            by_card[binding.cards[row]] = Some(Row { row, probability, raw: raw[k], quality });
        }
        Ok(Self {
            task: binding.tasks[best],
            task_confidence,
            cards: by_card,
            calibrated: calibrated.is_some(),
            min_confidence: binding.min_confidence,
            lambda: binding.lambda,
            mu: binding.mu,
        })
    }

    pub(super) fn confidence(&self, card: usize) -> Confidence {
        self.cards[card].map_or_else(Confidence::default, |row| Confidence {
            raw: Some(row.raw as f32),
            calibrated: self.calibrated.then_some(row.probability as f32),
        })
    }
}

/// The place of the greatest value, of equals the first.
pub(crate) fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (i, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = i;
        }
    }
    best
}

/// The softmax of logits at a temperature. Sums run in order, and the exponential is our own: a platform's may differ in
/// its last bit, and with it a decision between two models that do equally well.
pub(crate) fn softmax(logits: &[f32], temperature: f32) -> Vec<f64> {
    let Some(&most) = logits.get(argmax(logits)) else { return Vec::new() };
    let mut values: Vec<f64> = logits
        .iter()
        .map(|&logit| exp_of_negative((f64::from(logit) - f64::from(most)) / f64::from(temperature)))
        .collect();
    let sum: f64 = values.iter().sum();
    for value in &mut values {
        *value /= sum;
    }
    values
}

/// e^x for x ≤ 0, within two units of the last place, from IEEE basic operations alone. Below -700 it is 0.
pub(super) fn exp_of_negative(x: f64) -> f64 {
    // ln 2 in two parts, the first with enough zero bits that k times it is exact (fdlibm's e_exp.c).
    const LN2_HI: f64 = 6.931_471_803_691_238e-1;
    const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
    if x.is_nan() || x <= -700.0 {
        return 0.0;
    }
    let k = (x * std::f64::consts::LOG2_E + 0.5).floor();
    let r = (x - k * LN2_HI) - k * LN2_LO;
    // |r| ≤ .35: the Taylor series to r^14 / 14! is exact to the last place.
    let mut sum = 1.0;
    for n in (1..=14).rev() {
        sum = 1.0 + sum * r / f64::from(n);
    }
    // 2^k with -1010 < k ≤ 0.
    sum * f64::from_bits(((1023 + k as i64) as u64) << 52)
}
