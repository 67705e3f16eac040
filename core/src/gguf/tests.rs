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

#[test]
fn typed_getters_tell_absent_from_wrong() {
    let gguf = open(&sample().build()).unwrap();
    assert_eq!(gguf.u32("absent").unwrap(), None);
    assert_eq!(gguf.str("absent").unwrap(), None);
    assert_eq!(gguf.u64("u8").unwrap(), Some(200));
    assert_eq!(gguf.require_str("general.architecture").unwrap(), "qwen3");

    let error = gguf.require_f32("absent").unwrap_err();
    assert!(matches!(&error, GgufError::MissingKey { key, .. } if key == "absent"));
    let error = gguf.u32("f32").unwrap_err();
    assert!(matches!(&error, GgufError::WrongType { key, found: "float32", .. } if key == "f32"), "{error}");
    let error = gguf.strings("i32s").unwrap_err();
    assert!(matches!(error, GgufError::WrongType { found: "array of int32", .. }), "{error}");
    for error in
        [gguf.u32("u64").unwrap_err(), gguf.u64("i8").unwrap_err(), gguf.u32_list("i32s").unwrap_err()]
    {
        assert!(matches!(error, GgufError::OutOfRange { .. }), "{error}");
    }
    let error = gguf.require_tensor("output.weight").unwrap_err();
    assert!(matches!(&error, GgufError::MissingTensor { tensor, .. } if tensor == "output.weight"));
}

/// A8: the architecture is read from the file, and what is missing is named.
#[test]
fn a8_a_missing_key_is_named() {
    let gguf = open(&Builder::empty().with("llama.block_count", 2_u32).build()).unwrap();
    let error = gguf.architecture().unwrap_err().to_string();
    assert!(error.contains("general.architecture") && error.contains("test.gguf"), "{error}");
    let gguf = open(&Builder::new("qwen3").with("llama.block_count", 2_u32).build()).unwrap();
    let key = format!("{}.block_count", gguf.architecture().unwrap());
    assert!(gguf.require_u32(&key).unwrap_err().to_string().contains("qwen3.block_count"));
}

/// A9: a tensor that is absent is an error with a name, and bytes that two tensors share are refused.
#[test]
fn a9_absent_and_aliased_tensors_are_errors() {
    let file = Builder::new("qwen3").f32_tensor("a", &[16], &[0.0; 16]);
    let gguf = open(&file.build()).unwrap();
    assert!(matches!(gguf.require_tensor("blk.0.attn_q.weight"), Err(GgufError::MissingTensor { .. })));

    let shared = file.clone().tensor_entry(b"b", &[8], 0, 32).build();
    let error = refused(&shared);
    assert!(
        matches!(&error, GgufError::Overlap { first, second, .. } if first == "a" && second == "b"),
        "{error}"
    );
    assert!(matches!(refused(&file.tensor_entry(b"b", &[16], 0, 0).build()), GgufError::Overlap { .. }));
}

#[test]
fn what_is_no_gguf_is_named() {
    let page = b"<!DOCTYPE html><html><body>Sign in</body></html>";
    let error = refused(page);
    assert!(
        matches!(&error, GgufError::NotGguf { looks_like, .. } if looks_like.contains("HTML")),
        "{error}"
    );
    assert!(matches!(refused(b""), GgufError::NotGguf { .. }));
    assert!(matches!(refused(b"GGU"), GgufError::NotGguf { .. }));
}

#[test]
fn other_versions_and_byte_orders_are_named() {
    assert!(matches!(refused(&sample().version(1).build()), GgufError::Version { version: 1, .. }));
    assert!(matches!(refused(&sample().version(4).build()), GgufError::Version { version: 4, .. }));
    assert!(matches!(refused(&sample().version(0).build()), GgufError::Version { version: 0, .. }));
    let error = refused(&sample().version(3_u32.swap_bytes()).build());
    assert!(matches!(error, GgufError::BigEndian { .. }), "{error}");
}

/// A6: cut at every byte, a file is refused, and never by a panic.
#[test]
fn a6_truncated_at_every_byte() {
    let file = sample().build();
    open(&file).unwrap();
    for len in 0..file.len() {
        let error = refused(&file[..len]);
        let told = matches!(
            error,
            GgufError::NotGguf { .. }
                | GgufError::Truncated { .. }
                | GgufError::CountTooLarge { .. }
                | GgufError::ArrayTooLong { .. }
                | GgufError::TensorOutsideFile { .. }
        );
        assert!(told, "cut to {len}: {error}");
    }
    let error = refused(&file[..file.len() - 1]);
    assert!(
        matches!(&error, GgufError::TensorOutsideFile { tensor, bytes: 68, .. } if tensor == "q8"),
        "{error}"
    );
    assert!(error.to_string().contains("fetch it again"), "{error}");
}

#[test]
fn a6_a_header_that_ends_names_what_it_was_reading() {
    let file = Builder::empty().raw_key(b"general.name", &[8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, b'z']).build();
    let error = refused(&file);
    assert!(
        matches!(&error, GgufError::Truncated { what, need: 9, left: 1, .. } if what.contains("general.name")),
        "{error}"
    );
}

/// A1, A2: sizes that overflow, counts of dimensions that are none.
#[test]
fn a1_a2_sizes_that_overflow_are_refused() {
    let with =
        |dims: &[u64], type_id| Builder::empty().tensor_entry(b"w", dims, type_id, 0).data(&[0; 64]).build();
    let big = 1 << 33;
    assert!(matches!(refused(&with(&[big, big], 0)), GgufError::SizeOverflow { .. }));
    assert!(matches!(refused(&with(&[1 << 62], 0)), GgufError::SizeOverflow { .. }));
    assert!(matches!(refused(&with(&[big, big, big, big], 99)), GgufError::SizeOverflow { .. }));
    // The sizes fit 64 bits, their sum with the offset does not.
    let far = Builder::empty().tensor_entry(b"w", &[1], 0, u64::MAX - 31).data(&[0; 64]).build();
    assert!(matches!(refused(&far), GgufError::TensorOutsideFile { .. }));
    assert!(matches!(refused(&with(&[u64::MAX / 8], 0)), GgufError::TensorOutsideFile { .. }));
    assert!(matches!(refused(&with(&[1; 5], 0)), GgufError::Dimensions { dims: 5, .. }));
    assert!(matches!(refused(&with(&[], 0)), GgufError::Dimensions { dims: 0, .. }));
    assert!(matches!(refused(&with(&[4, 0], 0)), GgufError::ZeroDimension { .. }));
    // n_dims is refused before its dimensions are read.
    let mut file = Builder::empty().claim_tensors(1).build();
    put_string(&mut file, b"w");
    file.extend(u32::MAX.to_le_bytes());
    file.extend([0; 64]);
    assert!(matches!(refused(&file), GgufError::Dimensions { dims: u32::MAX, .. }));
}

/// A3: lengths of gigabytes in files of bytes.
#[test]
fn a3_claims_beyond_the_file_are_refused() {
    assert!(matches!(refused(&sample().claim_keys(u64::MAX).build()), GgufError::CountTooLarge { .. }));
    assert!(matches!(refused(&sample().claim_tensors(1 << 60).build()), GgufError::CountTooLarge { .. }));
    let string = |len: u64| {
        let value: Vec<u8> = 8_u32.to_le_bytes().into_iter().chain(len.to_le_bytes()).collect();
        Builder::empty().raw_key(b"k", &value).data(&[0; 64]).build()
    };
    assert!(matches!(refused(&string(1 << 30)), GgufError::StringTooLong { .. }));
    assert!(matches!(refused(&string(u64::MAX)), GgufError::StringTooLong { .. }));
    assert!(matches!(refused(&string(1 << 20)), GgufError::Truncated { .. }));
    for element_type in 0..=12_u32 {
        for count in [1 << 30, u64::MAX, u64::MAX / 8] {
            let value: Vec<u8> =
                [9, element_type].iter().flat_map(|v| v.to_le_bytes()).chain(count.to_le_bytes()).collect();
            let error = refused(&Builder::empty().raw_key(b"k", &value).data(&[0; 64]).build());
            assert!(matches!(error, GgufError::ArrayTooLong { .. }), "{error}");
        }
    }
}

#[test]
fn a3_alignment_is_bounded() {
    for alignment in [0, 1, 4, 12, 33, 1 << 30] {
        let error = refused(&Builder::new("qwen3").with("general.alignment", alignment as u32).build());
        assert!(matches!(error, GgufError::Alignment { .. }), "{error}");
    }
    let text = Builder::new("qwen3").with("general.alignment", "32").build();
    assert!(matches!(refused(&text), GgufError::WrongType { .. }));
    for alignment in [8, 64, 4096, 1 << 16] {
        let file = Builder::new("qwen3").alignment(alignment).f32_tensor("a", &[1], &[1.0]).f32_tensor(
            "b",
            &[1],
            &[2.0],
        );
        let gguf = open(&file.build()).unwrap();
        assert_eq!(gguf.alignment(), u64::from(alignment));
        let b = gguf.tensor("b").unwrap();
        assert_eq!(b.offset % u64::from(alignment), 0);
        assert_eq!(&*gguf.tensor_bytes(b).unwrap(), 2.0_f32.to_le_bytes());
    }
}

#[test]
fn an_unaligned_tensor_is_refused() {
    let file = Builder::empty().tensor_entry(b"w", &[1], 0, 4).data(&[0; 64]).build();
    let error = refused(&file);
    assert!(matches!(error, GgufError::UnalignedTensor { offset: 4, alignment: 32, .. }), "{error}");
}

#[test]
fn rows_of_partial_blocks_are_refused() {
    let file = Builder::empty().tensor_entry(b"w", &[100], 12, 0).data(&[0; 256]).build();
    let error = refused(&file);
    assert!(
        matches!(error, GgufError::PartialBlock { type_name: "Q4_K", row: 100, block: 256, .. }),
        "{error}"
    );
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| {
        let array = (1..depth).fold(Array::U8(vec![1]), |array, _| Array::Arrays(vec![array]));
        Builder::empty().with("k", array).build()
    };
    open(&nested(MAX_DEPTH)).unwrap();
    assert!(matches!(refused(&nested(MAX_DEPTH + 1)), GgufError::NestedTooDeep { limit: MAX_DEPTH, .. }));
    assert!(matches!(refused(&nested(10_000)), GgufError::NestedTooDeep { .. }));
}

#[test]
fn values_that_gguf_does_not_have_are_refused() {
    let scalar = Builder::empty().raw_key(b"k", &[13, 0, 0, 0, 0]).build();
    assert!(matches!(refused(&scalar), GgufError::UnknownValueType { value_type: 13, .. }));
    let array = Builder::empty().raw_key(b"k", &[9, 0, 0, 0, 77, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]).build();
    assert!(matches!(refused(&array), GgufError::UnknownValueType { value_type: 77, .. }));
    let bool = Builder::empty().raw_key(b"k", &[7, 0, 0, 0, 2]).build();
    assert!(matches!(refused(&bool), GgufError::InvalidBool { byte: 2, .. }));
    let bools =
        Builder::empty().raw_key(b"k", &[9, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 255]).build();
    assert!(matches!(refused(&bools), GgufError::InvalidBool { byte: 255, .. }));
}

#[test]
fn names_are_utf8_and_not_empty() {
    let one = &[0, 0, 0, 0, 1];
    let error = refused(&Builder::empty().raw_key(&[b'k', 0xff], one).build());
    assert!(matches!(error, GgufError::InvalidUtf8 { .. }), "{error}");
    let value =
        Builder::empty().raw_key(b"general.name", &[8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff]).build();
    assert!(refused(&value).to_string().contains("general.name"));
    let tensor = Builder::empty().tensor_entry(&[0xc0], &[1], 0, 0).data(&[0; 32]).build();
    assert!(matches!(refused(&tensor), GgufError::InvalidUtf8 { .. }));
    assert!(matches!(
        refused(&Builder::empty().raw_key(b"", &[0, 0, 0, 0, 1, 1]).build()),
        GgufError::EmptyName { .. }
    ));
    // Tokens are bytes.
    let gguf = open(&Builder::empty().strings("tokens", [&[0xff_u8, 0xfe][..], b"a"]).build()).unwrap();
    assert_eq!(gguf.require_strings("tokens").unwrap().get(0), Some(&[0xff, 0xfe][..]));
    let long = Builder::empty().raw_key(&[b'k'; 70_000], one).build();
    assert!(matches!(refused(&long), GgufError::StringTooLong { limit: MAX_NAME, .. }));
}

#[test]
fn duplicates_are_refused() {
    let key = Builder::new("a").with("z", 1_u32).with("general.architecture", "b").build();
    let error = refused(&key);
    assert!(
        matches!(&error, GgufError::DuplicateKey { key, .. } if key == "general.architecture"),
        "{error}"
    );
    let tensor = Builder::empty().f32_tensor("w", &[1], &[0.0]).f32_tensor("w", &[1], &[0.0]).build();
    assert!(matches!(refused(&tensor), GgufError::DuplicateTensor { .. }));
}

#[test]
fn types_beyond_the_kernels_open_and_are_reported_when_used() {
    // IQ2_XXS: known size. 99: unknown, so it ends where the next begins.
    let file = Builder::new("qwen3").tensor("iq2", &[256], 16, &[0; 66]).tensor("new", &[64], 99, &[1; 40]);
    let gguf = open(&file.clone().f32_tensor("norm", &[2], &[0.0; 2]).build()).unwrap();
    assert_eq!(gguf.tensor("iq2").unwrap().bytes, 66);
    let error = gguf.tensor("iq2").unwrap().block_type().unwrap_err();
    assert!(matches!(error, GgufError::UnsupportedType { type_id: 16, .. }));
    let text = error.to_string();
    assert!(text.contains("iq2") && text.contains("IQ2_XXS") && text.contains("Q4_K"), "{text}");
    let new = gguf.tensor("new").unwrap();
    assert_eq!(new.bytes, 64);
    assert!(new.block_type().unwrap_err().to_string().contains("unknown (ggml type 99)"));

    // Held against the file, too.
    let cut = file.clone().truncate(file.build().len() - 64).build();
    assert!(matches!(refused(&cut), GgufError::TensorOutsideFile { .. }));
    let beyond = Builder::empty().tensor_entry(b"new", &[64], 99, 32).data(&[0; 32]).build();
    assert!(matches!(refused(&beyond), GgufError::TensorOutsideFile { .. }));
    assert_eq!(type_name(39), Some("MXFP4"));
    assert_eq!(type_name(4), Some("Q4_2"));
}

#[test]
fn ranges_stay_inside_their_tensor() {
    let gguf = open(&sample().build()).unwrap();
    let norm = gguf.tensor("norm").unwrap();
    #[allow(clippy::reversed_empty_ranges)]
    for range in [0..13, 12..13, 8..4, u64::MAX - 1..u64::MAX] {
        assert!(matches!(gguf.read_tensor_range(norm, range), Err(GgufError::RangeOutsideTensor { .. })));
    }
    assert!(gguf.read_tensor_range(norm, 12..12).unwrap().is_empty());
    assert!(matches!(gguf.read_tensor_rows(norm, 1..2), Err(GgufError::RangeOutsideTensor { .. })));
    assert!(matches!(gguf.read_tensor_rows(norm, 0..u64::MAX), Err(GgufError::RangeOutsideTensor { .. })));
    assert!(matches!(gguf.read_tensor_into(norm, 9, &mut [0; 4]), Err(GgufError::RangeOutsideTensor { .. })));
}

/// A header, then nothing but claims: `len` bytes of which those after `head` cannot be read.
struct Claims {
    head: Vec<u8>,
    len: u64,
}

impl Source for Claims {
    fn name(&self) -> &str {
        "test.gguf"
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        let head = self.head.get(offset as usize..).ok_or(io::ErrorKind::TimedOut)?;
        let n = head.len().min(buf.len());
        buf[..n].copy_from_slice(&head[..n]);
        Ok(())
    }
}

#[test]
fn a_source_that_fails_is_reported_with_its_words() {
    let head = Builder::new("qwen3").tensor_entry(b"w", &[1 << 20], 0, 1 << 20).build();
    let gguf = Gguf::open(Arc::new(Claims { head, len: 1 << 30 })).unwrap();
    let error = gguf.tensor_bytes(gguf.tensor("w").unwrap()).unwrap_err();
    assert!(
        matches!(&error, GgufError::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut),
        "{error}"
    );
}

#[test]
fn memory_that_is_refused_is_an_error() {
    let head = Builder::new("qwen3").tensor_entry(b"w", &[1 << 61], 0, 0).build();
    let gguf = Gguf::open(Arc::new(Claims { head, len: u64::MAX })).unwrap();
    let error = gguf.tensor_bytes(gguf.tensor("w").unwrap()).unwrap_err();
    assert!(matches!(error, GgufError::OutOfMemory { bytes: 0x8000_0000_0000_0000, .. }), "{error}");
}

#[test]
fn a_header_beyond_every_model_is_refused() {
    for element_type in [0_u32, 8, 9, 12] {
        let value: Vec<u8> =
            [9, element_type].iter().flat_map(|v| v.to_le_bytes()).chain(MAX_HEADER.to_le_bytes()).collect();
        let head = Builder::empty().raw_key(b"k", &value).build();
        let error = Gguf::open(Arc::new(Claims { head, len: 1 << 40 })).unwrap_err();
        assert!(matches!(error, GgufError::HeaderTooLarge { limit: MAX_HEADER, .. }), "{error}");
    }
}

/// The sizes and names of the types, against a list made from ggml itself.
#[test]
fn block_sizes_agree_with_ggml() {
    // (id, name, elements, bytes): the `gguf` package 0.19.0, GGML_QUANT_SIZES, less Q8_1 (36 bytes in ggml-common.h).
    let ggml = [
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    ];
    for (id, name, len, bytes) in ggml {
        let layout = types::layout(id).unwrap();
        assert_eq!((layout.name, layout.block_len, layout.block_bytes), (name, len, bytes), "type {id}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]

    /// Bytes changed at random never panic, and what opens keeps its promises.
    #[test]
    fn a5_changed_bytes_never_panic(changes in proptest::collection::vec((0_usize..2_000, proptest::num::u8::ANY), 1..6)) {
        let mut file = sample().build();
        let len = file.len();
        for (at, byte) in changes {
            file[at % len] = byte;
        }
        holds_promises(&file);
    }

    /// As above, where changes hit the lengths and counts: eight bytes at once, of the values that overflow.
    #[test]
    fn a5_changed_lengths_never_panic(at in 0_usize..2_000, value in proptest::sample::select(vec![
        0, 1, 2, 0x7f, 0xff, 0xffff, 1 << 31, u64::from(u32::MAX), 1 << 32, 1 << 61, 1 << 62, 1 << 63, u64::MAX - 31, u64::MAX,
    ])) {
        let mut file = sample().build();
        let at = at % (file.len() - 8);
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        holds_promises(&file);
    }
}

fn holds_promises(file: &[u8]) {
    let Ok(gguf) = open(file) else { return };
    for tensor in gguf.tensors() {
        assert!((1..=4).contains(&tensor.dims.len()) && tensor.elements() > 0);
        assert!(tensor.offset + tensor.bytes <= file.len() as u64);
        assert_eq!(gguf.tensor_bytes(tensor).unwrap().len() as u64, tensor.bytes);
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
        let _ = tensor.block_type();
    }
    for (key, value) in gguf.metadata() {
        assert!(gguf.get(key).is_some_and(|found| found.type_name() == value.type_name()));
    }
}

/// A vocabulary larger than a window of a source without views: strings that cross a window's end are whole.
#[test]
fn strings_cross_windows() {
    let tokens: Vec<String> = (0..60_000).map(|i| "x".repeat(i % 23) + &i.to_string()).collect();
    let file = Builder::empty().strings("tokens", &tokens).with("after", 7_u32).build();
    assert!(file.len() > 3 * (256 << 10));
    let viewed = open(&file).unwrap();
    let read = Gguf::open(Arc::new(Reads(file))).unwrap();
    for gguf in [viewed, read] {
        let strings = gguf.require_strings("tokens").unwrap();
        assert!(strings.iter().eq(tokens.iter().map(|token| token.as_bytes())));
        assert_eq!(gguf.require_u32("after").unwrap(), 7);
    }
}
