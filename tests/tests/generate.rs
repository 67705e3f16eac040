//! Generation on real models against llama.cpp, and the same text on every path of the CPU.
//!
//! The references are made by `fixtures/make_greedy.py`.

use std::path::Path;
use std::sync::Arc;
use zen_edge_core::backbone::{Arithmetic, BackboneOptions};
use zen_edge_core::generate::{GenerateOptions, Generator};
use zen_edge_core::source::Memory;
use zen_edge_tests::{fixture, need, peers};

fn open(path: &Path, options: &BackboneOptions) -> Generator {
    let options = BackboneOptions { threads: Some(options.threads.unwrap_or(2)), ..options.clone() };
    Generator::open(Arc::new(Memory::open(path).unwrap()), &options).unwrap()
}

fn ids(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The greedy continuation of a prompt's tokens.
fn continued(generator: &Generator, prompt: &[u32], tokens: usize) -> Vec<u32> {
    let options = GenerateOptions { max_tokens: tokens, ignore_end: true, ..GenerateOptions::default() };
    let mut generation = generator.begin_ids(prompt.to_vec(), &options).unwrap();
    while generation.next_piece().unwrap().is_some() {}
    generation.finish().ids
}

/// The token of the largest logit after each of the tokens of `text` behind `prompt`.
fn forced(generator: &Generator, prompt: &[u32], text: &[u32]) -> Vec<u32> {
    let backbone = generator.backbone();
    let mut context = backbone.context();
    let mut hidden = backbone.embed_in(&mut context, prompt, None).unwrap();
    hidden.extend(backbone.branches(&mut context, &[&text[..text.len() - 1]], None).unwrap().remove(0));
    let logits = backbone.logits(generator.head(), &hidden);
    let largest = |row: &[f32]| {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        best.unwrap().0 as u32
    };
    logits.chunks_exact(generator.head().vocab()).map(largest).collect()
}

/// 24 prompts of 64 tokens beside llama.cpp: in float arithmetic the text must be the same but where two logits are equal
/// to 0.01; with the quantised file, where both engines round activations to eight bits and part at random, ours must agree
/// with float arithmetic at least as often as llama.cpp does.
fn greedy(test: &str, model: &str) {
    let path = peers(&format!("models/{model}.gguf"));
    let Some(path) = need(test, "a real model from the registries", path) else { return };
    let text = std::fs::read_to_string(fixture(&format!("real/{model}-greedy.json"))).unwrap();
    let refs: serde_json::Value = serde_json::from_str(&text).unwrap();
    let prompts = refs["prompts"].as_array().unwrap();

    let generator =
        open(&path, &BackboneOptions { arithmetic: Arithmetic::Float, ..BackboneOptions::default() });
    let (mut whole, mut wrong) = (0, Vec::new());
    for prompt in prompts {
        let (name, float) = (prompt["prompt"].as_str().unwrap(), ids(&prompt["float"]));
        assert_eq!(
            generator.begin(name, &GenerateOptions::default()).unwrap().prompt_tokens(),
            ids(&prompt["ids"]).len()
        );
        let found = continued(&generator, &ids(&prompt["ids"]), float.len());
        let Some(at) = found.iter().zip(&float).position(|(a, b)| a != b) else {
            whole += 1;
            continue;
        };
        let margin = prompt["margin"][at].as_f64().unwrap();
        println!(
            "{model} {name:?}: parts at token {at}, where llama.cpp's two largest logits differ by {margin:.5}"
        );
        if u64::from(found[at]) != prompt["second"][at].as_u64().unwrap() || margin > 1e-2 {
            wrong.push(format!("{name:?} at {at}: {margin:.5}"));
        }
    }
    println!(
        "{model}, float: {whole} of {} continuations of {} tokens are llama.cpp's",
        prompts.len(),
        refs["steps"]
    );
    assert!(wrong.is_empty(), "{}", wrong.join("; "));
    drop(generator);

    let generator = open(&path, &BackboneOptions::default());
    let (mut ours, mut theirs, mut tokens, mut same) = (0, 0, 0, 0);
    for prompt in prompts {
        let (float, forced_theirs) = (ids(&prompt["float"]), ids(&prompt["forced"]));
        let forced_ours = forced(&generator, &ids(&prompt["ids"]), &float);
        let agree = |found: &[u32]| found.iter().zip(&float).filter(|(a, b)| a == b).count();
        (ours, theirs, tokens) =
            (ours + agree(&forced_ours), theirs + agree(&forced_theirs), tokens + float.len());
        let found = continued(&generator, &ids(&prompt["ids"]), float.len());
        same += usize::from(found == ids(&prompt["quantised"]));
    }
    println!(
        "{model}, quantised: the same next token as float arithmetic {ours} times of {tokens}, llama.cpp {theirs}; \
         {same} of {} free continuations are llama.cpp's",
        prompts.len()
    );
    // Which of two engines of the same kind errs at a close choice is chance: a percent of the places.
    assert!(
        ours + tokens / 100 >= theirs,
        "{ours} of {tokens} agree with float arithmetic, {theirs} of llama.cpp's"
    );
    assert!(ours * 100 >= tokens * 93, "{ours} of {tokens} agree with float arithmetic");
}

#[test]
fn gemma_continues_as_in_llama_cpp() {
    greedy("gemma_continues_as_in_llama_cpp", "gemma-3-270m-q4_k_m");
}

#[test]
fn smollm2_continues_as_in_llama_cpp() {
    greedy("smollm2_continues_as_in_llama_cpp", "smollm2-135m-q4_1");
}
