//! Reasons in words.

use super::{Reason, Route, WhyNot};
use std::fmt;

/// Bytes as people write them.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = "B";
        for next in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            unit = next;
        }
        if unit == "B" { write!(f, "{} B", self.0) } else { write!(f, "{value:.1} {unit}") }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Self::Disabled => f.write_str("disabled in the catalog"),
            Self::Excluded => f.write_str("excluded"),
            Self::Offline => f.write_str("not on this device, and offline is asked for"),
            Self::NoVision => f.write_str("reads no images"),
            Self::ContextTooSmall { has, needs } => write!(f, "context of {has} tokens, {needs} are needed"),
            Self::LevelUnavailable { level } => write!(f, "does not offer the level {level}"),
            Self::TooExpensive { cost, limit } => {
                write!(f, "costs ${cost} for 1k tokens, the limit is ${limit}")
            }
            Self::AboveCeiling { cost, limit } => {
                write!(f, "costs ${cost} for 1k tokens, the policy's ceiling is ${limit}")
            }
            Self::QualityUnknown => f.write_str("quality not known: state `quality` in the catalog"),
            Self::QualityTooLow { quality, limit } => {
                write!(f, "quality {quality:.3}, at least {limit} is asked for")
            }
            Self::LatencyUnknown => {
                f.write_str("latency not known: state `latency_ms` or `tokens_per_second` in the catalog")
            }
            Self::TooSlow { latency, limit } => write!(f, "takes {latency:.0} ms, the limit is {limit} ms"),
            Self::ProviderDown => f.write_str("its provider is out of reach"),
            Self::RateLimited { until_ms: Some(until) } => {
                write!(f, "its provider takes no requests before {until}")
            }
            Self::RateLimited { until_ms: None } => {
                f.write_str("its provider takes no more requests in this window")
            }
            Self::BudgetSpent { spent, expected, budget } => {
                write!(
                    f,
                    "${spent:.4} of its provider's ${budget} are spent, this answer would cost ${expected:.4}"
                )
            }
            Self::Hot => f.write_str("the device is too hot"),
            Self::LowPower => f.write_str("the device is short of power"),
            Self::SizeUnknown => f.write_str("size not known: state `est_bytes` in the catalog"),
            Self::MemoryUnknown => f.write_str("the free memory is not known"),
            Self::DoesNotFit { needs, budget } => {
                write!(f, "needs {}, at most {} may be taken", Bytes(needs), Bytes(budget))
            }
            Self::Untrained => f.write_str("its route row has seen no data: reached by rules only"),
            Self::NotForTask => f.write_str("not meant for this task"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Self::BestScore => f.write_str("best score of the learned head"),
            Self::LowConfidence { confidence, threshold, calibrated } => {
                let kind = if calibrated { "calibrated" } else { "uncalibrated" };
                write!(
                    f,
                    "the heads are {confidence:.2} sure of the task ({kind}), {threshold:.2} is asked for"
                )
            }
            Self::NoTrainedRow => f.write_str("no route row of the heads has seen data"),
            Self::NoTrainedFeasible => f.write_str("no model with a trained route row is feasible"),
            Self::RulesOnly => f.write_str("rules were asked for"),
            Self::NotLoaded => f.write_str("the model is not loaded yet"),
            Self::EmptyInput => f.write_str("the prompt is empty"),
            Self::Deadline { estimate_ms: Some(estimate), deadline_ms } => {
                write!(
                    f,
                    "the learned answer needs about {estimate:.0} ms, the deadline is {deadline_ms:.0} ms"
                )
            }
            Self::Deadline { estimate_ms: None, deadline_ms } => {
                write!(f, "no speed is measured yet that could promise the deadline of {deadline_ms:.0} ms")
            }
            Self::TooHot => f.write_str("the device is too hot to ask the heads"),
            Self::Failed => f.write_str("the engine failed on this prompt"),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Reuse { model } => write!(f, "{model} (runs on this device)"),
            Self::LoadLocal { model, est_bytes } => {
                write!(f, "{model} (to be loaded, {})", Bytes(*est_bytes))
            }
            Self::Cloud { provider, model } => write!(f, "{model} (at {provider})"),
            Self::NoFit => f.write_str("no model fits"),
        }
    }
}
