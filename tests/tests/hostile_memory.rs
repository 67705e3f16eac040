//! A3: files of some bytes that claim gigabytes. What they make the readers allocate is measured.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use zen_edge_core::gguf::{Gguf, testing::Builder};
use zen_edge_core::source::Memory;
use zen_edge_core::tensors::TensorFile;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// Counts the bytes that a thread asks for.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the count touches no allocation.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|n| n.set(n.get().saturating_add(layout.size())));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The bytes that `run` allocates in sum, freed ones included.
fn allocated(run: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    run();
    ALLOCATED.get() - before
}

#[test]
fn a3_small_gguf_files_allocate_little() {
    let claim = |element_type: u32, count: u64| {
        let value: Vec<u8> =
            [9, element_type].iter().flat_map(|v| v.to_le_bytes()).chain(count.to_le_bytes()).collect();
        Builder::empty().raw_key(b"tokenizer.ggml.tokens", &value).data(&[0; 80]).build()
    };
    let string = |len: u64| {
        let value: Vec<u8> = 8_u32.to_le_bytes().into_iter().chain(len.to_le_bytes()).collect();
        Builder::empty().raw_key(b"general.name", &value).data(&[0; 80]).build()
    };
    let mut files = vec![
        Builder::new("qwen3").claim_keys(u64::MAX).data(&[0; 100]).build(),
        Builder::new("qwen3").claim_keys(1 << 30).data(&[0; 100]).build(),
        Builder::new("qwen3").claim_tensors(1 << 30).data(&[0; 100]).build(),
        Builder::new("qwen3").with("general.alignment", 1_u32 << 30).data(&[0; 100]).build(),
        Builder::empty().tensor_entry(b"w", &[1 << 40, 1 << 20], 0, 0).data(&[0; 32]).build(),
    ];
    for count in [1 << 20, 1 << 30, 1 << 40, u64::MAX / 8, u64::MAX] {
        files.extend((0..=12).map(|element_type| claim(element_type, count)));
        files.push(string(count));
    }
    for file in files {
        assert!(file.len() <= 256, "{}", file.len());
        let source = Arc::new(Memory::new("hostile.gguf", file));
        let bytes = allocated(|| assert!(Gguf::open(source).is_err()));
        // Most of it is the message, and the table of 1,024 entries that a right file fills.
        assert!(bytes < 128 << 10, "{bytes} bytes");
    }
}

#[test]
fn a3_memory_is_proportional_to_the_file() {
    // The densest file that opens: arrays of nothing in an array, each paying 12 bytes.
    let mut value: Vec<u8> = [9_u32, 9].iter().flat_map(|v| v.to_le_bytes()).collect();
    value.extend(10_000_u64.to_le_bytes());
    for _ in 0..10_000 {
        value.extend([0; 12]);
    }
    let file = Builder::empty().raw_key(b"k", &value).build();
    let len = file.len();
    let source = Arc::new(Memory::new("dense.gguf", file));
    let bytes = allocated(|| drop(Gguf::open(source).unwrap()));
    assert!(bytes < 16 * len, "{bytes} bytes for a file of {len}");
}

#[test]
fn a3_small_safetensors_files_allocate_little() {
    let mut file = vec![0; 160];
    file[8..10].copy_from_slice(b"{\"");
    for len in [161, 99_999_999, 1 << 30, 1 << 40, u64::MAX] {
        file[..8].copy_from_slice(&u64::to_le_bytes(len));
        let source = Arc::new(Memory::new("hostile.safetensors", file.clone()));
        let bytes = allocated(|| assert!(TensorFile::open(source).is_err()));
        assert!(bytes < 16 << 10, "{bytes} bytes");
    }
}

/// Not a limit of time, which a busy machine would break: the vocabulary's strings may not cost an allocation each.
#[test]
fn a_vocabulary_is_few_allocations() {
    let tokens: Vec<String> = (0..151_936).map(|i| format!("token{i}")).collect();
    let file = Builder::new("qwen3").strings("tokenizer.ggml.tokens", &tokens).build();
    let len = file.len();
    let source = Arc::new(Memory::new("vocabulary.gguf", file));
    let begun = std::time::Instant::now();
    let mut gguf = None;
    let bytes = allocated(|| gguf = Some(Gguf::open(source).unwrap()));
    eprintln!("151,936 tokens in {:?}, {bytes} bytes allocated for {len} in the file", begun.elapsed());
    assert!(bytes < 4 * len, "{bytes} bytes for a file of {len}");
    assert_eq!(
        gguf.unwrap().require_strings("tokenizer.ggml.tokens").unwrap().get(151_935),
        Some(&b"token151935"[..])
    );
}
