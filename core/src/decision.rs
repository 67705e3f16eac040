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
//! Where the backbone is asked for its route tag as well, [`decide_by_tag`] decides once more over the same feasible models.
//!
//! What is not known of a model counts against it where a limit asks for it (a latency, a quality, a size), unless
//! [`Limits::allow_unknown`] is set; `max_context` 0 alone means "no limit known" and passes, as in hanzo-router.

pub mod calibrate;
mod deadline;
mod explain;
mod feasible;
mod heads;
pub mod session;
mod tag;
mod types;

pub use deadline::{Speed, check_deadline};
pub use tag::{TagUse, Tags, decide_by_tag, tag_levels, taggable};
pub use types::{
    Absent, Binding, Candidate, Confidence, Context, Decision, Evidence, Learned, Limits, MemorySnapshot,
    Power, Provider, Reason, Require, Route, Source, Thermal, WhyNot,
};

use crate::catalog::{Catalog, Level, Task};
use crate::policy::Policy;
use feasible::{Situation, at_most};
use heads::Reading;
pub(crate) use heads::{argmax, softmax};

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
                (Some(threshold), Some(confidence)) if !certain && !at_most(threshold, confidence) => {
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
            // Never a bandit's estimate: it is raised by what is not known, and a limit is no place for hope.
            let quality = card.quality.or(row.map(|row| row.probability));
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
    Decision {
        route,
        task,
        task_source,
        level,
        source,
        reason,
        task_confidence,
        confidence,
        candidates,
        pinned: false,
    }
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

#[cfg(test)]
mod tests;
