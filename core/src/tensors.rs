//! The safetensors file of the heads, or of a whole checkpoint, validated.
//!
//! Format: `README.md` of the safetensors project. Eight bytes give the length of a JSON header that names each tensor's
//! dtype, shape and bytes; the tensors' bytes follow, little-endian, in C order, without gaps.
//!
//! The dtypes are the `safetensors` crate's. Its reader is not used: it wants the whole file in memory, keeps the last of
//! two tensors of one name without a word, reads offsets as `usize` (which wraps no file but refuses large ones on wasm32)
//! and names neither tensor nor bytes in most of its errors. Files that it refuses are refused here too: see the tests.

use crate::room::{self, NoMemory};
use crate::source::{Contents, Source};
use half::{bf16, f16};
pub use safetensors::Dtype;
use serde::Deserialize;
use serde::de::{IntoDeserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use zen_edge_kernels::memory::Bytes;

/// The most bytes of a header: the reference's own limit.
pub const MAX_HEADER: u64 = 100_000_000;

/// Why a safetensors file or one of its tensors is refused. One variant for one cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the messages say
pub enum TensorFileError {
    /// The source failed: the system's own words.
    #[error("{file}: cannot read {len} bytes at {offset}: {source}")]
    Io { file: String, offset: u64, len: u64, source: std::io::Error },

    /// The file does not begin as a safetensors file does.
    #[error("{file} is not a safetensors file: {looks_like}")]
    NotSafetensors { file: String, looks_like: String },

    /// A header larger than [`MAX_HEADER`].
    #[error(
        "{file} claims a header of {len} bytes, the limit is {limit}: the file is damaged or no safetensors file"
    )]
    HeaderTooLarge { file: String, len: u64, limit: u64 },

    /// The file ends inside its header.
    #[error("{file} ends inside its header: {len} bytes are claimed, {left} are left; fetch it again")]
    HeaderTruncated { file: String, len: u64, left: u64 },

    /// A header that is not the JSON which the format asks for.
    #[error("{file}: the header is not valid: {source}")]
    Header { file: String, source: serde_json::Error },

    /// A tensor's name that occurs twice.
    #[error("{file}: the tensor `{tensor}` occurs twice: the file is damaged")]
    DuplicateTensor { file: String, tensor: String },

    /// A dtype that safetensors does not have.
    #[error("{file}: the tensor `{tensor}` has the dtype {dtype:?}, which is not known")]
    UnknownDtype { file: String, tensor: String, dtype: String },

    /// A tensor whose number of elements or of bits does not fit 64 bits.
    #[error(
        "{file}: the size of the tensor `{tensor}` ({shape:?}) overflows: the file is damaged or hostile"
    )]
    SizeOverflow { file: String, tensor: String, shape: Vec<u64> },

    /// A tensor whose range ends before it begins.
    #[error("{file}: the tensor `{tensor}` ends at {end}, before its start at {start}: the file is damaged")]
    InvertedRange { file: String, tensor: String, start: u64, end: u64 },

    /// A tensor whose range is not as long as its shape and dtype say.
    #[error(
        "{file}: the tensor `{tensor}` ({dtype} {shape:?}) takes {expected} bits, but its range has {bytes} bytes: the \
         file is damaged"
    )]
    SizeMismatch { file: String, tensor: String, dtype: Dtype, shape: Vec<u64>, expected: u64, bytes: u64 },

    /// A tensor that does not lie within the file.
    #[error(
        "{file}: the tensor `{tensor}` needs the bytes up to {end}, but the file has {len}; it was not fetched \
         completely or is damaged: fetch it again"
    )]
    TensorOutsideFile { file: String, tensor: String, end: u64, len: u64 },

    /// Two tensors that share bytes.
    #[error("{file}: the tensors `{first}` and `{second}` overlap: the file is damaged")]
    Overlap { file: String, first: String, second: String },

    /// Bytes that belong to no tensor, before a tensor or, where `tensor` is empty, at the end of the file.
    #[error("{file}: {bytes} bytes at {offset} belong to no tensor: the file is damaged")]
    Hole { file: String, offset: u64, bytes: u64 },

    /// A tensor that is needed and absent.
    #[error("{file}: the tensor `{tensor}` is missing; the file has {has}")]
    MissingTensor { file: String, tensor: String, has: String },

    /// A tensor of a dtype that is not turned into f32.
    #[error("{file}: the tensor `{tensor}` is {dtype}; F32, F16 and BF16 can be used")]
    NotFloat { file: String, tensor: String, dtype: Dtype },

    /// Memory for a part of the file was refused, or is more than this machine can address.
    #[error("{file}: no memory for {what}, {bytes} bytes: free memory or use smaller heads")]
    OutOfMemory { file: String, what: String, bytes: u64 },
}

/// A tensor's entry in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// The name: `task_head.weight`.
    pub name: String,
    /// The type of an element.
    pub dtype: Dtype,
    /// The dimensions in C order: the last one's elements are adjacent. Empty for a scalar.
    pub shape: Vec<u64>,
    /// Where the bytes lie, counted from the start of the file.
    pub range: Range<u64>,
}

impl TensorEntry {
    /// The number of elements.
    pub fn elements(&self) -> u64 {
        // Was found not to overflow at open.
        self.shape.iter().product()
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// A safetensors file's header, over the source that holds its bytes.
pub struct TensorFile {
    source: Arc<dyn Source>,
    metadata: BTreeMap<String, String>,
    /// In the order of their bytes.
    tensors: Vec<TensorEntry>,
    /// Indices of `tensors`, by name.
    by_name: Vec<u32>,
}

impl TensorFile {
    /// Reads and validates the header of a safetensors file. Tensors' bytes are not read.
    ///
    /// # Errors
    /// Whatever is wrong with the file: see the variants of [`TensorFileError`].
    pub fn open(source: Arc<dyn Source>) -> Result<Self, TensorFileError> {
        let file = source.name().to_owned();
        let len = source.len();
        let io = |offset, len, error| TensorFileError::Io { file: file.clone(), offset, len, source: error };

        let contents = Contents::of(&*source).map_err(|e| io(0, len.min(Contents::ENOUGH), e))?;
        if contents != Contents::Safetensors {
            return Err(TensorFileError::NotSafetensors { file, looks_like: contents.to_string() });
        }
        let mut head = [0; 8];
        source.read_at(0, &mut head).map_err(|e| io(0, 8, e))?;
        let header_len = u64::from_le_bytes(head);
        let left = len - 8;
        if header_len > MAX_HEADER {
            return Err(TensorFileError::HeaderTooLarge { file, len: header_len, limit: MAX_HEADER });
        }
        if header_len > left {
            return Err(TensorFileError::HeaderTruncated { file, len: header_len, left });
        }
        let header = match source.view(8, header_len as usize) {
            Some(view) => view,
            None => {
                let mut bytes = room::filled(header_len as usize, 0)
                    .map_err(|refused| no_memory(&file, "the header", refused))?;
                source.read_at(8, &mut bytes).map_err(|e| io(8, header_len, e))?;
                bytes.into()
            }
        };
        let header: Header = serde_json::from_slice(&header)
            .map_err(|source| TensorFileError::Header { file: file.clone(), source })?;

        let data_start = 8 + header_len;
        let refused = |refused| no_memory(&file, "the tensors' entries", refused);
        let mut tensors: Vec<TensorEntry> = room::room(header.tensors.len()).map_err(refused)?;
        for (name, raw) in header.tensors {
            tensors.push(check(&file, name, raw, data_start, len)?);
        }
        let mut by_name: Vec<u32> = room::room(tensors.len()).map_err(refused)?;
        // In place: a stable sort would take memory. Equal entries are refused below.
        tensors.sort_unstable_by(|a, b| {
            (a.range.start, a.range.end, &a.name).cmp(&(b.range.start, b.range.end, &b.name))
        });
        let mut end = data_start;
        for (i, tensor) in tensors.iter().enumerate() {
            if tensor.range.start < end {
                return Err(TensorFileError::Overlap {
                    file,
                    first: tensors[i - 1].name.clone(),
                    second: tensor.name.clone(),
                });
            }
            if tensor.range.start > end {
                return Err(TensorFileError::Hole { file, offset: end, bytes: tensor.range.start - end });
            }
            end = tensor.range.end;
        }
        if end < len {
            return Err(TensorFileError::Hole { file, offset: end, bytes: len - end });
        }

        by_name.extend(0..tensors.len() as u32);
        by_name.sort_unstable_by(|&a, &b| tensors[a as usize].name.cmp(&tensors[b as usize].name));
        if let Some(w) =
            by_name.windows(2).find(|w| tensors[w[0] as usize].name == tensors[w[1] as usize].name)
        {
            let tensor = tensors[w[0] as usize].name.clone();
            return Err(TensorFileError::DuplicateTensor { file, tensor });
        }
        Ok(Self { source, metadata: header.metadata, tensors, by_name })
    }

    /// The source that holds the file's bytes.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// The header's `__metadata__`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The tensors in the order of their bytes.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// The tensors' names in the order of their bytes.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// The entry of the tensor of this name.
    pub fn info(&self, name: &str) -> Option<&TensorEntry> {
        let found =
            self.by_name.binary_search_by(|&i| self.tensors[i as usize].name.as_str().cmp(name)).ok()?;
        Some(&self.tensors[self.by_name[found] as usize])
    }

    /// The entry of the tensor of this name, which must be there.
    ///
    /// # Errors
    /// [`TensorFileError::MissingTensor`].
    pub fn require(&self, name: &str) -> Result<&TensorEntry, TensorFileError> {
        self.info(name).ok_or_else(|| {
            const SHOWN: usize = 8;
            let mut has = self.names().take(SHOWN).collect::<Vec<_>>().join(", ");
            if self.tensors.len() > SHOWN {
                has += &format!(" and {} more", self.tensors.len() - SHOWN);
            }
            if has.is_empty() {
                has.push_str("none");
            }
            TensorFileError::MissingTensor {
                file: self.source.name().to_owned(),
                tensor: name.to_owned(),
                has,
            }
        })
    }

    /// A tensor's bytes: without a copy where the source holds or maps them, else read into memory.
    ///
    /// # Errors
    /// [`TensorFileError::MissingTensor`], [`TensorFileError::Io`], [`TensorFileError::OutOfMemory`].
    pub fn bytes(&self, name: &str) -> Result<Bytes, TensorFileError> {
        let tensor = self.require(name)?;
        let refused = |refused| self.no_memory(tensor, refused);
        let len = usize::try_from(tensor.bytes()).map_err(|_| refused(NoMemory(tensor.bytes())))?;
        if let Some(view) = self.source.view(tensor.range.start, len) {
            return Ok(view);
        }
        let mut owned = room::filled(len, 0).map_err(refused)?;
        self.source.read_at(tensor.range.start, &mut owned).map_err(|source| TensorFileError::Io {
            file: self.source.name().to_owned(),
            offset: tensor.range.start,
            len: tensor.bytes(),
            source,
        })?;
        Ok(owned.into())
    }

    /// A tensor's elements as f32, in C order; F16 and BF16 are widened, which is exact.
    ///
    /// # Errors
    /// [`TensorFileError::NotFloat`] where it is of another dtype, and those of [`TensorFile::bytes`].
    pub fn f32(&self, name: &str) -> Result<Vec<f32>, TensorFileError> {
        let tensor = self.require(name)?;
        if !matches!(tensor.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            return Err(TensorFileError::NotFloat {
                file: self.source.name().to_owned(),
                tensor: name.to_owned(),
                dtype: tensor.dtype,
            });
        }
        let bytes = self.bytes(name)?;
        let refused = |refused| self.no_memory(tensor, refused);
        let needed = NoMemory(tensor.elements().saturating_mul(4));
        let elements = usize::try_from(tensor.elements()).map_err(|_| refused(needed))?;
        let mut values = room::room(elements).map_err(refused)?;
        match tensor.dtype {
            Dtype::F32 => values.extend(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
            Dtype::F16 => values.extend(bytes.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32())),
            _ => values.extend(bytes.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32())),
        }
        Ok(values)
    }

    fn no_memory(&self, tensor: &TensorEntry, refused: NoMemory) -> TensorFileError {
        no_memory(self.source.name(), format!("the tensor `{}`", tensor.name), refused)
    }
}

impl fmt::Debug for TensorFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorFile")
            .field("file", &self.source.name())
            .field("tensors", &self.tensors)
            .finish()
    }
}

fn no_memory(file: &str, what: impl Into<String>, NoMemory(bytes): NoMemory) -> TensorFileError {
    TensorFileError::OutOfMemory { file: file.to_owned(), what: what.into(), bytes }
}

/// Holds one entry against its own claims and against the file.
fn check(
    file: &str,
    name: String,
    raw: RawTensor,
    data_start: u64,
    len: u64,
) -> Result<TensorEntry, TensorFileError> {
    let RawTensor { dtype, shape, data_offsets: (start, end) } = raw;
    let known: Result<_, serde::de::value::Error> = Dtype::deserialize(dtype.as_str().into_deserializer());
    let Ok(dtype) = known else {
        return Err(TensorFileError::UnknownDtype { file: file.to_owned(), tensor: name, dtype });
    };
    let bits = shape
        .iter()
        .try_fold(1, |n: u64, &dim| n.checked_mul(dim))
        .and_then(|elements| elements.checked_mul(dtype.bitsize() as u64));
    let Some(bits) = bits else {
        return Err(TensorFileError::SizeOverflow { file: file.to_owned(), tensor: name, shape });
    };
    let Some(bytes) = end.checked_sub(start) else {
        return Err(TensorFileError::InvertedRange { file: file.to_owned(), tensor: name, start, end });
    };
    if bytes.checked_mul(8) != Some(bits) {
        return Err(TensorFileError::SizeMismatch {
            file: file.to_owned(),
            tensor: name,
            dtype,
            shape,
            expected: bits,
            bytes,
        });
    }
    match data_start.checked_add(end) {
        Some(absolute) if absolute <= len => {
            Ok(TensorEntry { name, dtype, shape, range: data_start + start..absolute })
        }
        _ => Err(TensorFileError::TensorOutsideFile {
            file: file.to_owned(),
            tensor: name,
            end: data_start.saturating_add(end),
            len,
        }),
    }
}

/// The header in the order of the file, with both of two tensors of one name.
struct Header {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, RawTensor)>,
}

/// A tensor as the header tells of it. Not the crate's `TensorInfo`: offsets here are 64 bits on every platform, and an
/// unknown dtype becomes an error that names the tensor.
#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { metadata: BTreeMap::new(), tensors: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value::<Option<_>>()?.unwrap_or_default();
                    } else {
                        let entry = (name, map.next_value()?);
                        room::push(&mut header.tensors, entry).map_err(|NoMemory(bytes)| {
                            serde::de::Error::custom(format!("no memory for {bytes} bytes"))
                        })?;
                    }
                }
                Ok(header)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Memory;
    use std::io;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(data);
        file
    }

    fn open(file: &[u8]) -> Result<TensorFile, TensorFileError> {
        TensorFile::open(Arc::new(Memory::new("test.safetensors", file.to_vec())))
    }

    /// Why the file is refused.
    fn refused(file: &[u8]) -> TensorFileError {
        let error = open(file).expect_err("the file must be refused");
        assert!(error.to_string().contains("test.safetensors"), "{error}");
        error
    }

    const TWO: &str = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}"#;

    fn two() -> Vec<u8> {
        let mut data = Vec::new();
        data.extend([1.5_f32, -2.0].iter().flat_map(|v| v.to_le_bytes()));
        data.extend([0.5, -1.0].iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()));
        file(TWO, &data)
    }

    #[test]
    fn tensors_are_read_in_the_order_of_their_bytes() {
        let tensors = open(&two()).unwrap();
        assert_eq!(tensors.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(tensors.metadata()["format"], "pt");
        let a = tensors.info("a").unwrap();
        assert_eq!((a.dtype, &a.shape[..], a.bytes(), a.elements()), (Dtype::F32, &[1, 2][..], 8, 2));
        assert_eq!(tensors.f32("a").unwrap(), [1.5, -2.0]);
        assert_eq!(tensors.f32("b").unwrap(), [0.5, -1.0]);
        assert_eq!(&*tensors.bytes("b").unwrap(), &two()[two().len() - 4..]);
        assert!(tensors.info("c").is_none());
    }

    #[test]
    fn bf16_scalars_and_empty_tensors_are_read() {
        let header = r#"{"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},"s":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}"#;
        let tensors = open(&file(header, &bf16::from_f32(3.0).to_le_bytes())).unwrap();
        assert_eq!(tensors.f32("s").unwrap(), [3.0]);
        assert_eq!(tensors.f32("e").unwrap(), [0.0; 0]);
        // No tensor at all is a file, as it is for the reference; so is a header padded with spaces.
        assert_eq!(open(&file("{}      ", &[])).unwrap().names().len(), 0);
    }

    #[test]
    fn a_missing_tensor_is_named_with_what_there_is() {
        let error = open(&two()).unwrap().f32("task_head.weight").unwrap_err();
        assert!(matches!(error, TensorFileError::MissingTensor { .. }));
        let text = error.to_string();
        assert!(text.contains("task_head.weight") && text.contains("a, b"), "{text}");
    }

    #[test]
    fn integers_are_no_weights() {
        let tensors =
            open(&file(r#"{"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}"#, &[0; 8])).unwrap();
        assert!(matches!(tensors.f32("i"), Err(TensorFileError::NotFloat { dtype: Dtype::I64, .. })));
        assert_eq!(tensors.bytes("i").unwrap().len(), 8);
    }

    #[test]
    fn what_is_no_safetensors_is_named() {
        assert!(matches!(refused(b""), TensorFileError::NotSafetensors { .. }));
        let error = refused(b"PK\x03\x04 a PyTorch checkpoint").to_string();
        assert!(error.contains("zip archive"), "{error}");
        assert!(refused(b"{\"error\":\"not found\"}").to_string().contains("JSON"));
        assert!(refused(b"GGUF\x03\0\0\0\0\0\0\0").to_string().contains("GGUF"));
    }

    /// A3: a header's length is held against the file before anything is allocated.
    #[test]
    fn a3_a_header_longer_than_the_file_is_refused() {
        let mut long = two();
        let beyond = long.len() as u64 - 7;
        long[..8].copy_from_slice(&beyond.to_le_bytes());
        assert!(matches!(refused(&long), TensorFileError::HeaderTruncated { .. }));
        for len in [MAX_HEADER + 1, 1 << 40, u64::MAX] {
            long[..8].copy_from_slice(&len.to_le_bytes());
            assert!(matches!(refused(&long), TensorFileError::HeaderTooLarge { .. }), "{len}");
        }
    }

    #[test]
    fn a_header_that_is_not_as_it_should_be_is_refused() {
        for header in [
            "{",
            "{}x",
            "{ }{}",
            r#"{"a":1}"#,
            r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}"#,
            r#"{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,0]}}"#,
            r#"{"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,0]}}"#,
            r#"{"a":{"dtype":"F32","shape":[]}}"#,
            r#"{"__metadata__":{"a":1}}"#,
            "{\"\u{0}",
        ] {
            assert!(matches!(refused(&file(header, &[])), TensorFileError::Header { .. }), "{header}");
        }
        let mut broken = two();
        broken[12] = 0xff;
        assert!(matches!(refused(&broken), TensorFileError::Header { .. }));
        let deep = format!(r#"{{"a":{}"#, "[".repeat(100_000));
        assert!(matches!(refused(&file(&deep, &[])), TensorFileError::Header { .. }));
    }

    #[test]
    fn two_tensors_of_one_name_are_refused() {
        // The reference keeps the second without a word.
        let header = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
        assert!(matches!(refused(&file(header, &[0; 2])), TensorFileError::DuplicateTensor { .. }));
    }

    fn one(dtype: &str, shape: &str, start: u64, end: u64, data: usize) -> Vec<u8> {
        let header =
            format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}}}"#);
        file(&header, &vec![0; data])
    }

    #[test]
    fn dtypes_are_known_ones() {
        let error = refused(&one("F12", "[1]", 0, 2, 2));
        assert!(matches!(&error, TensorFileError::UnknownDtype { dtype, .. } if dtype == "F12"), "{error}");
    }

    /// A1, A2: sizes that overflow or contradict their range.
    #[test]
    fn a1_sizes_are_held_against_ranges() {
        let max = u64::MAX;
        assert!(matches!(
            refused(&one("F32", "[4294967296,4294967296]", 0, 4, 4)),
            TensorFileError::SizeOverflow { .. }
        ));
        assert!(matches!(
            refused(&one("F32", &format!("[{max}]"), 0, 4, 4)),
            TensorFileError::SizeOverflow { .. }
        ));
        let error = refused(&one("F32", "[2]", 0, 4, 4));
        assert!(matches!(error, TensorFileError::SizeMismatch { expected: 64, bytes: 4, .. }), "{error}");
        // Half a byte.
        assert!(matches!(refused(&one("F4", "[3]", 0, 2, 2)), TensorFileError::SizeMismatch { .. }));
        assert!(matches!(refused(&one("F32", "[1]", 0, max, 4)), TensorFileError::SizeMismatch { .. }));
        assert!(matches!(refused(&one("F32", "[1]", 8, 4, 8)), TensorFileError::InvertedRange { .. }));
        assert!(matches!(
            refused(&one("F32", "[1]", max - 4, max, 4)),
            TensorFileError::TensorOutsideFile { .. }
        ));
    }

    #[test]
    fn bytes_belong_to_one_tensor_each() {
        let with = |a: &str, b: &str, data| {
            let header = format!(
                r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{b}}}}}"#
            );
            file(&header, &vec![0; data])
        };
        open(&with("[4,8]", "[0,4]", 8)).unwrap();
        let error = refused(&with("[0,4]", "[2,6]", 6));
        assert!(
            matches!(&error, TensorFileError::Overlap { first, second, .. } if first == "a" && second == "b")
        );
        assert!(matches!(refused(&with("[0,4]", "[0,4]", 4)), TensorFileError::Overlap { .. }));
        assert!(matches!(refused(&with("[0,4]", "[5,9]", 9)), TensorFileError::Hole { bytes: 1, .. }));
        assert!(matches!(refused(&with("[1,5]", "[5,9]", 9)), TensorFileError::Hole { bytes: 1, .. }));
        assert!(matches!(refused(&with("[0,4]", "[4,8]", 11)), TensorFileError::Hole { bytes: 3, .. }));
    }

    /// A6: cut at every byte, a file is refused, and the tensor is named.
    #[test]
    fn a6_truncated_at_every_byte() {
        let whole = two();
        for len in 0..whole.len() {
            let error = refused(&whole[..len]);
            if len >= 8 + TWO.len() {
                assert!(matches!(error, TensorFileError::TensorOutsideFile { .. }), "cut to {len}: {error}");
            }
        }
        assert!(refused(&whole[..whole.len() - 1]).to_string().contains("`b`"));
    }

    /// A source without views; beyond `head` it cannot be read.
    struct Claims {
        head: Vec<u8>,
        len: u64,
    }

    impl Source for Claims {
        fn name(&self) -> &str {
            "test.safetensors"
        }

        fn len(&self) -> u64 {
            self.len
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            let start = usize::try_from(offset).map_err(|_| io::ErrorKind::TimedOut)?;
            let bytes = self.head.get(start..).ok_or(io::ErrorKind::TimedOut)?;
            buf.fill(0);
            let n = bytes.len().min(buf.len());
            buf[..n].copy_from_slice(&bytes[..n]);
            Ok(())
        }
    }

    #[test]
    fn a_source_without_views_reads_the_same() {
        let head = two();
        let len = head.len() as u64;
        let tensors = TensorFile::open(Arc::new(Claims { head, len })).unwrap();
        assert_eq!(tensors.f32("a").unwrap(), [1.5, -2.0]);
        assert_eq!(tensors.f32("b").unwrap(), [0.5, -1.0]);
    }

    #[test]
    fn a_source_that_fails_is_reported_with_its_words() {
        let head = r#"{"a":{"dtype":"U8","shape":[1024],"data_offsets":[0,1024]},"b":{"dtype":"U8","shape":[4],"data_offsets":[1024,1028]}}"#;
        let len = 8 + head.len() as u64 + 1028;
        let tensors = TensorFile::open(Arc::new(Claims { head: file(head, &[]), len })).unwrap();
        let error = tensors.bytes("b").unwrap_err();
        assert!(
            matches!(&error, TensorFileError::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut)
        );
    }

    #[test]
    fn memory_that_is_refused_is_an_error() {
        // 2^60 bytes: a size whose bits still fit 64 bits, and no machine's memory.
        let size = 1_u64 << 60;
        let head = one("U8", &format!("[{size}]"), 0, size, 0);
        let len = head.len() as u64 + size;
        let tensors = TensorFile::open(Arc::new(Claims { head, len })).unwrap();
        assert!(matches!(tensors.bytes("w"), Err(TensorFileError::OutOfMemory { .. })));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]

        /// Bytes changed at random never panic; what opens here opens in the reference, with the same tensors.
        #[test]
        fn a5_changed_bytes_never_panic(changes in proptest::collection::vec((0_usize..1_000, proptest::num::u8::ANY), 1..4)) {
            let mut file = two();
            let len = file.len();
            for (at, byte) in changes {
                file[at % len] = byte;
            }
            if let Ok(tensors) = open(&file) {
                let reference = safetensors::SafeTensors::deserialize(&file).expect("the reference refuses this file");
                for tensor in tensors.tensors() {
                    let theirs = reference.tensor(&tensor.name).unwrap();
                    assert_eq!((theirs.data(), theirs.dtype()), (&*tensors.bytes(&tensor.name).unwrap(), tensor.dtype));
                }
            }
        }
    }
}
