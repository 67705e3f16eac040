//! The header's bytes, read in order; every length is held against what is left of the file before it is used.

use super::{Array, GgufError, StringArray, Value};
use crate::room::{self, NoMemory};
use crate::source::Source;
use zen_edge_kernels::memory::Bytes;

/// The most bytes that metadata and tensor table may take. The largest vocabularies in the field (262,144 tokens with
/// their scores and merges) need about 20 MB.
pub const MAX_HEADER: u64 = 256 << 20;
/// The most bytes of a string value. Some files embed a whole `tokenizer.json`, up to 35 MB.
pub const MAX_STRING: u64 = 64 << 20;
/// The most bytes of a key or of a tensor's name: 2^16 - 1, as the specification has it for keys.
pub const MAX_NAME: u64 = u16::MAX as u64;
/// How deep arrays may lie in arrays. No known file nests them at all.
pub const MAX_DEPTH: usize = 4;

/// How much a source without views is asked for at a time.
const CHUNK: u64 = 256 << 10;

pub(super) struct Reader<'a> {
    source: &'a dyn Source,
    len: u64,
    pos: u64,
    window: Bytes,
    window_start: u64,
    /// What is being read, for messages: `the value of the key x`.
    pub what: String,
}

impl<'a> Reader<'a> {
    pub fn new(source: &'a dyn Source) -> Self {
        // A source that holds or maps its bytes is one window: no copies. Else windows are read as they are needed.
        let len = source.len();
        let window = usize::try_from(len.min(MAX_HEADER)).ok().and_then(|len| source.view(0, len));
        let window = window.unwrap_or_else(|| Vec::new().into());
        Self { source, len, pos: 0, window, window_start: 0, what: "the header".to_owned() }
    }

    pub fn file(&self) -> String {
        self.source.name().to_owned()
    }

    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// Bytes of the file that have not been read.
    pub fn left(&self) -> u64 {
        self.len - self.pos
    }

    /// The next `n` bytes.
    fn take(&mut self, n: u64) -> Result<&[u8], GgufError> {
        if n > self.left() {
            return Err(GgufError::Truncated {
                file: self.file(),
                what: self.what.clone(),
                offset: self.pos,
                need: n,
                left: self.left(),
            });
        }
        if self.pos + n > MAX_HEADER {
            return Err(self.header_too_large());
        }
        let window_end = self.window_start + self.window.len() as u64;
        if self.pos + n > window_end {
            let len = n.max(CHUNK).min(self.left());
            // Both fit: n is at most MAX_HEADER, CHUNK is less.
            let mut bytes = room::filled(len as usize, 0).map_err(|refused| self.no_memory(refused))?;
            self.source.read_at(self.pos, &mut bytes).map_err(|source| GgufError::Io {
                file: self.file(),
                offset: self.pos,
                len,
                source,
            })?;
            self.window = bytes.into();
            self.window_start = self.pos;
        }
        let start = (self.pos - self.window_start) as usize;
        self.pos += n;
        Ok(&self.window[start..start + n as usize])
    }

    pub fn no_memory(&self, NoMemory(bytes): NoMemory) -> GgufError {
        GgufError::OutOfMemory { file: self.file(), what: self.what.clone(), bytes }
    }

    fn header_too_large(&self) -> GgufError {
        GgufError::HeaderTooLarge { file: self.file(), what: self.what.clone(), limit: MAX_HEADER }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("take gives as many bytes as were asked for"))
    }

    pub fn u32(&mut self) -> Result<u32, GgufError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, GgufError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of entries that take at least `min` bytes each.
    pub fn count(&mut self, what: &'static str, count: u64, min: u64) -> Result<usize, GgufError> {
        let left = self.left();
        match usize::try_from(count) {
            Ok(n) if count <= left / min => Ok(n),
            _ => Err(GgufError::CountTooLarge { file: self.file(), what, count, left }),
        }
    }

    fn bytes(&mut self, limit: u64) -> Result<&[u8], GgufError> {
        let len = self.u64()?;
        if len > limit {
            return Err(GgufError::StringTooLong { file: self.file(), what: self.what.clone(), len, limit });
        }
        self.take(len)
    }

    fn string(&mut self, limit: u64) -> Result<String, GgufError> {
        let bytes = room::copied(self.bytes(limit)?).map_err(|refused| self.no_memory(refused))?;
        match String::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(_) => Err(GgufError::InvalidUtf8 { file: self.file(), what: self.what.clone() }),
        }
    }

    /// A key or a tensor's name.
    pub fn name(&mut self) -> Result<String, GgufError> {
        let name = self.string(MAX_NAME)?;
        if name.is_empty() {
            return Err(GgufError::EmptyName { file: self.file(), what: self.what.clone() });
        }
        Ok(name)
    }

    fn bool(&mut self) -> Result<bool, GgufError> {
        let [byte] = self.array()?;
        self.as_bool(byte)
    }

    fn as_bool(&self, byte: u8) -> Result<bool, GgufError> {
        match byte {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(GgufError::InvalidBool { file: self.file(), what: self.what.clone(), byte }),
        }
    }

    /// A value of the type that the file names before it.
    pub fn value(&mut self) -> Result<Value, GgufError> {
        Ok(match self.u32()? {
            0 => Value::U8(self.array().map(u8::from_le_bytes)?),
            1 => Value::I8(self.array().map(i8::from_le_bytes)?),
            2 => Value::U16(self.array().map(u16::from_le_bytes)?),
            3 => Value::I16(self.array().map(i16::from_le_bytes)?),
            4 => Value::U32(self.u32()?),
            5 => Value::I32(self.array().map(i32::from_le_bytes)?),
            6 => Value::F32(self.array().map(f32::from_le_bytes)?),
            7 => Value::Bool(self.bool()?),
            8 => Value::String(self.string(MAX_STRING)?),
            9 => Value::Array(self.elements(1)?),
            10 => Value::U64(self.u64()?),
            11 => Value::I64(self.array().map(i64::from_le_bytes)?),
            12 => Value::F64(self.array().map(f64::from_le_bytes)?),
            value_type => return Err(self.unknown_type(value_type)),
        })
    }

    fn unknown_type(&self, value_type: u32) -> GgufError {
        GgufError::UnknownValueType { file: self.file(), what: self.what.clone(), value_type }
    }

    /// An array: its element type, its length, its elements.
    fn elements(&mut self, depth: usize) -> Result<Array, GgufError> {
        if depth > MAX_DEPTH {
            return Err(GgufError::NestedTooDeep {
                file: self.file(),
                what: self.what.clone(),
                limit: MAX_DEPTH,
            });
        }
        let element_type = self.u32()?;
        let count = self.u64()?;
        Ok(match element_type {
            0 => Array::U8(self.scalars(count, u8::from_le_bytes)?),
            1 => Array::I8(self.scalars(count, i8::from_le_bytes)?),
            2 => Array::U16(self.scalars(count, u16::from_le_bytes)?),
            3 => Array::I16(self.scalars(count, i16::from_le_bytes)?),
            4 => Array::U32(self.scalars(count, u32::from_le_bytes)?),
            5 => Array::I32(self.scalars(count, i32::from_le_bytes)?),
            6 => Array::F32(self.scalars(count, f32::from_le_bytes)?),
            7 => {
                let bytes = self.scalars(count, u8::from_le_bytes)?;
                let mut flags = room::room(bytes.len()).map_err(|refused| self.no_memory(refused))?;
                for byte in bytes {
                    flags.push(self.as_bool(byte)?);
                }
                Array::Bool(flags)
            }
            8 => Array::Strings(self.strings(count)?),
            9 => {
                // An array takes at least 12 bytes. The vector grows as elements are read: its elements are larger
                // than the 12 bytes that the file pays for them.
                let count = self.array_count(count, 12)?;
                let mut arrays = Vec::new();
                for _ in 0..count {
                    let array = self.elements(depth + 1)?;
                    room::push(&mut arrays, array).map_err(|refused| self.no_memory(refused))?;
                }
                Array::Arrays(arrays)
            }
            10 => Array::U64(self.scalars(count, u64::from_le_bytes)?),
            11 => Array::I64(self.scalars(count, i64::from_le_bytes)?),
            12 => Array::F64(self.scalars(count, f64::from_le_bytes)?),
            value_type => return Err(self.unknown_type(value_type)),
        })
    }

    /// The length of an array whose elements take at least `min` bytes each.
    fn array_count(&self, count: u64, min: u64) -> Result<usize, GgufError> {
        let left = self.left();
        if count > left / min {
            return Err(GgufError::ArrayTooLong { file: self.file(), what: self.what.clone(), count, left });
        }
        // No overflow: count * min is at most what is left.
        if self.pos + count * min > MAX_HEADER {
            return Err(self.header_too_large());
        }
        Ok(count as usize)
    }

    fn scalars<T, const N: usize>(
        &mut self,
        count: u64,
        parse: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        let count = self.array_count(count, N as u64)?;
        let mut elements = room::room(count).map_err(|refused| self.no_memory(refused))?;
        while elements.len() < count {
            let n = (count - elements.len()).min(CHUNK as usize / N);
            let bytes = self.take((n * N) as u64)?;
            elements.extend(bytes.as_chunks().0.iter().map(|&bytes| parse(bytes)));
        }
        Ok(elements)
    }

    fn strings(&mut self, count: u64) -> Result<StringArray, GgufError> {
        let count = self.array_count(count, 8)?;
        let mut strings = StringArray::with_room(count).map_err(|refused| self.no_memory(refused))?;
        while strings.len() < count {
            // Those that lie within the window, without the checks that every single read pays: a vocabulary and its
            // merges are 300,000 strings.
            let start = (self.pos - self.window_start) as usize;
            let mut rest = self.window.get(start..).unwrap_or_default();
            let begun = rest.len();
            while strings.len() < count
                && let Some((len, after)) = rest.split_first_chunk()
                && let Some((string, after)) = usize::try_from(u64::from_le_bytes(*len))
                    .ok()
                    .filter(|&len| len as u64 <= MAX_STRING)
                    .and_then(|len| after.split_at_checked(len))
            {
                strings.push(string).map_err(|refused| self.no_memory(refused))?;
                rest = after;
            }
            self.pos += (begun - rest.len()) as u64;
            // The one that crosses the window's end, or is refused.
            if strings.len() < count {
                strings.push(self.bytes(MAX_STRING)?).map_err(|refused| self.no_memory(refused))?;
            }
        }
        strings.shrink();
        Ok(strings)
    }
}
