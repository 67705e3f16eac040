//! A system that refuses memory while files are loaded. Every allocation whose size a file decides is refused once: each
//! time the reader gives an error that says so. One that cannot fail would end this process, and the test with it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use zen_edge_core::backbone::{Arithmetic, Backbone, BackboneOptions};
use zen_edge_core::gguf::{Array, Gguf, Value, testing::Builder};
use zen_edge_core::pack::Pack;
use zen_edge_core::router::{Request, Router, RouterOptions};
use zen_edge_core::source::{Memory, Source};
use zen_edge_core::tensors::TensorFile;
use zen_edge_core::tokenizer::Tokenizer;

/// What is refused: less than this is taken by what no file can make larger, and nothing is gained by refusing it.
const LARGE: usize = 64 << 10;

thread_local! {
    /// Large allocations until one is refused; none is where it is negative.
    static LEFT: Cell<i64> = const { Cell::new(-1) };
    static LARGE_ONES: Cell<usize> = const { Cell::new(0) };
}

/// Refuses one large allocation of a thread.
struct Refusing;

impl Refusing {
    fn refuses(size: usize) -> bool {
        if size < LARGE {
            return false;
        }
        let _ = LARGE_ONES.try_with(|n| n.set(n.get() + 1));
        LEFT.try_with(|left| {
            left.set(left.get().saturating_sub(1).max(-1));
            left.get() == 0
        })
        .unwrap_or(false)
    }
}

// SAFETY: every call goes to the system's allocator unchanged, or gives null, which the contract allows.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Self::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // No system refuses to make a block smaller.
        if size > layout.size() && Self::refuses(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static REFUSING: Refusing = Refusing;

/// A source without views, as a browser's storage is: what is read of it becomes memory.
struct Far(Memory);

impl Source for Far {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }
}

fn far(name: &str, bytes: Vec<u8>) -> Arc<dyn Source> {
    Arc::new(Far(Memory::new(name, bytes)))
}

/// Runs `load` once for each large allocation that it makes, and refuses that one; at least `least` are made.
fn each_is_refused(what: &str, least: usize, load: &dyn Fn() -> Result<(), String>) {
    LARGE_ONES.set(0);
    load().unwrap_or_else(|error| panic!("{what}: {error}"));
    let large = LARGE_ONES.get();
    println!("{what}: {large} large allocations");
    assert!(large >= least, "{what}: {large} large allocations; the case tests less than it says");
    for nth in 1..=large {
        LEFT.set(nth as i64);
        let loaded = load();
        LEFT.set(-1);
        let error = loaded.expect_err(&format!("{what}: it loads without the memory of allocation {nth}"));
        assert!(error.contains("no memory for"), "{what}, allocation {nth} of {large}: {error}");
    }
    load().unwrap_or_else(|error| panic!("{what}, after all refusals: {error}"));
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[test]
fn a_pack_is_refused_and_loads_when_there_is_memory() {
    let whole = zen_edge_default_pack::pack();
    let copy = |source: &Arc<dyn Source>| {
        let mut bytes = vec![0; source.len() as usize];
        source.read_at(0, &mut bytes).unwrap();
        far(source.name(), bytes)
    };
    let pack = Pack { model: copy(&whole.model), heads: copy(&whole.heads), ..whole };
    let options = RouterOptions { threads: Some(1), ..RouterOptions::default() };
    each_is_refused("the default pack, from a source without views", 20, &|| {
        Router::load(&pack, &options).map(drop).map_err(text)
    });
    Router::load(&pack, &options).unwrap().route("why is the sky blue?", &Request::default()).unwrap();
}

#[test]
fn weights_as_floats_are_refused() {
    let model = zen_edge_default_pack::pack().model;
    let gguf = Gguf::open(model).unwrap();
    let options =
        BackboneOptions { threads: Some(1), arithmetic: Arithmetic::Float, ..BackboneOptions::default() };
    each_is_refused("a backbone as floats", 10, &|| Backbone::load(&gguf, &options).map(drop).map_err(text));
}

/// Vocabularies of 20,000 tokens, of which some are matched as they stand.
#[test]
fn vocabularies_are_refused() {
    let words: Vec<String> = (0..20_000).map(|i| format!("word{i}")).collect();
    let mut tokens: Vec<String> = vec!["<unk>".into(), "<s>".into()];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(words);
    let types: Vec<i32> = (0..tokens.len())
        .map(|i| match i {
            0 => 2,
            1 => 3,
            2..258 => 6,
            _ => 1,
        })
        .collect();
    let scores: Vec<f32> = (0..tokens.len()).map(|i| -(i as f32)).collect();
    let file = Builder::new("gemma3")
        .with("tokenizer.ggml.model", "llama")
        .with("tokenizer.ggml.unknown_token_id", 0_u32)
        .with("tokenizer.ggml.bos_token_id", 1_u32)
        .strings("tokenizer.ggml.tokens", &tokens)
        .f32s("tokenizer.ggml.scores", &scores)
        .i32s("tokenizer.ggml.token_type", &types)
        .build();
    let source = far("sentencepiece.gguf", file);
    each_is_refused("a SentencePiece vocabulary", 10, &|| {
        let gguf = Gguf::open(source.clone()).map_err(text)?;
        Tokenizer::from_gguf(&gguf).map(drop).map_err(text)
    });
}

#[test]
fn headers_of_every_kind_are_refused() {
    let n = 100_000;
    let mut file = Builder::new("qwen3")
        .with("u8", Array::U8(vec![1; n]))
        .with("i8", Array::I8(vec![1; n]))
        .with("u16", Array::U16(vec![1; n]))
        .with("i16", Array::I16(vec![1; n]))
        .with("u32", Array::U32(vec![1; n]))
        .with("i32", Array::I32(vec![1; n]))
        .with("f32", Array::F32(vec![1.0; n]))
        .with("bool", Array::Bool(vec![true; n]))
        .with("strings", Array::Strings(std::iter::repeat_n("four", n).collect()))
        .with("arrays", Array::Arrays((0..5000).map(|_| Array::U8(vec![1])).collect()))
        .with("u64", Array::U64(vec![1; n]))
        .with("i64", Array::I64(vec![1; n]))
        .with("f64", Array::F64(vec![1.0; n]))
        .with("string", Value::String("x".repeat(n)));
    for i in 0..20_000 {
        file = file.with(&format!("key.{i}"), 1_u8);
    }
    for i in 0..20_000_u64 {
        file = file.tensor_entry(format!("tensor.{i}").as_bytes(), &[8], 0, i * 32);
    }
    let bytes = file.data(&vec![0; 20_000 * 32]).build();
    for (what, source) in [
        ("a header in memory", Arc::new(Memory::new("header.gguf", bytes.clone())) as Arc<dyn Source>),
        ("a header that is read in windows", far("header.gguf", bytes)),
    ] {
        each_is_refused(what, 20, &|| Gguf::open(source.clone()).map(drop).map_err(text));
    }
}

#[test]
fn tensors_of_heads_are_refused() {
    let mut header = String::from("{");
    let small = 3000;
    for i in 0..small {
        let (start, end) = (i * 4, i * 4 + 4);
        header += &format!(r#""t{i:04}":{{"dtype":"F32","shape":[1],"data_offsets":[{start},{end}]}},"#);
    }
    let (start, end) = (small * 4, small * 4 + 200_000);
    header += &format!(r#""large":{{"dtype":"F16","shape":[100000],"data_offsets":[{start},{end}]}}}}"#);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + end, 0);
    let source = far("many.safetensors", bytes);
    each_is_refused("a safetensors file", 4, &|| {
        let file = TensorFile::open(source.clone()).map_err(text)?;
        file.f32("large").map(drop).map_err(text)
    });
}
