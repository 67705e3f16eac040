//! `zen-edge quantize`: a float model to a quantised GGUF.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::model::locate;
use crate::output::{self, plain};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::PathBuf;
use zen_edge_core::pack::LoadError;
use zen_edge_forge::quantize::{Mix, Options, Progress, QuantizeError, Report, quantize};
use zen_edge_forge::rows::RowsError;
use zen_edge_forge::source::SourceError;

/// The arguments of `zen-edge quantize`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The float model: a GGUF file in F32, F16 or BF16, or a folder of Hugging Face files
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The GGUF file to make; it appears whole or not at all
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// How it is quantised: Q4_K_M, Q4_K_S, Q4_0, Q4_1, Q5_K_M, Q5_K_S, Q5_0, Q5_1, Q6_K, Q8_0, F16, BF16 or F32
    #[arg(long = "type", value_name = "TYPE", value_parser = Mix::from_name)]
    mix: Mix,
    /// Prompts such as those that it will read, as JSON lines: they say which columns of its matrices matter
    #[arg(long, value_name = "JSONL")]
    imatrix: Option<PathBuf>,
    /// Quantise a model that is quantised already; what was lost stays lost
    #[arg(long)]
    requantize: bool,
    /// Replace OUT where it exists
    #[arg(long)]
    force: bool,
    /// Threads [default: as many as the machine has cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl From<QuantizeError> for Failure {
    fn from(error: QuantizeError) -> Self {
        let exit = match error {
            QuantizeError::Backbone(error) => return LoadError::from(error).into(),
            QuantizeError::Tokenizer(error) => return LoadError::from(error).into(),
            QuantizeError::Gguf(error) | QuantizeError::Source(SourceError::Gguf(error)) => {
                return LoadError::from(error).into();
            }
            QuantizeError::Source(ref error) => match error {
                SourceError::Io { .. } | SourceError::MissingFile { .. } => Exit::Missing,
                SourceError::Architecture { .. }
                | SourceError::Config { .. }
                | SourceError::UnknownTensor { .. }
                | SourceError::Tokenizer { .. } => Exit::Unsupported,
                _ => Exit::Format,
            },
            QuantizeError::Rows(RowsError::Io { .. }) => Exit::Missing,
            QuantizeError::Rows(_) | QuantizeError::Encode { .. } => Exit::Format,
            QuantizeError::Quantized { .. } | QuantizeError::SameFile { .. } => Exit::Usage,
            _ => Exit::Other,
        };
        Self::new(exit, plain(&error.to_string()))
    }
}

/// A bar on standard error, drawn on a terminal only, and what moves it.
pub fn progress() -> (ProgressBar, impl FnMut(Progress<'_>) -> bool) {
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{wide_bar} {percent}%  {msg}  {elapsed}, {eta} left");
    bar.set_style(style.expect("the template is our own"));
    let (moved, mut stage) = (bar.clone(), String::new());
    let progress = move |now: Progress<'_>| {
        // Prompts are read before tensors are written: each has the bar from its start.
        if (now.stage == "prompts") != (stage == "prompts") {
            moved.reset();
        }
        if stage != now.stage {
            now.stage.clone_into(&mut stage);
            moved.set_message(plain(now.stage));
        }
        moved.set_position((now.share * 1000.0) as u64);
        true
    };
    (bar, progress)
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.output.exists() && !args.force {
        let message = format!("{} exists: name another file, or pass --force", args.output.display());
        return Err(Failure::new(Exit::Usage, message));
    }
    let input = locate(&args.input)?;
    let options = Options {
        threads: args.threads.map(usize::from),
        imatrix: args.imatrix.clone(),
        requantize: args.requantize,
    };
    let (bar, mut progress) = progress();
    let report = quantize(&input, &args.output, args.mix, &options, &mut progress);
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        output::json(&report);
    } else {
        show(&report);
    }
    Ok(())
}

/// The table and the totals.
fn show(report: &Report) {
    let weighted = report.imatrix.is_some();
    let mut header = vec!["tensor", "shape", "from", "type", "rmse", "relative"];
    if weighted {
        header.push("weighted");
    }
    let mut table = output::table(&header);
    for tensor in &report.tensors {
        let dims: Vec<String> = tensor.dims.iter().rev().map(u64::to_string).collect();
        let ty = match tensor.instead_of {
            Some(wanted) => format!("{} (for {wanted})", tensor.ty),
            None => tensor.ty.to_owned(),
        };
        let percent =
            |share: f64| if share == 0.0 { "0".to_owned() } else { format!("{:.3} %", share * 100.0) };
        let rmse = if tensor.rmse == 0.0 { "0".to_owned() } else { format!("{:.3e}", tensor.rmse) };
        let mut row = vec![
            plain(&tensor.name),
            dims.join(" × "),
            tensor.from.to_owned(),
            ty,
            rmse,
            percent(tensor.relative),
        ];
        if weighted {
            row.push(tensor.weighted.map_or_else(|| "–".to_owned(), percent));
        }
        table.add_row(row);
    }
    output::right(&mut table, 4..header.len());
    output::rows(&table).for_each(|row| output::line(&row));
    output::line("");
    output::line(&format!(
        "{}: {} weights, {} → {}, {:.2} bits a weight, rmse {:.3e}",
        report.mix,
        report.parameters,
        output::bytes(report.bytes_before),
        output::bytes(report.bytes),
        report.bits_per_weight,
        report.rmse
    ));
    if let Some(imatrix) = &report.imatrix {
        output::line(&format!(
            "columns weighted by {} prompts ({} tokens) of {}",
            imatrix.prompts,
            imatrix.tokens,
            plain(&imatrix.file)
        ));
    }
    for note in &report.notes {
        output::line(&plain(note));
    }
    output::line(&format!("written: {} ({})", plain(&report.output), output::bytes(report.file_bytes)));
}
