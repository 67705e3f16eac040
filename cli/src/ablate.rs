//! `zen-edge ablate`: what a scheme of quantisation costs the decision.

mod chart;

use crate::failure::Failure;
use crate::output::{self, plain, right, table};
use crate::verify::{
    OutputArgs, PackArgs, PromptArgs, formats_line, interval, percent, progress, prompts_line, write,
};
use std::path::PathBuf;
use zen_edge_forge::ablate::{Decided, Entry, FitMark, FitRows, Options, Report, run as ablate, schemes};
use zen_edge_forge::parity::Accuracy;

/// The arguments of `zen-edge ablate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pack: PackArgs,
    #[command(flatten)]
    prompts: PromptArgs,
    /// The schemes: `fp16`, `int{2,3,4,8}[-g<N>][-rot][-nohead]`, or a GGUF type such as q4_k or q8_0, with -nohead where
    /// embedding and LM head are left alone
    #[arg(
        short,
        long,
        value_name = "SCHEME,…",
        default_value = "fp16,q8_0,int8,q6_k,q5_k,q4_k,q4_0,int4-g32,int4-g128,int4-rot,int4,q3_k,int3-g64,q2_k"
    )]
    schemes: String,
    /// Labelled rows, such as `zen-edge fit` takes: a task head is fitted to the untouched vectors of their prompts, and one
    /// to each scheme's; rows whose prompts are judged are left out. May be given more than once
    #[arg(long, value_name = "ROWS")]
    fit: Vec<PathBuf>,
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
    let fit = if args.fit.is_empty() { None } else { Some(FitRows::read(&args.fit)?) };
    let (gguf, judge) = args.pack.open(&args.prompts)?;
    let options = Options {
        backbone: args.pack.options(),
        rotation_seed: args.rotation_seed,
        seed: args.prompts.seed(),
        rows: n,
    };
    let (bar, mut watch) = progress();
    let report = ablate(&gguf, &judge, &rows, &schemes, fit.as_ref(), &options, &mut watch)?;
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
    if let Some(fit) = &report.fit {
        lines.push(String::new());
        lines.extend(fitted(fit, &report.schemes));
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
        row.extend(right_and_points(all.accuracy.as_ref()));
    }
    row
}

/// The accuracy on a scheme's vectors, and the points that it lies from the untouched.
fn right_and_points(accuracy: Option<&Accuracy>) -> [String; 2] {
    accuracy.map_or_else(Default::default, |accuracy| {
        let [by, low, high] = [accuracy.difference, accuracy.low, accuracy.high].map(|points| 100.0 * points);
        [percent(accuracy.model.value), format!("{by:+.1} ({low:+.1} to {high:+.1})")]
    })
}

/// The lines about heads that were fitted on the way.
fn fitted(fit: &FitMark, schemes: &[Entry]) -> Vec<String> {
    let chosen = match fit.folds {
        0 => String::new(),
        folds => format!(", chosen on {folds} folds by {}", fit.split),
    };
    let mut lines = vec![format!(
        "heads fitted here, to {} labelled rows of {} tasks; L2 {}{chosen}",
        fit.rows,
        fit.tasks.len(),
        fit.choice.l2
    )];
    let accuracies = schemes
        .iter()
        .any(|entry| entry.fitted.as_ref().is_some_and(|fitted| fitted.kept.accuracy.is_some()));
    let mut header = vec!["scheme", "bits", "kept: same task"];
    let mut more = vec!["refitted: same task"];
    if accuracies {
        header.extend(["accuracy", "points"]);
        more.extend(["accuracy", "points"]);
    }
    header.append(&mut more);
    let mut cells = table(&header);
    let of = |decided: &Decided| {
        let mut row = vec![interval(decided.task)];
        if accuracies {
            row.extend(right_and_points(decided.accuracy.as_ref()));
        }
        row
    };
    for entry in schemes {
        let Some(fitted) = &entry.fitted else { continue };
        let mut row = vec![entry.scheme.clone(), format!("{:.2}", entry.bits_per_weight)];
        row.extend(of(&fitted.kept));
        row.extend(of(&fitted.refitted));
        cells.add_row(row);
    }
    right(&mut cells, 1..header.len());
    lines.extend(output::rows(&cells));
    lines.push(String::new());
    let accuracy = schemes.iter().find_map(|entry| entry.fitted.as_ref()?.kept.accuracy);
    if let Some(accuracy) = accuracy {
        lines.push(format!(
            "untouched, the head fitted here is right on {} of {} labelled prompts; points: the difference",
            interval(Some(accuracy.reference)),
            accuracy.reference.n
        ));
    }
    lines.push("kept: fitted to the untouched vectors; refitted: to the scheme's own".to_owned());
    if fit.overlap > 0 {
        lines.push(format!(
            "note: {} of the rows to fit were left out, for their prompts are judged",
            fit.overlap
        ));
    }
    lines
}
