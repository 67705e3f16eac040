//! `zen-edge bench`: how fast this machine is, and how fast it could be at most.

mod machine;
mod prompts;
pub mod show;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::model::locate;
use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use zen_edge_core::backbone::BackboneOptions;
use zen_edge_core::bench::{
    About, Again, Bench, BenchError, Load, Plan, Prompts, READ_BYTES, Record, Subject, Warning,
};
use zen_edge_core::generate::Generator;
use zen_edge_core::pack::{LoadError, Pack};
use zen_edge_core::router::{Request, Router, RouterOptions, SystemClock};
use zen_edge_core::source::{Memory, Source, sha256};
use zen_edge_default_pack as inside;
use zen_edge_kernels::attention::KvType;
use zen_edge_kernels::isa::Isa;
use zen_edge_kernels::pool::Pool;

/// The arguments of `zen-edge bench`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The backbone: a GGUF file, or the name of a pulled one [default: the pack inside the program]
    #[arg(short, long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// A folder with the heads that belong to the backbone; without one a GGUF's decisions are not measured
    #[arg(long, value_name = "DIR", requires = "model")]
    heads: Option<PathBuf>,
    /// Tokens of the prompts whose prefill is measured; 0 measures none
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_values_t = [16, 64, 128, 512])]
    prefill: Vec<usize>,
    /// Tokens that are generated; 0 measures none
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_values_t = [64])]
    decode: Vec<usize>,
    /// How keys and values are kept while tokens are generated: f32, f16 or int8
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = crate::generate::kv_type)]
    kv: KvType,
    /// How often each of them is measured
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: u16,
    /// Threads, one number after the other [default: as many as the machine has cores]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Instruction sets, one after the other [default: the fastest here]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = Isa::from_name)]
    isa: Vec<Isa>,
    /// Prompts whose decisions are measured: JSON lines ({"prompt": "…"}) or a prompt a line [default: made ones]
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Made prompts for each length (1–32, 33–128, 129–512, 513+ tokens); 0 measures no decisions
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "prompts")]
    each: usize,
    /// Read for this long without a pause, to see whether the machine throttles [default: 300 seconds]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "300",
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    sustained: Option<u32>,
    /// What the record calls this machine
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Keep the record in a file, as JSON, beside what is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How it is printed [default: a table for people]
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    format: Option<Format>,
    /// Print the record as JSON
    #[arg(long)]
    json: bool,
}

/// How figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table in Markdown
    Md,
    /// Comma-separated values
    Csv,
    /// The record
    Json,
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Backbone(error) => LoadError::from(error).into(),
            BenchError::Generate(error) => error.into(),
            BenchError::Tokens { .. } | BenchError::Repetitions => Self::new(Exit::Usage, error.to_string()),
            _ => Self::new(Exit::Other, error.to_string()),
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let prompts = match &args.prompts {
        Some(path) => Prompts::Given(prompts::read(path)?),
        None if args.each == 0 => Prompts::None,
        None => Prompts::Made(args.each),
    };
    let whole = |sizes: &[usize]| sizes.iter().copied().filter(|size| *size > 0).collect::<Vec<_>>();
    let plan = Plan {
        prefill: whole(&args.prefill),
        decode: whole(&args.decode),
        kv: args.kv,
        repetitions: args.repetitions.into(),
        prompts,
        limits: true,
        read_bytes: READ_BYTES.min(machine::spare_memory()),
        sustained: args.sustained.map(|seconds| Duration::from_secs(seconds.into())),
    };
    let isas = if args.isa.is_empty() { vec![Isa::best()] } else { args.isa.clone() };
    let threads: Vec<usize> = match args.threads.is_empty() {
        true => vec![Pool::default_threads()],
        false => args.threads.iter().map(|n| usize::from(*n)).collect(),
    };
    let mut record: Option<Record> = None;
    for isa in isas {
        for threads in &threads {
            // Decisions, loading and the long run belong to the first: the others are its speeds with other kernels.
            let plan = match record {
                None => plan.clone(),
                Some(_) => Plan { prompts: Prompts::None, sustained: None, ..plan.clone() },
            };
            let made = measure(args, isa, *threads, plan, record.is_none())?;
            match &mut record {
                None => record = Some(made),
                Some(record) => record.absorb(made),
            }
        }
    }
    let Some(record) = record else { return Ok(()) };
    if let Some(path) = &args.output {
        write(path, &record)?;
    }
    let format = if args.json { Some(Format::Json) } else { args.format };
    match format {
        Some(Format::Json) => output::line(&json(&record)?),
        Some(Format::Md) => show::markdown(&record).iter().for_each(|text| output::line(text)),
        Some(Format::Csv) => show::csv(&record).iter().for_each(|text| output::line(text)),
        None => show::people(&record).iter().for_each(|text| output::line(text)),
    }
    Ok(())
}

fn json(record: &Record) -> Result<String, Failure> {
    serde_json::to_string_pretty(record)
        .map_err(|error| Failure::new(Exit::Other, format!("the record is no JSON: {error}")))
}

fn write(path: &Path, record: &Record) -> Result<(), Failure> {
    std::fs::write(path, json(record)? + "\n").map_err(|error| Failure::unwritable(path, &error))
}

/// What is loaded: a backbone with heads where there are some.
struct Loaded {
    subject: Subject,
    ms: f64,
    first_decision_ms: f64,
}

/// The backbone's bytes, anew: a mapped file is mapped again.
fn source(args: &Args) -> Result<(Arc<dyn Source>, Option<PathBuf>), Failure> {
    match &args.model {
        Some(word) => {
            let path = locate(word)?;
            let source = Memory::open(&path).map_err(|error| Failure::file(&path, &error))?;
            Ok((Arc::new(source), Some(path)))
        }
        None => Ok((inside::pack().model, None)),
    }
}

fn load(args: &Args, model: Arc<dyn Source>, isa: Isa, threads: usize) -> Result<Loaded, Failure> {
    let start = Instant::now();
    let ms = |from: Instant| from.elapsed().as_secs_f64() * 1e3;
    let pack = match (&args.model, &args.heads) {
        (None, _) => Some(Pack { model: model.clone(), ..inside::pack() }),
        (Some(_), Some(folder)) => Some(Pack::with_heads(model.clone(), folder)?),
        (Some(_), None) => None,
    };
    let threads = Some(threads);
    let subject = match pack {
        Some(pack) => {
            let options = RouterOptions { threads, isa: Some(isa), ..RouterOptions::default() };
            Subject::Router(Arc::new(Router::load(&pack, &options)?))
        }
        None => {
            let options = BackboneOptions { isa: Some(isa), threads, ..BackboneOptions::default() };
            Subject::Generator(Generator::open(model, &options)?)
        }
    };
    let loaded = ms(start);
    let start = Instant::now();
    match &subject {
        Subject::Router(router) => {
            router.route("why is the sky blue?", &Request::default()).map_err(LoadError::from)?;
        }
        Subject::Generator(generator) => {
            let backbone = generator.backbone();
            let ids: Vec<u32> = (0..6.min(backbone.shape().vocab as u32)).collect();
            backbone.embed(&ids).map_err(LoadError::from)?;
        }
    }
    Ok(Loaded { subject, ms: loaded, first_decision_ms: ms(start) })
}

/// Measures one instruction set with one number of threads; `first`: also what belongs to the machine and the model.
fn measure(args: &Args, isa: Isa, threads: usize, plan: Plan, first: bool) -> Result<Record, Failure> {
    let mut about = About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: "native".to_owned(),
        ..About::default()
    };
    let loaded = if first {
        about.date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        about.device = machine::device(args.name.clone());
        let (_, path) = source(args)?;
        let dropped = path.as_deref().map(machine::drop_pages);
        let before = machine::disk_bytes();
        let (model, _) = source(args)?;
        let one = load(args, model, isa, threads)?;
        let disk = before.zip(machine::disk_bytes()).map(|(before, after)| after.saturating_sub(before));
        let (ms, first_decision_ms) = (one.ms, one.first_decision_ms);
        drop(one);
        let (model, _) = source(args)?;
        let again = load(args, model.clone(), isa, threads)?;
        about.load = Some(Load {
            ms,
            first_decision_ms: Some(first_decision_ms),
            source: Some(if path.is_some() { "file" } else { "program" }.to_owned()),
            stored: None,
            page_cache_dropped: dropped,
            disk_bytes: disk,
            again: Some(Again { ms: again.ms, first_decision_ms: again.first_decision_ms }),
        });
        about.model = Some(file_name(model.name()));
        about.sha256 = sha256(&*model).ok();
        if cfg!(debug_assertions) {
            about.warnings.push(Warning::new(
                "debug_build",
                "this program was built without all optimisations: build it with --release before you quote a figure",
            ));
        }
        again
    } else {
        let (model, _) = source(args)?;
        load(args, model, isa, threads)?
    };
    let clock = Arc::new(SystemClock::default());
    let mut bench = Bench::new(loaded.subject, plan, clock, Box::new(machine::System::default()))?;
    let bar = progress();
    bar.set_prefix(format!("{isa}, {threads} thread{}", if threads == 1 { "" } else { "s" }));
    while !bench.work(Duration::from_millis(200))? {
        let progress = bench.progress();
        bar.set_position((progress.share * 1000.0) as u64);
        bar.set_message(progress.stage);
    }
    bar.finish_and_clear();
    Ok(bench.finish(about))
}

/// A name without its folder: a record does not tell where its owner keeps files.
fn file_name(name: &str) -> String {
    let name = name.strip_prefix("default pack/").map_or(name, |_| inside::NAME);
    Path::new(name).file_name().map_or_else(|| name.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// A bar on standard error, drawn on a terminal only.
fn progress() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{prefix}  {wide_bar} {percent}%  {msg}  {elapsed}");
    bar.set_style(style.expect("the template is our own"));
    bar
}
