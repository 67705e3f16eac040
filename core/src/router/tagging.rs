//! Routing with the backbone's own tag beside the heads or in their place.

use super::{Manner, Outcome, Place, Request, Router, evidence};
use crate::decision::{Absent, TagUse, Tags, decide_by_tag, tag_levels, taggable};
use crate::generate::{ChooseOptions, GenerateError, Generator, TagFrame};

/// How a tag is asked for.
#[derive(Clone, Debug)]
pub struct TagRequest {
    /// Whether the tag decides alone, or the heads too.
    pub how: TagUse,
    /// How the prompt stands before its tag.
    pub frame: TagFrame,
    /// How the tags are scored.
    pub choose: ChooseOptions,
}

impl Router {
    /// Decides by the route tag, or by heads and tag together: the decision's source says which. The tag can name every
    /// model that the limits allow, trained row or not, and none other. The task is that of the heads or the rules.
    ///
    /// Rewards are not learned from such a decision: its outcome has no id.
    ///
    /// # Errors
    /// What the backbone says, or the chat template.
    pub fn route_by_tag(
        &self,
        generator: &Generator,
        prompt: &str,
        request: &Request<'_>,
        tag: &TagRequest,
    ) -> Result<Outcome, GenerateError> {
        // As a draft: what counts is the decision that comes out at the end.
        let manner = Manner { place: Place::Pool, stale: None, draft: true };
        let mut outcome = self.answer(prompt, request, manner)?;
        outcome.id = None;
        let tokens = (!outcome.reading.truncated && outcome.reading.tokens > 0)
            .then_some(outcome.reading.tokens as u64);
        let evidence = evidence(prompt, request, tokens, Err(Absent::RulesOnly));
        let decision = outcome.decision;
        let (lambda, mu) = (self.config.lambda_cost, self.config.mu_latency);
        let mut limits = request.limits.clone();
        (limits.lambda, limits.mu) = (limits.lambda.or(lambda), limits.mu.or(mu));
        let (limits, context) = (&limits, &request.context);
        let allowed = taggable(&decision, &evidence, &self.catalog, &self.policy, limits, context);
        if allowed.is_empty() || prompt.trim().is_empty() {
            self.counts.decided(&decision);
            return Ok(Outcome { decision, ..outcome });
        }
        let start = self.clock.now();
        let (text, _) = super::clip(prompt, self.config.max_chars, self.config.keep);
        let framed = generator.tag_prompt(text, &tag.frame)?;
        let cards = self.catalog.cards();
        let ids: Vec<&str> = allowed.iter().map(|i| cards[*i].id.as_str()).collect();
        let shares = generator.tag_models(&framed, &ids, &tag.choose)?;
        let tags = Tags { how: tag.how, allowed: &allowed, probabilities: &shares };
        let mut decision =
            decide_by_tag(decision, tags, &evidence, &self.catalog, &self.policy, limits, context);
        let levels = tag_levels(&decision.route, &self.catalog, limits);
        if let (Some(model), false) = (decision.model().map(str::to_owned), levels.is_empty()) {
            decision.level = generator.tag_level(&framed, &model, &levels, &tag.choose)?.0;
        }
        outcome.reading.timings.heads += self.clock.now().saturating_sub(start);
        self.counts.decided(&decision);
        Ok(Outcome { decision, ..outcome })
    }
}
