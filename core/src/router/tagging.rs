//! Routing with the backbone's own tag beside the heads or in their place.

use super::{Manner, Outcome, Place, Request, Router, Until, after, evidence};
use crate::backbone::BackboneError;
use crate::decision::{Absent, Decision, Reason, TagUse, Tags, decide_by_tag, tag_levels, taggable};
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
    /// Rules that were asked for, a blank prompt and a deadline go before the tag: where it cannot be had in time the
    /// decision is what it would be without one, and its source says so. Rewards are not learned from such a decision: its
    /// outcome has no id.
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
        let start = self.clock.now();
        // As a draft: what counts is the decision that comes out at the end.
        let manner = Manner { place: Place::Pool, stale: None, draft: true };
        let mut outcome = self.answer(prompt, request, manner)?;
        outcome.id = None;
        let unread = matches!(
            outcome.decision.reason,
            Reason::RulesOnly | Reason::EmptyInput | Reason::Deadline { .. }
        );
        if !unread {
            let until = Until {
                cancels: [request.cancel, tag.choose.cancel.as_deref()],
                clock: &*self.clock,
                deadline: request.deadline_ms.map(|ms| after(start, ms)),
            };
            let asked = self.clock.now();
            match self.tagged(generator, prompt, request, tag, &outcome, &until) {
                Ok(decision) => outcome.decision = decision,
                // The clock ended it: what there was before stands.
                Err(GenerateError::Backbone(BackboneError::Cancelled)) if !until.cancelled() => {}
                Err(error) => return Err(error),
            }
            outcome.reading.timings.heads += self.clock.now().saturating_sub(asked);
        }
        self.counts.decided(&outcome.decision);
        Ok(outcome)
    }

    /// The decision with the tag's word in it.
    fn tagged(
        &self,
        generator: &Generator,
        prompt: &str,
        request: &Request<'_>,
        tag: &TagRequest,
        outcome: &Outcome,
        until: &Until<'_>,
    ) -> Result<Decision, GenerateError> {
        let reading = &outcome.reading;
        let tokens = (!reading.truncated && reading.tokens > 0).then_some(reading.tokens as u64);
        let evidence = evidence(prompt, request, tokens, Err(Absent::RulesOnly));
        let (lambda, mu) = (self.config.lambda_cost, self.config.mu_latency);
        let mut limits = request.limits.clone();
        (limits.lambda, limits.mu) = (limits.lambda.or(lambda), limits.mu.or(mu));
        let (limits, context) = (&limits, &request.context);
        let (catalog, policy) = (&self.catalog, &self.policy);
        let allowed = taggable(&outcome.decision, &evidence, catalog, policy, limits, context);
        if allowed.is_empty() {
            return Ok(outcome.decision.clone());
        }
        let (text, _) = super::clip(prompt, self.config.max_chars, self.config.keep);
        let framed = generator.tag_prompt(text, &tag.frame)?;
        let ids: Vec<&str> = allowed.iter().map(|i| catalog.cards()[*i].id.as_str()).collect();
        let shares = generator.tag_models(&framed, &ids, &tag.choose, Some(until))?;
        let tags = Tags { how: tag.how, allowed: &allowed, probabilities: &shares };
        let decision = outcome.decision.clone();
        let mut decision = decide_by_tag(decision, tags, &evidence, catalog, policy, limits, context);
        let levels = tag_levels(&decision.route, catalog, limits);
        if let (Some(model), false) = (decision.model().map(str::to_owned), levels.is_empty()) {
            decision.level = generator.tag_level(&framed, &model, &levels, &tag.choose, Some(until))?.0;
        }
        Ok(decision)
    }
}
