//! The default pack as it ships: its files belong together, the engine reproduces its stored answers, and a router over it
//! keeps the contracts that every caller counts on.

use serde_json::Value;
use zen_edge_core::backbone::{BackboneError, Cancel};
use zen_edge_core::decision::{Limits, Reason, Source};
use zen_edge_core::pack::{LoadError, Pack, Part};
use zen_edge_core::router::{Request, Router, RouterOptions};
use zen_edge_default_pack::{self as files, pack};
use zen_edge_kernels::isa::Isa;

/// A router that computes every answer anew.
fn router(isa: Option<Isa>, threads: usize) -> Router {
    let options = RouterOptions {
        isa,
        threads: Some(threads),
        cache_bytes: Some(0),
        prefix_bytes: Some(0),
        ..RouterOptions::default()
    };
    Router::load(&pack(), &options).unwrap_or_else(|e| panic!("{e}"))
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn c5_the_config_names_the_files_by_their_hash() {
    let router = router(None, 1);
    assert_eq!(router.config().backbone_sha256.as_deref(), Some(sha256(files::MODEL).as_str()));
    assert_eq!(router.config().heads_sha256.as_deref(), Some(sha256(files::HEADS).as_str()));
    assert!(!router.heads().trained().is_derived(), "a pack of ours states which rows are trained");
    assert!(router.heads().trained().count() >= 3);
}

#[test]
fn b10_c10_the_engine_reproduces_the_stored_answers() {
    let router = router(None, 2);
    let stored: Value = serde_json::from_slice(files::SELFTEST).unwrap();
    let prompts = stored["prompts"].as_array().expect("the self-test holds prompts");
    assert!(prompts.len() >= 3);
    for prompt in prompts {
        let text = prompt["prompt"].as_str().unwrap();
        let (ids, _) = router.encode(text, None);
        let expected: Vec<u32> = prompt["ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
            .collect();
        assert_eq!(ids, expected, "{text:?}");
        let stored: Vec<f64> =
            prompt["hidden"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let ours = router.embed(text, &Request::default()).unwrap().vector;
        assert_eq!(ours.len(), stored.len());
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let ours: Vec<f64> = ours.into_iter().map(f64::from).collect();
        let cosine = dot(&ours, &stored) / (dot(&ours, &ours) * dot(&stored, &stored)).sqrt();
        let norm = (dot(&ours, &ours) / dot(&stored, &stored)).sqrt();
        println!("{} tokens: cosine {cosine:.6}, norm ratio {norm:.4}", ids.len());
        assert!(cosine > 0.998 && (norm - 1.0).abs() < 0.02, "{text:?}: cosine {cosine}, norm ratio {norm}");
    }
}

#[test]
fn plain_prompts_get_the_task_that_they_are() {
    let router = router(None, 2);
    for (prompt, task) in [
        ("write a python function to reverse a linked list", "code"),
        ("hi there, how are you?", "cheap_chat"),
        (
            "Natalia sold 48 clips in April and half as many in May. How many clips did she sell altogether?",
            "math",
        ),
    ] {
        let outcome = router.route(prompt, &Request::default()).unwrap();
        assert_eq!(outcome.decision.task.name(), task, "{prompt:?}");
        assert!(outcome.decision.model().is_some());
        assert!(outcome.decision.top(3).count() == 3);
        assert!(!outcome.reading.truncated && outcome.reading.tokens > 0);
    }
}

#[test]
fn c12_every_instruction_set_and_thread_count_decides_alike_and_is_named() {
    let prompt = "Explique la différence entre TCP et UDP, en deux phrases.";
    let expected = router(Some(Isa::Scalar), 1).route(prompt, &Request::default()).unwrap();
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for threads in [1, 2, 3] {
            let outcome = router(Some(isa), threads).route(prompt, &Request::default()).unwrap();
            assert_eq!(outcome.logits, expected.logits, "{isa}, {threads} threads");
            assert_eq!(outcome.decision, expected.decision);
            assert_eq!(outcome.reading.backend.isa, isa.name());
        }
    }
}

#[test]
fn b11_a_blank_prompt_is_decided_by_rules_and_flagged() {
    let router = router(None, 1);
    for prompt in ["", " \n\t "] {
        let outcome = router.route(prompt, &Request::default()).unwrap();
        assert_eq!(outcome.decision.reason, Reason::EmptyInput);
        assert_eq!(outcome.decision.source, Source::Rules);
        assert_eq!((outcome.reading.tokens, outcome.logits.is_none()), (0, true));
    }
    assert!(matches!(router.embed("", &Request::default()), Err(BackboneError::NoTokens)));
}

#[test]
fn h3_a_long_prompt_is_cut_by_the_rule_and_the_answer_says_so() {
    let router = router(None, 2);
    let long = "A sentence of the report that goes on for many pages. ".repeat(400_000 / 54);
    let outcome = router.route(&long, &Request::default()).unwrap();
    assert!(outcome.reading.truncated);
    assert!(outcome.reading.tokens <= router.config().max_tokens);
    // What lies behind the cut changes nothing that was read.
    let cut: String = long.chars().take(router.config().max_chars).collect();
    let short = router.embed(&cut, &Request::default()).unwrap();
    assert_eq!(router.embed(&long, &Request::default()).unwrap().vector, short.vector);
}

#[test]
fn b8_special_tokens_in_the_text_are_parsed_unless_they_are_plain() {
    let router = router(None, 1);
    let prompt = "end<|im_end|>";
    let (parsed, plain) = (router.encode(prompt, None).0, router.encode(prompt, Some(true)).0);
    assert!(parsed.len() < plain.len(), "{parsed:?} {plain:?}");
}

#[test]
fn a_cancelled_request_ends_and_the_router_goes_on() {
    let router = router(None, 1);
    let cancel = Cancel::new();
    cancel.cancel();
    let request = Request { cancel: Some(&cancel), ..Request::default() };
    assert!(matches!(router.route("hello", &request), Err(BackboneError::Cancelled)));
    assert!(router.route("hello", &Request::default()).is_ok());
}

#[test]
fn limits_are_kept() {
    let router = router(None, 1);
    let limits = Limits { max_cost: Some(0.0003), ..Limits::default() };
    let outcome = router.route("What is 12 times 12?", &Request { limits, ..Request::default() }).unwrap();
    let model = outcome.decision.model().expect("a model under the ceiling");
    assert!(router.catalog().get(model).unwrap().cost_per_1k <= 0.0003, "{model}");
}

#[test]
fn c4_c6_a_contradicting_config_is_refused_naming_both_sides() {
    let broken = |from: &str, to: &str| {
        let config = std::str::from_utf8(files::CONFIG).unwrap();
        assert!(config.contains(from), "{from} stands in the config");
        let pack = Pack { config: Part::new("router_config.json", config.replacen(from, to, 1)), ..pack() };
        match Router::load(&pack, &RouterOptions::default()) {
            Err(error) => error,
            Ok(_) => panic!("{to} was taken"),
        }
    };
    let error = broken("\"embd_normalize\": -1", "\"embd_normalize\": 2");
    assert!(matches!(error, LoadError::Config(_)) && error.to_string().contains("embd_normalize"), "{error}");
    let error = broken("\"pooling\": \"last\"", "\"pooling\": \"cls\"");
    assert!(matches!(error, LoadError::Config(_)) && error.to_string().contains("`cls`"), "{error}");
    let error = broken("\"hidden_size\": 256", "\"hidden_size\": 512");
    let text = error.to_string();
    assert!(text.contains("512") && text.contains("256"), "{text}");
}

#[test]
fn a_repeated_prompt_is_looked_up_with_the_same_bits() {
    let options = RouterOptions { threads: Some(1), ..RouterOptions::default() };
    let router = Router::load(&pack(), &options).unwrap();
    let first = router.route("why is the sky blue?", &Request::default()).unwrap();
    let again = router.route("why is the sky blue?", &Request::default()).unwrap();
    assert!(!first.reading.cached && again.reading.cached);
    assert_eq!((&first.decision, &first.logits), (&again.decision, &again.logits));
    assert_eq!(
        (first.reading.tokens, first.reading.truncated),
        (again.reading.tokens, again.reading.truncated)
    );
    // Special tokens taken otherwise are another prompt.
    let plain = Request { plain_text: Some(true), ..Request::default() };
    assert!(!router.route("why is the sky blue?", &plain).unwrap().reading.cached);
    assert_eq!(router.stats().cache.entries, 2);
    router.clear_cache();
    assert!(!router.route("why is the sky blue?", &Request::default()).unwrap().reading.cached);
    let forgetful = self::router(None, 1);
    for _ in 0..2 {
        assert!(!forgetful.route("hello", &Request::default()).unwrap().reading.cached);
    }
}

#[test]
fn sixteen_callers_share_a_router() {
    let router = router(None, 2);
    let prompts: Vec<String> = (0..4).map(|i| format!("Question {i}: why does bread rise?")).collect();
    let expected: Vec<_> =
        prompts.iter().map(|p| router.embed(p, &Request::default()).unwrap().vector).collect();
    std::thread::scope(|scope| {
        for caller in 0..16 {
            let (router, prompts, expected) = (&router, &prompts, &expected);
            scope.spawn(move || {
                for i in 0..4 {
                    let at = (caller + i) % 4;
                    let got = router.embed(&prompts[at], &Request::default()).unwrap().vector;
                    assert!(got == expected[at], "caller {caller}");
                }
            });
        }
    });
}
