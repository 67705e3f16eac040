//! A float model to a quantised GGUF.
//!
//! [`quantize`] goes through a model's tensors in slabs of rows: read, encode, write, decode again to see the error. It holds
//! a few tens of megabytes whatever the model's size, and the file appears whole or not at all.

mod imatrix;
mod mix;

pub use imatrix::Importance;
pub use mix::Mix;

use crate::gguf_writer::{Entry, GgufWriter};
use crate::rows::RowsError;
use crate::source::{Model, SourceError, Tensor};
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zen_edge_core::backbone::BackboneError;
use zen_edge_core::gguf::{Gguf, GgufError, Value};
use zen_edge_core::source::Memory;
use zen_edge_core::tokenizer::{Tokenizer, TokenizerError};
use zen_edge_kernels::format::{BlockType, EncodeError, dequantize, encode_in};
use zen_edge_kernels::pool::Pool;

/// The name and version of [`Report`]'s form.
pub const SCHEMA: &str = "zen-edge-quantize/1";
/// `general.quantization_version`: the block formats' version, that of ggml.
const QUANTIZATION_VERSION: u32 = 2;
/// Values that are read, encoded and written together, at least a row.
const SLAB: u64 = 1 << 21;

/// Why a model is not quantised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the messages say
pub enum QuantizeError {
    /// The model cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Some of it is quantised already.
    #[error(
        "{model}: {tensor} is {ty} already, and what was lost by that stays lost: quantise the float model, or pass --requantize"
    )]
    Quantized { model: String, tensor: String, ty: BlockType },
    /// Values that cannot be stored in the type.
    #[error("{tensor}: {source}")]
    Encode { tensor: String, source: EncodeError },
    /// The file cannot be written.
    #[error("{} cannot be written: {source}", file.display())]
    Write { file: PathBuf, source: std::io::Error },
    /// The output would replace the input.
    #[error("{} is the input: name another file for the output", file.display())]
    SameFile { file: PathBuf },
    /// The prompts cannot be read.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The model does not run, so nothing can be measured with it, or what was made does not.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// Its tokenizer does not work.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// What was made is damaged.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The caller stopped it.
    #[error("cancelled")]
    Cancelled,
}

/// How a model is quantised.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads; as many as the process may use where none are given.
    pub threads: Option<usize>,
    /// Prompts, as JSON lines, whose activations say which columns matter.
    pub imatrix: Option<PathBuf>,
    /// Quantise what is quantised already, from the values that it decodes to.
    pub requantize: bool,
}

/// How far the work is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What is done: a tensor's name, or `prompts`.
    pub stage: &'a str,
    /// Of all, from 0 to 1.
    pub share: f64,
}

/// What was made, and what it cost.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The file that was made.
    pub output: String,
    /// The mixture.
    #[serde(rename = "type")]
    pub mix: Mix,
    /// `qwen3`, `llama` or `gemma3`.
    pub architecture: &'static str,
    /// Every tensor, in the file's order.
    pub tensors: Vec<TensorReport>,
    /// Weights in all.
    pub parameters: u64,
    /// Bytes of the tensors before and after.
    pub bytes_before: u64,
    /// Bytes of the tensors.
    pub bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bits a weight, of the tensors.
    pub bits_per_weight: f64,
    /// Root of the mean squared error over all weights of matrices.
    pub rmse: f64,
    /// The prompts that said which columns matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imatrix: Option<ImatrixReport>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// Where the importance of columns is from.
#[derive(Clone, Debug, Serialize)]
pub struct ImatrixReport {
    /// The file.
    pub file: String,
    /// Its prompts.
    pub prompts: usize,
    /// Their tokens.
    pub tokens: u64,
}

/// One tensor.
#[derive(Clone, Debug, Serialize)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// Its dimensions, the input dimension first.
    pub dims: Vec<u64>,
    /// Its type before.
    pub from: &'static str,
    /// Its type now.
    #[serde(rename = "type")]
    pub ty: &'static str,
    /// The type that the mixture has for it, where its rows are not whole blocks of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<&'static str>,
    /// Its bytes.
    pub bytes: u64,
    /// Root of the mean squared difference from the values before.
    pub rmse: f64,
    /// That, over the root of the mean squared value.
    pub relative: f64,
    /// As `relative`, each column by its importance, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weighted: Option<f64>,
}

/// Quantises the model at `input` (a GGUF, or a folder of Hugging Face files) to the GGUF `output`.
///
/// `progress` is told of every step; where it gives `false`, the work ends and nothing is left behind.
///
/// # Errors
/// [`QuantizeError`], by cause. An existing `output` stays as it is then.
pub fn quantize(
    input: &Path,
    output: &Path,
    mix: Mix,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>) -> bool,
) -> Result<Report, QuantizeError> {
    let same = |a: &Path, b: &Path| {
        std::fs::canonicalize(a).ok().is_some_and(|a| Some(a) == std::fs::canonicalize(b).ok())
    };
    if same(input, output) {
        return Err(QuantizeError::SameFile { file: output.to_owned() });
    }
    let model = Model::open(input)?;
    if let Some(tensor) = model.quantized().filter(|_| !options.requantize) {
        let (model, tensor, ty) = (model.name.clone(), tensor.name.clone(), tensor.ty);
        return Err(QuantizeError::Quantized { model, tensor, ty });
    }
    let pool = Pool::new(options.threads.unwrap_or_else(Pool::default_threads));
    let importance = match &options.imatrix {
        None => None,
        Some(prompts) => {
            // A folder is made a file of the same values first: the backbone runs from GGUFs.
            let made = if model.gguf().is_some() {
                None
            } else {
                Some(write(&model, output, None, &pool, None, progress)?)
            };
            let gguf = match (&made, model.gguf()) {
                (Some((file, ..)), _) => &open(file.path())?,
                (None, Some(gguf)) => gguf,
                (None, None) => return Err(QuantizeError::Cancelled),
            };
            Some(Importance::collect(gguf, prompts, &pool, progress)?)
        }
    };
    let (file, tensors, squares) = write(&model, output, Some(mix), &pool, importance.as_ref(), progress)?;
    // What is handed over loads: checked before it takes its place.
    let gguf = open(file.path())?;
    zen_edge_core::backbone::check(&gguf)?;
    Tokenizer::from_gguf(&gguf)?;
    drop(gguf);
    let written = |source| QuantizeError::Write { file: output.to_owned(), source };
    let file_bytes = file.as_file().metadata().map_err(written)?.len();
    file.persist(output).map_err(|error| written(error.error))?;

    let parameters = model.tensors.iter().map(Tensor::elements).sum();
    let bytes = tensors.iter().map(|tensor| tensor.bytes).sum();
    let matrices: u64 = model.tensors.iter().filter(|t| t.dims.len() > 1).map(Tensor::elements).sum();
    let mut notes = model.notes.clone();
    let instead = tensors.iter().filter(|tensor| tensor.instead_of.is_some()).count();
    if instead > 0 {
        let (count, have) =
            if instead == 1 { ("one tensor has", "it has") } else { ("tensors have", "they have") };
        let count = if instead == 1 { count.to_owned() } else { format!("{instead} {count}") };
        notes.push(format!(
            "{count} rows that are not whole blocks of the type that the mixture gives: {have} the next larger that fits"
        ));
    }
    Ok(Report {
        schema: SCHEMA,
        output: output.display().to_string(),
        mix,
        architecture: model.architecture.name(),
        parameters,
        bytes_before: model
            .tensors
            .iter()
            .map(|t| t.rows() * t.ty.row_bytes(t.columns() as usize).unwrap_or(0) as u64)
            .sum(),
        bytes,
        file_bytes,
        bits_per_weight: bytes as f64 * 8.0 / parameters as f64,
        rmse: (squares / matrices.max(1) as f64).sqrt(),
        tensors,
        imatrix: importance.map(|importance| ImatrixReport {
            file: importance.file.clone(),
            prompts: importance.prompts,
            tokens: importance.tokens,
        }),
        notes,
    })
}

fn open(file: &Path) -> Result<Gguf, QuantizeError> {
    let source = Memory::open(file).map_err(|source| SourceError::Io { file: file.to_owned(), source })?;
    Ok(Gguf::open(Arc::new(source))?)
}

/// Writes the model beside `output`, to a file that has no name yet: in the types of `mix`, or in those that it has. The error
/// of each tensor, and the sum of squared errors of all matrices, come with it.
fn write(
    model: &Model,
    output: &Path,
    mix: Option<Mix>,
    pool: &Pool,
    importance: Option<&Importance>,
    progress: &mut dyn FnMut(Progress<'_>) -> bool,
) -> Result<(tempfile::NamedTempFile, Vec<TensorReport>, f64), QuantizeError> {
    let failed = |source| QuantizeError::Write { file: output.to_owned(), source };
    let layers = model.layers();
    let tied = !model.tensors.iter().any(|tensor| tensor.name == "output.weight");
    let types: Vec<(BlockType, Option<BlockType>)> = model
        .tensors
        .iter()
        .map(|tensor| match mix {
            Some(mix) => mix.of(&tensor.name, &tensor.dims, layers, tied),
            None if tensor.dims.len() < 2 => (BlockType::F32, None),
            None => (tensor.ty, None),
        })
        .collect();
    let entries: Vec<Entry> = model
        .tensors
        .iter()
        .zip(&types)
        .map(|(tensor, (ty, _))| Entry { name: tensor.name.clone(), dims: tensor.dims.clone(), ty: *ty })
        .collect();
    let mut metadata = model.metadata.clone();
    metadata.push(("general.quantization_version".to_owned(), QUANTIZATION_VERSION.into()));
    if let Some(mix) = mix {
        metadata.push(("general.file_type".to_owned(), mix.file_type().into()));
    }
    if let Some(importance) = importance {
        // The keys that llama.cpp writes.
        let mut put = |key: &str, value: Value| metadata.push((format!("quantize.imatrix.{key}"), value));
        put("dataset", importance.file.as_str().into());
        put("entries_count", u32::try_from(importance.columns.len()).unwrap_or(u32::MAX).into());
        put("chunks_count", u32::try_from(importance.prompts).unwrap_or(u32::MAX).into());
    }
    let folder =
        output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let file =
        tempfile::Builder::new().prefix(".zen-edge-").suffix(".gguf").tempfile_in(folder).map_err(failed)?;
    let mut out =
        GgufWriter::new(BufWriter::new(file), &metadata, &entries, model.alignment).map_err(failed)?;

    let total: u64 = model.tensors.iter().map(Tensor::elements).sum();
    let (mut done, mut squares, mut reports) = (0u64, 0.0, Vec::with_capacity(entries.len()));
    let (mut values, mut back) = (Vec::new(), Vec::new());
    for (tensor, (ty, instead_of)) in model.tensors.iter().zip(types) {
        let columns = tensor.columns();
        let weights = importance.and_then(|importance| importance.columns.get(&tensor.name));
        let weights = weights.map(Vec::as_slice).filter(|weights| weights.len() as u64 == columns);
        let mut sums = Sums::default();
        let slab = (SLAB / columns.max(1)).max(1);
        let mut row = 0;
        while row < tensor.rows() {
            let share = done as f64 / total.max(1) as f64;
            if !progress(Progress { stage: &tensor.name, share }) {
                return Err(QuantizeError::Cancelled);
            }
            let end = tensor.rows().min(row + slab);
            model.rows(tensor, row..end, &mut values)?;
            let bytes = encode_in(pool, ty, &values, weights).map_err(|mut source| {
                if let EncodeError::NotFinite { index, .. } | EncodeError::TooLarge { index, .. } =
                    &mut source
                {
                    *index += (row * columns) as usize;
                }
                QuantizeError::Encode { tensor: tensor.name.clone(), source }
            })?;
            out.write(&bytes).map_err(failed)?;
            if mix.is_some() {
                back.resize(values.len(), 0.0);
                dequantize(ty, &bytes, &mut back);
                sums.add(&values, &back, weights, columns as usize);
            }
            done += values.len() as u64;
            row = end;
        }
        if tensor.dims.len() > 1 {
            squares += sums.error;
        }
        let bytes = tensor.rows() * ty.row_bytes(columns as usize).unwrap_or(0) as u64;
        reports.push(TensorReport {
            name: tensor.name.clone(),
            dims: tensor.dims.clone(),
            from: tensor.ty.name(),
            ty: ty.name(),
            instead_of: instead_of.map(BlockType::name),
            bytes,
            rmse: (sums.error / tensor.elements() as f64).sqrt(),
            relative: ratio(sums.error, sums.size),
            weighted: weights.map(|_| ratio(sums.weighted_error, sums.weighted_size)),
        });
    }
    let mut file = out
        .finish()
        .and_then(|out| out.into_inner().map_err(std::io::IntoInnerError::into_error))
        .map_err(failed)?;
    file.flush().and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    Ok((file, reports, squares))
}

fn ratio(error: f64, size: f64) -> f64 {
    if size > 0.0 { (error / size).sqrt() } else { 0.0 }
}

/// Sums of squares over a tensor.
#[derive(Default)]
struct Sums {
    error: f64,
    size: f64,
    weighted_error: f64,
    weighted_size: f64,
}

impl Sums {
    fn add(&mut self, before: &[f32], after: &[f32], weights: Option<&[f32]>, columns: usize) {
        for (before, after) in before.chunks_exact(columns).zip(after.chunks_exact(columns)) {
            let (mut error, mut size) = (0.0, 0.0);
            for (a, b) in before.iter().zip(after) {
                let (a, off) = (f64::from(*a), f64::from(a - b));
                error += off * off;
                size += a * a;
            }
            self.error += error;
            self.size += size;
            let Some(weights) = weights else { continue };
            for ((a, b), w) in before.iter().zip(after).zip(weights) {
                let (a, off, w) = (f64::from(*a), f64::from(a - b), f64::from(*w));
                self.weighted_error += w * off * off;
                self.weighted_size += w * a * a;
            }
        }
    }
}
