//! The values of GGUF metadata.

use crate::room::{self, NoMemory};

/// A metadata value. GGUF's thirteen types, arrays typed by their elements.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the format's own
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A metadata array: one vector of its element type, so that a vocabulary of 151,936 tokens is a handful of allocations.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the format's own
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Strings(StringArray),
    Arrays(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// The type's name, as the GGUF specification spells it in lower case; arrays name their elements: `array of string`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "uint8",
            Self::I8(_) => "int8",
            Self::U16(_) => "uint16",
            Self::I16(_) => "int16",
            Self::U32(_) => "uint32",
            Self::I32(_) => "int32",
            Self::F32(_) => "float32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(array) => array.type_name(),
            Self::U64(_) => "uint64",
            Self::I64(_) => "int64",
            Self::F64(_) => "float64",
        }
    }

    /// The value of any of the eight integer types.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The string, where it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The array, where it is one.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl Array {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::Strings(v) => v.len(),
            Self::Arrays(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type's name: `array of int32`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "array of uint8",
            Self::I8(_) => "array of int8",
            Self::U16(_) => "array of uint16",
            Self::I16(_) => "array of int16",
            Self::U32(_) => "array of uint32",
            Self::I32(_) => "array of int32",
            Self::F32(_) => "array of float32",
            Self::Bool(_) => "array of bool",
            Self::Strings(_) => "array of string",
            Self::Arrays(_) => "array of array",
            Self::U64(_) => "array of uint64",
            Self::I64(_) => "array of int64",
            Self::F64(_) => "array of float64",
        }
    }

    /// The elements of an array of any of the eight integer types; booleans count as 0 and 1.
    ///
    /// Converters disagree on the width of per-layer lists (head counts, sliding-window patterns), hence one reader for all.
    pub fn integers(&self) -> Option<Vec<i128>> {
        Some(match self {
            Self::U8(v) => v.iter().map(|&v| v.into()).collect(),
            Self::I8(v) => v.iter().map(|&v| v.into()).collect(),
            Self::U16(v) => v.iter().map(|&v| v.into()).collect(),
            Self::I16(v) => v.iter().map(|&v| v.into()).collect(),
            Self::U32(v) => v.iter().map(|&v| v.into()).collect(),
            Self::I32(v) => v.iter().map(|&v| v.into()).collect(),
            Self::U64(v) => v.iter().map(|&v| v.into()).collect(),
            Self::I64(v) => v.iter().map(|&v| v.into()).collect(),
            Self::Bool(v) => v.iter().map(|&v| v.into()).collect(),
            Self::F32(_) | Self::F64(_) | Self::Strings(_) | Self::Arrays(_) => return None,
        })
    }
}

/// An array of strings: one blob and the end of each string in it.
///
/// Strings are bytes: GGUF says UTF-8, but vocabularies hold tokens that are parts of a character.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StringArray {
    blob: Vec<u8>,
    ends: Vec<u32>,
}

impl StringArray {
    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of string `i`.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        self.blob.get(start..end)
    }

    /// The strings in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let string = &self.blob[start..end as usize];
            start = end as usize;
            string
        })
    }

    /// The bytes of all strings together.
    pub fn total_bytes(&self) -> usize {
        self.blob.len()
    }

    /// None yet, with room for the ends of `strings`.
    pub(super) fn with_room(strings: usize) -> Result<Self, NoMemory> {
        Ok(Self { blob: Vec::new(), ends: room::room(strings)? })
    }

    pub(super) fn push(&mut self, string: &[u8]) -> Result<(), NoMemory> {
        const { assert!(super::MAX_HEADER <= u32::MAX as u64) }; // so that the ends of a header's strings fit
        room::extend(&mut self.blob, string)?;
        room::push(&mut self.ends, self.blob.len() as u32)
    }

    pub(super) fn shrink(&mut self) {
        self.blob.shrink_to_fit();
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut array = Self::default();
        for string in strings {
            array.blob.extend_from_slice(string.as_ref());
            array.ends.push(array.blob.len() as u32);
        }
        array
    }
}

impl std::fmt::Debug for StringArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StringArray").field("len", &self.len()).field("bytes", &self.blob.len()).finish()
    }
}

macro_rules! from {
    ($($rust:ty => $variant:ident($value:ident) $made:expr;)*) => {$(
        impl From<$rust> for Value {
            fn from($value: $rust) -> Self {
                Self::$variant($made)
            }
        }
    )*};
}

from! {
    u8 => U8(v) v;
    i8 => I8(v) v;
    u16 => U16(v) v;
    i16 => I16(v) v;
    u32 => U32(v) v;
    i32 => I32(v) v;
    f32 => F32(v) v;
    bool => Bool(v) v;
    &str => String(v) v.to_owned();
    String => String(v) v;
    Array => Array(v) v;
    u64 => U64(v) v;
    i64 => I64(v) v;
    f64 => F64(v) v;
}
