//! What can be taken here and now, and why the rest cannot.

use super::{Context, Evidence, Limits, OUTPUT_TOKENS, Route, Thermal, WhyNot};
use crate::catalog::{Backend, Card, Catalog, Level, Task};
use crate::policy::Policy;

/// Whether a value keeps a limit. One that is no number keeps none, and a limit that is no number lets nothing pass.
pub(super) fn at_most<T: PartialOrd>(value: T, limit: T) -> bool {
    value <= limit
}

/// Limits, policy and context, looked up once for all models.
pub(super) struct Situation<'a> {
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
    pub(super) running: Vec<bool>,
}

impl<'a> Situation<'a> {
    pub(super) fn new(
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

    pub(super) fn latency(&self, card: &Card) -> Option<f64> {
        card.answer_ms(self.output_tokens)
    }

    /// Why a model cannot be taken.
    pub(super) fn check(&self, i: usize, card: &Card, quality: Option<f64>) -> Option<WhyNot> {
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
            && !at_most(cost, limit)
        {
            return Some(WhyNot::TooExpensive { cost, limit });
        }
        if let Some(limit) = self.ceiling
            && !card.backend.is_local()
            && !at_most(cost, limit)
        {
            return Some(WhyNot::AboveCeiling { cost, limit });
        }
        if let Some(limit) = limits.min_quality {
            match quality {
                None if !limits.allow_unknown => return Some(WhyNot::QualityUnknown),
                Some(quality) if !at_most(limit, quality) => {
                    return Some(WhyNot::QualityTooLow { quality, limit });
                }
                _ => {}
            }
        }
        if let Some(limit) = limits.max_latency_ms {
            match self.latency(card) {
                None if !limits.allow_unknown => return Some(WhyNot::LatencyUnknown),
                Some(latency) if !at_most(latency, limit) => return Some(WhyNot::TooSlow { latency, limit }),
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
            && !at_most(provider.spent_usd + expected, budget)
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

    pub(super) fn route(&self, i: usize, card: &Card) -> Route {
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
    pub(super) fn level(&self, task: Task, card: &Card) -> Level {
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
