//! A model as float tensors with their names in a GGUF: from a GGUF, or from a folder as Hugging Face lays it out.
//!
//! [`Model::open`] reads what the model is; [`Model::rows`] gives a tensor's values, as many rows at a time as the caller can
//! hold. Files are mapped, so a model larger than memory can be read.

mod huggingface;
mod tokenizer;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zen_edge_core::backbone::Architecture;
use zen_edge_core::gguf::{Gguf, GgufError, Value};
use zen_edge_core::source::Memory;
use zen_edge_core::tensors::TensorFileError;
use zen_edge_kernels::format::{BlockType, dequantize};

/// Why a model cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the messages say
pub enum SourceError {
    /// A file or folder that cannot be read.
    #[error("{}: {source}", file.display())]
    Io { file: PathBuf, source: std::io::Error },
    /// A file that the folder must have.
    #[error("{} has no {name}: give a GGUF file, or a folder with config.json, tokenizer.json and model.safetensors (or its \
             parts with model.safetensors.index.json)", folder.display())]
    MissingFile { folder: PathBuf, name: &'static str },
    /// The GGUF is damaged, or lacks something.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A safetensors file is damaged, or lacks something.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// A JSON file that is not what it should be.
    #[error("{}: {source}", file.display())]
    Json { file: PathBuf, source: serde_json::Error },
    /// An architecture that we do not run.
    #[error("{file}: the architecture is {found:?}; qwen3, llama and gemma3 (text) models can be converted")]
    Architecture { file: String, found: String },
    /// A setting that is absent, or that the backbone does not have.
    #[error("{}: {key} is {found}: {why}", file.display())]
    Config { file: PathBuf, key: String, found: String, why: String },
    /// A tensor that would have to be left out.
    #[error("{}: the tensor {tensor} is not part of {architecture} as we run it; leaving it out would give wrong answers", file.display())]
    UnknownTensor { file: PathBuf, tensor: String, architecture: &'static str },
    /// A tensor that is neither a matrix nor a vector, or does not fit the settings.
    #[error("{}: the tensor {tensor} has the shape {shape:?}: {why}", file.display())]
    Shape { file: PathBuf, tensor: String, shape: Vec<u64>, why: String },
    /// A tokenizer that a GGUF cannot express for the tokenizers that we have.
    #[error("{}: {what} is {found}: {known}", file.display())]
    Tokenizer { file: PathBuf, what: &'static str, found: String, known: &'static str },
}

/// A tensor of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in a GGUF.
    pub name: String,
    /// Its dimensions in ggml's order: the input dimension first.
    pub dims: Vec<u64>,
    /// The type that it is stored in.
    pub ty: BlockType,
    /// Where its values are.
    place: Place,
}

#[derive(Clone, Debug, PartialEq)]
enum Place {
    /// In the GGUF, under its own name.
    Gguf,
    /// In one of the folder's files, under another name.
    Folder { file: usize, name: String, change: Change },
    /// Computed from the settings.
    Made(Vec<f32>),
}

/// What a converter does to a tensor's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// A norm that is stored as the distance from one.
    AddOne,
    /// Rows of each of so many heads: halves become neighbours, as llama.cpp rotates them.
    PairRows {
        heads: usize,
    },
}

impl Tensor {
    /// Elements of a row: what a product sums over.
    pub fn columns(&self) -> u64 {
        self.dims[0]
    }

    /// Rows.
    pub fn rows(&self) -> u64 {
        self.dims[1..].iter().product()
    }

    /// Elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// A model that can be read tensor by tensor.
pub struct Model {
    /// What it is called in messages.
    pub name: String,
    /// Its architecture.
    pub architecture: Architecture,
    /// What its GGUF says of it, in order. `general.file_type` and `general.quantization_version` are left out: they belong to
    /// what is written.
    pub metadata: Vec<(String, Value)>,
    /// Its tensors.
    pub tensors: Vec<Tensor>,
    /// The alignment of tensors in a file.
    pub alignment: u64,
    /// What a reader should know of the conversion.
    pub notes: Vec<String>,
    files: Files,
}

enum Files {
    Gguf(Box<Gguf>),
    Folder(Vec<zen_edge_core::tensors::TensorFile>),
}

impl Model {
    /// Opens a GGUF file, or a folder of Hugging Face files.
    ///
    /// # Errors
    /// [`SourceError`], by cause.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        if path.is_dir() {
            return huggingface::open(path);
        }
        let io = |source| SourceError::Io { file: path.to_owned(), source };
        Self::of_gguf(Gguf::open(Arc::new(Memory::open(path).map_err(io)?))?)
    }

    /// The model of an open GGUF.
    ///
    /// # Errors
    /// [`SourceError`]: an architecture or a tensor's type that we do not run.
    pub fn of_gguf(gguf: Gguf) -> Result<Self, SourceError> {
        let name = gguf.source().name().to_owned();
        let found = gguf.architecture()?;
        let architecture = Architecture::from_name(found)
            .ok_or_else(|| SourceError::Architecture { file: name.clone(), found: found.to_owned() })?;
        let own = |key: &str| matches!(key, "general.file_type" | "general.quantization_version");
        let metadata = gguf
            .metadata()
            .filter(|(key, _)| !own(key) && !key.starts_with("split.") && !key.starts_with("quantize."))
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        let tensors = gguf
            .tensors()
            .iter()
            .map(|tensor| {
                Ok(Tensor {
                    name: tensor.name.clone(),
                    dims: tensor.dims.clone(),
                    ty: tensor.block_type()?,
                    place: Place::Gguf,
                })
            })
            .collect::<Result<_, GgufError>>()?;
        let alignment = gguf.alignment();
        let files = Files::Gguf(Box::new(gguf));
        Ok(Self { name, architecture, metadata, tensors, alignment, notes: Vec::new(), files })
    }

    /// The GGUF, where the model is one already.
    pub fn gguf(&self) -> Option<&Gguf> {
        match &self.files {
            Files::Gguf(gguf) => Some(gguf),
            Files::Folder(_) => None,
        }
    }

    /// The first tensor whose values are quantised.
    pub fn quantized(&self) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.ty.block_len() > 1)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// The layers that the model says it has.
    pub fn layers(&self) -> usize {
        let key = format!("{}.block_count", self.architecture.name());
        self.get(&key).and_then(Value::as_integer).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    }

    /// The values of some of a tensor's rows, one row after the other, to `out`.
    ///
    /// # Errors
    /// [`SourceError`]: what the file says when it is read.
    ///
    /// # Panics
    /// Where `rows` leaves the tensor, or the tensor is not this model's.
    pub fn rows(&self, tensor: &Tensor, rows: Range<u64>, out: &mut Vec<f32>) -> Result<(), SourceError> {
        assert!(rows.start <= rows.end && rows.end <= tensor.rows(), "rows of the tensor");
        let columns = tensor.columns() as usize;
        out.resize((rows.end - rows.start) as usize * columns, 0.0);
        let row_bytes = tensor.ty.row_bytes(columns).unwrap_or(0);
        match (&tensor.place, &self.files) {
            (Place::Gguf, Files::Gguf(gguf)) => {
                let info = gguf.require_tensor(&tensor.name)?;
                let range = rows.start * row_bytes as u64..rows.end * row_bytes as u64;
                dequantize(tensor.ty, &gguf.read_tensor_range(info, range)?, out);
            }
            (Place::Folder { file, name, change }, Files::Folder(files)) => {
                let bytes = files[*file].bytes(name)?;
                let mut take = |from: usize, rows: usize, to: usize| {
                    let bytes = &bytes[from * row_bytes..(from + rows) * row_bytes];
                    dequantize(tensor.ty, bytes, &mut out[to * columns..(to + rows) * columns]);
                };
                match *change {
                    Change::PairRows { heads } => {
                        let dim = tensor.rows() as usize / heads;
                        for (to, row) in (rows.start as usize..rows.end as usize).enumerate() {
                            let (head, at) = (row / dim, row % dim);
                            take(head * dim + at % 2 * (dim / 2) + at / 2, 1, to);
                        }
                    }
                    Change::None | Change::AddOne => {
                        take(rows.start as usize, (rows.end - rows.start) as usize, 0);
                    }
                }
                if *change == Change::AddOne {
                    out.iter_mut().for_each(|value| *value += 1.0);
                }
            }
            (Place::Made(values), _) => {
                out.copy_from_slice(&values[rows.start as usize * columns..rows.end as usize * columns]);
            }
            _ => panic!("a tensor of another model"),
        }
        Ok(())
    }
}
