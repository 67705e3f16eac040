//! Token ids against Hugging Face `tokenizers` (B1): what `tests/fixtures/tokenizer/make_golden.py` wrote down.

use std::sync::Arc;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
use zen_edge_tests::{need, shared};

#[test]
fn tiny_fixture() {
    let test = "tokenizer_golden::tiny_fixture";
    let Some(path) = need(test, "the tiny Qwen3", shared("data/fixtures/qwen3-tiny-rand-q4_0.gguf")) else {
        return;
    };
    let Some(refs) = need(test, "its answers", shared("data/fixtures/qwen3-tiny-rand-refs.json")) else {
        return;
    };
    let tokenizer =
        Tokenizer::from_gguf(&Gguf::open(Arc::new(Memory::open(path).unwrap())).unwrap()).unwrap();
    let refs: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(refs).unwrap()).unwrap();
    let prompts = refs["prompts"].as_array().unwrap();
    for (prompt, ids) in prompts.iter().zip(refs["ids"].as_array().unwrap()) {
        let ids: Vec<u32> = ids.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        assert_eq!(tokenizer.encode(prompt.as_str().unwrap(), &EncodeOptions::default()), ids, "{prompt}");
    }
}
