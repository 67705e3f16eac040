//! Quantising, beside ggml's quantiser: the files of `../shared/data/fixtures` are llama.cpp's, made from the F16 one.

use std::sync::Arc;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;
use zen_edge_kernels::format::{BlockType, dequantize, encode};
use zen_edge_tests::{need, shared};

fn open(path: &std::path::Path) -> Gguf {
    Gguf::open(Arc::new(Memory::open(path).unwrap())).unwrap()
}

fn values(gguf: &Gguf, name: &str) -> Vec<f32> {
    let tensor = gguf.require_tensor(name).unwrap();
    let mut out = vec![0.0; tensor.elements() as usize];
    dequantize(tensor.block_type().unwrap(), &gguf.tensor_bytes(tensor).unwrap(), &mut out);
    out
}

fn rmse(a: &[f32], b: &[f32]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (sum / a.len() as f64).sqrt()
}

const LLAMA_CPP_FILES: [&str; 11] =
    ["q2_k", "q3_k_m", "q4_0", "q4_1", "q4_k_m", "q4_k_s", "q5_0", "q5_1", "q5_k_m", "q6_k", "q8_0"];

/// Every tensor of every file that llama.cpp quantised: encoded in the same type, our error is no larger.
#[test]
fn errors_are_no_larger_than_those_of_ggml() {
    const TEST: &str = "errors_are_no_larger_than_those_of_ggml";
    let Some(folder) = need(TEST, "the files that llama.cpp quantised", shared("data/fixtures")) else {
        return;
    };
    let float = open(&folder.join("qwen3-tiny-rand-f16.gguf"));
    let mut seen = std::collections::BTreeMap::<BlockType, (f64, f64, usize)>::new();
    for name in LLAMA_CPP_FILES {
        let theirs = open(&folder.join(format!("qwen3-tiny-rand-{name}.gguf")));
        for tensor in theirs.tensors() {
            let ty = tensor.block_type().unwrap();
            if ty.block_len() == 1 {
                continue;
            }
            let want = values(&float, &tensor.name);
            let ggml = rmse(&want, &values(&theirs, &tensor.name));
            let mut back = vec![0.0; want.len()];
            dequantize(ty, &encode(ty, &want, None).unwrap(), &mut back);
            let ours = rmse(&want, &back);
            assert!(ours <= ggml * 1.001, "{name}, {} as {ty}: {ours} > {ggml}", tensor.name);
            let entry = seen.entry(ty).or_default();
            *entry = (entry.0 + ours, entry.1 + ggml, entry.2 + 1);
        }
    }
    for (ty, (ours, ggml, count)) in &seen {
        println!("{ty}: {:.4} of ggml's error over {count} tensors", ours / ggml);
    }
    assert_eq!(seen.len(), 10, "a type of the fixtures is missing: {seen:?}");
}
