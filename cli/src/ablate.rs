//! `zen-edge ablate`: what a scheme of quantisation costs the decision.

mod chart;

use crate::failure::Failure;
use crate::output::{self, plain, right, table};
use crate::verify::{
    OutputArgs, PackArgs, PromptArgs, formats_line, interval, percent, progress, prompts_line, write,
};
use std::path::PathBuf;
use zen_edge_forge::ablate::{Entry, Options, Report, run as ablate, schemes};

/// The arguments of `zen-edge ablate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pack: PackArgs,
    #[command(flatten)]
    prompts: PromptArgs,
    /// The schemes: fp16, int{2,3,4,8}[-g<N>][-rot][-nohead], or a GGUF type such as q4_k or q8_0, with -nohead where
    /// embedding and LM head are left alone
    #[arg(
        short,
        long,
        value_name = "SCHEME,…",
        default_value = "fp16,q8_0,int8,q6_k,q5_k,q4_k,q4_0,int4-g32,int4-g128,int4-rot,int4,q3_k,int3-g64,q2_k"
    )]
    schemes: String,
    /// What draws the signs of -rot
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    rotation_seed: u64,
    /// Draw agreement over bits a weight, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    // What is written wrong is told before anything is read.
    let schemes = schemes(&args.schemes)?;
    let (rows, n) = args.prompts.read()?;
    let (gguf, judge) = args.pack.open(&args.prompts)?;
    let options = Options {
        backbone: args.pack.options(),
        rotation_seed: args.rotation_seed,
        seed: args.prompts.seed(),
        rows: n,
    };
    let (bar, mut watch) = progress();
    let report = ablate(&gguf, &judge, &rows, &schemes, &options, &mut watch)?;
    bar.finish_and_clear();
    if let Some(path) = &args.svg {
        write(path, &chart::svg(&report)?)?;
    }
    args.output.put(&report, || people(&report))
}

/// The lines for a person.
fn people(report: &Report) -> Vec<String> {
    let decides = report.routes.is_some();
    let mut lines = vec![
        format!(
            "weights    {}, sha256 {}…, matrices: {}; float arithmetic",
            plain(&report.file.file),
            &report.file.sha256[..12],
            formats_line(&report.formats)
        ),
        prompts_line(&report.prompts),
    ];
    if let Some(routes) = report.routes {
        lines.push(format!("heads      {routes} trained route rows, fitted to the untouched weights"));
    }
    lines.push(String::new());
    let accuracy = report.schemes.iter().any(|entry| entry.comparison.all.accuracy.is_some());
    let mut header = vec!["scheme", "bits", "touched"];
    if decides {
        header.extend(["same task", "same route", "in top 3"]);
    }
    header.extend(["cosine", "lowest", "norm"]);
    if accuracy {
        header.extend(["accuracy", "points"]);
    }
    let mut cells = table(&header);
    for entry in &report.schemes {
        cells.add_row(row(entry, decides, accuracy));
    }
    right(&mut cells, 1..header.len());
    lines.extend(output::rows(&cells));
    lines.push(String::new());
    if let Some(accuracy) = report.schemes.iter().find_map(|entry| entry.comparison.all.accuracy) {
        lines.push(format!(
            "untouched, the task head is right on {} of {} labelled prompts; points: the difference",
            interval(Some(accuracy.reference)),
            accuracy.reference.n
        ));
    }
    lines.push(
        "bits: of a weight, scales counted; touched: share of all weights; in brackets: 95 % intervals"
            .to_owned(),
    );
    for entry in &report.schemes {
        for fallback in &entry.coverage.fallbacks {
            lines.push(format!(
                "note: {} of {}'s matrices have rows that are not whole blocks, and got {}",
                fallback.matrices, entry.scheme, fallback.ty
            ));
        }
    }
    lines
}

fn row(entry: &Entry, decides: bool, accuracy: bool) -> Vec<String> {
    let all = &entry.comparison.all;
    let mut row =
        vec![entry.scheme.clone(), format!("{:.2}", entry.bits_per_weight), percent(entry.coverage.share)];
    if decides {
        row.extend([all.task, all.route, all.top3].map(interval));
    }
    row.extend([
        format!("{:.5}", all.cosine.mean),
        format!("{:.5}", all.cosine.min),
        format!("{:.3}", all.norm_ratio.mean),
    ]);
    if accuracy {
        row.extend(match &all.accuracy {
            Some(accuracy) => [
                percent(accuracy.model.value),
                format!(
                    "{:+.1} ({:+.1} to {:+.1})",
                    100.0 * accuracy.difference,
                    100.0 * accuracy.low,
                    100.0 * accuracy.high
                ),
            ],
            None => [String::new(), String::new()],
        });
    }
    row
}
