//! A backbone against its reference: the default pack and the tiny fixtures, no other engine.

use std::ops::ControlFlow;
use std::sync::Arc;
use zen_edge_core::backbone::{Arithmetic, BackboneOptions};
use zen_edge_core::config::ConfigError;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::pack::LoadError;
use zen_edge_core::source::Memory;
use zen_edge_default_pack::{MODEL, pack};
use zen_edge_forge::parity::{Judge, ParityError, sample};
use zen_edge_forge::rows::Row;
use zen_edge_forge::verify::{Options, Report, Thresholds, run};
use zen_edge_tests::fixture;

fn gguf(name: &str, bytes: impl Into<Vec<u8>>) -> Gguf {
    Gguf::open(Arc::new(Memory::new(name, bytes.into()))).unwrap_or_else(|e| panic!("{e}"))
}

fn model() -> Gguf {
    gguf("model.gguf", MODEL)
}

/// Prompts of every length, some with their task, one blank.
fn rows() -> Vec<(usize, Row)> {
    let row =
        |prompt: String, task: Option<&str>| Row { prompt, task: task.map(str::to_owned), ..Row::default() };
    let mut rows = vec![
        row("write a python function to reverse a linked list".into(), Some("code")),
        row("hi there, how are you?".into(), Some("cheap_chat")),
        row("  \n".into(), Some("general")),
        row("What is the integral of x squared from 0 to 3?".into(), Some("math")),
        row("¿Por qué el cielo es azul?".into(), None),
        row("Write a poem about the sea at night.".into(), Some("creative")),
    ];
    for n in [20, 60, 200, 900] {
        rows.push(row("the quick brown fox jumps over the lazy dog ".repeat(n / 9 + 1), None));
    }
    sample(rows, None, 0)
}

fn options() -> Options {
    Options {
        backbone: BackboneOptions { threads: Some(2), ..BackboneOptions::default() },
        arithmetic: Arithmetic::Int8,
        float: Vec::new(),
        thresholds: Thresholds::default(),
        worst: 3,
        seed: None,
        rows: rows().len(),
    }
}

fn verify(reference: &Gguf, model: &Gguf, judge: &Judge, options: &Options) -> Result<Report, ParityError> {
    run([reference, model], judge, &rows(), options, &mut |_| ControlFlow::Continue(()))
}

fn own(options: &Options) -> Result<Report, ParityError> {
    verify(&model(), &model(), &Judge::of(&pack()).unwrap(), options)
}

#[test]
fn a_file_agrees_with_itself_in_float_arithmetic() {
    let report = own(&Options { arithmetic: Arithmetic::Float, ..options() }).unwrap();
    let all = &report.comparison.all;
    assert_eq!(all.n, rows().len() - 1);
    for share in [all.task, all.route, all.top3] {
        assert_eq!(share.map(|share| (share.hits, share.value)), Some((all.n, 1.0)));
    }
    assert_eq!((all.cosine.mean, all.cosine.min, all.cosine.standard_error), (1.0, 1.0, 0.0));
    assert_eq!((all.norm_ratio.min, all.norm_ratio.max), (1.0, 1.0));
    assert_eq!(report.prompts.blank, 1);
}

#[test]
fn int8_activations_change_vectors_a_little_and_the_strata_add_up() {
    let report = own(&options()).unwrap();
    let all = &report.comparison.all;
    assert!(all.cosine.mean < 1.0 && all.cosine.mean > 0.999, "{all:?}");
    assert!(all.cosine.min <= all.cosine.mean && all.norm_ratio.min <= all.norm_ratio.max);
    let strata: Vec<_> =
        report.comparison.strata.iter().filter_map(|stratum| stratum.figures.as_ref()).collect();
    assert!(strata.len() >= 3, "prompts of several lengths");
    assert_eq!(strata.iter().map(|figures| figures.n).sum::<usize>(), all.n);
    let hits = |figures: &zen_edge_forge::parity::Figures| figures.task.unwrap().hits;
    assert_eq!(strata.iter().map(|figures| hits(figures)).sum::<usize>(), hits(all));
    let mean =
        strata.iter().map(|figures| figures.cosine.mean * figures.n as f64).sum::<f64>() / all.n as f64;
    assert!((mean - all.cosine.mean).abs() < 1e-12);
    let accuracy = all.accuracy.as_ref().expect("some rows state a task");
    assert_eq!((accuracy.reference.n, accuracy.model.n), (4, 4));
    // The worst: those of another task first, then by cosine.
    assert_eq!(report.comparison.worst.len(), 3);
    let same: Vec<f64> = report
        .comparison
        .worst
        .iter()
        .filter(|worst| worst.tasks.is_some_and(|[a, b]| a == b))
        .map(|worst| worst.cosine)
        .collect();
    assert!(same.windows(2).all(|pair| pair[0] <= pair[1]), "{same:?}");
}

#[test]
fn parts_in_float_arithmetic_come_nearer_and_all_of_them_are_there() {
    let float = |parts: &[&str]| {
        let float = parts.iter().map(|&part| part.to_owned()).collect();
        own(&Options { float, ..options() }).map(|report| report.comparison.all.cosine.mean)
    };
    let (none, some) = (float(&[]).unwrap(), float(&["ffn_down", "blk.0"]).unwrap());
    assert!(none < some && some < 1.0, "{none} {some}");
    assert_eq!(float(&["blk.0", "blk.1"]).unwrap(), 1.0);
    for part in ["ffn_dow", "blk.2", "token_embd", ""] {
        assert!(matches!(float(&[part]), Err(ParityError::Part { name }) if name == part), "{part}");
    }
}

#[test]
fn c11_thresholds_are_a_gate() {
    let with = |thresholds| own(&Options { thresholds, ..options() });
    let good =
        Thresholds { task: Some(0.5), cosine_mean: Some(0.99), top3: Some(0.5), ..Thresholds::default() };
    let report = with(good).unwrap();
    assert!(report.passed && report.unmet.is_empty());
    let strict = Thresholds { cosine_mean: Some(0.5), cosine_min: Some(1.0), ..Thresholds::default() };
    let report = with(strict).unwrap();
    assert!(!report.passed);
    assert_eq!(report.unmet.iter().map(|unmet| unmet.figure).collect::<Vec<_>>(), ["cosine_min"]);
    assert!(report.unmet[0].found < 1.0 && report.unmet[0].wanted == 1.0);
    for wrong in [97.0, -0.1, f64::NAN] {
        let thresholds = Thresholds { route: Some(wrong), ..Thresholds::default() };
        assert!(matches!(with(thresholds), Err(ParityError::Threshold { what: "route", .. })), "{wrong}");
    }
}

#[test]
fn without_heads_vectors_are_compared_and_decisions_cannot_be_asked_for() {
    let judge = Judge::without_heads(&model()).unwrap();
    let report = verify(&model(), &model(), &judge, &options()).unwrap();
    assert!(report.comparison.all.task.is_none() && report.comparison.all.accuracy.is_none());
    assert!(report.comparison.all.cosine.mean > 0.999);
    let thresholds = Thresholds { top3: Some(1.0), ..Thresholds::default() };
    let error = verify(&model(), &model(), &judge, &Options { thresholds, ..options() }).unwrap_err();
    assert!(matches!(error, ParityError::NoHeads { what: "top3" }), "{error}");
}

#[test]
fn what_does_not_belong_together_is_refused_by_cause() {
    let judge = Judge::of(&pack()).unwrap();
    let tiny =
        |name: &str| gguf(name, std::fs::read(fixture(&format!("tiny/{name}-rand-f16.gguf"))).unwrap());

    // A reference of another shape, and heads of another width.
    let error = verify(&tiny("llama-tiny"), &model(), &judge, &options()).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, ParityError::Shapes { .. }) && text.contains("llama") && text.contains("qwen3"),
        "{text}"
    );
    let error = verify(&tiny("qwen3-tiny"), &tiny("qwen3-tiny"), &judge, &options()).unwrap_err();
    let width = |error: &LoadError| matches!(error, LoadError::Config(ConfigError::BackboneHidden { .. }));
    assert!(matches!(&error, ParityError::Load(error) if width(error)), "{error}");

    // Another tokenizer: this one adds BOS.
    let mut bytes = MODEL.to_vec();
    let key = b"tokenizer.ggml.add_bos_token";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    bytes[at] = 1;
    let headless = Judge::without_heads(&model()).unwrap();
    let error = verify(&gguf("bos.gguf", bytes), &model(), &headless, &options()).unwrap_err();
    assert!(matches!(error, ParityError::Tokens { row: 1, .. }), "{error}");

    // A damaged reference: a tensor's bytes end with the file.
    assert!(Gguf::open(Arc::new(Memory::new("cut", MODEL[..MODEL.len() / 2].to_vec()))).is_err());
    // Weights that are no numbers: the first F16 of a block's scale becomes NaN.
    let mut bytes = MODEL.to_vec();
    let open = model();
    let tensor = open.require_tensor("blk.0.ffn_up.weight").unwrap();
    bytes[tensor.offset as usize..][..2].copy_from_slice(&0x7e00u16.to_le_bytes());
    let error = verify(&gguf("nan.gguf", bytes), &model(), &judge, &options()).unwrap_err();
    assert!(
        matches!(&error, ParityError::Load(error) if matches!(**error, LoadError::Backbone(_))),
        "{error}"
    );
}

#[test]
fn nothing_to_read_and_a_caller_who_breaks_off() {
    let judge = Judge::of(&pack()).unwrap();
    let blank = [(0, Row { prompt: " ".into(), ..Row::default() })];
    let error = run([&model(), &model()], &judge, &blank, &options(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(error, Err(ParityError::NoPrompts { rows: 1 })));
    let mut seen = Vec::new();
    let error = run([&model(), &model()], &judge, &rows(), &options(), &mut |progress| {
        seen.push((progress.done, progress.of));
        if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(error, Err(ParityError::Cancelled)));
    assert!(seen.len() == 2 && seen[0].0 < seen[1].0 && seen[1].0 <= seen[1].1, "{seen:?}");
}

#[test]
fn a_shorter_reading_is_the_same_for_both() {
    let judge = Judge::of(&pack()).unwrap().reading_at_most(Some(16));
    let report = verify(&model(), &model(), &judge, &options()).unwrap();
    assert_eq!(report.prompts.max_tokens, 16);
    assert!(report.prompts.truncated >= 3 && report.prompts.tokens <= 16 * report.prompts.n);
    let long = report.comparison.strata.iter().skip(1).all(|stratum| stratum.figures.is_none());
    assert!(long, "no prompt is longer than 16 tokens");
}
