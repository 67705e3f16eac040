//! Heads from rows: task, route and feature heads over a frozen backbone, and a report of what they are worth.
//!
//! Every prompt is read once, by the (quantised) backbone that will serve it and under the truncation rule that will hold,
//! and kept in a cache ([`embed`]). The task head is a class-balanced multinomial logistic regression ([`logistic`]) whose L2
//! is chosen by cross-validation with whole sources held out ([`task`]); its temperature is fitted on the predictions for
//! rows held out ([`score`]). The route head learns from outcomes of models ([`route`]), the feature head is the read-out in
//! its principal axes ([`features`]). What simpler ways reach stands beside ([`baselines`]).

pub mod baselines;
pub mod embed;
mod error;
pub mod features;
pub mod files;
pub mod folds;
pub mod lbfgs;
pub mod logistic;
pub mod matrix;
pub mod page;
pub mod report;
pub mod route;
pub mod score;
pub mod task;

pub use embed::Reading;
pub use error::FitError;
pub use report::Report;
pub use route::Target;
pub use task::{Count, Standardize};

use crate::rows::{FitRow, Outcome, Row, read_fit};
use embed::{Reader, vectors};
use logistic::Head;
use matrix::Matrix;
use report::{BackboneReport, DataReport, FeatureReport, FileReport, Judged, RouteReport, Share, TaskReport};
use route::{Entry, Seen};
use score::{Scores, argmax, calibrate, confusion};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use zen_edge_core::catalog::{Catalog, Task, normalise_id};
use zen_edge_core::config::RouterConfig;
use zen_edge_core::decision::{Binding, LAMBDA};
use zen_edge_core::heads::Heads;
use zen_edge_core::pack::{LoadError, Part, files as names};
use zen_edge_core::rules::RuleSet;
use zen_edge_core::source::{Memory, Source, sha256};
use zen_edge_kernels::pool::Pool;

/// Prompts of known task, at most, that stand for tasks in which a model was never tried.
const PRIOR: usize = 5000;
/// Dealings of sources into folds that judge the task head.
const DEALINGS: u64 = 3;

/// What is fitted on.
#[derive(Clone)]
pub struct Inputs {
    /// Files of rows: labelled prompts and outcomes, in any mixture.
    pub rows: Vec<PathBuf>,
    /// The backbone's file.
    pub model: Arc<dyn Source>,
    /// What the backbone is called.
    pub base: String,
    /// The models, where there is a catalog; else those of the rows.
    pub catalog: Option<Part>,
    /// The folder in which vectors are kept; `None`: nowhere.
    pub cache: Option<PathBuf>,
    /// When the fit is made, for the report.
    pub date: Option<String>,
}

/// How it is fitted.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is read of a prompt.
    pub reading: Reading,
    /// Threads; `None`: as many as the machine has cores. The heads are the same with any number.
    pub threads: Option<usize>,
    /// The strength of L2 of the task head; `None`: by cross-validation.
    pub l2: Option<f64>,
    /// Whether coordinates are standardised before the fit.
    pub standardize: Standardize,
    /// What the rows of a task count.
    pub count: Count,
    /// The kind of route head.
    pub target: Target,
    /// λ: the weight of a model's price in USD for 1,000 tokens.
    pub lambda: f64,
    /// μ: the weight of a second.
    pub mu: f64,
    /// Rows of the feature head; `None`: as many as the vector has values, at most [`features::MOST`].
    pub feature_dim: Option<usize>,
    /// Whether TF-IDF is fitted too, to be set beside the head.
    pub tfidf: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reading: Reading::default(),
            threads: None,
            l2: None,
            standardize: Standardize::No,
            count: Count::Cv,
            target: Target::Auto,
            lambda: LAMBDA,
            mu: 0.0,
            feature_dim: None,
            tfidf: true,
        }
    }
}

/// What is being done, with the share of it that is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// Prompts are read: bytes done, of so many.
    Reading(u64, u64),
    /// A step of the fit and its share.
    Fitting(&'static str, f64),
}

/// Heads that were fitted, as files.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// `heads.safetensors`.
    pub heads: Vec<u8>,
    /// `router_config.json`.
    pub config: String,
    /// `catalog.yaml`.
    pub catalog: Vec<u8>,
    /// What they are worth.
    pub report: Report,
}

impl Fitted {
    /// Writes the files into a folder, which is made where it is not there. Each is whole or not there; the config, which
    /// binds the heads by their hash, comes last.
    ///
    /// # Errors
    /// [`FitError::Write`], [`FitError::Json`], [`FitError::Picture`].
    pub fn write(&self, folder: &Path) -> Result<(), FitError> {
        let report = self.report.json()?;
        let page = page::html(&self.report)?;
        std::fs::create_dir_all(folder)
            .map_err(|source| FitError::Write { file: folder.to_owned(), source })?;
        let parts: [&[u8]; 5] =
            [&self.heads, &self.catalog, report.as_bytes(), page.as_bytes(), self.config.as_bytes()];
        for (name, bytes) in files::WRITTEN.into_iter().zip(parts) {
            files::write(folder, name, bytes)?;
        }
        Ok(())
    }
}

/// Rows of the task head before they have vectors.
#[derive(Default)]
pub(crate) struct Labelled {
    pub(crate) prompt: Vec<usize>,
    pub(crate) task: Vec<Task>,
    source: Vec<Option<String>>,
    lang: Vec<Option<String>>,
}

/// A row that names the model for its prompt.
struct Routing {
    prompt: usize,
    file: usize,
    task: Option<Task>,
    model: String,
    reward: Option<f64>,
}

/// All rows, and the different prompts among them.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) prompts: Vec<String>,
    place: HashMap<String, usize>,
    pub(crate) labelled: Labelled,
    routes: Vec<Routing>,
    outcomes: Vec<(usize, usize, Outcome)>,
    pub(crate) report: DataReport,
}

impl Gathered {
    pub(crate) fn read(rows: &[PathBuf]) -> Result<Self, FitError> {
        let mut all = Self::default();
        let mut known = HashSet::new();
        for (file, path) in rows.iter().enumerate() {
            let lines = read_fit(path)?;
            let io = |source| crate::rows::RowsError::Io { file: path.clone(), source };
            let source = Memory::open(path).map_err(io)?;
            all.report.files.push(FileReport {
                name: path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
                sha256: sha256(&source).map_err(io)?,
                rows: lines.len(),
            });
            for line in lines {
                match line {
                    FitRow::Outcome(outcome) => {
                        let at = all.prompt(&outcome.prompt);
                        all.outcomes.push((at, file, outcome));
                    }
                    FitRow::Prompt { row, route, reward } => {
                        let task = row.task();
                        let at = all.prompt(&row.prompt);
                        if let Some(route) = route {
                            all.routes.push(Routing { prompt: at, file, task, model: route, reward });
                        }
                        let Some(task) = task else { continue };
                        if !known.insert((at, task)) {
                            all.report.duplicates += 1;
                            continue;
                        }
                        all.labelled.push(at, task, row);
                    }
                }
            }
        }
        if all.labelled.task.is_empty() {
            // Only outcomes: their tasks are labels too.
            for (at, _, outcome) in &all.outcomes {
                if let Some(task) = outcome.task
                    && known.insert((*at, task))
                {
                    all.labelled.push(*at, task, Row::default());
                }
            }
        }
        all.report.task_rows = all.labelled.task.len();
        all.report.outcomes = all.outcomes.len() + all.routes.len();
        all.report.prompts = all.prompts.len();
        if all.prompts.is_empty() { Err(FitError::NoRows) } else { Ok(all) }
    }

    fn prompt(&mut self, text: &str) -> usize {
        if let Some(at) = self.place.get(text) {
            return *at;
        }
        let at = self.prompts.len();
        self.place.insert(text.to_owned(), at);
        self.prompts.push(text.to_owned());
        at
    }
}

impl Labelled {
    /// These of the rows.
    pub(crate) fn gather(&self, at: &[usize]) -> Self {
        let of = |all: &[Option<String>]| at.iter().map(|row| all[*row].clone()).collect();
        Self {
            prompt: at.iter().map(|row| self.prompt[*row]).collect(),
            task: at.iter().map(|row| self.task[*row]).collect(),
            source: of(&self.source),
            lang: of(&self.lang),
        }
    }

    fn push(&mut self, prompt: usize, task: Task, row: Row) {
        self.prompt.push(prompt);
        self.task.push(task);
        self.source.push(row.source);
        self.lang.push(row.lang);
    }

    /// What is held out together, and what that is called: sources where there are two or more, else prompts.
    pub(crate) fn groups(&self) -> (Vec<usize>, Vec<String>, &'static str) {
        let mut names: Vec<String> = self.source.iter().flatten().cloned().collect();
        names.sort_unstable();
        names.dedup();
        let by_source = names.len() > 1;
        let mut place: HashMap<String, usize> = names.iter().cloned().zip(0..).collect();
        let mut groups = Vec::with_capacity(self.prompt.len());
        for (prompt, source) in self.prompt.iter().zip(&self.source) {
            let name = match source {
                Some(source) if by_source => source.clone(),
                // A row without a source is one of its own, and so is each where there are none.
                _ => format!("\u{0}{prompt}"),
            };
            let next = place.len();
            groups.push(*place.entry(name).or_insert(next));
        }
        (groups, names, if by_source { "source" } else { "prompt" })
    }
}

/// Fits heads. `told` is told what is being done.
///
/// # Errors
/// [`FitError`], by cause.
pub fn fit(inputs: &Inputs, options: &Options, told: &mut dyn FnMut(Progress)) -> Result<Fitted, FitError> {
    let begun = Instant::now();
    check(options)?;
    let gathered = Gathered::read(&inputs.rows)?;
    let mut notes = Vec::new();
    // What can be refused without a backbone is refused before hours of reading.
    let classes: Vec<Task> =
        Task::ALL.into_iter().filter(|task| gathered.labelled.task.contains(task)).collect();
    if classes.len() < 2 {
        return Err(FitError::Classes(classes.iter().map(|task| task.name()).collect()));
    }
    if classes.len() < Task::ALL.len() {
        let absent: Vec<&str> =
            Task::ALL.into_iter().filter(|task| !classes.contains(task)).map(|task| task.name()).collect();
        notes.push(format!(
            "no row is of {}: the task head has no row for it and never says it",
            absent.join(", ")
        ));
    }
    let models = Models::of(inputs.catalog.as_ref(), &gathered)?;
    let reader = Reader::open(inputs.model.clone(), options.reading.clone(), options.threads)?;
    let pool = Pool::new(options.threads.unwrap_or_else(Pool::default_threads));
    let prompts: Vec<&str> = gathered.prompts.iter().map(String::as_str).collect();
    let (x, tokens, embedding) = vectors(&reader, &prompts, inputs.cache.as_deref(), &mut |done, of| {
        told(Progress::Reading(done, of));
    })?;
    if embedding.cache_cut_bytes > 0 {
        notes.push(format!(
            "{} damaged bytes were cut off the end of the cache, and their prompts read anew",
            embedding.cache_cut_bytes
        ));
    }
    if embedding.cache_outdated {
        notes.push("the cache held other vectors than the backbone gives now: it was begun anew".to_owned());
    }
    let hidden = reader.backbone().hidden_size();
    let widths: Vec<usize> = reader.reading().pooling.widths(hidden).collect();
    let mut seconds = BTreeMap::from([("read".to_owned(), embedding.seconds)]);

    let (task_head, task_report) =
        fit_task(&gathered, &x, &widths, &classes, options, &pool, &mut seconds, &mut notes, told);
    let start = Instant::now();
    told(Progress::Fitting("features", 0.0));
    let task_x = x.gather(&gathered.labelled.prompt);
    let dim = options.feature_dim.unwrap_or(features::MOST).min(x.cols);
    let (feature_head, held) = features::fit(&task_x, &widths, dim, &pool);
    seconds.insert("features".to_owned(), start.elapsed().as_secs_f64());
    let start = Instant::now();
    let routed = fit_route(&gathered, &models, &x, &tokens, &widths, options, &pool, &mut notes, told);
    seconds.insert("route".to_owned(), start.elapsed().as_secs_f64());

    let heads = files::heads(&task_head, &routed.head, &feature_head)?;
    let heads_sha256 = hash(&heads)?;
    let catalog = match &inputs.catalog {
        Some(part) => part.bytes.clone(),
        None => files::catalog(&models.ids, &routed.price, &routed.entries)?.into_bytes(),
    };
    let mut config = config(inputs, &reader, &classes, &models.ids, feature_head.rows(), options);
    config.insert("trained".to_owned(), json!(routed.trained));
    let mut temperature = Map::new();
    if let Some(calibration) = &task_report.calibration {
        temperature.insert("task".to_owned(), json!(rounded(calibration.temperature.into())));
    }
    if let Some(t) = routed.report.as_ref().and_then(|report| report.temperature) {
        temperature.insert("route".to_owned(), json!(rounded(t)));
    }
    if !temperature.is_empty() {
        config.insert("temperature".to_owned(), Value::Object(temperature));
    }
    config.insert("heads_sha256".to_owned(), heads_sha256.clone().into());
    let config = serde_json::to_string_pretty(&config)? + "\n";
    read_back(&heads, &config, &catalog)?;
    seconds.insert("all".to_owned(), begun.elapsed().as_secs_f64());
    let report = Report {
        schema: report::SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        date: inputs.date.clone(),
        backbone: BackboneReport {
            name: inputs.base.clone(),
            sha256: reader.sha256().to_owned(),
            hidden_size: hidden,
            vector_size: x.cols,
            reading: reader.reading().keys(),
        },
        data: gathered.report,
        embedding,
        task: task_report,
        route: routed.report,
        features: FeatureReport {
            dim: feature_head.rows(),
            variance_held: held,
            what: "principal axes of the vectors of labelled rows; axis i divided by the root of (its variance + the mean variance)",
        },
        seconds,
        heads_sha256,
        notes,
    };
    Ok(Fitted { heads, config, catalog, report })
}

fn check(options: &Options) -> Result<(), FitError> {
    let wrong = |option, why: &str| Err(FitError::Option { option, why: why.to_owned() });
    if options.l2.is_some_and(|l2| !(1e-6..=1e9).contains(&l2)) {
        return wrong("l2", "a number from 0.000001 to 1e9");
    }
    for (option, value) in [("lambda", options.lambda), ("mu", options.mu)] {
        if !(0.0..=1e12).contains(&value) {
            return wrong(option, "a number from 0 to 1e12");
        }
    }
    if options.feature_dim == Some(0) {
        return wrong("feature-dim", "1 or more");
    }
    if options.reading.max_chars == 0 || options.reading.max_tokens == 0 {
        return wrong("max-chars, max-tokens", "1 or more");
    }
    Ok(())
}

fn hash(bytes: &[u8]) -> Result<String, FitError> {
    let source = Memory::new("heads", bytes.to_vec());
    sha256(&source).map_err(|source| LoadError::Io { file: "heads".to_owned(), source }.into())
}

/// Four significant places: a temperature is known no better.
fn rounded(value: f64) -> f64 {
    let places = 3 - value.abs().max(1e-9).log10().floor() as i32;
    // Division by a power of ten gives the shortest decimal.
    let power = 10f64.powi(places.abs());
    if places > 0 { (value * power).round() / power } else { (value / power).round() * power }
}

fn config(
    inputs: &Inputs,
    reader: &Reader,
    classes: &[Task],
    ids: &[String],
    features: usize,
    options: &Options,
) -> Map<String, Value> {
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| config.insert(key.to_owned(), value);
    put("base", inputs.base.clone().into());
    put("tasks", json!(classes.iter().map(|task| task.name()).collect::<Vec<_>>()));
    put("catalog", json!(ids));
    put("frozen_backbone", true.into());
    put("hidden_size", reader.backbone().hidden_size().into());
    put("feature_dim", features.into());
    put("embd_normalize", (-1).into());
    put("lambda_cost", options.lambda.into());
    put("mu_latency", options.mu.into());
    put("backbone_sha256", reader.sha256().into());
    config.extend(reader.reading().keys());
    config
}

/// Reads what was made as a router will: nothing is written that would not load.
fn read_back(heads: &[u8], config: &str, catalog: &[u8]) -> Result<(), FitError> {
    let config = RouterConfig::parse(config.as_bytes(), names::CONFIG).map_err(LoadError::from)?;
    let heads = Heads::from_bytes(heads, names::HEADS, &config).map_err(LoadError::from)?;
    let catalog = Catalog::parse(catalog, names::CATALOG[0])?;
    Binding::new(&config, heads.trained(), &catalog)?;
    Ok(())
}

/// The models, in the order of the route head's rows.
struct Models {
    ids: Vec<String>,
    /// USD for 1,000 tokens by the catalog, where there is one.
    price: Option<Vec<f64>>,
    /// From an id as rows have it to a row.
    place: HashMap<String, usize>,
}

impl Models {
    fn of(part: Option<&Part>, gathered: &Gathered) -> Result<Self, FitError> {
        let mut written: Vec<&str> = gathered
            .outcomes
            .iter()
            .map(|(.., outcome)| outcome.model.as_str())
            .chain(gathered.routes.iter().map(|routing| routing.model.as_str()))
            .collect();
        written.sort_unstable();
        written.dedup();
        let Some(part) = part else {
            let mut ids: Vec<String> = written.iter().map(|id| normalise_id(id).to_owned()).collect();
            ids.sort_unstable();
            ids.dedup();
            if ids.is_empty() {
                return Err(FitError::NoModels);
            }
            if ids.len() > zen_edge_core::config::MAX_ROUTES {
                return Err(FitError::TooManyModels(ids.len()));
            }
            let at = |id: &str| ids.iter().position(|one| one == normalise_id(id));
            let place = written.iter().filter_map(|id| Some(((*id).to_owned(), at(id)?))).collect();
            return Ok(Self { ids, price: None, place });
        };
        let catalog = Catalog::parse(&part.bytes, &part.name)?;
        let (mut place, mut absent) = (HashMap::new(), Vec::new());
        for id in written {
            // Public outcomes write an organisation before the id, and capitals.
            let short = id.rsplit('/').next().unwrap_or(id).to_lowercase();
            match catalog.find(id).or_else(|| catalog.find(&short)) {
                Some(card) => drop(place.insert(id.to_owned(), card)),
                None => absent.push(id.to_owned()),
            }
        }
        if !absent.is_empty() {
            return Err(FitError::UnknownModels { catalog: part.name.clone(), ids: absent });
        }
        let ids = catalog.cards().iter().map(|card| card.id.clone()).collect();
        Ok(Self { ids, price: Some(catalog.cards().iter().map(|card| card.cost_per_1k).collect()), place })
    }
}

#[allow(clippy::too_many_arguments, reason = "one caller; the parts have nothing in common")]
fn fit_task(
    gathered: &Gathered,
    x: &Matrix,
    widths: &[usize],
    classes: &[Task],
    options: &Options,
    pool: &Pool,
    seconds: &mut BTreeMap<String, f64>,
    notes: &mut Vec<String>,
    told: &mut dyn FnMut(Progress),
) -> (Head, TaskReport) {
    let labelled = &gathered.labelled;
    let x = x.gather(&labelled.prompt);
    let place = |task: &Task| classes.iter().position(|class| class == task).unwrap_or_default();
    let labels: Vec<usize> = labelled.task.iter().map(place).collect();
    let tasks: Vec<&'static str> = classes.iter().map(|task| task.name()).collect();
    let (groups, sources, split) = labelled.groups();
    let rows = task::Rows { x: &x, labels: &labels, classes: classes.len(), groups: &groups, widths };
    let start = Instant::now();
    // Without sources nothing counts but rows.
    let count = if split == "source" { options.count } else { Count::Rows };
    let choice = task::choose(&rows, options.l2, options.standardize, count, pool, &mut |share| {
        told(Progress::Fitting("L2 by cross-validation", share));
    });
    seconds.insert("choose".to_owned(), start.elapsed().as_secs_f64());

    let start = Instant::now();
    let first = rows.deal(0);
    let judge = |predicted: &[usize], ece: Option<f64>| {
        let of = |at: &[usize]| {
            let pick = |values: &[usize]| at.iter().map(|row| values[*row]).collect::<Vec<_>>();
            let scores = Scores::of(&pick(&labels), &pick(predicted), &tasks);
            Share { n: scores.n, accuracy: scores.accuracy, balanced_accuracy: scores.balanced_accuracy }
        };
        let mut languages: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (row, lang) in labelled.lang.iter().enumerate() {
            languages.entry(lang.clone().unwrap_or_else(|| "unknown".to_owned())).or_default().push(row);
        }
        let fold = |fold: usize| (0..labels.len()).filter(|row| first[*row] == fold).collect::<Vec<_>>();
        Judged {
            scores: Scores::of(&labels, predicted, &tasks),
            ece,
            folds: (0..rows.folds()).map(|at| of(&fold(at))).collect(),
            languages: languages.into_iter().map(|(name, at)| (name, of(&at))).collect(),
        }
    };
    let mut report = TaskReport {
        tasks: tasks.clone(),
        split: if rows.folds() == 0 { "none" } else { split },
        groups: if split == "source" { sources.len() } else { labels.len() },
        choice: choice.clone(),
        held_out: None,
        dealings: Vec::new(),
        calibration: None,
        confusion: Vec::new(),
        sources: BTreeMap::new(),
        fitted: Scores::default(),
        baselines: BTreeMap::new(),
    };
    let guess = |z: &Matrix| z.iter().map(argmax).collect::<Vec<_>>();
    if rows.folds() > 0 {
        for seed in 0..DEALINGS {
            told(Progress::Fitting("rows held out", seed as f64 / DEALINGS as f64));
            let folds = rows.deal(seed);
            let z = task::out_of_fold(&rows, &choice, &folds, pool);
            let predicted = guess(&z);
            report.dealings.push(Scores::of(&labels, &predicted, &tasks).balanced_accuracy);
            if seed > 0 {
                continue;
            }
            report.calibration = calibrate(z.iter(), &labels);
            report.held_out = Some(judge(&predicted, report.calibration.as_ref().map(|c| c.ece[1])));
            report.confusion = confusion(&labels, &predicted, classes.len());
            if split == "source" {
                for (at, name) in sources.iter().enumerate() {
                    let here: Vec<usize> = (0..labels.len()).filter(|row| groups[*row] == at).collect();
                    let pick = |values: &[usize]| here.iter().map(|row| values[*row]).collect::<Vec<_>>();
                    let s = Scores::of(&pick(&labels), &pick(&predicted), &tasks);
                    let share =
                        Share { n: s.n, accuracy: s.accuracy, balanced_accuracy: s.balanced_accuracy };
                    report.sources.insert(name.clone(), share);
                }
            }
        }
    } else {
        notes.push(
            "there are too few rows to hold any out: nothing is known of the task head's worth".to_owned(),
        );
    }
    seconds.insert("judge".to_owned(), start.elapsed().as_secs_f64());

    let start = Instant::now();
    told(Progress::Fitting("task head", 0.0));
    let all: Vec<usize> = (0..labels.len()).collect();
    let head = task::head(&rows, &all, &choice);
    report.fitted = Scores::of(&labels, &guess(&head.apply_all(&x)), &tasks);
    seconds.insert("task".to_owned(), start.elapsed().as_secs_f64());

    let start = Instant::now();
    let prompts: Vec<&str> = labelled.prompt.iter().map(|at| gathered.prompts[*at].as_str()).collect();
    for (name, set) in [("keywords", RuleSet::Published), ("rules", RuleSet::Ours)] {
        report.baselines.insert(name, judge(&baselines::rules(set, &prompts, classes), None));
    }
    if rows.folds() > 0 {
        report.baselines.insert("majority", judge(&baselines::majority(&rows, &first), None));
        if options.tfidf {
            told(Progress::Fitting("TF-IDF, to be set beside", 0.0));
            let terms = baselines::Terms::of(&prompts, options.reading.max_chars);
            let z = terms.out_of_fold(&rows, &first, pool);
            let ece = calibrate(z.iter(), &labels).map(|calibrated| calibrated.ece[1]);
            report.baselines.insert("tf-idf", judge(&guess(&z), ece));
        }
    }
    seconds.insert("baselines".to_owned(), start.elapsed().as_secs_f64());
    (head, report)
}

/// What came of the outcomes.
struct Routed {
    head: Head,
    trained: Vec<bool>,
    price: Vec<f64>,
    entries: Vec<Entry>,
    report: Option<RouteReport>,
}

#[allow(clippy::too_many_arguments, reason = "one caller; the parts have nothing in common")]
fn fit_route(
    gathered: &Gathered,
    models: &Models,
    x: &Matrix,
    tokens: &[u32],
    widths: &[usize],
    options: &Options,
    pool: &Pool,
    notes: &mut Vec<String>,
    told: &mut dyn FnMut(Progress),
) -> Routed {
    let count = models.ids.len();
    let price = models.price.clone().unwrap_or_else(|| prices(gathered, models, tokens));
    let entries = entries(gathered, models, tokens, &price, options);
    if entries.is_empty() {
        notes.push("no row says how a model did: the route head is not trained, and rules choose".to_owned());
        let (head, trained) = (Head::zero(count, x.cols), vec![false; count]);
        return Routed { head, trained, price, entries, report: None };
    }
    let prior = prior(gathered);
    let (lambda, mu) = (options.lambda, options.mu);
    let data = route::Data { x, widths, models: count, price: &price, lambda, prior: &prior };
    let all: Vec<&Entry> = entries.iter().collect();
    let (held, known): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|entry| entry.is_held_out());
    let (method, tried) = route::choose(&data, &known, options.target, pool, &mut |share| {
        told(Progress::Fitting("route head by cross-validation", share));
    });
    told(Progress::Fitting("route head", 0.0));
    let judged = route::fit(&data, &known, method, pool);
    let files = gathered.report.files.iter().map(|file| file.name.as_str()).enumerate();
    let panels: Vec<route::Panel> = files
        .filter_map(|file| route::judge(&data, (&judged, method), &known, &held, file, &models.ids))
        .collect();
    if panels.is_empty() {
        notes.push(
            "too few prompts have outcomes of two models: nothing is known of the route head's worth"
                .to_owned(),
        );
    }
    let temperature = route::temperature(&data, &judged, &held);
    let head = route::fit(&data, &all, method, pool);
    let trained = route::trained(&all, count);
    let mut outcomes = BTreeMap::new();
    for seen in entries.iter().flat_map(|entry| &entry.seen) {
        *outcomes.entry(models.ids[seen.model].clone()).or_insert(0) += 1;
    }
    let untrained: Vec<String> =
        models.ids.iter().zip(&trained).filter(|(_, trained)| !**trained).map(|(id, _)| id.clone()).collect();
    if !untrained.is_empty() {
        notes.push(format!(
            "the route head never picks {}: fewer than {} outcomes",
            untrained.join(", "),
            route::LEAST_OUTCOMES
        ));
    }
    let report = RouteReport {
        target: options.target,
        method,
        tried,
        lambda,
        mu,
        price_per_1k: models.ids.iter().cloned().zip(price.iter().copied()).collect(),
        prices_from: if models.price.is_some() { "catalog" } else { "rows" },
        outcomes,
        untrained,
        temperature,
        panels,
    };
    Routed { head, trained, price, entries, report: Some(report) }
}

/// USD for 1,000 tokens of prompt, answers included, by the rows; 0 where they state no cost.
fn prices(gathered: &Gathered, models: &Models, tokens: &[u32]) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); models.ids.len()];
    for (prompt, _, outcome) in &gathered.outcomes {
        if let (Some(cost), Some(&model)) = (outcome.cost, models.place.get(&outcome.model)) {
            sums[model].0 += cost;
            sums[model].1 += f64::from(tokens[*prompt]);
        }
    }
    sums.into_iter().map(|(cost, n)| if n > 0.0 { rounded(cost / n * 1e3) } else { 0.0 }).collect()
}

/// The prompts with outcomes, each file's on its own; several outcomes of one model on one prompt are one, their mean.
fn entries(
    gathered: &Gathered,
    models: &Models,
    tokens: &[u32],
    price: &[f64],
    options: &Options,
) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut place: HashMap<(usize, usize), usize> = HashMap::new();
    let mut sums: Vec<BTreeMap<usize, (Seen, f64)>> = Vec::new();
    let mut add = |prompt: usize, file: usize, task: Option<Task>, seen: Seen| {
        let at = *place.entry((file, prompt)).or_insert_with(|| {
            let hash = route::split_hash(&gathered.prompts[prompt]);
            entries.push(Entry { row: prompt, hash, file, task, seen: Vec::new() });
            sums.push(BTreeMap::new());
            entries.len() - 1
        });
        entries[at].task = entries[at].task.or(task);
        let (sum, n) = sums[at].entry(seen.model).or_default();
        sum.model = seen.model;
        sum.quality += seen.quality;
        sum.utility += seen.utility;
        sum.cost += seen.cost;
        *n += 1.0;
    };
    // A model whose latency is not stated on a row is as fast as it is elsewhere.
    let mut latency = vec![(0.0, 0usize); price.len()];
    for (.., outcome) in &gathered.outcomes {
        if let (Some(ms), Some(&model)) = (outcome.latency_ms, models.place.get(&outcome.model)) {
            latency[model].0 += ms;
            latency[model].1 += 1;
        }
    }
    let mean = |model: usize| latency[model].0 / latency[model].1.max(1) as f64;
    for (prompt, file, outcome) in &gathered.outcomes {
        let Some(&model) = models.place.get(&outcome.model) else { continue };
        let seconds = outcome.latency_ms.unwrap_or_else(|| mean(model)) / 1e3;
        let utility = outcome.quality - options.lambda * price[model] - options.mu * seconds;
        let cost = outcome.cost.unwrap_or_else(|| price[model] * f64::from(tokens[*prompt]) / 1e3);
        add(*prompt, *file, outcome.task, Seen { model, quality: outcome.quality, utility, cost });
    }
    let named: Vec<usize> = {
        let bare = gathered.routes.iter().filter(|routing| routing.reward.is_none());
        let mut named: Vec<usize> =
            bare.filter_map(|routing| models.place.get(&routing.model).copied()).collect();
        named.sort_unstable();
        named.dedup();
        named
    };
    for Routing { prompt, file, task, model: id, reward } in &gathered.routes {
        let Some(&model) = models.place.get(id) else { continue };
        let cost = |model: usize| price[model] * f64::from(tokens[*prompt]) / 1e3;
        match reward {
            Some(reward) => {
                add(
                    *prompt,
                    *file,
                    *task,
                    Seen { model, quality: *reward, utility: *reward, cost: cost(model) },
                );
            }
            // A route without a reward says: this one, and none of the others that rows name.
            None => named.iter().for_each(|&other| {
                let quality = f64::from(u8::from(other == model));
                add(
                    *prompt,
                    *file,
                    *task,
                    Seen { model: other, quality, utility: quality, cost: cost(other) },
                );
            }),
        }
    }
    for (entry, sums) in entries.iter_mut().zip(sums) {
        let mean = |(sum, n): (Seen, f64)| Seen {
            quality: sum.quality / n,
            utility: sum.utility / n,
            cost: sum.cost / n,
            ..sum
        };
        entry.seen = sums.into_values().map(mean).collect();
    }
    entries
}

/// Prompts of known task, chosen by their hash, in the rows' order.
fn prior(gathered: &Gathered) -> Vec<(usize, Task)> {
    let labelled = &gathered.labelled;
    let mut all: Vec<(u64, usize)> = (0..labelled.prompt.len())
        .map(|at| (route::split_hash(&gathered.prompts[labelled.prompt[at]]), at))
        .collect();
    all.sort_unstable();
    all.truncate(PRIOR);
    all.sort_unstable_by_key(|(_, at)| *at);
    all.into_iter().map(|(_, at)| (labelled.prompt[at], labelled.task[at])).collect()
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn four_places_are_kept() {
        for (value, kept) in
            [(0.156_541, 0.1565), (123.456, 123.5), (74_401.0, 74_400.0), (0.0, 0.0), (3e-5, 3e-5)]
        {
            assert_eq!(rounded(value), kept);
        }
    }
}
