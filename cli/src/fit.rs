//! `zen-edge fit`: heads from rows.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::model::locate;
use crate::output::{self, plain, right, table};
use crate::pull::store;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use owo_colors::OwoColorize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use zen_edge_core::backbone::Pooling;
use zen_edge_core::config::{Keep, RouterConfig};
use zen_edge_core::pack::{LoadError, Part};
use zen_edge_core::source::{Memory, Source};
use zen_edge_default_pack as inside;
use zen_edge_forge::fit::report::{Judged, Report};
use zen_edge_forge::fit::route::{Panel, Point};
use zen_edge_forge::fit::{Count, FitError, Inputs, Options, Progress, Reading, Standardize, Target, fit};
use zen_edge_forge::rows::RowsError;

/// The arguments of `zen-edge fit`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Rows, JSON lines: {"prompt", "task", "source"?, "lang"?, "route"?, "reward"?}
    #[arg(required_unless_present = "profiles", value_name = "ROWS")]
    rows: Vec<PathBuf>,
    /// Outcomes of models, JSON lines: {"prompt", "model", "quality", "cost", "latency_ms", "task"}
    #[arg(long, value_name = "FILE", num_args = 1..)]
    profiles: Vec<PathBuf>,
    /// The backbone: a GGUF file, or the name of a pulled one [default: that of the pack inside the program]
    #[arg(short, long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// The models that prompts are routed to [default: those of the rows]
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// The folder for heads.safetensors, router_config.json, catalog.yaml, report.json and report.html
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// What of a pass the heads read: last, mean, last@N, mean@N (after N layers), length, joined by + [default: last]
    #[arg(long, value_name = "PARTS")]
    pooling: Option<Pooling>,
    /// Characters that are read of a prompt [default: 4000]
    #[arg(long, value_name = "N")]
    max_chars: Option<usize>,
    /// Tokens that are read of a prompt [default: 2048; of the pack inside the program 512]
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Which side of a long prompt is read [default: start]
    #[arg(long, value_name = "SIDE")]
    keep: Option<Side>,
    /// Take special tokens that stand in a prompt as plain text, now and when it routes
    #[arg(long)]
    plain_text: bool,
    /// The strength of L2 of the task head, 1/C of scikit-learn [default: by cross-validation]
    #[arg(long, value_name = "X")]
    l2: Option<f64>,
    /// Bring each coordinate to unit variance before the fit
    #[arg(long, value_name = "WHEN", default_value = "no", num_args = 0..=1, default_missing_value = "yes")]
    standardize: When,
    /// What the rows of a task count: each row the same, or each source the same
    #[arg(long, value_name = "WHAT", default_value = "cv")]
    count: Counting,
    /// What the route head is fitted to
    #[arg(long, value_name = "KIND", default_value = "auto")]
    route_target: Kind,
    /// The weight of a model's price, in USD for 1,000 tokens
    #[arg(long, value_name = "X", default_value_t = 0.35)]
    lambda: f64,
    /// The weight of a second of latency
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    mu: f64,
    /// Rows of the feature head, which a bandit reads [default: as many as the vector has values, at most 256]
    #[arg(long, value_name = "N")]
    feature_dim: Option<usize>,
    /// Do not fit TF-IDF to be set beside the head
    #[arg(long)]
    no_tfidf: bool,
    /// The folder in which vectors are kept, so that the next run need not read again [default: the user's cache]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Keep no vectors
    #[arg(long, conflicts_with = "cache")]
    no_cache: bool,
    /// Threads; the heads are the same with any number [default: as many as the machine has cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Which side of a long prompt is read.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Side {
    Start,
    End,
}

/// Whether coordinates are standardised.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum When {
    No,
    Yes,
    /// Where cross-validation says so
    Cv,
}

/// What the rows of a task count.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Counting {
    Rows,
    Sources,
    /// What cross-validation prefers
    Cv,
}

/// Kinds of route heads.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// The one that cross-validation prefers
    Auto,
    /// The best model
    Hard,
    /// A distribution: softmax(utility / τ)
    Soft,
    /// Each model's expected utility
    Utility,
}

impl From<FitError> for Failure {
    fn from(error: FitError) -> Self {
        let exit = match error {
            FitError::Load(error) => return (*error).into(),
            FitError::Catalog(error) => return LoadError::from(*error).into(),
            FitError::Rows(RowsError::Io { .. }) => Exit::Missing,
            FitError::Rows(_) | FitError::NoRows | FitError::Classes(_) => Exit::Format,
            FitError::UnknownModels { .. } | FitError::CacheKey { .. } => Exit::Mismatch,
            FitError::NoModels | FitError::Option { .. } => Exit::Usage,
            _ => Exit::Other,
        };
        Self::new(exit, plain(&error.to_string()))
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (model, base) = backbone(args)?;
    let catalog = match &args.catalog {
        Some(path) => {
            let bytes = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
            Some(Part::new(path.display().to_string(), bytes))
        }
        None => None,
    };
    let cache = match (&args.cache, args.no_cache) {
        (_, true) => None,
        (Some(folder), _) => Some(folder.clone()),
        (None, _) => store::folder(None)?.parent().map(|cache| cache.join("vectors")),
    };
    let inputs = Inputs {
        rows: args.rows.iter().chain(&args.profiles).cloned().collect(),
        model,
        base,
        catalog,
        cache,
        date: Some(humantime::format_rfc3339_seconds(SystemTime::now()).to_string()),
    };
    let options = Options {
        reading: reading(args)?,
        threads: args.threads.map(usize::from),
        l2: args.l2,
        standardize: match args.standardize {
            When::No => Standardize::No,
            When::Yes => Standardize::Yes,
            When::Cv => Standardize::Cv,
        },
        count: match args.count {
            Counting::Rows => Count::Rows,
            Counting::Sources => Count::Sources,
            Counting::Cv => Count::Cv,
        },
        target: match args.route_target {
            Kind::Auto => Target::Auto,
            Kind::Hard => Target::Hard,
            Kind::Soft => Target::Soft,
            Kind::Utility => Target::Utility,
        },
        lambda: args.lambda,
        mu: args.mu,
        feature_dim: args.feature_dim,
        tfidf: !args.no_tfidf,
    };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let fitted = fit(&inputs, &options, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let fitted = fitted?;
    fitted.write(&args.out)?;
    if args.json {
        let text = fitted.report.json().map_err(FitError::from)?;
        output::line(text.trim_end());
        return Ok(());
    }
    people(&fitted.report, &args.out, args.model.as_deref()).iter().for_each(|text| output::line(text));
    Ok(())
}

/// The backbone's bytes and what it is called.
fn backbone(args: &Args) -> Result<(Arc<dyn Source>, String), Failure> {
    let Some(word) = &args.model else { return Ok((inside::pack().model, inside::NAME.to_owned())) };
    let path = locate(word)?;
    let source = Memory::open(&path).map_err(|error| Failure::file(&path, &error))?;
    let name = path.file_stem().map_or_else(String::new, |stem| plain(&stem.to_string_lossy()));
    Ok((Arc::new(source), name))
}

/// What is read of a prompt: as the pack inside the program has it for its backbone, zen-router's rule for any other, and
/// what the command line says.
fn reading(args: &Args) -> Result<Reading, Failure> {
    let plain = match &args.model {
        Some(_) => Reading::default(),
        None => {
            let part = inside::pack().config;
            let config = RouterConfig::parse(&part.bytes, &part.name).map_err(LoadError::from)?;
            Reading {
                max_chars: config.max_chars,
                max_tokens: config.max_tokens,
                keep: config.keep,
                add_bos: config.add_bos,
                add_eos: config.add_eos,
                plain_text: config.plain_text,
                pooling: config.pooling,
            }
        }
    };
    Ok(Reading {
        max_chars: args.max_chars.unwrap_or(plain.max_chars),
        max_tokens: args.max_tokens.unwrap_or(plain.max_tokens),
        keep: args.keep.map_or(plain.keep, |side| match side {
            Side::Start => Keep::Start,
            Side::End => Keep::End,
        }),
        plain_text: args.plain_text || plain.plain_text,
        pooling: args.pooling.clone().unwrap_or(plain.pooling),
        ..plain
    })
}

fn show(bar: &ProgressBar, progress: Progress) {
    const READING: &str = "{msg}  {wide_bar} {percent}%  {bytes_per_sec}  {eta} left";
    const FITTING: &str = "{msg}  {wide_bar} {percent}%  {elapsed}";
    let (message, template, done, of) = match progress {
        Progress::Reading(done, of) => ("reading", READING, done, of.max(1)),
        Progress::Fitting(what, share) => (what, FITTING, (share * 1000.0) as u64, 1000),
    };
    if bar.message() != message {
        // A step begins: the time that is left is its own.
        bar.set_style(ProgressStyle::with_template(template).expect("the template is our own"));
        bar.reset();
        bar.set_length(of);
        bar.set_message(message);
    }
    bar.set_position(done);
}

fn share(value: f64) -> String {
    format!("{value:.3}")
}

/// The lines for a person.
fn people(report: &Report, out: &Path, model: Option<&Path>) -> Vec<String> {
    let mut lines = Vec::new();
    let task = &report.task;
    lines.push(format!(
        "{} prompts ({} read now in {:.1} s, {} cut), {} labelled rows, {} outcomes",
        report.data.prompts,
        report.embedding.read,
        report.embedding.seconds,
        report.embedding.truncated,
        report.data.task_rows,
        report.data.outcomes,
    ));
    if let Some(held) = &task.held_out {
        lines.push(String::new());
        let dealings: Vec<String> = task.dealings.iter().map(|value| share(*value)).collect();
        lines.push(format!(
            "{}: by {} ({}) held out, {} dealings: balanced accuracy {}",
            "task head".bold(),
            task.split,
            task.groups,
            task.dealings.len(),
            dealings.join(", ")
        ));
        let mut header = vec!["", "balanced", "accuracy", "calibration error"];
        header.extend(&task.tasks);
        let mut cells = table(&header);
        let row = |name: &str, judged: &Judged| {
            let mut row = vec![
                name.to_owned(),
                share(judged.scores.balanced_accuracy),
                share(judged.scores.accuracy),
                judged.ece.map_or_else(String::new, share),
            ];
            let recall =
                |task: &&str| judged.scores.recall.get(*task).map_or_else(String::new, |r| format!("{r:.2}"));
            row.extend(task.tasks.iter().map(recall));
            row
        };
        cells.add_row(row("this head", held));
        task.baselines.iter().for_each(|(name, judged)| {
            cells.add_row(row(name, judged));
        });
        right(&mut cells, 1..4 + task.tasks.len());
        lines.extend(output::rows(&cells));
        if held.languages.len() > 1 {
            let mut by_rows: Vec<_> = held.languages.iter().collect();
            by_rows.sort_by_key(|(_, share)| std::cmp::Reverse(share.n));
            let told: Vec<String> = by_rows
                .iter()
                .take(8)
                .map(|(name, one)| format!("{} {} ({})", plain(name), share(one.accuracy), one.n))
                .collect();
            lines.push(format!("accuracy by language (rows): {}", told.join(", ")));
        }
    }
    if let Some(calibration) = &task.calibration {
        lines.push(format!(
            "L2 {}{}{}, temperature {:.3}",
            task.choice.l2,
            if task.choice.standardize { " on standardised coordinates" } else { "" },
            if task.choice.count == Count::Sources { ", each source counts the same" } else { "" },
            calibration.temperature,
        ));
    }
    if let Some(route) = &report.route {
        for one in &route.panels {
            lines.push(String::new());
            lines.push(format!(
                "{}: {}, {} prompts held out, {} models",
                "route head".bold(),
                plain(&one.file),
                one.prompts,
                one.models.len()
            ));
            lines.extend(panel(one));
        }
        if let Ok(text) = serde_json::to_string(&route.method) {
            lines.push(format!("fitted as {text}"));
        }
    }
    lines.push(String::new());
    lines.extend(report.notes.iter().map(|note| plain(&format!("note: {note}"))));
    let model = model.map_or_else(String::new, |model| format!(" --model {}", model.display()));
    lines.push(plain(&format!(
        "written to {}; the report is report.html there. Try: zen-edge route{model} --heads {} \"…\"",
        out.display(),
        out.display()
    )));
    lines
}

fn panel(panel: &Panel) -> Vec<String> {
    let mut cells = table(&["", "quality", "USD per 1k prompts", "AIQ"]);
    let mut row = |name: &str, point: &Point, aiq: Option<f64>| {
        cells.add_row([
            plain(name),
            share(point.quality),
            format!("{:.4}", point.usd_per_1k_prompts),
            aiq.map_or_else(String::new, share),
        ]);
    };
    row("random", &panel.random, None);
    row(&format!("cheapest: {}", panel.cheapest_model), &panel.cheapest, None);
    row(&format!("best single: {}", panel.best_single_model), &panel.best_single, Some(panel.aiq.models));
    row("best of the true class", &panel.best_per_class, Some(panel.aiq.best_per_class));
    row("this head", &panel.head, Some(panel.aiq.head));
    row("oracle", &panel.oracle, Some(panel.aiq.oracle));
    right(&mut cells, 1..4);
    let mut lines: Vec<String> = output::rows(&cells).collect();
    lines.push(format!(
        "single models mixed at random reach {:.3} at the head's cost",
        panel.models_at_the_heads_cost
    ));
    lines
}
