//! A backbone against a reference: the parity protocol of zen-router.
//!
//! The reference runs in float arithmetic: its weights as f32, products in f32. The model runs as users run it, with int8
//! activations, or in float arithmetic too, which tells the error of its weights from that of its activations. Where both
//! are one file, what is left is the error of int8 activations alone.

use crate::parity::{
    self, Comparison, FileMark, Judge, ParityError, Progress, Prompt, PromptsMark, Watch, check_shapes,
    check_tokens, compare, vectors,
};
use crate::rows::Row;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;
use zen_edge_core::backbone::{Arithmetic, Backbone, BackboneOptions, Held, Weights};
use zen_edge_core::gguf::{Gguf, TensorInfo};
use zen_edge_core::tokenizer::Tokenizer;

/// The `schema` of a report.
pub const SCHEMA: &str = "zen-edge.verify/1";

/// What figures must reach. Those that are absent ask for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Thresholds {
    /// Share of prompts with the same task.
    pub task: Option<f64>,
    /// Share of prompts with the same first model.
    pub route: Option<f64>,
    /// Share of prompts whose first model stays among the first three.
    pub top3: Option<f64>,
    /// Mean cosine.
    pub cosine_mean: Option<f64>,
    /// Lowest cosine.
    pub cosine_min: Option<f64>,
}

/// A threshold that was not reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmet {
    /// The figure.
    pub figure: &'static str,
    /// What it is.
    pub found: f64,
    /// What it should be at least.
    pub wanted: f64,
}

impl Thresholds {
    fn each(&self) -> [(&'static str, Option<f64>, bool); 5] {
        [
            ("task", self.task, true),
            ("route", self.route, true),
            ("top3", self.top3, true),
            ("cosine_mean", self.cosine_mean, false),
            ("cosine_min", self.cosine_min, false),
        ]
    }

    /// Whether anything is asked for.
    pub fn any(&self) -> bool {
        self.each().iter().any(|(_, wanted, _)| wanted.is_some())
    }

    fn check(&self, judge: &Judge) -> Result<(), ParityError> {
        for (what, wanted, decides) in self.each() {
            let Some(found) = wanted else { continue };
            if !(0.0..=1.0).contains(&found) {
                return Err(ParityError::Threshold { what, found });
            }
            if decides && judge.heads.is_none() {
                return Err(ParityError::NoHeads { what });
            }
        }
        Ok(())
    }

    fn unmet(&self, comparison: &Comparison) -> Vec<Unmet> {
        let all = &comparison.all;
        let share = |share: Option<parity::Share>| share.map_or(0.0, |share| share.value);
        let found = [share(all.task), share(all.route), share(all.top3), all.cosine.mean, all.cosine.min];
        let each = self.each().into_iter().zip(found);
        each.filter_map(|((figure, wanted, _), found)| {
            let wanted = wanted?;
            // What is no number reaches nothing.
            (found.is_nan() || found < wanted).then_some(Unmet { figure, found, wanted })
        })
        .collect()
    }
}

/// How two backbones are compared.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instruction set and threads; its arithmetic and pooling do not count.
    pub backbone: BackboneOptions,
    /// How the model runs.
    pub arithmetic: Arithmetic,
    /// Matrices of the model that run in float arithmetic all the same: a part (`ffn_down`), a layer (`blk.3`) or a
    /// tensor (`blk.3.ffn_down`). What comes nearer to the reference by it is where the activations lose.
    pub float: Vec<String>,
    /// What the figures must reach.
    pub thresholds: Thresholds,
    /// How many of the prompts that differ most are named.
    pub worst: usize,
    /// What drew the rows, where not all were taken; for the report.
    pub seed: Option<u64>,
    /// Rows of the file; for the report.
    pub rows: usize,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The file.
    #[serde(flatten)]
    pub file: FileMark,
    /// How many of its matrices have which format.
    pub formats: BTreeMap<&'static str, usize>,
    /// `float` or `int8`.
    pub arithmetic: &'static str,
    /// What runs in float arithmetic all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub float: Vec<String>,
    /// Seconds that the prompts took.
    pub seconds: f64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What it is compared with.
    pub reference: Side,
    /// What is compared.
    pub model: Side,
    /// The SHA-256 of the heads, where there are some.
    pub heads_sha256: Option<String>,
    /// How many route rows were trained: the top three of three rows say nothing.
    pub routes: Option<usize>,
    /// What was read.
    pub prompts: PromptsMark,
    /// The instruction set.
    pub isa: &'static str,
    /// Threads.
    pub threads: usize,
    /// The figures.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// What they should reach.
    pub thresholds: Thresholds,
    /// Which of them they do not reach.
    pub unmet: Vec<Unmet>,
    /// Whether all are reached.
    pub passed: bool,
}

/// One arithmetic, with float for some matrices.
struct Mixed<'a> {
    arithmetic: Arithmetic,
    float: &'a [String],
    seen: Vec<bool>,
}

impl Weights for Mixed<'_> {
    fn held(&mut self, tensor: &TensorInfo) -> Held {
        // An embedding is looked up, not multiplied.
        let matched = tensor.name.starts_with("blk.") && {
            let mut any = false;
            for (part, seen) in self.float.iter().zip(&mut self.seen) {
                let here = is_part(&tensor.name, part);
                *seen |= here;
                any |= here;
            }
            any
        };
        if matched { Held::Float } else { self.arithmetic.held(tensor) }
    }
}

/// Whether `part` is a run of the pieces of a tensor's name between its points.
fn is_part(name: &str, part: &str) -> bool {
    let pieces: Vec<&str> = name.split('.').collect();
    let part: Vec<&str> = part.split('.').collect();
    pieces.windows(part.len()).any(|run| run == part)
}

const fn name_of(arithmetic: Arithmetic) -> &'static str {
    match arithmetic {
        Arithmetic::Int8 => "int8",
        Arithmetic::Float => "float",
    }
}

/// How many matrices of a file have which format.
pub(crate) fn formats(gguf: &Gguf) -> Result<BTreeMap<&'static str, usize>, ParityError> {
    let mut formats = BTreeMap::new();
    for tensor in gguf.tensors().iter().filter(|tensor| tensor.dims.len() > 1) {
        *formats.entry(tensor.block_type()?.name()).or_default() += 1;
    }
    Ok(formats)
}

/// Reads the rows with both backbones and compares what they give.
///
/// # Errors
/// [`ParityError`], by cause: files that are damaged, do not fit each other or the heads; [`ParityError::Cancelled`]. A
/// figure below its threshold is no error: [`Report::passed`] says it.
pub fn run(
    [reference, model]: [&Gguf; 2],
    judge: &Judge,
    rows: &[(usize, Row)],
    options: &Options,
    watch: Watch<'_>,
) -> Result<Report, ParityError> {
    options.thresholds.check(judge)?;
    let config = &judge.config;
    let (prompts, blank) = parity::encode(rows, config, &Tokenizer::from_gguf(model)?)?;
    let pooling = config.pooling.clone();
    let with =
        |arithmetic| BackboneOptions { arithmetic, pooling: pooling.clone(), ..options.backbone.clone() };

    let mut mixed = Mixed {
        arithmetic: options.arithmetic,
        float: &options.float,
        seen: vec![false; options.float.len()],
    };
    let backbone = Backbone::load_with(model, &with(options.arithmetic), &mut mixed)?;
    if let Some((part, _)) = options.float.iter().zip(&mixed.seen).find(|(_, seen)| !**seen) {
        return Err(ParityError::Part { name: part.clone() });
    }
    judge.check(model, &backbone)?;
    let exact = Backbone::load(reference, &with(Arithmetic::Float))?;
    check_shapes(&exact, &backbone)?;
    check_tokens(rows, &prompts, config, [reference, model])?;

    let marks = PromptsMark::of(&prompts, blank, options.rows, options.seed, config);
    let of = 2 * marks.tokens;
    let mut read = |backbone: &Backbone, what: &str, before: usize, prompts: &[Prompt]| {
        let start = Instant::now();
        let mut told = |done: usize| watch(Progress { what, done: before + done, of });
        vectors(backbone, prompts, &mut told).map(|vectors| (vectors, start.elapsed().as_secs_f64()))
    };
    let (theirs, reference_seconds) = read(&exact, "reference", 0, &prompts)?;
    // A float reference holds four bytes a weight: it goes before the model comes.
    drop(exact);
    let (ours, seconds) = read(&backbone, "model", marks.tokens, &prompts)?;

    let comparison = compare(judge, &prompts, &theirs, &ours, options.worst)?;
    let unmet = options.thresholds.unmet(&comparison);
    let side = |gguf: &Gguf, arithmetic, float: &[String], seconds| {
        Ok::<_, ParityError>(Side {
            file: FileMark::of(gguf.source())?,
            formats: formats(gguf)?,
            arithmetic: name_of(arithmetic),
            float: float.to_vec(),
            seconds,
        })
    };
    Ok(Report {
        schema: SCHEMA,
        reference: side(reference, Arithmetic::Float, &[], reference_seconds)?,
        model: side(model, options.arithmetic, &options.float, seconds)?,
        heads_sha256: judge.heads.as_ref().map(|heads| heads.sha256().to_owned()),
        routes: judge.heads.as_ref().map(|heads| heads.trained().count()),
        prompts: marks,
        isa: backbone.isa().name(),
        threads: backbone.threads(),
        comparison,
        thresholds: options.thresholds,
        passed: unmet.is_empty(),
        unmet,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_whole_pieces_of_a_name() {
        let name = "blk.3.ffn_down.weight";
        for part in ["ffn_down", "blk.3", "blk.3.ffn_down", name] {
            assert!(is_part(name, part), "{part}");
        }
        for part in ["ffn", "blk.1", "3.ffn", "", "blk.3.ffn_down.weight.x", "blk.33"] {
            assert!(!is_part(name, part), "{part}");
        }
    }
}
