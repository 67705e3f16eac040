//! Writes a GGUF file (version 3) as it goes: the header at once, then one tensor after the other.
//!
//! Types and shapes fix every offset beforehand, so no tensor needs to be held. Format: `docs/gguf.md` of the ggml project.

use std::io::{self, Write};
use zen_edge_core::gguf::{Array, Value};
use zen_edge_kernels::format::BlockType;

/// A tensor's entry in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its dimensions in ggml's order: the input dimension first.
    pub dims: Vec<u64>,
    /// The type that it is written in.
    pub ty: BlockType,
}

impl Entry {
    /// Its bytes, or `None` where a row is not whole blocks or the size overflows.
    pub fn bytes(&self) -> Option<u64> {
        let (row, rows) = self.dims.split_first()?;
        let rows = rows.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim))?;
        let row = self.ty.row_bytes(usize::try_from(*row).ok()?)?;
        rows.checked_mul(row as u64)
    }
}

/// A GGUF file that is being written.
#[derive(Debug)]
pub struct GgufWriter<W> {
    out: W,
    alignment: u64,
    /// The bytes of each tensor, in the order in which they are written.
    sizes: Vec<u64>,
    /// The tensor that is being written, and how much of it has been.
    current: usize,
    written: u64,
}

/// `io::Error` for what the caller got wrong.
fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.into())
}

impl<W: Write> GgufWriter<W> {
    /// Writes header, metadata and tensor table. `alignment` is a power of two; where it is not 32, the metadata must name it
    /// (`general.alignment`).
    ///
    /// # Errors
    /// What the file says; [`io::ErrorKind::InvalidInput`] for a tensor that is not whole blocks.
    pub fn new(
        mut out: W,
        metadata: &[(String, Value)],
        tensors: &[Entry],
        alignment: u64,
    ) -> io::Result<Self> {
        let mut header = b"GGUF".to_vec();
        header.extend(3u32.to_le_bytes());
        header.extend((tensors.len() as u64).to_le_bytes());
        header.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata {
            put_string(&mut header, key.as_bytes());
            put_value(&mut header, value);
        }
        let (mut offset, mut sizes) = (0u64, Vec::with_capacity(tensors.len()));
        for tensor in tensors {
            let bytes = tensor.bytes().ok_or_else(|| {
                wrong(format!("{} ({:?}) is not whole blocks of {}", tensor.name, tensor.dims, tensor.ty))
            })?;
            put_string(&mut header, tensor.name.as_bytes());
            header.extend((tensor.dims.len() as u32).to_le_bytes());
            header.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            header.extend(tensor.ty.ggml_id().to_le_bytes());
            header.extend(offset.to_le_bytes());
            offset = offset
                .checked_add(bytes)
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .ok_or_else(|| wrong("the tensors overflow a file"))?;
            sizes.push(bytes);
        }
        header.resize(header.len().next_multiple_of(alignment as usize), 0);
        out.write_all(&header)?;
        Ok(Self { out, alignment, sizes, current: 0, written: 0 })
    }

    /// Appends bytes of the current tensor; when it is whole, those that follow are the next one's.
    ///
    /// # Errors
    /// What the file says; [`io::ErrorKind::InvalidInput`] for more bytes than the tensor has.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let size = *self.sizes.get(self.current).ok_or_else(|| wrong("all tensors are written"))?;
        let written = self.written + bytes.len() as u64;
        if written > size {
            return Err(wrong(format!("tensor {} has {size} bytes, not {written}", self.current)));
        }
        self.out.write_all(bytes)?;
        self.written = written;
        if written == size {
            let padding = size.next_multiple_of(self.alignment) - size;
            self.out.write_all(&vec![0; padding as usize])?;
            (self.current, self.written) = (self.current + 1, 0);
        }
        Ok(())
    }

    /// Flushes, and gives back what was written to.
    ///
    /// # Errors
    /// What the file says; [`io::ErrorKind::InvalidInput`] where a tensor is not whole.
    pub fn finish(mut self) -> io::Result<W> {
        if self.current != self.sizes.len() {
            return Err(wrong(format!("tensor {} is not whole", self.current)));
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend_from_slice(string);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    macro_rules! scalar {
        ($id:literal, $value:expr) => {{
            out.extend($id.to_le_bytes());
            out.extend($value.to_le_bytes());
        }};
    }
    match value {
        Value::U8(v) => scalar!(0u32, v),
        Value::I8(v) => scalar!(1u32, v),
        Value::U16(v) => scalar!(2u32, v),
        Value::I16(v) => scalar!(3u32, v),
        Value::U32(v) => scalar!(4u32, v),
        Value::I32(v) => scalar!(5u32, v),
        Value::F32(v) => scalar!(6u32, v),
        Value::Bool(v) => scalar!(7u32, u8::from(*v)),
        Value::String(v) => {
            out.extend(8u32.to_le_bytes());
            put_string(out, v.as_bytes());
        }
        Value::Array(v) => {
            out.extend(9u32.to_le_bytes());
            put_array(out, v);
        }
        Value::U64(v) => scalar!(10u32, v),
        Value::I64(v) => scalar!(11u32, v),
        Value::F64(v) => scalar!(12u32, v),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    fn put<const N: usize>(out: &mut Vec<u8>, id: u32, elements: impl ExactSizeIterator<Item = [u8; N]>) {
        out.extend(id.to_le_bytes());
        out.extend((elements.len() as u64).to_le_bytes());
        elements.for_each(|element| out.extend(element));
    }
    match array {
        Array::U8(v) => put(out, 0, v.iter().map(|v| v.to_le_bytes())),
        Array::I8(v) => put(out, 1, v.iter().map(|v| v.to_le_bytes())),
        Array::U16(v) => put(out, 2, v.iter().map(|v| v.to_le_bytes())),
        Array::I16(v) => put(out, 3, v.iter().map(|v| v.to_le_bytes())),
        Array::U32(v) => put(out, 4, v.iter().map(|v| v.to_le_bytes())),
        Array::I32(v) => put(out, 5, v.iter().map(|v| v.to_le_bytes())),
        Array::F32(v) => put(out, 6, v.iter().map(|v| v.to_le_bytes())),
        Array::Bool(v) => put(out, 7, v.iter().map(|v| [u8::from(*v)])),
        Array::Strings(v) => {
            out.extend(8u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            v.iter().for_each(|string| put_string(out, string));
        }
        Array::Arrays(v) => {
            out.extend(9u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            v.iter().for_each(|array| put_array(out, array));
        }
        Array::U64(v) => put(out, 10, v.iter().map(|v| v.to_le_bytes())),
        Array::I64(v) => put(out, 11, v.iter().map(|v| v.to_le_bytes())),
        Array::F64(v) => put(out, 12, v.iter().map(|v| v.to_le_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use zen_edge_core::gguf::Gguf;
    use zen_edge_core::source::Memory;

    #[test]
    fn the_reader_reads_every_kind_of_value_back() {
        let arrays = vec![
            Array::U8(vec![1]),
            Array::I8(vec![-1]),
            Array::U16(vec![2, 3]),
            Array::I16(vec![-2]),
            Array::U32(vec![4]),
            Array::I32(vec![-4, 5]),
            Array::F32(vec![0.5]),
            Array::Bool(vec![true, false]),
            Array::Strings(["", "ö", "x y"].into_iter().collect()),
            Array::Arrays(vec![Array::U8(vec![]), Array::Strings(["a"].into_iter().collect())]),
            Array::U64(vec![u64::MAX]),
            Array::I64(vec![i64::MIN]),
            Array::F64(vec![1e300]),
        ];
        let mut metadata: Vec<(String, Value)> = vec![
            ("general.alignment".into(), 64u32.into()),
            ("a".into(), 1u8.into()),
            ("b".into(), (-1i8).into()),
            ("c".into(), 1u16.into()),
            ("d".into(), (-1i16).into()),
            ("e".into(), (-7i32).into()),
            ("f".into(), 0.25f32.into()),
            ("g".into(), true.into()),
            ("h".into(), "text".into()),
            ("i".into(), (1u64 << 40).into()),
            ("j".into(), (-1i64).into()),
            ("k".into(), 2.5f64.into()),
        ];
        metadata.extend(arrays.into_iter().enumerate().map(|(i, array)| (format!("x{i}"), array.into())));
        let tensors = [
            Entry { name: "one".into(), dims: vec![3], ty: BlockType::F32 },
            Entry { name: "two".into(), dims: vec![32, 2], ty: BlockType::Q8_0 },
        ];
        let mut writer = GgufWriter::new(Vec::new(), &metadata, &tensors, 64).unwrap();
        writer.write(&[1; 12]).unwrap();
        writer.write(&[2; 34]).unwrap();
        writer.write(&[3; 34]).unwrap();
        let gguf = Gguf::open(Arc::new(Memory::new("x.gguf", writer.finish().unwrap()))).unwrap();
        assert_eq!(gguf.alignment(), 64);
        for (key, value) in &metadata {
            assert_eq!(gguf.get(key), Some(value), "{key}");
        }
        assert_eq!(&*gguf.tensor_bytes(gguf.require_tensor("one").unwrap()).unwrap(), [1; 12]);
        assert_eq!(gguf.tensor_bytes(gguf.require_tensor("two").unwrap()).unwrap()[33..35], [2, 3]);
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let entry = |dim| Entry { name: "t".into(), dims: vec![dim, 1], ty: BlockType::Q8_0 };
        assert!(GgufWriter::new(Vec::new(), &[], &[entry(33)], 32).is_err());
        let mut writer = GgufWriter::new(Vec::new(), &[], &[entry(32)], 32).unwrap();
        assert!(writer.write(&[0; 35]).is_err());
        writer.write(&[0; 33]).unwrap();
        assert!(writer.finish().is_err());
    }
}
