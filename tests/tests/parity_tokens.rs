//! Token ids of real models' GGUFs against llama.cpp's, which for Gemma are Hugging Face's too (make_real.py compares).

mod parity_common;

use parity_common::{ids, json, mapped};
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
use zen_edge_tests::{fixture, need, peers};

fn tokens(test: &str, model: &str) {
    let path = peers(&format!("models/{model}.gguf"));
    let Some(path) = need(test, "a real model from the registries", path) else { return };
    let tokenizer = Tokenizer::from_gguf(&mapped(&path)).unwrap_or_else(|e| panic!("{e}"));
    for prompt in json(&fixture(&format!("real/{model}.json")))["prompts"].as_array().unwrap() {
        let got = tokenizer.encode(prompt["prompt"].as_str().unwrap(), &EncodeOptions::default());
        assert_eq!(got, ids(&prompt["ids"]), "{model}: {}", prompt["name"]);
    }
}

#[test]
fn gemma_3_270m_tokenises_as_llama_cpp_does() {
    tokens("gemma_3_270m_tokenises_as_llama_cpp_does", "gemma-3-270m-q4_k_m");
}

#[test]
fn smollm2_135m_tokenises_as_llama_cpp_does() {
    tokens("smollm2_135m_tokenises_as_llama_cpp_does", "smollm2-135m-q4_1");
}
