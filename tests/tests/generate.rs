//! Generation on real models against llama.cpp, and the same text on every path of the CPU.
//!
//! The references are made by `fixtures/make_greedy.py`.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use zen_edge_core::backbone::{Arithmetic, BackboneError, BackboneOptions, Cancel, KvType};
use zen_edge_core::decision::{Limits, Reason, Source, TagUse};
use zen_edge_core::generate::{
    ChooseOptions, GenerateError, GenerateOptions, Generated, Generator, Sampling, StopReason, TagFrame,
};
use zen_edge_core::router::{Clock, Request, Router, RouterOptions, TagRequest};
use zen_edge_core::source::Memory;
use zen_edge_core::tokenizer::EncodeOptions;
use zen_edge_default_pack::pack;
use zen_edge_kernels::isa::Isa;
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
fn forced(generator: &Generator, prompt: &[u32], text: &[u32], kv: KvType) -> Vec<u32> {
    let backbone = generator.backbone();
    let mut context = backbone.context_of(kv);
    let mut hidden = backbone.embed_in(&mut context, prompt, None).unwrap();
    hidden.extend(backbone.branches(&mut context, &[&text[..text.len() - 1]], None).unwrap().remove(0));
    let logits = backbone.logits(generator.head(), &hidden).unwrap();
    // A plain loop: this runs unoptimised over some hundred million logits.
    let largest = |row: &[f32]| {
        let (mut best, mut at) = (f32::NEG_INFINITY, 0);
        for (i, &logit) in row.iter().enumerate() {
            if logit > best {
                (best, at) = (logit, i);
            }
        }
        at as u32
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
        // Whoever takes the same token behind every beginning of a text writes that text: one pass instead of 64.
        let found = forced(&generator, &ids(&prompt["ids"]), &float, KvType::F32);
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
    let mut fewer_bits = [0; 2];
    for prompt in prompts {
        let (float, forced_theirs) = (ids(&prompt["float"]), ids(&prompt["forced"]));
        let forced_ours = forced(&generator, &ids(&prompt["ids"]), &float, KvType::F32);
        let agree = |found: &[u32]| found.iter().zip(&float).filter(|(a, b)| a == b).count();
        (ours, theirs, tokens) =
            (ours + agree(&forced_ours), theirs + agree(&forced_theirs), tokens + float.len());
        for (count, kv) in fewer_bits.iter_mut().zip([KvType::F16, KvType::Int8]) {
            *count += agree(&forced(&generator, &ids(&prompt["ids"]), &float, kv));
        }
        let text = ids(&prompt["quantised"]);
        same += usize::from(forced(&generator, &ids(&prompt["ids"]), &text, KvType::F32) == text);
    }
    println!(
        "{model}, quantised: the same next token as float arithmetic {ours} times of {tokens}, llama.cpp {theirs}; \
         {same} of {} free continuations are llama.cpp's; with keys and values in f16 {}, in int8 {}",
        prompts.len(),
        fewer_bits[0],
        fewer_bits[1]
    );
    // Which of two engines of the same kind errs at a close choice is chance: a percent of the places.
    assert!(
        ours + tokens / 100 >= theirs,
        "{ours} of {tokens} agree with float arithmetic, {theirs} of llama.cpp's"
    );
    assert!(fewer_bits.iter().all(|n| n + tokens / 50 >= ours), "{fewer_bits:?} of {tokens}, in f32 {ours}");
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

/// A tiny random model of each architecture, with a tokenizer.
const TINY: [&str; 3] = ["qwen3-tiny-rand-f16", "llama-tiny-rand-f16", "gemma3-tiny-rand-f16"];

fn tiny(name: &str, options: &BackboneOptions) -> Generator {
    open(&fixture(&format!("tiny/{name}.gguf")), options)
}

#[test]
fn the_text_is_the_same_on_every_path() {
    for name in TINY {
        for kv in KvType::ALL {
            let mut first: Option<Generated> = None;
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                for threads in [1, 3] {
                    let options = BackboneOptions {
                        isa: Some(isa),
                        threads: Some(threads),
                        chunk: Some(if threads == 1 { 512 } else { 5 }),
                        ..BackboneOptions::default()
                    };
                    let sampling = Sampling { temperature: 0.9, top_p: 0.95, seed: 3, ..Sampling::default() };
                    let how = GenerateOptions {
                        max_tokens: 24,
                        sampling,
                        kv,
                        ignore_end: true,
                        ..GenerateOptions::default()
                    };
                    let text = "write a function that reverses a list, and say why";
                    let mut pieces = String::new();
                    let done = tiny(name, &options)
                        .generate(text, &how, &mut |piece| {
                            pieces.push_str(piece);
                            ControlFlow::Continue(())
                        })
                        .unwrap();
                    assert_eq!((done.ids.len(), done.reason), (24, StopReason::Length));
                    assert_eq!(pieces, done.text, "the pieces are the text");
                    let first = first.get_or_insert_with(|| done.clone());
                    assert_eq!(*first, done, "{name} {isa} {threads} threads, {}", kv.name());
                }
            }
        }
    }
}

#[test]
fn decoding_gives_what_reading_the_whole_text_gives() {
    for name in TINY {
        let generator = tiny(name, &BackboneOptions::default());
        let prompt = generator.tokenizer().encode("one two three", &EncodeOptions::default());
        let ids = continued(&generator, &prompt, 20);
        // Each token anew, from the text as a whole.
        for n in [0, 1, 7, 19] {
            let whole = [&prompt[..], &ids[..n]].concat();
            let hidden = generator.backbone().embed(&whole).unwrap();
            let logits = generator.backbone().logits(generator.head(), &hidden).unwrap();
            let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
            assert_eq!(best as u32, ids[n], "{name}, token {n}");
        }
        assert_eq!(forced(&generator, &prompt, &ids, KvType::F32), ids);
    }
}

#[test]
fn a_generation_ends_where_it_should() {
    let generator = tiny(TINY[0], &BackboneOptions::default());
    let base = GenerateOptions { max_tokens: 30, ignore_end: true, ..GenerateOptions::default() };
    let run =
        |how: &GenerateOptions| generator.generate("hello", how, &mut |_| ControlFlow::Continue(())).unwrap();
    let whole = run(&base);
    // A stop text that stands in the text: everything before it, and no more is decoded.
    let stop: String = whole.text.chars().skip(12).take(3).collect();
    let at = whole.text.find(&stop).unwrap();
    let stopped = run(&GenerateOptions { stop: vec![stop], ..base.clone() });
    assert_eq!((stopped.text.as_str(), stopped.reason), (&whole.text[..at], StopReason::StopString));
    assert!(stopped.ids.len() < whole.ids.len());
    // Nothing is asked for.
    let none = run(&GenerateOptions { max_tokens: 0, ..base.clone() });
    assert_eq!((none.text.as_str(), none.ids.len(), none.reason), ("", 0, StopReason::Length));
    // The reader has enough.
    let broken = generator.generate("hello", &base, &mut |_| ControlFlow::Break(())).unwrap();
    assert_eq!(broken.reason, StopReason::Cancelled);
    // Cancelled before it began, and between two tokens.
    let cancel = Arc::new(Cancel::new());
    let how = GenerateOptions { cancel: Some(cancel.clone()), ..base.clone() };
    let mut generation = generator.begin("hello", &how).unwrap();
    let first = generation.next_piece().unwrap().unwrap();
    assert_eq!(first.id, whole.ids[0]);
    cancel.cancel();
    assert!(generation.next_piece().unwrap().is_none());
    assert_eq!(generation.finish().reason, StopReason::Cancelled);
    assert_eq!(run(&how).ids.len(), 0);
    // The context is full.
    let context = generator.backbone().shape().context;
    let ids = vec![1u32; context - 3];
    let mut generation = generator.begin_ids(ids, &base).unwrap();
    while generation.next_piece().unwrap().is_some() {}
    let full = generation.finish();
    assert_eq!((full.ids.len(), full.reason), (3, StopReason::Context));
    let error = generator.begin_ids(vec![1; context], &base).err().unwrap();
    assert!(matches!(error, GenerateError::PromptTooLong { .. }), "{error}");
    assert!(matches!(generator.render(&[]), Err(GenerateError::NoTemplate)));
}

#[test]
fn choices_are_the_likelihoods_of_whole_texts() {
    for name in TINY {
        let generator = tiny(name, &BackboneOptions::default());
        let prompt = "The task is";
        let options = [" code.", " code review.", " mathematics and proofs.", " chat."];
        let choices = generator.choose(prompt, &options, &ChooseOptions::default()).unwrap();
        let sum: f64 = choices.iter().map(|choice| choice.probability).sum();
        assert!((sum - 1.0).abs() < 1e-12);
        for (option, choice) in options.iter().zip(&choices) {
            // One text at a time, one position after the other.
            let whole = generator.tokenizer().encode(&format!("{prompt}{option}"), &EncodeOptions::default());
            let mut expected = 0.0;
            for at in whole.len() - choice.tokens..whole.len() {
                let hidden = generator.backbone().embed(&whole[..at]).unwrap();
                let logits = generator.backbone().logits(generator.head(), &hidden).unwrap();
                let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
                expected += f64::from(logits[whole[at] as usize] - max) - sum.ln();
            }
            assert!(
                (choice.log_likelihood - expected).abs() < 1e-4,
                "{name} {option}: {choice:?}, {expected}"
            );
        }
        // What a content-free prompt gives is taken off: behind the very same prompt nothing is left.
        let how = ChooseOptions { content_free: Some(prompt.into()), ..ChooseOptions::default() };
        for choice in generator.choose(prompt, &options, &how).unwrap() {
            assert!((choice.probability - 0.25).abs() < 1e-12);
        }
        let none: [&str; 0] = [];
        assert!(matches!(generator.choose(prompt, &none, &how), Err(GenerateError::NoOptions)));
        assert!(matches!(
            generator.choose(prompt, &["a", ""], &how),
            Err(GenerateError::EmptyOption { index: 1 })
        ));
        let same = generator.choose(prompt, &["a", "b", "a"], &how);
        assert!(matches!(same, Err(GenerateError::SameOptions { first: 0, second: 2 })));
    }
}

#[test]
fn a_tag_names_only_what_the_limits_allow() {
    let router = Router::load(&pack(), &RouterOptions::default()).unwrap();
    let generator = router.generator().unwrap();
    let tag = |how| TagRequest { how, frame: TagFrame::default(), choose: ChooseOptions::default() };
    let prompt = "write a python function to reverse a linked list";
    let mut request = Request::default();
    let free = router.route_by_tag(&generator, prompt, &request, &tag(TagUse::Tag)).unwrap();
    assert_eq!(free.decision.source, Source::Tag);
    let sum: f32 = free.decision.confidence.raw.unwrap();
    assert!((0.0..=1.0).contains(&sum));
    // The favourite is excluded, round after round: the next one is named until nothing is left.
    let mut seen = Vec::new();
    loop {
        let outcome = router.route_by_tag(&generator, prompt, &request, &tag(TagUse::Tag)).unwrap();
        let Some(model) = outcome.decision.model().map(str::to_owned) else { break };
        assert!(!seen.contains(&model), "{model} is excluded");
        let card = &router.catalog().cards()[router.catalog().find(&model).unwrap()];
        assert!(card.levels.contains(&outcome.decision.level));
        seen.push(model.clone());
        request.limits.exclude.push(model);
    }
    assert!(seen.len() > 3, "{seen:?}");
    // Both: the mean of two probabilities, said so; and the limits hold.
    let request =
        Request { limits: Limits { max_cost: Some(0.001), ..Limits::default() }, ..Request::default() };
    let both = router.route_by_tag(&generator, prompt, &request, &tag(TagUse::Both)).unwrap();
    if let Some(model) = both.decision.model() {
        assert_eq!(both.decision.source, Source::Both);
        let card = &router.catalog().cards()[router.catalog().find(model).unwrap()];
        assert!(card.cost_per_1k <= 0.001);
    }
    assert_eq!(router.stats().counts.routed, seen.len() as u64 + 3);
}

/// A clock that goes on by a millisecond whenever it is looked at.
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[test]
fn a_tag_waits_for_no_deadline_and_is_not_asked_for_where_rules_are() {
    let options = RouterOptions {
        clock: Some(Arc::new(Ticking(AtomicU64::new(0)))),
        threads: Some(1),
        ..RouterOptions::default()
    };
    let router = Router::load(&pack(), &options).unwrap();
    router.warm_up().unwrap();
    let generator = router.generator().unwrap();
    let tag = TagRequest { how: TagUse::Tag, frame: TagFrame::default(), choose: ChooseOptions::default() };
    let ask = |prompt: &str, request: &Request<'_>| {
        router.route_by_tag(&generator, prompt, request, &tag).unwrap().decision
    };
    let rules = ask("hello", &Request { rules_only: true, ..Request::default() });
    assert_eq!((rules.source, rules.reason), (Source::Rules, Reason::RulesOnly));
    assert_eq!(ask(" ", &Request::default()).reason, Reason::EmptyInput);
    // From a deadline that nothing meets to one that everything does: the rules, then the heads whose tag was given up,
    // then the tag.
    let mut seen = Vec::new();
    for ms in 0..400 {
        let request = Request { deadline_ms: Some(f64::from(ms)), ..Request::default() };
        // Each prompt is a new one: a known vector takes no time.
        let source = ask(&format!("write a function, number {ms}"), &request).source;
        if seen.last() != Some(&source) {
            seen.push(source);
        }
        if source == Source::Tag {
            break;
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [Source::Learned, Source::Rules, Source::Tag]);
    // Whom the caller stops is told so.
    let cancel = Cancel::new();
    cancel.cancel();
    let request = Request { cancel: Some(&cancel), ..Request::default() };
    let error = router.route_by_tag(&generator, "stop here", &request, &tag).unwrap_err();
    assert!(matches!(error, GenerateError::Backbone(BackboneError::Cancelled)), "{error}");
}
