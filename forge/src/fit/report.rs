//! What a fit says of itself.

use super::embed::Embedded;
use super::route::{Method, Panel, Target, Tried as RouteTried};
use super::score::{Calibrated, Scores};
use super::task::Choice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The report's format.
pub const SCHEMA: &str = "zen-edge.fit/1";

/// What a fit says of itself: `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The version of this crate.
    pub version: &'static str,
    /// When it was made, where the caller says so.
    pub date: Option<String>,
    /// The backbone that was read with.
    pub backbone: BackboneReport,
    /// What was read.
    pub data: DataReport,
    /// What reading took.
    pub embedding: Embedded,
    /// The task head.
    pub task: TaskReport,
    /// The route head, where there were outcomes.
    pub route: Option<RouteReport>,
    /// The feature head.
    pub features: FeatureReport,
    /// Seconds of each step.
    pub seconds: BTreeMap<String, f64>,
    /// The SHA-256 of `heads.safetensors`.
    pub heads_sha256: String,
    /// What should be known of this fit.
    pub notes: Vec<String>,
}

/// The backbone and how it reads.
#[derive(Clone, Debug, Serialize)]
pub struct BackboneReport {
    /// Its name.
    pub name: String,
    /// The SHA-256 of its file.
    pub sha256: String,
    /// The length of its hidden state.
    pub hidden_size: usize,
    /// The length of the vector that the heads read.
    pub vector_size: usize,
    /// Pooling and truncation, as in the config.
    pub reading: serde_json::Map<String, serde_json::Value>,
}

/// A file of rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileReport {
    /// Its name, without its folder.
    pub name: String,
    /// Its SHA-256.
    pub sha256: String,
    /// Its rows.
    pub rows: usize,
}

/// What was read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DataReport {
    /// The files.
    pub files: Vec<FileReport>,
    /// Different prompts.
    pub prompts: usize,
    /// Rows with a task that the task head is fitted on.
    pub task_rows: usize,
    /// Rows that say the same as an earlier one, and were left out.
    pub duplicates: usize,
    /// Outcomes of models.
    pub outcomes: usize,
}

/// What predictions are worth, by class, language and fold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Judged {
    /// All rows.
    #[serde(flatten)]
    pub scores: Scores,
    /// Expected calibration error, where there are confidences: after a temperature of their own.
    pub ece: Option<f64>,
    /// Each fold.
    pub folds: Vec<Share>,
    /// Each language that the rows state.
    pub languages: BTreeMap<String, Share>,
}

/// A share of rows.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Share {
    /// Rows.
    pub n: usize,
    /// The share that is right.
    pub accuracy: f64,
    /// The mean over the classes that occur.
    pub balanced_accuracy: f64,
}

/// The task head.
#[derive(Clone, Debug, Serialize)]
pub struct TaskReport {
    /// Its classes, in the order of its rows.
    pub tasks: Vec<&'static str>,
    /// What is held out together: `source`, `prompt`; `none` where nothing can be held out.
    pub split: &'static str,
    /// How many sources (or prompts) there are.
    pub groups: usize,
    /// How it is fitted.
    pub choice: Choice,
    /// On rows held out, first dealing; absent where nothing can be held out.
    pub held_out: Option<Judged>,
    /// Balanced accuracy of each dealing.
    pub dealings: Vec<f64>,
    /// The temperature and what it does, on the same predictions.
    pub calibration: Option<Calibrated>,
    /// The true classes by the predicted, on the same predictions.
    pub confusion: Vec<Vec<usize>>,
    /// The share that is right of each source held out.
    pub sources: BTreeMap<String, Share>,
    /// On the very rows that it was fitted to, which says little.
    pub fitted: Scores,
    /// The same of simpler ways: `majority`, `keywords`, `rules`, `tf-idf`.
    pub baselines: BTreeMap<&'static str, Judged>,
}

/// The route head.
#[derive(Clone, Debug, Serialize)]
pub struct RouteReport {
    /// What was asked for.
    pub target: Target,
    /// How it is fitted.
    pub method: Method,
    /// What cross-validation said, on the prompts that are not held out.
    pub tried: Vec<RouteTried>,
    /// λ, per USD for 1,000 tokens.
    pub lambda: f64,
    /// μ, per second.
    pub mu: f64,
    /// USD for 1,000 tokens of each model.
    pub price_per_1k: BTreeMap<String, f64>,
    /// Where the prices come from: `catalog`, or `rows`.
    pub prices_from: &'static str,
    /// Outcomes of each model.
    pub outcomes: BTreeMap<String, usize>,
    /// Models whose rows are not trained.
    pub untrained: Vec<String>,
    /// The temperature, fitted on the prompts held out.
    pub temperature: Option<f64>,
    /// What it is worth on prompts held out, for each file of outcomes.
    pub panels: Vec<Panel>,
}

/// The feature head.
#[derive(Clone, Debug, Serialize)]
pub struct FeatureReport {
    /// Features.
    pub dim: usize,
    /// The share of the vectors' variance that these axes hold.
    pub variance_held: f64,
    /// What it is.
    pub what: &'static str,
}

impl Report {
    /// The report as JSON.
    ///
    /// # Errors
    /// None that is known: all of it can be written.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
