//! A writer of small GGUF files, right and wrong ones, for tests.

use super::{Array, Value};

/// Builds a GGUF file in memory. What is right by default can be made wrong piece by piece.
///
/// ```
/// # use std::sync::Arc;
/// use zen_edge_core::gguf::{Gguf, testing::Builder};
/// use zen_edge_core::source::Memory;
///
/// let file = Builder::new("qwen3").with("qwen3.block_count", 2_u32).f32_tensor("output_norm.weight", &[4], &[1.0; 4]);
/// let gguf = Gguf::open(Arc::new(Memory::new("test.gguf", file.build()))).unwrap();
/// assert_eq!(gguf.require_u32("qwen3.block_count").unwrap(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    version: u32,
    keys: Vec<u8>,
    key_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
    data: Vec<u8>,
    alignment: usize,
    truncate: Option<usize>,
}

impl Builder {
    /// A version 3 file that names its architecture.
    pub fn new(architecture: &str) -> Self {
        Self::empty().with("general.architecture", architecture)
    }

    /// A version 3 file with no keys and no tensors.
    pub fn empty() -> Self {
        Self {
            version: 3,
            keys: Vec::new(),
            key_count: 0,
            tensors: Vec::new(),
            tensor_count: 0,
            data: Vec::new(),
            alignment: 32,
            truncate: None,
        }
    }

    /// Sets the version.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Adds `general.alignment` and lays the tensors out by it. To be called before tensors are added.
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = (alignment as usize).max(1);
        self.with("general.alignment", alignment)
    }

    /// Adds a key.
    pub fn with(self, key: &str, value: impl Into<Value>) -> Self {
        let mut bytes = Vec::new();
        put_value(&mut bytes, &value.into());
        self.raw_key(key.as_bytes(), &bytes)
    }

    /// Adds a key with an array of strings.
    pub fn strings<S: AsRef<[u8]>>(self, key: &str, strings: impl IntoIterator<Item = S>) -> Self {
        self.with(key, Array::Strings(strings.into_iter().collect()))
    }

    /// Adds a key with an array of int32.
    pub fn i32s(self, key: &str, values: &[i32]) -> Self {
        self.with(key, Array::I32(values.to_vec()))
    }

    /// Adds a key with an array of float32.
    pub fn f32s(self, key: &str, values: &[f32]) -> Self {
        self.with(key, Array::F32(values.to_vec()))
    }

    /// Adds a metadata entry of any bytes: `value` is the type and what follows it.
    pub fn raw_key(mut self, key: &[u8], value: &[u8]) -> Self {
        put_string(&mut self.keys, key);
        self.keys.extend_from_slice(value);
        self.key_count += 1;
        self
    }

    /// Adds a tensor with its bytes, at the next aligned offset.
    pub fn tensor(mut self, name: &str, dims: &[u64], type_id: u32, bytes: &[u8]) -> Self {
        let offset = self.data.len().next_multiple_of(self.alignment);
        self.data.resize(offset, 0);
        self.data.extend_from_slice(bytes);
        self.tensor_entry(name.as_bytes(), dims, type_id, offset as u64)
    }

    /// Adds an F32 tensor.
    pub fn f32_tensor(self, name: &str, dims: &[u64], values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensor(name, dims, 0, &bytes)
    }

    /// Adds an entry to the tensor table and no bytes; `offset` counts from the start of the tensors' bytes.
    pub fn tensor_entry(mut self, name: &[u8], dims: &[u64], type_id: u32, offset: u64) -> Self {
        put_string(&mut self.tensors, name);
        self.tensors.extend((dims.len() as u32).to_le_bytes());
        self.tensors.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        self.tensors.extend(type_id.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self.tensor_count += 1;
        self
    }

    /// Adds bytes after those of the tensors.
    pub fn data(mut self, bytes: &[u8]) -> Self {
        self.data.extend_from_slice(bytes);
        self
    }

    /// Claims another number of tensors than there are.
    pub fn claim_tensors(mut self, count: u64) -> Self {
        self.tensor_count = count;
        self
    }

    /// Claims another number of keys than there are.
    pub fn claim_keys(mut self, count: u64) -> Self {
        self.key_count = count;
        self
    }

    /// Cuts the file to `len` bytes.
    pub fn truncate(mut self, len: usize) -> Self {
        self.truncate = Some(len);
        self
    }

    /// The file.
    pub fn build(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend(self.tensor_count.to_le_bytes());
        file.extend(self.key_count.to_le_bytes());
        file.extend_from_slice(&self.keys);
        file.extend_from_slice(&self.tensors);
        if !self.tensors.is_empty() || !self.data.is_empty() {
            file.resize(file.len().next_multiple_of(self.alignment), 0);
        }
        file.extend_from_slice(&self.data);
        file.truncate(self.truncate.unwrap_or(usize::MAX));
        file
    }
}

/// Appends a string as GGUF writes it: length, bytes.
pub fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend_from_slice(string);
}

/// Appends a value as GGUF writes it: type, value.
pub fn put_value(out: &mut Vec<u8>, value: &Value) {
    let type_id: u32 = match value {
        Value::U8(_) => 0,
        Value::I8(_) => 1,
        Value::U16(_) => 2,
        Value::I16(_) => 3,
        Value::U32(_) => 4,
        Value::I32(_) => 5,
        Value::F32(_) => 6,
        Value::Bool(_) => 7,
        Value::String(_) => 8,
        Value::Array(_) => 9,
        Value::U64(_) => 10,
        Value::I64(_) => 11,
        Value::F64(_) => 12,
    };
    out.extend(type_id.to_le_bytes());
    match value {
        Value::U8(v) => out.extend(v.to_le_bytes()),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push((*v).into()),
        Value::String(v) => put_string(out, v.as_bytes()),
        Value::Array(v) => put_array(out, v),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    let type_id: u32 = match array {
        Array::U8(_) => 0,
        Array::I8(_) => 1,
        Array::U16(_) => 2,
        Array::I16(_) => 3,
        Array::U32(_) => 4,
        Array::I32(_) => 5,
        Array::F32(_) => 6,
        Array::Bool(_) => 7,
        Array::Strings(_) => 8,
        Array::Arrays(_) => 9,
        Array::U64(_) => 10,
        Array::I64(_) => 11,
        Array::F64(_) => 12,
    };
    out.extend(type_id.to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend_from_slice(v),
        Array::I8(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::U16(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I16(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::U32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::F32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|&v| u8::from(v))),
        Array::Strings(v) => v.iter().for_each(|string| put_string(out, string)),
        Array::Arrays(v) => v.iter().for_each(|array| put_array(out, array)),
        Array::U64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::F64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
    }
}
