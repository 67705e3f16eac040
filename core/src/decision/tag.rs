//! A decision in which the backbone's route tag has a say.

use super::feasible::Situation;
use super::{
    Candidate, Confidence, Context, Decision, Evidence, LAMBDA, Limits, MU, Reason, Route, Source, sort,
    weight,
};
use crate::catalog::{Catalog, Level};
use crate::policy::Policy;
use serde::{Deserialize, Serialize};

/// Who decides where the backbone is asked for a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagUse {
    /// The tag alone.
    Tag,
    /// The mean of the head's probability and the tag's; the tag's alone for a model without a trained row.
    Both,
}

/// What stands in for the answer of heads or rules where a tag is asked for: the places, in the catalog, of the models
/// that the limits allow. It is what a tag may name.
#[must_use]
pub fn taggable(
    decision: &Decision,
    evidence: &Evidence,
    catalog: &Catalog,
    policy: &Policy,
    limits: &Limits,
    context: &Context,
) -> Vec<usize> {
    let situation = Situation::new(evidence, catalog, policy, limits, context);
    let quality = |id: &str| candidate(decision, id).and_then(|candidate| candidate.quality);
    let cards = catalog.cards().iter().enumerate();
    cards.filter(|(i, card)| situation.check(*i, card, quality(&card.id)).is_none()).map(|(i, _)| i).collect()
}

fn candidate<'a>(decision: &'a Decision, id: &str) -> Option<&'a Candidate> {
    decision.candidates.iter().find(|candidate| candidate.model == id)
}

/// What the backbone's tag says.
#[derive(Clone, Copy, Debug)]
pub struct Tags<'a> {
    /// Who decides.
    pub how: TagUse,
    /// The models that a tag may name, as [`taggable`] gave them.
    pub allowed: &'a [usize],
    /// The probability of each.
    pub probabilities: &'a [f64],
}

/// Decides again, by the tag's probabilities. The level is that of the model; who has asked for the tag's puts it in its place.
///
/// Where no model is allowed the decision stays as it was.
#[must_use]
pub fn decide_by_tag(
    mut decision: Decision,
    tags: Tags<'_>,
    evidence: &Evidence,
    catalog: &Catalog,
    policy: &Policy,
    limits: &Limits,
    context: &Context,
) -> Decision {
    let Tags { how, allowed, probabilities } = tags;
    let cards = catalog.cards();
    let situation = Situation::new(evidence, catalog, policy, limits, context);
    let (lambda, mu) = (weight(limits.lambda, LAMBDA), weight(limits.mu, MU));
    let mut best: Option<(f64, usize, f64)> = None;
    for (&i, &tag) in allowed.iter().zip(probabilities) {
        let Some(candidate) = decision.candidates.iter_mut().find(|c| c.model == cards[i].id) else {
            continue;
        };
        let share = match (how, candidate.probability) {
            (TagUse::Both, Some(head)) => 0.5 * (head + tag),
            _ => tag,
        };
        let seconds = candidate.latency_ms.unwrap_or(0.0) / 1000.0;
        let score = share - lambda * candidate.cost_per_1k - mu * seconds;
        (candidate.score, candidate.feasible, candidate.why_not) = (Some(score), true, None);
        if best.is_none_or(|(most, ..)| score > most) {
            best = Some((score, i, share));
        }
    }
    let Some((_, i, share)) = best else { return decision };
    decision.route = situation.route(i, &cards[i]);
    decision.level = situation.level(decision.task, &cards[i]);
    decision.source = if how == TagUse::Both { Source::Both } else { Source::Tag };
    decision.reason = Reason::BestScore;
    decision.confidence = Confidence { raw: Some(share as f32), calibrated: None };
    decision.pinned = false;
    let chosen = decision.route.model().map(str::to_owned);
    sort(&mut decision.candidates, chosen.as_deref());
    decision
}

/// The levels that a tag may name for a model: those that it has, or the one that the limits ask for.
#[must_use]
pub fn tag_levels(route: &Route, catalog: &Catalog, limits: &Limits) -> Vec<Level> {
    let card = route.model().and_then(|id| catalog.find(id)).map(|i| &catalog.cards()[i]);
    let has = card.map_or_else(Vec::new, |card| card.levels.clone());
    match limits.level {
        Some(level) => has.into_iter().filter(|other| *other == level).collect(),
        None => has,
    }
}
