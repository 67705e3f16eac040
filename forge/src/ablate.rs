//! What a scheme of quantisation costs the decision.
//!
//! Each scheme is applied in place, quantise → dequantise, to the weights of one file; the backbone then runs in float
//! arithmetic, so that nothing but the scheme is told. Its vectors are compared with those of the untouched weights, over
//! the same prompts: do the heads decide the same, and are they still right?

mod applied;
mod hadamard;
mod heads;
mod schemes;

pub use applied::{Coverage, Fallback, Reached};
pub use hadamard::Rotation;
pub use heads::{Decided, FitMark, FitRows, FittedHeads};
pub use schemes::{Int, Scheme, SchemeError};

use crate::fit::FitError;
use crate::parity::{
    self, Comparison, FileMark, Judge, ParityError, Progress, PromptsMark, Watch, compare, vectors,
};
use crate::rows::Row;
use crate::verify::formats;
use applied::Applied;
use heads::Fit;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;
use zen_edge_core::backbone::{Arithmetic, Backbone, BackboneOptions};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::tokenizer::Tokenizer;
use zen_edge_kernels::format::EncodeError;
use zen_edge_kernels::pool::Pool;

/// The `schema` of a report.
pub const SCHEMA: &str = "zen-edge.ablate/1";

/// Why schemes cannot be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AblateError {
    /// The harness: rows, backbone, heads.
    #[error(transparent)]
    Parity(#[from] ParityError),
    /// Heads cannot be fitted.
    #[error(transparent)]
    Fit(Box<FitError>),
    /// What heads would be fitted to is what they would be judged on.
    #[error(
        "{overlap} of the rows to fit have prompts that are judged, and the {left} others are not of two tasks: give rows of their own, or judge fewer by --limit"
    )]
    Overlap {
        /// Rows that were left out.
        overlap: usize,
        /// Those that are left.
        left: usize,
    },
    /// A word that is no scheme.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// No schemes.
    #[error("no schemes: name some, such as int8,int4-g128,q4_k")]
    NoSchemes,
    /// A scheme that is named twice.
    #[error("{scheme} is named twice")]
    Twice {
        /// The scheme.
        scheme: Scheme,
    },
    /// A matrix that the scheme did not reach.
    #[error("{scheme} passed {tensor} over: what it costs would not be told")]
    Missed {
        /// The scheme.
        scheme: Scheme,
        /// The matrix.
        tensor: String,
    },
    /// A scheme that reached nothing.
    #[error("{scheme} touched not one weight: the file has no matrices beside embedding and LM head")]
    Untouched {
        /// The scheme.
        scheme: Scheme,
    },
    /// Weights that a format cannot hold.
    #[error("{scheme}: {tensor}: {source}")]
    Encode {
        /// The scheme.
        scheme: Scheme,
        /// The matrix.
        tensor: String,
        /// Why not.
        source: EncodeError,
    },
    /// A width that cannot be turned.
    #[error("{scheme}: rows of {tensor} have {cols} values, which no power of two divides: leave -rot out")]
    Rotation {
        /// The scheme.
        scheme: Scheme,
        /// The matrix.
        tensor: String,
        /// Its inputs.
        cols: usize,
    },
}

/// How schemes are judged.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instruction set and threads; its arithmetic and pooling do not count.
    pub backbone: BackboneOptions,
    /// What draws the signs of rotations.
    pub rotation_seed: u64,
    /// What drew the rows, where not all were taken; for the report.
    pub seed: Option<u64>,
    /// Rows of the file; for the report.
    pub rows: usize,
}

/// A scheme and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The scheme, as it is written.
    pub scheme: String,
    /// Bits that a weight takes on average, embedding and matrices, scales counted. What a scheme leaves alone counts
    /// with the bits of the file's own format.
    pub bits_per_weight: f64,
    /// What it reached.
    pub coverage: Coverage,
    /// Its decisions beside those of the untouched weights.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// What it costs heads that were fitted on the way; absent where there were no rows to fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitted: Option<FittedHeads>,
    /// Seconds to quantise and load.
    pub load_seconds: f64,
    /// Seconds that the judged prompts took.
    pub seconds: f64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The file whose weights were quantised.
    #[serde(flatten)]
    pub file: FileMark,
    /// How many of its matrices have which format.
    pub formats: BTreeMap<&'static str, usize>,
    /// The SHA-256 of the heads, where there are some.
    pub heads_sha256: Option<String>,
    /// How many route rows were trained.
    pub routes: Option<usize>,
    /// What was read.
    pub prompts: PromptsMark,
    /// What drew the signs of rotations.
    pub rotation_seed: u64,
    /// The instruction set.
    pub isa: &'static str,
    /// Threads.
    pub threads: usize,
    /// What heads were fitted to on the way, where rows were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitMark>,
    /// The schemes, by bits.
    pub schemes: Vec<Entry>,
}

/// Schemes that are written one after the other, between commas.
///
/// # Errors
/// [`AblateError::NoSchemes`], [`AblateError::Scheme`], [`AblateError::Twice`].
pub fn schemes(text: &str) -> Result<Vec<Scheme>, AblateError> {
    if text.trim().is_empty() {
        return Err(AblateError::NoSchemes);
    }
    let schemes: Vec<Scheme> =
        text.split(',').map(|word| word.trim().parse()).collect::<Result<_, SchemeError>>()?;
    let mut seen = HashSet::new();
    match schemes.iter().find(|scheme| !seen.insert(**scheme)) {
        Some(twice) => Err(AblateError::Twice { scheme: *twice }),
        None => Ok(schemes),
    }
}

/// Judges schemes one after the other. With rows to `fit`, a task head is fitted to the vectors of each backbone too; rows
/// whose prompts are judged are left out of that.
///
/// # Errors
/// [`AblateError`], by cause; [`ParityError::Cancelled`].
pub fn run(
    gguf: &Gguf,
    judge: &Judge,
    rows: &[(usize, Row)],
    schemes: &[Scheme],
    fit: Option<&FitRows>,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Report, AblateError> {
    if schemes.is_empty() {
        return Err(AblateError::NoSchemes);
    }
    let config = &judge.config;
    let tokenizer = Tokenizer::from_gguf(gguf).map_err(ParityError::from)?;
    let (prompts, blank) = parity::encode(rows, config, &tokenizer)?;
    let marks = PromptsMark::of(&prompts, blank, options.rows, options.seed, config);
    let pool = options
        .backbone
        .pool
        .clone()
        .unwrap_or_else(|| Pool::new(options.backbone.threads.unwrap_or_else(Pool::default_threads)));
    let backbone_options = BackboneOptions {
        arithmetic: Arithmetic::Float,
        pooling: config.pooling.clone(),
        pool: Some(pool.clone()),
        ..options.backbone.clone()
    };
    let hidden =
        gguf.require_u32(&format!("{}.embedding_length", gguf.architecture().map_err(ParityError::from)?));
    let hidden = hidden.map_err(ParityError::from)? as usize;
    let fit = fit.map(|fit| Fit::new(fit, rows, config, &tokenizer, hidden));
    let mut fit = fit.transpose()?;
    let to_fit = fit.as_ref().map_or_else(Vec::new, |fit| fit.prompts.clone());
    let each = marks.tokens + fit.as_ref().map_or(0, |fit| fit.mark.tokens);
    let of = (1 + schemes.len()) * each;
    let mut runs = 0;
    let mut read = |watch: Watch<'_>, backbone: &Backbone, what: &str| {
        let (before, start) = (runs * each, Instant::now());
        runs += 1;
        let mut told = |done: usize| watch(Progress { what, done: before + done, of });
        let judged = vectors(backbone, &prompts, &mut told)?;
        let seconds = start.elapsed().as_secs_f64();
        let mut told = |done: usize| watch(Progress { what, done: before + marks.tokens + done, of });
        let fitted = vectors(backbone, &to_fit, &mut told)?;
        Ok::<_, ParityError>((judged, fitted, seconds))
    };

    let exact = Backbone::load(gguf, &backbone_options).map_err(ParityError::from)?;
    judge.check(gguf, &exact)?;
    let isa = exact.isa().name();
    let (reference, fitted, _) = read(watch, &exact, "untouched")?;
    drop(exact);
    let untouched = match &mut fit {
        Some(fit) => {
            // It cannot be broken off within; what was asked for meanwhile is done after.
            let mut ended = false;
            let chosen = fit.untouched(&fitted, &reference, &pool, &mut |share| {
                let what = format!("choosing L2, {:.0} %", 100.0 * share);
                ended |= watch(Progress { what: &what, done: each, of }).is_break();
            })?;
            if ended {
                return Err(ParityError::Cancelled.into());
            }
            Some(chosen)
        }
        None => None,
    };
    drop(fitted);

    let mut entries = Vec::with_capacity(schemes.len());
    for scheme in schemes {
        let start = Instant::now();
        let mut applied = Applied::new(*scheme, options.rotation_seed, &pool);
        let loaded = Backbone::load_with(gguf, &backbone_options, &mut applied);
        // A fault of the scheme says more than what became of the weights.
        let (coverage, bits_per_weight) = match &loaded {
            Ok(_) => applied.finish(gguf)?,
            Err(_) => Default::default(),
        };
        let backbone = loaded.map_err(ParityError::from)?;
        let load_seconds = start.elapsed().as_secs_f64();
        let name = scheme.to_string();
        let (vectors, to_fit, seconds) = read(watch, &backbone, &name)?;
        drop(backbone);
        let comparison = compare(judge, &prompts, &reference, &vectors, 0)?;
        let fitted = match (&fit, &untouched) {
            (Some(fit), Some(untouched)) => Some(fit.heads(untouched, &to_fit, &vectors, &prompts)?),
            _ => None,
        };
        entries.push(Entry {
            scheme: name,
            bits_per_weight,
            coverage,
            comparison,
            fitted,
            load_seconds,
            seconds,
        });
    }
    entries.sort_by(|a, b| {
        a.bits_per_weight.total_cmp(&b.bits_per_weight).then_with(|| a.scheme.cmp(&b.scheme))
    });
    Ok(Report {
        schema: SCHEMA,
        file: FileMark::of(gguf.source())?,
        formats: formats(gguf)?,
        heads_sha256: judge.heads.as_ref().map(|heads| heads.sha256().to_owned()),
        routes: judge.heads.as_ref().map(|heads| heads.trained().count()),
        prompts: marks,
        rotation_seed: options.rotation_seed,
        isa,
        threads: pool.threads(),
        fit: fit.map(|fit| fit.mark),
        schemes: entries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_schemes() {
        let list = schemes("fp16, int8,q4_k").unwrap();
        assert_eq!(list.iter().map(ToString::to_string).collect::<Vec<_>>(), ["fp16", "int8", "q4_k"]);
        assert!(matches!(schemes("  "), Err(AblateError::NoSchemes)));
        assert!(matches!(schemes("int8,,int4"), Err(AblateError::Scheme(_))));
        assert!(matches!(schemes("int8,q4_k,Q4_K"), Err(AblateError::Twice { .. })));
    }
}
