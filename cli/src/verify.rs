//! `zen-edge verify`: does a backbone decide as its reference does?

mod folder;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::model::locate;
use crate::output::{self, plain, right, table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zen_edge_core::backbone::{Arithmetic, BackboneOptions};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::pack::{LoadError, Pack};
use zen_edge_core::source::{Memory, Source};
use zen_edge_default_pack as inside;
use zen_edge_forge::ablate::AblateError;
use zen_edge_forge::parity::{Comparison, Figures, Judge, ParityError, Progress, PromptsMark, Share, sample};
use zen_edge_forge::rows::{self, Row, RowsError};
use zen_edge_forge::verify::{Options, Report, Side, Thresholds, run as verify};
use zen_edge_kernels::isa::Isa;

/// The arguments of `zen-edge verify`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What is compared with: the same model as F32, F16, BF16 or in any other format, or a folder of Hugging Face files;
    /// it runs in float arithmetic [default: the model itself, which tells what int8 activations cost]
    #[arg(short, long, value_name = "MODEL")]
    reference: Option<PathBuf>,
    #[command(flatten)]
    pack: PackArgs,
    #[command(flatten)]
    prompts: PromptArgs,
    /// How the model runs: int8 as users run it, or float as the reference does, to tell the error of its weights from
    /// that of its activations
    #[arg(long, value_name = "KIND", default_value = "int8", value_parser = arithmetic)]
    arithmetic: Arithmetic,
    /// What of the model runs in float arithmetic all the same: a part (ffn_down), a layer (blk.3) or a tensor
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    float: Vec<String>,
    /// The least share of prompts with the same task; below it the exit code is 9
    #[arg(long, value_name = "SHARE")]
    min_task: Option<f64>,
    /// The least share of prompts with the same first model
    #[arg(long, value_name = "SHARE")]
    min_route: Option<f64>,
    /// The least share of prompts whose first model stays among the first three
    #[arg(long, value_name = "SHARE")]
    min_top3: Option<f64>,
    /// The least mean cosine
    #[arg(long, value_name = "COSINE")]
    min_cosine_mean: Option<f64>,
    /// The least cosine of any prompt
    #[arg(long, value_name = "COSINE")]
    min_cosine: Option<f64>,
    /// How many of the prompts that differ most are named
    #[arg(long, value_name = "N", default_value_t = 5)]
    worst: usize,
    #[command(flatten)]
    output: OutputArgs,
}

/// Which backbone, and how it runs.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct PackArgs {
    /// The backbone: a GGUF file, the name of a pulled one, or a folder of Hugging Face files [default: the pack inside
    /// the program]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// A folder with the heads that belong to the backbone; without one a GGUF's vectors are compared, and no decisions
    #[arg(long, value_name = "DIR")]
    heads: Option<PathBuf>,
    /// Threads [default: as many as the machine has cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The instruction set, by its name in the output; the result has the same bits on each [default: the fastest here]
    #[arg(long, value_name = "NAME", value_parser = Isa::from_name)]
    isa: Option<Isa>,
}

/// Which prompts.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct PromptArgs {
    /// The prompts: JSON lines such as {"prompt": "…", "task": "code"}; best such as no head was fitted to
    #[arg(short, long, value_name = "FILE")]
    prompts: PathBuf,
    /// So many of the rows, drawn by --seed [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// What draws them: the same seed, the same rows
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Read at most so many tokens of a prompt [default: as the heads' config says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
}

/// Where the report goes.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct OutputArgs {
    /// Keep the report in a file, as JSON, beside what is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

fn arithmetic(word: &str) -> Result<Arithmetic, String> {
    match word {
        "int8" => Ok(Arithmetic::Int8),
        "float" => Ok(Arithmetic::Float),
        _ => Err("int8 or float".to_owned()),
    }
}

impl From<RowsError> for Failure {
    fn from(error: RowsError) -> Self {
        match error {
            RowsError::Io { file, source } => Self::file(&file, &source),
            _ => Self::new(Exit::Format, plain(&error.to_string())),
        }
    }
}

impl From<ParityError> for Failure {
    fn from(error: ParityError) -> Self {
        let exit = match error {
            ParityError::Rows(error) => return error.into(),
            ParityError::Load(error) => return (*error).into(),
            ParityError::Io { .. } => Exit::Missing,
            ParityError::Shapes { .. } | ParityError::Tokens { .. } => Exit::Mismatch,
            ParityError::NoPrompts { .. } => Exit::Format,
            ParityError::NoHeads { .. } | ParityError::Threshold { .. } | ParityError::Part { .. } => {
                Exit::Usage
            }
            _ => Exit::Other,
        };
        Self::new(exit, plain(&error.to_string()))
    }
}

impl From<AblateError> for Failure {
    fn from(error: AblateError) -> Self {
        let exit = match error {
            AblateError::Parity(error) => return error.into(),
            AblateError::Fit(error) => return (*error).into(),
            AblateError::Scheme(_)
            | AblateError::NoSchemes
            | AblateError::Twice { .. }
            | AblateError::Overlap { .. } => Exit::Usage,
            AblateError::Rotation { .. } | AblateError::Missed { .. } | AblateError::Untouched { .. } => {
                Exit::Unsupported
            }
            AblateError::Encode { .. } => Exit::Format,
            _ => Exit::Other,
        };
        Self::new(exit, plain(&error.to_string()))
    }
}

/// A model by its path or name: a GGUF, or a folder of Hugging Face files, of which one is made for this run.
pub fn open(word: &Path, threads: Option<u16>) -> Result<Gguf, Failure> {
    let path = locate(word)?;
    let source: Arc<dyn Source> = if path.is_dir() {
        Arc::new(folder::convert(&path, threads)?)
    } else {
        Arc::new(Memory::open(&path).map_err(|error| Failure::file(&path, &error))?)
    };
    Ok(Gguf::open(source).map_err(LoadError::from)?)
}

impl PackArgs {
    /// The backbone, and what judges its vectors.
    pub fn open(&self, prompts: &PromptArgs) -> Result<(Gguf, Judge), Failure> {
        let pack = inside::pack();
        let gguf = match &self.model {
            Some(word) => open(word, self.threads)?,
            None => Gguf::open(pack.model.clone()).map_err(LoadError::from)?,
        };
        let judge = match (&self.heads, &self.model) {
            (Some(folder), _) => Judge::of(&Pack::with_heads(gguf.source().clone(), folder)?)?,
            (None, None) => Judge::of(&pack)?,
            (None, Some(_)) => Judge::without_heads(&gguf)?,
        };
        Ok((gguf, judge.reading_at_most(prompts.max_tokens.map(|n| n as usize))))
    }

    /// How it runs.
    pub fn options(&self) -> BackboneOptions {
        BackboneOptions {
            isa: self.isa,
            threads: self.threads.map(usize::from),
            ..BackboneOptions::default()
        }
    }
}

impl PromptArgs {
    /// The rows that are taken, each with its number, and how many the file has.
    pub fn read(&self) -> Result<(Vec<(usize, Row)>, usize), Failure> {
        let rows = rows::read(&self.prompts)?;
        let n = rows.len();
        Ok((sample(rows, self.limit.map(|n| n as usize), self.seed), n))
    }

    /// What drew the rows, where some were left out.
    pub fn seed(&self) -> Option<u64> {
        self.limit.map(|_| self.seed)
    }
}

impl OutputArgs {
    /// Keeps a report and prints it: as JSON, or the lines for a person.
    pub fn put(
        &self,
        report: &impl serde::Serialize,
        people: impl FnOnce() -> Vec<String>,
    ) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(report)
            .map_err(|error| Failure::new(Exit::Other, format!("the report is no JSON: {error}")))?;
        if let Some(path) = &self.output {
            write(path, &(json.clone() + "\n"))?;
        }
        if self.json {
            output::line(&json);
        } else {
            people().iter().for_each(|line| output::line(line));
        }
        Ok(())
    }
}

/// Writes a file whole or not at all.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        // A temporary file is its owner's alone; a report is like any other file.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        }
        file.persist(path).map_err(|error| error.error)
    });
    written.map(|_| ()).map_err(|error| Failure::unwritable(path, &error))
}

/// A bar on standard error, drawn on a terminal only, and what moves it.
pub fn progress() -> (ProgressBar, impl FnMut(Progress<'_>) -> ControlFlow<()>) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let style = "{msg:<20} {wide_bar} {human_pos}/{human_len} tokens  {elapsed}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is our own"));
    let moved = bar.clone();
    let watch = move |progress: Progress<'_>| {
        moved.set_length(progress.of as u64);
        moved.set_position(progress.done as u64);
        moved.set_message(progress.what.to_owned());
        ControlFlow::Continue(())
    };
    (bar, watch)
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (rows, n) = args.prompts.read()?;
    let (model, judge) = args.pack.open(&args.prompts)?;
    let reference = match &args.reference {
        Some(word) => open(word, args.pack.threads)?,
        None => Gguf::open(model.source().clone()).map_err(LoadError::from)?,
    };
    let options = Options {
        backbone: args.pack.options(),
        arithmetic: args.arithmetic,
        float: args.float.clone(),
        thresholds: Thresholds {
            task: args.min_task,
            route: args.min_route,
            top3: args.min_top3,
            cosine_mean: args.min_cosine_mean,
            cosine_min: args.min_cosine,
        },
        worst: args.worst,
        seed: args.prompts.seed(),
        rows: n,
    };
    let (bar, mut watch) = progress();
    let report = verify([&reference, &model], &judge, &rows, &options, &mut watch)?;
    bar.finish_and_clear();
    args.output.put(&report, || people(&report))?;
    if report.passed {
        return Ok(());
    }
    let unmet: Vec<String> = report
        .unmet
        .iter()
        .map(|unmet| format!("{} is {:.4}, not {:.4}", unmet.figure, unmet.found, unmet.wanted))
        .collect();
    Err(Failure::new(Exit::Unmet, format!("below the threshold: {}", unmet.join("; "))))
}

/// A share for people: `98.2 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A share with its interval: `98.2 % (96.6–99.1)`.
pub fn interval(share: Option<Share>) -> String {
    share.map_or_else(String::new, |share| {
        format!("{} ({:.1}–{:.1})", percent(share.value), 100.0 * share.low, 100.0 * share.high)
    })
}

/// What was read, for people.
pub fn prompts_line(prompts: &PromptsMark) -> String {
    let mut line = format!("prompts    {} of {} rows", prompts.n, prompts.rows);
    if let Some(seed) = prompts.seed {
        line.push_str(&format!(", drawn by seed {seed}"));
    }
    line.push_str(&format!(
        "; {} tokens; {} cut, at {} tokens or before",
        prompts.tokens, prompts.truncated, prompts.max_tokens
    ));
    if prompts.blank > 0 {
        line.push_str(&format!("; {} without text left out", prompts.blank));
    }
    line
}

/// Which formats a file's matrices have, for people.
pub fn formats_line(formats: &std::collections::BTreeMap<&'static str, usize>) -> String {
    formats.iter().map(|(ty, n)| format!("{n} {ty}")).collect::<Vec<_>>().join(", ")
}

fn side(label: &str, side: &Side) -> String {
    let mut line = format!(
        "{label:<10} {}, sha256 {}…, matrices: {}; {} arithmetic",
        plain(&side.file.file),
        &side.file.sha256[..12],
        formats_line(&side.formats),
        side.arithmetic
    );
    if !side.float.is_empty() {
        line.push_str(&format!(", float for {}", plain(&side.float.join(", "))));
    }
    line
}

/// The lines for a person.
fn people(report: &Report) -> Vec<String> {
    let mut lines = vec![
        side("reference", &report.reference),
        side("model", &report.model),
        prompts_line(&report.prompts),
    ];
    if let Some(routes) = report.routes {
        lines.push(format!("heads      {routes} trained route rows"));
    }
    lines.push(String::new());
    lines.extend(figures(&report.comparison, report.routes.is_some()));
    if let Some(accuracy) = &report.comparison.all.accuracy {
        lines.push(String::new());
        lines.push(format!(
            "task accuracy on {} labelled prompts: {} by the reference, {} by the model; difference {:+.1} points ({:+.1} to {:+.1})",
            accuracy.model.n,
            interval(Some(accuracy.reference)),
            interval(Some(accuracy.model)),
            100.0 * accuracy.difference,
            100.0 * accuracy.low,
            100.0 * accuracy.high,
        ));
    }
    lines.push("in brackets: 95 % intervals".to_owned());
    if !report.comparison.worst.is_empty() {
        lines.push(String::new());
        lines.push("the prompts that differ most".to_owned());
        let mut cells = table(&["row", "tokens", "cosine", "reference", "model", "margin", "id"]);
        for worst in &report.comparison.worst {
            let task = |at: usize| worst.tasks.map_or("", |tasks| tasks[at].name()).to_owned();
            cells.add_row([
                worst.row.to_string(),
                worst.tokens.to_string(),
                format!("{:.5}", worst.cosine),
                task(0),
                task(1),
                worst.margin.map_or_else(String::new, |margin| format!("{margin:.2}")),
                plain(worst.id.as_deref().unwrap_or_default()),
            ]);
        }
        right(&mut cells, 0..3);
        right(&mut cells, 5..6);
        lines.extend(output::rows(&cells));
    }
    if report.thresholds.any() && report.passed {
        lines.push(String::new());
        lines.push("every threshold is reached".to_owned());
    }
    lines
}

/// The figures by length.
fn figures(comparison: &Comparison, decides: bool) -> Vec<String> {
    let mut header = vec!["tokens", "prompts"];
    if decides {
        header.extend(["same task", "same route", "in top 3"]);
    }
    header.extend(["cosine", "lowest", "norm ratio"]);
    let mut cells = table(&header);
    let row = |label: &str, figures: &Figures| {
        let mut row = vec![label.to_owned(), figures.n.to_string()];
        if decides {
            row.extend([figures.task, figures.route, figures.top3].map(interval));
        }
        let norm = figures.norm_ratio;
        row.extend([
            format!("{:.5} ± {:.5}", figures.cosine.mean, 1.96 * figures.cosine.standard_error),
            format!("{:.5}", figures.cosine.min),
            format!("{:.4} ({:.4}–{:.4})", norm.mean, norm.min, norm.max),
        ]);
        row
    };
    cells.add_row(row("all", &comparison.all));
    for stratum in &comparison.strata {
        if let Some(figures) = &stratum.figures {
            cells.add_row(row(stratum.tokens, figures));
        }
    }
    right(&mut cells, 1..header.len());
    output::rows(&cells).collect()
}
