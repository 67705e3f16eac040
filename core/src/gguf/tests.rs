use super::testing::{Builder, put_string, put_value};
use super::*;
use crate::source::Memory;
use std::io;

fn open(file: &[u8]) -> Result<Gguf, GgufError> {
    Gguf::open(Arc::new(Memory::new("test.gguf", file.to_vec())))
}

/// Opens the file through a source with views and through one without: both must say the same.
fn refused(file: &[u8]) -> GgufError {
    let error = open(file).expect_err("the file must be refused");
    let read = Gguf::open(Arc::new(Reads(file.to_vec()))).expect_err("the file must be refused");
    assert_eq!(error.to_string(), read.to_string());
    assert!(error.to_string().contains("test.gguf"), "{error}");
    error
}

/// A source that cannot give views.
struct Reads(Vec<u8>);

impl Source for Reads {
    fn name(&self) -> &str {
        "test.gguf"
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        let bytes = self.0.get(start..start + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

fn sample() -> Builder {
    Builder::new("qwen3")
        .with("u8", 200_u8)
        .with("i8", -3_i8)
        .with("u16", 60_000_u16)
        .with("i16", -300_i16)
        .with("u32", 4_000_000_000_u32)
        .with("i32", -70_000_i32)
        .with("f32", 0.5_f32)
        .with("bool", true)
        .with("u64", u64::MAX)
        .with("i64", i64::MIN)
        .with("f64", 0.1_f64)
        .strings("strings", ["a", "", "été"])
        .i32s("i32s", &[1, -1])
        .f32s("f32s", &[0.25])
        .with("u32s", Array::U32(vec![7, 8]))
        .with("bools", Array::Bool(vec![true, false]))
        .with("nested", Array::Arrays(vec![Array::U8(vec![1]), Array::Strings(["x"].into_iter().collect())]))
        .with(
            "others",
            Array::Arrays(vec![
                Array::I8(vec![-1]),
                Array::U16(vec![1]),
                Array::I16(vec![-1]),
                Array::U64(vec![1]),
                Array::I64(vec![-1]),
                Array::F64(vec![1.5]),
            ]),
        )
        .f32_tensor("norm", &[3], &[1.0, 2.0, 3.0])
        .tensor("q8", &[32, 2], 8, &[7; 68])
}

#[test]
fn every_type_is_read_as_it_was_written() {
    for version in [2, 3] {
        let file = sample().version(version).build();
        for gguf in [open(&file).unwrap(), Gguf::open(Arc::new(Reads(file.clone()))).unwrap()] {
            assert_eq!(gguf.version(), version);
            assert_eq!(gguf.architecture().unwrap(), "qwen3");
            assert_eq!(gguf.get("u8"), Some(&Value::U8(200)));
            assert_eq!(gguf.get("i8"), Some(&Value::I8(-3)));
            assert_eq!(gguf.get("u16"), Some(&Value::U16(60_000)));
            assert_eq!(gguf.get("i16"), Some(&Value::I16(-300)));
            assert_eq!(gguf.get("i32"), Some(&Value::I32(-70_000)));
            assert_eq!(gguf.u32("u32").unwrap(), Some(4_000_000_000));
            assert_eq!(gguf.u64("u64").unwrap(), Some(u64::MAX));
            assert_eq!(gguf.i64("i64").unwrap(), Some(i64::MIN));
            assert_eq!(gguf.f32("f32").unwrap(), Some(0.5));
            assert_eq!(gguf.f32("f64").unwrap(), Some(0.1));
            assert_eq!(gguf.bool("bool").unwrap(), Some(true));
            assert_eq!(gguf.i32s("i32s").unwrap(), Some(&[1, -1][..]));
            assert_eq!(gguf.f32s("f32s").unwrap(), Some(&[0.25][..]));
            assert_eq!(gguf.u32s("u32s").unwrap(), Some(&[7, 8][..]));
            assert_eq!(gguf.u32_list("bools").unwrap(), Some(vec![1, 0]));
            assert_eq!(gguf.u32_list("u8").unwrap(), Some(vec![200]));
            let strings = gguf.require_strings("strings").unwrap();
            assert_eq!(strings.iter().collect::<Vec<_>>(), [b"a", &b""[..], "été".as_bytes()]);
            assert_eq!(strings.get(2), Some("été".as_bytes()));
            assert_eq!(strings.get(3), None);
            let nested = gguf.get("nested").and_then(Value::as_array).unwrap();
            assert_eq!(
                nested,
                &Array::Arrays(vec![Array::U8(vec![1]), Array::Strings(["x"].into_iter().collect())])
            );
            // What was read is what was written, in its order.
            let mut written = Vec::new();
            for (key, value) in gguf.metadata() {
                put_string(&mut written, key.as_bytes());
                put_value(&mut written, value);
            }
            assert_eq!(written, file[24..24 + written.len()]);

            assert_eq!(gguf.tensors().len(), 2);
            let q8 = gguf.require_tensor("q8").unwrap();
            assert_eq!((q8.elements(), q8.rows(), q8.row_bytes(), q8.bytes), (64, 2, 34, 68));
            assert_eq!(q8.block_type().unwrap(), BlockType::Q8_0);
            assert_eq!(&*gguf.tensor_bytes(q8).unwrap(), [7; 68]);
            let norm = gguf.tensor("norm").unwrap();
            assert_eq!(norm.offset, gguf.data_start());
            assert_eq!(norm.offset % 32, 0);
            assert_eq!(&*gguf.read_tensor_range(norm, 4..8).unwrap(), 2.0_f32.to_le_bytes());
            assert_eq!(&*gguf.read_tensor_rows(q8, 1..2).unwrap(), [7; 34]);
            let mut buf = [0; 4];
            gguf.read_tensor_into(norm, 8, &mut buf).unwrap();
            assert_eq!(buf, 3.0_f32.to_le_bytes());
        }
    }
}
