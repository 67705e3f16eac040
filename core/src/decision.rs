//! The decision: from what the heads or the rules say of a prompt, and what is allowed and possible here and now, to a
//! model, with the reasons.
//!
//! [`decide`] is a pure function of values: it reads no clock, no memory counter and no file. The same input gives the
//! same answer, bit for bit, on every machine.
//!
//! # How a model is chosen
//!
//! A model is *feasible* where no limit, no ability and no state of the device or its provider speaks against it; each
//! one that is not says why ([`WhyNot`]).
//!
//! 1. **Learned.** With the heads' logits, and the task's confidence not below `min_confidence`: of the feasible models
//!    with a trained row the one of the best score, `p − λ·cost − μ·latency`. `p` is the softmax of the route logits over
//!    the trained rows (or a bandit's estimate), `cost` is USD for 1,000 tokens, `latency` is seconds of the whole answer
//!    as far as the catalog tells it. Softmax runs over all trained rows, feasible or not: a limit removes models, it
//!    does not make the others better.
//! 2. **Rules.** Else, in hanzo-router's order: `prefer[task]`, then the models that list the task, then those that list
//!    `general`. Local ones that run already go first, whatever their place. The first feasible one is taken.
//! 3. **Fallback.** Else the policy's `default`, if it is feasible. It never overrides a limit.
//! 4. Else [`Route::NoFit`].
//!
//! What is not known of a model counts against it where a limit asks for it (a latency, a quality, a size), unless
//! [`Limits::allow_unknown`] is set; `max_context` 0 alone means "no limit known" and passes, as in hanzo-router.

mod deadline;
mod explain;
mod types;

pub use deadline::{Speed, check_deadline};
pub use types::{
    Absent, Binding, Candidate, Confidence, Context, Decision, Evidence, Learned, Limits, MemorySnapshot,
    Power, Provider, Reason, Require, Route, Source, Thermal, WhyNot,
};

use crate::catalog::{Backend, Card, Catalog, Level, Task};
use crate::policy::Policy;

/// λ, the weight of cost, where neither limits nor config say another.
pub const LAMBDA: f64 = 0.35;
/// μ, the weight of latency, where neither limits nor config say another.
pub const MU: f64 = 0.15;
/// The tokens of an answer where the limits say no other figure.
pub const OUTPUT_TOKENS: u32 = 256;

/// Decides. The module's page tells how.
#[must_use]
pub fn decide(
    evidence: &Evidence,
    catalog: &Catalog,
    policy: &Policy,
    limits: &Limits,
    context: &Context,
) -> Decision {
    let cards = catalog.cards();
    let situation = Situation::new(evidence, catalog, policy, limits, context);

    let learned = evidence.heads.and_then(|learned| Reading::of(&learned, cards.len()));
    let certain = evidence.rules.is_certain();
    let (mut task, mut task_source) = (evidence.rules.task, Source::Rules);
    let mut task_confidence = Confidence::default();
    let reason = match &learned {
        Err(absent) => Reason::from(*absent),
        Ok(reading) => {
            task_confidence = reading.task_confidence;
            let threshold = limits.min_confidence.or(reading.min_confidence);
            match (threshold, task_confidence.value()) {
                // The threshold is on the task's confidence: that of a model is low wherever two do equally well.
                (Some(threshold), Some(confidence)) if !certain && !(confidence >= threshold) => {
                    let calibrated = task_confidence.calibrated.is_some();
                    Reason::LowConfidence { confidence, threshold, calibrated }
                }
                _ => {
                    if !certain {
                        (task, task_source) = (reading.task, Source::Learned);
                    }
                    Reason::BestScore
                }
            }
        }
    };

    let lambda = weight(limits.lambda.or(learned.as_ref().ok().and_then(|r| r.lambda)), LAMBDA);
    let mu = weight(limits.mu.or(learned.as_ref().ok().and_then(|r| r.mu)), MU);
    let mut candidates: Vec<Candidate> = cards
        .iter()
        .enumerate()
        .map(|(i, card)| {
            let row = learned.as_ref().ok().and_then(|reading| reading.cards[i]);
            let quality = card.quality.or(row.map(|row| row.quality));
            let why_not = situation.check(i, card, quality);
            Candidate {
                model: card.id.clone(),
                score: None,
                quality,
                probability: row.map(|row| row.probability),
                cost_per_1k: card.cost_per_1k,
                latency_ms: situation.latency(card),
                trained: row.is_some(),
                running: situation.running[i],
                feasible: why_not.is_none(),
                why_not,
            }
        })
        .collect();

    let mut chosen = None;
    let mut reason = reason;
    if let (Ok(reading), Reason::BestScore) = (&learned, &reason) {
        chosen = by_score(reading, &mut candidates, lambda, mu);
        if chosen.is_none() {
            let trained = reading.cards.iter().any(Option::is_some);
            reason = if trained { Reason::NoTrainedFeasible } else { Reason::NoTrainedRow };
        }
    }
    let mut source = if chosen.is_some() { Source::Learned } else { Source::Rules };
    if chosen.is_none() {
        let order = preference(task, catalog, policy, &situation.running);
        (chosen, source) = by_order(&order, &mut candidates);
    }

    let route = chosen.map_or(Route::NoFit, |i| situation.route(i, &cards[i]));
    let level = chosen.map_or(Level::default(), |i| situation.level(task, &cards[i]));
    let confidence = match (&learned, chosen, source) {
        (Ok(reading), Some(i), Source::Learned) => reading.confidence(i),
        _ => Confidence::default(),
    };
    let chosen = chosen.map(|i| cards[i].id.as_str());
    sort(&mut candidates, chosen);
    Decision { route, task, task_source, level, source, reason, task_confidence, confidence, candidates }
}

/// A weight of the score. One that is no sensible number counts nothing rather than spoil every comparison.
fn weight(given: Option<f64>, default: f64) -> f64 {
    let weight = given.unwrap_or(default);
    if weight.is_finite() && weight >= 0.0 { weight } else { 0.0 }
}

/// Scores the trained models and gives the best feasible one; of equals the one whose route row stands first.
fn by_score(reading: &Reading, candidates: &mut [Candidate], lambda: f64, mu: f64) -> Option<usize> {
    let mut best: Option<(f64, usize, usize)> = None;
    for (i, candidate) in candidates.iter_mut().enumerate() {
        let Some(row) = reading.cards[i] else {
            if candidate.feasible {
                candidate.feasible = false;
                candidate.why_not = Some(WhyNot::Untrained);
            }
            continue;
        };
        let seconds = candidate.latency_ms.unwrap_or(0.0) / 1000.0;
        let score = row.quality - lambda * candidate.cost_per_1k - mu * seconds;
        candidate.score = Some(score);
        if candidate.feasible && best.is_none_or(|(s, r, _)| score > s || score == s && row.row < r) {
            best = Some((score, row.row, i));
        }
    }
    match best {
        Some((_, _, i)) => Some(i),
        None => {
            // The rules come next: they may take what has no trained row.
            for candidate in candidates {
                candidate.score = None;
                if candidate.why_not == Some(WhyNot::Untrained) {
                    candidate.feasible = true;
                    candidate.why_not = None;
                }
            }
            None
        }
    }
}

/// The models that the rules consider, in order, and how many of them are not merely the declared default. Local models
/// that run come first: using one costs nothing.
fn preference(task: Task, catalog: &Catalog, policy: &Policy, running: &[bool]) -> (Vec<usize>, usize) {
    let cards = catalog.cards();
    let mut order = Vec::with_capacity(cards.len());
    let mut listed = vec![false; cards.len()];
    let mut push = |i: usize, order: &mut Vec<usize>| {
        if !std::mem::replace(&mut listed[i], true) {
            order.push(i);
        }
    };
    for id in policy.prefer.get(&task).into_iter().flatten() {
        if let Some(i) = catalog.find(id) {
            push(i, &mut order);
        }
    }
    for wanted in [task, Task::General] {
        for (i, card) in cards.iter().enumerate() {
            if card.tasks.contains(&wanted) {
                push(i, &mut order);
            }
        }
    }
    order.sort_by_key(|&i| !(running[i] && cards[i].backend.is_local()));
    let considered = order.len();
    if let Some(i) = policy.default.as_deref().and_then(|id| catalog.find(id)) {
        push(i, &mut order);
    }
    (order, considered)
}

/// Scores the models by their place and gives the first feasible one.
fn by_order(
    (order, considered): &(Vec<usize>, usize),
    candidates: &mut [Candidate],
) -> (Option<usize>, Source) {
    let mut listed = vec![false; candidates.len()];
    let mut chosen = None;
    for (place, &i) in order.iter().enumerate() {
        listed[i] = true;
        candidates[i].score = Some(1.0 / (place + 1) as f64);
        if chosen.is_none() && candidates[i].feasible {
            let source = if place < *considered { Source::Rules } else { Source::Fallback };
            chosen = Some((i, source));
        }
    }
    for (candidate, listed) in candidates.iter_mut().zip(listed) {
        if !listed && candidate.feasible {
            candidate.feasible = false;
            candidate.why_not = Some(WhyNot::NotForTask);
        }
    }
    match chosen {
        Some((i, source)) => (Some(i), source),
        None => (None, Source::Rules),
    }
}

/// The chosen one first, then the feasible by score, then the others by score; of equals in the catalog's order.
fn sort(candidates: &mut [Candidate], chosen: Option<&str>) {
    let place = |c: &Candidate| (Some(c.model.as_str()) != chosen, !c.feasible);
    let score = |c: &Candidate| c.score.unwrap_or(f64::NEG_INFINITY);
    candidates.sort_by(|a, b| place(a).cmp(&place(b)).then(score(b).total_cmp(&score(a))));
}

/// What the heads say of one model.
#[derive(Clone, Copy)]
struct Row {
    /// The route row.
    row: usize,
    /// The calibrated softmax over the trained rows; without a temperature the raw one.
    probability: f64,
    /// The raw softmax over the trained rows.
    raw: f64,
    /// What the score starts from: the probability or a bandit's estimate.
    quality: f64,
}

/// The heads' logits as probabilities.
struct Reading {
    task: Task,
    task_confidence: Confidence,
    /// For each card what its route row says, where that is trained.
    cards: Vec<Option<Row>>,
    calibrated: bool,
    min_confidence: Option<f32>,
    lambda: Option<f64>,
    mu: Option<f64>,
}

impl Reading {
    /// Refuses logits that are not those of the binding or of no use: the rules answer then.
    fn of(learned: &Learned, cards: usize) -> Result<Self, Absent> {
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

    fn confidence(&self, card: usize) -> Confidence {
        self.cards[card].map_or_else(Confidence::default, |row| Confidence {
            raw: Some(row.raw as f32),
            calibrated: self.calibrated.then_some(row.probability as f32),
        })
    }
}

/// Limits, policy and context, looked up once for all models.
struct Situation<'a> {
    limits: &'a Limits,
    context: &'a Context,
    ceiling: Option<f64>,
    vision: bool,
    min_context: u64,
    output_tokens: u32,
    prompt_tokens: u64,
    /// Bytes that a local model may take; `None`: memory is not known.
    budget: Option<u64>,
    excluded: Vec<bool>,
    running: Vec<bool>,
}

impl<'a> Situation<'a> {
    fn new(
        evidence: &Evidence,
        catalog: &Catalog,
        policy: &Policy,
        limits: &'a Limits,
        context: &'a Context,
    ) -> Self {
        let flags = |ids: &[String]| {
            let mut flags = vec![false; catalog.cards().len()];
            for id in ids {
                if let Some(i) = catalog.find(id) {
                    flags[i] = true;
                }
            }
            flags
        };
        let budget = context.memory.map(|memory| {
            // No model may take more than the machine has, whatever a snapshot claims to be free.
            let available = memory.available.min(memory.total);
            (available as f64 * policy.fraction(memory.unified)) as u64
        });
        Self {
            limits,
            context,
            ceiling: policy.cost_ceiling,
            vision: limits.require.vision || evidence.has_media,
            min_context: limits.require.min_context.max(evidence.rules.tokens),
            output_tokens: limits.output_tokens.unwrap_or(OUTPUT_TOKENS),
            prompt_tokens: evidence.rules.tokens,
            budget,
            excluded: flags(&limits.exclude),
            running: flags(&context.running),
        }
    }

    fn latency(&self, card: &Card) -> Option<f64> {
        card.answer_ms(self.output_tokens)
    }

    /// Why a model cannot be taken. Comparisons are written so that a limit which is no number lets nothing pass.
    fn check(&self, i: usize, card: &Card, quality: Option<f64>) -> Option<WhyNot> {
        let limits = self.limits;
        if card.disabled {
            return Some(WhyNot::Disabled);
        }
        if self.excluded[i] {
            return Some(WhyNot::Excluded);
        }
        if limits.offline && !card.backend.is_local() {
            return Some(WhyNot::Offline);
        }
        if self.vision && !card.vision {
            return Some(WhyNot::NoVision);
        }
        if card.max_context != 0 && card.max_context < self.min_context {
            return Some(WhyNot::ContextTooSmall { has: card.max_context, needs: self.min_context });
        }
        if let Some(level) = limits.level
            && !card.levels.contains(&level)
        {
            return Some(WhyNot::LevelUnavailable { level });
        }
        let cost = card.cost_per_1k;
        if let Some(limit) = limits.max_cost
            && !(cost <= limit)
        {
            return Some(WhyNot::TooExpensive { cost, limit });
        }
        if let Some(limit) = self.ceiling
            && !card.backend.is_local()
            && !(cost <= limit)
        {
            return Some(WhyNot::AboveCeiling { cost, limit });
        }
        if let Some(limit) = limits.min_quality {
            match quality {
                None if !limits.allow_unknown => return Some(WhyNot::QualityUnknown),
                Some(quality) if !(quality >= limit) => {
                    return Some(WhyNot::QualityTooLow { quality, limit });
                }
                _ => {}
            }
        }
        if let Some(limit) = limits.max_latency_ms {
            match self.latency(card) {
                None if !limits.allow_unknown => return Some(WhyNot::LatencyUnknown),
                Some(latency) if !(latency <= limit) => return Some(WhyNot::TooSlow { latency, limit }),
                _ => {}
            }
        }
        match &card.backend {
            Backend::Cloud { provider } => self.check_provider(provider, card),
            Backend::Local { .. } if self.context.thermal == Thermal::Critical => Some(WhyNot::Hot),
            Backend::Local { .. } if self.running[i] => None,
            Backend::Local { est_bytes } => self.check_load(*est_bytes),
        }
    }

    fn check_provider(&self, name: &str, card: &Card) -> Option<WhyNot> {
        let provider = self.context.providers.get(name)?;
        if provider.down {
            return Some(WhyNot::ProviderDown);
        }
        if let Some(until_ms) = provider.limited_until_ms
            && self.context.now_ms < until_ms
        {
            return Some(WhyNot::RateLimited { until_ms: Some(until_ms) });
        }
        if provider.requests_left == Some(0) {
            return Some(WhyNot::RateLimited { until_ms: None });
        }
        let tokens = self.prompt_tokens.saturating_add(u64::from(self.output_tokens));
        let expected = card.cost_per_1k * tokens as f64 / 1000.0;
        if let Some(budget) = provider.budget_usd
            && !(provider.spent_usd + expected <= budget)
        {
            return Some(WhyNot::BudgetSpent { spent: provider.spent_usd, expected, budget });
        }
        None
    }

    fn check_load(&self, est_bytes: Option<u64>) -> Option<WhyNot> {
        // A device that is hot or short of power serves what runs, but loads nothing more.
        if self.context.thermal == Thermal::Serious {
            return Some(WhyNot::Hot);
        }
        if self.context.power.is_low() {
            return Some(WhyNot::LowPower);
        }
        let Some(needs) = est_bytes else { return Some(WhyNot::SizeUnknown) };
        match self.budget {
            None => Some(WhyNot::MemoryUnknown),
            Some(budget) if needs > budget => Some(WhyNot::DoesNotFit { needs, budget }),
            Some(_) => None,
        }
    }

    fn route(&self, i: usize, card: &Card) -> Route {
        let model = card.id.clone();
        match &card.backend {
            Backend::Cloud { provider } => Route::Cloud { provider: provider.clone(), model },
            Backend::Local { .. } if self.running[i] => Route::Reuse { model },
            // A size that is not known is not feasible, so it is known here.
            Backend::Local { est_bytes } => Route::LoadLocal { model, est_bytes: est_bytes.unwrap_or(0) },
        }
    }

    /// The caller's level; else fast for small talk and for a local model on a device that is hot or short of power; else
    /// balanced. `max` is never chosen unasked: it multiplies the cost. Without the caller's word the nearest level that
    /// the model has, a lower one first.
    fn level(&self, task: Task, card: &Card) -> Level {
        if let Some(level) = self.limits.level {
            return level;
        }
        let spare = card.backend.is_local()
            && (self.context.power.is_low() || self.context.thermal >= Thermal::Serious);
        let wanted = if spare || task == Task::CheapChat { Level::Fast } else { Level::Balanced };
        let lower = card.levels.iter().filter(|&&level| level <= wanted).max();
        lower.or_else(|| card.levels.iter().min()).copied().unwrap_or(wanted)
    }
}

/// The place of the greatest value, of equals the first.
fn argmax(values: &[f32]) -> usize {
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
fn exp_of_negative(x: f64) -> f64 {
    // ln 2 in two parts, the first with enough zero bits that k times it is exact (fdlibm's e_exp.c).
    const LN2_HI: f64 = 6.931_471_803_691_238_2e-1;
    const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
    if !(x > -700.0) {
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

#[cfg(test)]
mod tests;
