//! The container of a backbone: GGUF metadata and tensors, validated.
//!
//! Format: `docs/gguf.md` of the ggml project. Versions 2 and 3, little-endian. A file is laid out as header (magic,
//! version, counts), metadata (key, type, value), tensor table (name, dimensions, type, offset) and, from the next
//! multiple of `general.alignment`, the tensors' bytes.
//!
//! The parser is a validator: [`Gguf::open`] reads the header only, through any [`Source`], and afterwards every tensor is
//! known to lie within the file. A count or a length that a file claims is held against the bytes that are left before
//! it is used; memory taken is proportional to the header's bytes.

mod error;
mod parse;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use error::GgufError;
pub use parse::{MAX_DEPTH, MAX_HEADER, MAX_NAME, MAX_STRING};
pub use types::type_name;
pub use value::{Array, StringArray, Value};

use crate::room::{self, NoMemory};
use crate::source::{Contents, Source};
use parse::Reader;
use std::ops::Range;
use std::sync::Arc;
use zen_edge_kernels::format::BlockType;
use zen_edge_kernels::memory::Bytes;

/// The most dimensions of a tensor (ggml's `GGML_MAX_DIMS`).
pub const MAX_DIMS: u32 = 4;
/// The largest alignment that is accepted: the largest page in use (64 KiB). Files have 32.
pub const MAX_ALIGNMENT: u64 = 1 << 16;
/// The alignment of files that do not name one.
const DEFAULT_ALIGNMENT: u64 = 32;

/// A GGUF file's metadata and tensor table, over the source that holds its bytes.
pub struct Gguf {
    source: Arc<dyn Source>,
    version: u32,
    alignment: u64,
    data_start: u64,
    metadata: Vec<(String, Value)>,
    /// Indices of `metadata`, by key. An index beside the list in file order needs no second copy of the keys, and no
    /// choice of keys makes it slow.
    by_key: Vec<u32>,
    tensors: Vec<TensorInfo>,
    /// Indices of `tensors`, by name.
    by_name: Vec<u32>,
}

/// A tensor's entry in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name: `blk.0.attn_q.weight`.
    pub name: String,
    /// One to four dimensions, none 0, in ggml's order: `dims[0]` is the input dimension, whose elements are adjacent.
    pub dims: Vec<u64>,
    /// The `ggml_type`; see [`TensorInfo::block_type`].
    pub type_id: u32,
    /// Where the tensor's bytes begin, counted from the start of the file.
    pub offset: u64,
    /// The number of bytes. Where the type is unknown: the bytes up to the next tensor or the end of the file.
    pub bytes: u64,
}

impl TensorInfo {
    /// The type, where the kernels run it.
    ///
    /// # Errors
    /// [`GgufError::UnsupportedType`] where they do not.
    pub fn block_type(&self) -> Result<BlockType, GgufError> {
        BlockType::from_ggml_id(self.type_id)
            .ok_or_else(|| GgufError::UnsupportedType { tensor: self.name.clone(), type_id: self.type_id })
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        // Was found not to overflow at open.
        self.dims.iter().product()
    }

    /// The number of rows: runs of `dims[0]` elements.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }

    /// The bytes of a row of `dims[0]` elements.
    pub fn row_bytes(&self) -> u64 {
        self.bytes / self.rows()
    }
}

impl Gguf {
    /// Reads and validates the header of a GGUF file. Tensors' bytes are not read.
    ///
    /// # Errors
    /// Whatever is wrong with the file: see the variants of [`GgufError`].
    pub fn open(source: Arc<dyn Source>) -> Result<Self, GgufError> {
        let mut reader = Reader::new(&*source);
        let file = || source.name().to_owned();

        let contents = Contents::of(&*source).map_err(|error| GgufError::Io {
            file: file(),
            offset: 0,
            len: source.len().min(Contents::ENOUGH),
            source: error,
        })?;
        if contents != Contents::Gguf {
            return Err(GgufError::NotGguf { file: file(), looks_like: contents.to_string() });
        }
        reader.u32()?;
        let version = reader.u32()?;
        match version {
            2 | 3 => {}
            // A big-endian version is a small number in the high bytes. The field decides, as it does in ggml: the
            // magic is the same four bytes in both.
            _ if version & 0xffff == 0 && version != 0 => return Err(GgufError::BigEndian { file: file() }),
            _ => return Err(GgufError::Version { file: file(), version }),
        }
        let tensor_count = reader.u64()?;
        let key_count = reader.u64()?;

        // The least entry: a key of one byte with its length, a type, a value of one byte.
        let key_count = reader.count("metadata entries", key_count, 8 + 1 + 4 + 1)?;
        let mut metadata = room::room(key_count.min(1 << 10)).map_err(|refused| reader.no_memory(refused))?;
        for i in 0..key_count {
            reader.what = format!("the key of metadata entry {i}");
            let key = reader.name()?;
            reader.what = format!("the value of the key `{key}`");
            let value = reader.value()?;
            room::push(&mut metadata, (key, value)).map_err(|refused| reader.no_memory(refused))?;
        }
        reader.what = "the index of the keys".to_owned();
        let by_key = index(&metadata, |(key, _)| key)
            .map_err(|refused| reader.no_memory(refused))?
            .map_err(|i| GgufError::DuplicateKey { file: file(), key: metadata[i].0.clone() })?;

        // A name of one byte with its length, the number of dimensions, one dimension, a type, an offset.
        let tensor_count = reader.count("tensors", tensor_count, 8 + 1 + 4 + 8 + 4 + 8)?;
        let mut tensors =
            room::room(tensor_count.min(1 << 10)).map_err(|refused| reader.no_memory(refused))?;
        for i in 0..tensor_count {
            reader.what = format!("entry {i} of the tensor table");
            let name = reader.name()?;
            reader.what = format!("the table entry of the tensor `{name}`");
            let n_dims = reader.u32()?;
            if !(1..=MAX_DIMS).contains(&n_dims) {
                return Err(GgufError::Dimensions {
                    file: file(),
                    tensor: name,
                    dims: n_dims,
                    limit: MAX_DIMS,
                });
            }
            let dims = (0..n_dims).map(|_| reader.u64()).collect::<Result<Vec<_>, _>>()?;
            let type_id = reader.u32()?;
            let offset = reader.u64()?;
            let tensor = TensorInfo { name, dims, type_id, offset, bytes: 0 };
            room::push(&mut tensors, tensor).map_err(|refused| reader.no_memory(refused))?;
        }
        reader.what = "the index of the tensors".to_owned();
        let by_name = index(&tensors, |tensor| &tensor.name)
            .map_err(|refused| reader.no_memory(refused))?
            .map_err(|i| GgufError::DuplicateTensor { file: file(), tensor: tensors[i].name.clone() })?;

        let header_end = reader.pos();
        drop(reader);
        let mut gguf = Self {
            source,
            version,
            alignment: DEFAULT_ALIGNMENT,
            data_start: header_end,
            metadata,
            by_key,
            tensors,
            by_name,
        };
        if let Some(alignment) = gguf.u64("general.alignment")? {
            if !alignment.is_power_of_two() || !(8..=MAX_ALIGNMENT).contains(&alignment) {
                return Err(GgufError::Alignment { file: gguf.file(), alignment, limit: MAX_ALIGNMENT });
            }
            gguf.alignment = alignment;
        }
        // No overflow: a header ends within MAX_HEADER.
        gguf.data_start = header_end.next_multiple_of(gguf.alignment);
        gguf.place_tensors()?;
        Ok(gguf)
    }

    /// Makes the tensors' offsets absolute, finds their sizes and holds both against the file.
    fn place_tensors(&mut self) -> Result<(), GgufError> {
        let file = self.source.name();
        let len = self.source.len();
        for tensor in &mut self.tensors {
            let outside = |offset, bytes, tensor: &TensorInfo| GgufError::TensorOutsideFile {
                file: file.to_owned(),
                tensor: tensor.name.clone(),
                offset,
                bytes,
                len,
            };
            let overflow = |tensor: &TensorInfo| GgufError::SizeOverflow {
                file: file.to_owned(),
                tensor: tensor.name.clone(),
                dims: tensor.dims.clone(),
            };
            if tensor.dims.contains(&0) {
                return Err(GgufError::ZeroDimension {
                    file: file.to_owned(),
                    tensor: tensor.name.clone(),
                    dims: tensor.dims.clone(),
                });
            }
            let Some(elements) = tensor.dims.iter().try_fold(1, |n: u64, &dim| n.checked_mul(dim)) else {
                return Err(overflow(tensor));
            };
            if let Some(layout) = types::layout(tensor.type_id) {
                if !tensor.dims[0].is_multiple_of(layout.block_len) {
                    return Err(GgufError::PartialBlock {
                        file: file.to_owned(),
                        tensor: tensor.name.clone(),
                        row: tensor.dims[0],
                        type_name: layout.name,
                        block: layout.block_len,
                    });
                }
                let Some(bytes) = (elements / layout.block_len).checked_mul(layout.block_bytes) else {
                    return Err(overflow(tensor));
                };
                tensor.bytes = bytes;
            }
            if !tensor.offset.is_multiple_of(self.alignment) {
                return Err(GgufError::UnalignedTensor {
                    file: file.to_owned(),
                    tensor: tensor.name.clone(),
                    offset: tensor.offset,
                    alignment: self.alignment,
                });
            }
            let Some(offset) = self.data_start.checked_add(tensor.offset) else {
                return Err(outside(tensor.offset, tensor.bytes, tensor));
            };
            tensor.offset = offset;
            // At least a byte, so that a tensor of unknown type begins within the file too.
            if offset.checked_add(tensor.bytes.max(1)).is_none_or(|end| end > len) {
                return Err(outside(offset, tensor.bytes, tensor));
            }
        }

        let no_memory = |NoMemory(bytes)| GgufError::OutOfMemory {
            file: file.to_owned(),
            what: "the order of the tensors".to_owned(),
            bytes,
        };
        let mut order: Vec<u32> = room::room(self.tensors.len()).map_err(no_memory)?;
        order.extend(0..self.tensors.len() as u32);
        order.sort_unstable_by_key(|&i| self.tensors[i as usize].offset);
        for (k, &i) in order.iter().enumerate() {
            let i = i as usize;
            let next = order.get(k + 1).map(|&next| &self.tensors[next as usize]);
            let next_offset = next.map_or(len, |next| next.offset);
            let tensor = &self.tensors[i];
            if types::layout(tensor.type_id).is_none() {
                self.tensors[i].bytes = next_offset - tensor.offset;
            } else if let Some(next) = next
                && tensor.offset + tensor.bytes > next.offset
            {
                return Err(GgufError::Overlap {
                    file: file.to_owned(),
                    first: tensor.name.clone(),
                    second: next.name.clone(),
                    offset: next.offset,
                });
            }
        }
        Ok(())
    }

    fn file(&self) -> String {
        self.source.name().to_owned()
    }

    /// The format's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The source that holds the file's bytes.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// `general.alignment`, or its default of 32: tensors begin at its multiples.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Where the tensors' bytes begin: the size of header, metadata and tensor table, aligned.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// `general.architecture`: `qwen3`.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], [`GgufError::WrongType`].
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.require_str("general.architecture")
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let found = self.by_key.binary_search_by(|&i| self.metadata[i as usize].0.as_str().cmp(key)).ok()?;
        Some(&self.metadata[self.by_key[found] as usize].1)
    }

    /// Keys and values in the file's order.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.metadata.iter().map(|(key, value)| (key.as_str(), value))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match convert(value) {
            Some(value) => Ok(Some(value)),
            None => Err(GgufError::WrongType {
                file: self.file(),
                key: key.to_owned(),
                expected,
                found: value.type_name(),
            }),
        }
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, expected: &'static str) -> Result<Option<T>, GgufError> {
        let Some(value) = self.typed(key, expected, Value::as_integer)? else { return Ok(None) };
        match T::try_from(value) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(GgufError::OutOfRange { file: self.file(), key: key.to_owned(), value, expected }),
        }
    }

    fn require<T>(&self, key: &str, value: Option<T>) -> Result<T, GgufError> {
        value.ok_or_else(|| GgufError::MissingKey { file: self.file(), key: key.to_owned() })
    }

    /// An integer of any width that fits, or `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] where it is no integer, [`GgufError::OutOfRange`] where it does not fit.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.integer(key, "an integer from 0 to 2^64 - 1")
    }

    /// As [`Gguf::u64`].
    ///
    /// # Errors
    /// As [`Gguf::u64`].
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.integer(key, "an integer from 0 to 2^32 - 1")
    }

    /// As [`Gguf::u64`].
    ///
    /// # Errors
    /// As [`Gguf::u64`].
    pub fn i64(&self, key: &str) -> Result<Option<i64>, GgufError> {
        self.integer(key, "an integer from -2^63 to 2^63 - 1")
    }

    /// A float of 32 or 64 bits, or `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "a float", |value| match *value {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        })
    }

    /// A boolean, or `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a bool", |value| match *value {
            Value::Bool(v) => Some(v),
            _ => None,
        })
    }

    /// A string, or `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// An array of strings, or `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn strings(&self, key: &str) -> Result<Option<&StringArray>, GgufError> {
        self.typed(key, "an array of string", |value| match value {
            Value::Array(Array::Strings(v)) => Some(v),
            _ => None,
        })
    }

    /// An array of int32, or `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn i32s(&self, key: &str) -> Result<Option<&[i32]>, GgufError> {
        self.typed(key, "an array of int32", |value| match value {
            Value::Array(Array::I32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of uint32, or `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn u32s(&self, key: &str) -> Result<Option<&[u32]>, GgufError> {
        self.typed(key, "an array of uint32", |value| match value {
            Value::Array(Array::U32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of float32, or `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn f32s(&self, key: &str) -> Result<Option<&[f32]>, GgufError> {
        self.typed(key, "an array of float32", |value| match value {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// Integers of any width that fit, from an array or, as one element, from a scalar; `None` where the key is absent.
    ///
    /// Head counts and FFN widths are a scalar where all layers agree and a list where they do not. Booleans in an array
    /// count as 0 and 1.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] where they are no integers, [`GgufError::OutOfRange`] where one does not fit.
    pub fn u32_list(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        let expected = "an integer or an array of integers";
        let list = self.typed(key, expected, |value| match value {
            Value::Array(array) => array.integers(),
            scalar => scalar.as_integer().map(|v| vec![v]),
        })?;
        let Some(list) = list else { return Ok(None) };
        let convert = |value: i128| {
            u32::try_from(value).map_err(|_| GgufError::OutOfRange {
                file: self.file(),
                key: key.to_owned(),
                value,
                expected: "integers from 0 to 2^32 - 1",
            })
        };
        list.into_iter().map(convert).collect::<Result<_, _>>().map(Some)
    }

    /// As [`Gguf::u32`], for a key that must be there.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], and those of [`Gguf::u32`].
    pub fn require_u32(&self, key: &str) -> Result<u32, GgufError> {
        self.require(key, self.u32(key)?)
    }

    /// As [`Gguf::u64`], for a key that must be there.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], and those of [`Gguf::u64`].
    pub fn require_u64(&self, key: &str) -> Result<u64, GgufError> {
        self.require(key, self.u64(key)?)
    }

    /// As [`Gguf::f32`], for a key that must be there.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], and those of [`Gguf::f32`].
    pub fn require_f32(&self, key: &str) -> Result<f32, GgufError> {
        self.require(key, self.f32(key)?)
    }

    /// As [`Gguf::str`], for a key that must be there.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], and those of [`Gguf::str`].
    pub fn require_str(&self, key: &str) -> Result<&str, GgufError> {
        self.require(key, self.str(key)?)
    }

    /// As [`Gguf::strings`], for a key that must be there.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], and those of [`Gguf::strings`].
    pub fn require_strings(&self, key: &str) -> Result<&StringArray, GgufError> {
        self.require(key, self.strings(key)?)
    }

    /// The tensors in the table's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let found =
            self.by_name.binary_search_by(|&i| self.tensors[i as usize].name.as_str().cmp(name)).ok()?;
        Some(&self.tensors[self.by_name[found] as usize])
    }

    /// The tensor of this name, which must be there.
    ///
    /// # Errors
    /// [`GgufError::MissingTensor`].
    pub fn require_tensor(&self, name: &str) -> Result<&TensorInfo, GgufError> {
        self.tensor(name)
            .ok_or_else(|| GgufError::MissingTensor { file: self.file(), tensor: name.to_owned() })
    }

    /// A tensor's bytes: without a copy where the source holds or maps them, else read into memory.
    ///
    /// # Errors
    /// [`GgufError::Io`], [`GgufError::OutOfMemory`].
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<Bytes, GgufError> {
        self.read_tensor_range(tensor, 0..tensor.bytes)
    }

    /// A range of a tensor's bytes: without a copy where the source holds or maps them, else read into memory.
    ///
    /// # Errors
    /// [`GgufError::RangeOutsideTensor`], [`GgufError::Io`], [`GgufError::OutOfMemory`].
    pub fn read_tensor_range(&self, tensor: &TensorInfo, range: Range<u64>) -> Result<Bytes, GgufError> {
        let offset = self.within(tensor, &range)?;
        let bytes = range.end - range.start;
        let no_memory = || GgufError::OutOfMemory {
            file: self.file(),
            what: format!("the tensor `{}`", tensor.name),
            bytes,
        };
        let len = usize::try_from(bytes).map_err(|_| no_memory())?;
        if let Some(view) = self.source.view(offset, len) {
            return Ok(view);
        }
        let mut owned = room::filled(len, 0).map_err(|_| no_memory())?;
        self.read(offset, &mut owned)?;
        Ok(owned.into())
    }

    /// The bytes of `rows` (runs of `dims[0]` elements), as [`Gguf::read_tensor_range`] gives them.
    ///
    /// # Errors
    /// As [`Gguf::read_tensor_range`].
    pub fn read_tensor_rows(&self, tensor: &TensorInfo, rows: Range<u64>) -> Result<Bytes, GgufError> {
        let row = tensor.row_bytes();
        // Rows beyond the tensor saturate beyond its bytes, which is refused.
        self.read_tensor_range(tensor, rows.start.saturating_mul(row)..rows.end.saturating_mul(row))
    }

    /// Fills `buf` with a tensor's bytes from `start`: for rows of an embedding, gathered without an allocation.
    ///
    /// # Errors
    /// [`GgufError::RangeOutsideTensor`], [`GgufError::Io`].
    pub fn read_tensor_into(&self, tensor: &TensorInfo, start: u64, buf: &mut [u8]) -> Result<(), GgufError> {
        let offset = self.within(tensor, &(start..start.saturating_add(buf.len() as u64)))?;
        self.read(offset, buf)
    }

    /// Where in the file a range of a tensor begins.
    fn within(&self, tensor: &TensorInfo, range: &Range<u64>) -> Result<u64, GgufError> {
        if range.start > range.end || range.end > tensor.bytes {
            return Err(GgufError::RangeOutsideTensor {
                file: self.file(),
                tensor: tensor.name.clone(),
                start: range.start,
                end: range.end,
                bytes: tensor.bytes,
            });
        }
        Ok(tensor.offset.saturating_add(range.start))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), GgufError> {
        self.source.read_at(offset, buf).map_err(|source| GgufError::Io {
            file: self.file(),
            offset,
            len: buf.len() as u64,
            source,
        })
    }
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf")
            .field("file", &self.source.name())
            .field("version", &self.version)
            .field("metadata", &self.metadata.len())
            .field("tensors", &self.tensors.len())
            .finish()
    }
}

/// The indices of `entries`, sorted by their names; the index of a name's second occurrence where there is one.
fn index<T>(entries: &[T], name: impl Fn(&T) -> &String) -> Result<Result<Vec<u32>, usize>, NoMemory> {
    // Entries take more bytes of the header each than an index counts.
    let mut order: Vec<u32> = room::room(entries.len())?;
    order.extend(0..entries.len() as u32);
    // In place: a stable sort would take memory.
    order.sort_unstable_by(|&a, &b| {
        name(&entries[a as usize]).cmp(name(&entries[b as usize])).then(a.cmp(&b))
    });
    let double = order.windows(2).find(|w| name(&entries[w[0] as usize]) == name(&entries[w[1] as usize]));
    Ok(match double {
        Some(w) => Err(w[1] as usize),
        None => Ok(order),
    })
}
