//! What is asked of a decision beside the prompt: limits, the state of the device, whose rewards count.

use crate::exit::Exit;
use crate::failure::Failure;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use zen_edge_core::catalog::{Catalog, Level, Task};
use zen_edge_core::decision::{Context, Limits, Require};

/// The arguments of a decision.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
#[command(next_help_heading = "Limits")]
pub struct Args {
    /// The most that a model may cost, in USD for 1,000 tokens
    #[arg(long, value_name = "USD", value_parser = amount)]
    max_cost: Option<f64>,
    /// The most that an answer may take, in milliseconds, by the catalog's figures
    #[arg(long, value_name = "MS", value_parser = amount)]
    max_latency_ms: Option<f64>,
    /// The least quality, 0 to 1: the catalog's figure, else the route head's
    #[arg(long, value_name = "Q", value_parser = share)]
    min_quality: Option<f64>,
    /// Only models on this device
    #[arg(long)]
    offline: bool,
    /// The model must read images
    #[arg(long)]
    vision: bool,
    /// The model's context must have so many tokens
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    min_context: u64,
    /// A model that is never chosen; may be given several times
    #[arg(long, value_name = "ID")]
    exclude: Vec<String>,
    /// The effort that the model must offer and is asked for
    #[arg(long, value_name = "LEVEL", value_parser = levels())]
    level: Option<Level>,
    /// The confidence of the task below which rules decide, 0 to 1
    #[arg(long, value_name = "C", value_parser = share)]
    min_confidence: Option<f64>,
    /// A model whose latency or quality is not known passes a limit on it
    #[arg(long)]
    allow_unknown: bool,
    /// The weight of cost in a score [default: the config's, else 0.35]
    #[arg(long, value_name = "W", value_parser = amount)]
    lambda: Option<f64>,
    /// The weight of latency in a score, for a second [default: the config's, else 0.15]
    #[arg(long, value_name = "W", value_parser = amount)]
    mu: Option<f64>,
    /// How long the answer will be, for its cost and latency [default: 256]
    #[arg(long, value_name = "TOKENS")]
    output_tokens: Option<u32>,

    /// The task, where it is known
    #[arg(long, value_name = "TASK", value_parser = tasks(), help_heading = "Situation")]
    task: Option<Task>,
    /// An image, a sound or a film goes with the prompt
    #[arg(long, help_heading = "Situation")]
    media: bool,
    /// Decide by rules, without the backbone
    #[arg(long, help_heading = "Situation")]
    rules: bool,
    /// Milliseconds in which the decision must be there, loading not counted: rules decide where the heads cannot
    #[arg(long, value_name = "MS", value_parser = amount, help_heading = "Situation")]
    deadline_ms: Option<f64>,
    /// A local model that runs now; may be given several times
    #[arg(long, value_name = "ID", help_heading = "Situation")]
    running: Vec<String>,
    /// The state of device and providers as JSON: running, memory, providers, power, thermal, now_ms
    #[arg(long, value_name = "FILE", help_heading = "Situation")]
    context: Option<PathBuf>,
    /// The prompts are the turns of one conversation: it is held at its model
    #[arg(long, help_heading = "Situation")]
    conversation: bool,
}

/// What the arguments say.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub limits: Limits,
    pub context: Context,
    pub task: Option<Task>,
    pub media: bool,
    pub rules: bool,
    pub deadline_ms: Option<f64>,
    pub conversation: bool,
}

impl Args {
    /// Reads the files that the arguments name.
    ///
    /// # Errors
    /// A context that cannot be read or is none.
    pub fn read(&self) -> Result<Asked, Failure> {
        let mut context = match &self.context {
            Some(path) => {
                let bytes = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
                serde_json::from_slice(&bytes).map_err(|error| {
                    Failure::new(Exit::Format, format!("{} is no context: {error}", path.display()))
                })?
            }
            None => Context::default(),
        };
        context.running.extend(self.running.iter().cloned());
        let limits = Limits {
            max_cost: self.max_cost,
            max_latency_ms: self.max_latency_ms,
            min_quality: self.min_quality,
            lambda: self.lambda,
            mu: self.mu,
            offline: self.offline,
            require: Require { vision: self.vision, min_context: self.min_context },
            exclude: self.exclude.clone(),
            level: self.level,
            min_confidence: self.min_confidence.map(|c| c as f32),
            output_tokens: self.output_tokens,
            allow_unknown: self.allow_unknown,
        };
        Ok(Asked {
            limits,
            context,
            task: self.task,
            media: self.media,
            rules: self.rules,
            deadline_ms: self.deadline_ms,
            conversation: self.conversation,
        })
    }
}

impl Asked {
    /// Refuses ids that the catalog does not have: a misspelt exclusion would exclude nothing.
    ///
    /// # Errors
    /// [`Exit::Usage`], with the ids that there are.
    pub fn check(&self, catalog: &Catalog) -> Result<(), Failure> {
        let ids = self.limits.exclude.iter().chain(&self.context.running);
        match ids.into_iter().find(|id| catalog.find(id).is_none()) {
            None => Ok(()),
            Some(id) => {
                let known: Vec<&str> = catalog.cards().iter().map(|card| &*card.id).collect();
                let known = crate::output::plain(&known.join(", "));
                Err(Failure::new(Exit::Usage, format!("the catalog has no model {id}; it has: {known}")))
            }
        }
    }
}

fn tasks() -> impl TypedValueParser<Value = Task> {
    PossibleValuesParser::new(Task::NAMES).try_map(|name| Task::from_name(&name).ok_or("no task"))
}

fn levels() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(Level::ALL.map(Level::name))
        .try_map(|name| Level::from_name(&name).ok_or("no level"))
}

/// A number of at least 0.
pub fn amount(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err("give a number of at least 0".into()) }
}

/// A number from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    match amount(text) {
        Ok(value) if value <= 1.0 => Ok(value),
        _ => Err("give a number from 0 to 1".into()),
    }
}
