//! Schemes of quantisation on the tiny fixtures and the default pack.

use std::ops::ControlFlow;
use std::sync::Arc;
use zen_edge_core::backbone::BackboneOptions;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;
use zen_edge_default_pack::{MODEL, pack};
use zen_edge_forge::ablate::{AblateError, Entry, FitRows, FittedHeads, Options, Report, run, schemes};
use zen_edge_forge::fit::FitError;
use zen_edge_forge::parity::{Judge, ParityError, sample};
use zen_edge_forge::rows::Row;
use zen_edge_tests::fixture;

fn rows() -> Vec<(usize, Row)> {
    let row =
        |prompt: &str, task: &str| Row { prompt: prompt.into(), task: Some(task.into()), ..Row::default() };
    let rows = vec![
        row("write a python function to reverse a linked list", "code"),
        row("hi there, how are you?", "cheap_chat"),
        row("Why do prices rise when a currency loses value? Think step by step.", "reasoning"),
        row("Write a poem about the sea at night.", "creative"),
        row("A train leaves at 9 and rides 120 km in 90 minutes. How fast is it?", "math"),
    ];
    sample(rows, None, 0)
}

fn options(threads: usize) -> Options {
    Options {
        backbone: BackboneOptions { threads: Some(threads), ..BackboneOptions::default() },
        rotation_seed: 0,
        seed: None,
        rows: rows().len(),
    }
}

fn ablate(gguf: &Gguf, judge: &Judge, list: &str, options: &Options) -> Result<Report, AblateError> {
    run(gguf, judge, &rows(), &schemes(list)?, None, options, &mut |_| ControlFlow::Continue(()))
}

fn tiny(name: &str) -> Gguf {
    let bytes = std::fs::read(fixture(&format!("tiny/{name}-tiny-rand-f16.gguf"))).unwrap();
    Gguf::open(Arc::new(Memory::new(name, bytes))).unwrap()
}

fn of_default(list: &str, options: &Options) -> Report {
    let gguf = Gguf::open(Arc::new(Memory::new("model.gguf", MODEL.to_vec()))).unwrap();
    ablate(&gguf, &Judge::of(&pack()).unwrap(), list, options).unwrap_or_else(|e| panic!("{e}"))
}

fn named<'a>(report: &'a Report, scheme: &str) -> &'a Entry {
    report.schemes.iter().find(|entry| entry.scheme == scheme).unwrap()
}

#[test]
fn every_weight_of_a_file_is_counted_and_half_precision_changes_none_of_an_f16_file() {
    for name in ["qwen3", "llama", "gemma3"] {
        let gguf = tiny(name);
        let judge = Judge::without_heads(&gguf).unwrap();
        let report = ablate(&gguf, &judge, "fp16,int4,int4-nohead,q4_k", &options(2)).unwrap();
        let parameters: u64 = gguf.tensors().iter().map(|tensor| tensor.elements()).sum();
        let embedding = gguf.require_tensor("token_embd.weight").unwrap().elements();
        for entry in &report.schemes {
            let coverage = &entry.coverage;
            let all = coverage.matrices.all + coverage.embedding.all;
            assert_eq!(all + coverage.norms + coverage.unread, parameters, "{name} {}", entry.scheme);
            assert_eq!(coverage.embedding.all, embedding);
            assert_eq!(coverage.matrices.touched, coverage.matrices.all);
            if entry.scheme.ends_with("nohead") {
                assert_eq!((coverage.embedding.touched, coverage.left.len()), (0, 1));
                assert!(coverage.share < 1.0);
            } else {
                assert_eq!((coverage.embedding.touched, coverage.share), (embedding, 1.0));
            }
        }
        let half = named(&report, "fp16");
        assert_eq!((half.coverage.changed, half.bits_per_weight), (0, 16.0));
        assert_eq!((half.comparison.all.cosine.min, half.comparison.all.norm_ratio.max), (1.0, 1.0));
        assert!(half.comparison.all.task.is_none(), "there are no heads");
        let int4 = named(&report, "int4");
        assert!(int4.coverage.changed > parameters / 2 && int4.comparison.all.cosine.mean < 1.0);
        // What nohead leaves counts with the file's 16 bits.
        let left = named(&report, "int4-nohead");
        assert!(int4.bits_per_weight < left.bits_per_weight && left.bits_per_weight < 16.0);
        // Rows of 256 are blocks of Q4_K, others are not.
        let fallbacks = &named(&report, "q4_k").coverage.fallbacks;
        assert!(
            !fallbacks.is_empty() && fallbacks.iter().all(|fallback| fallback.ty == "Q5_0"),
            "{fallbacks:?}"
        );
    }
}

#[test]
fn c11_schemes_of_fewer_bits_come_farther_and_the_table_is_in_order() {
    let report = of_default("int2,fp16,int8,int3,int4-g32,q8_0,q4_0,f32", &options(2));
    let bits: Vec<f64> = report.schemes.iter().map(|entry| entry.bits_per_weight).collect();
    assert!(bits.windows(2).all(|pair| pair[0] <= pair[1]), "{bits:?}");
    let cosine = |scheme: &str| named(&report, scheme).comparison.all.cosine.mean;
    assert_eq!(cosine("f32"), 1.0);
    let order = ["fp16", "q8_0", "int8", "int4-g32", "int3", "int2"].map(cosine);
    assert!(order.windows(2).all(|pair| pair[0] > pair[1]), "{order:?}");
    for entry in &report.schemes {
        let all = &entry.comparison.all;
        assert_eq!((all.n, all.task.unwrap().n, all.accuracy.as_ref().unwrap().model.n), (5, 5, 5));
        assert_eq!(entry.coverage.share, 1.0);
    }
}

#[test]
fn a_report_is_the_same_for_any_number_of_threads() {
    let (mut one, mut three) =
        (of_default("int4-g64-rot,q4_k", &options(1)), of_default("int4-g64-rot,q4_k", &options(3)));
    for report in [&mut one, &mut three] {
        report.threads = 0;
        for entry in &mut report.schemes {
            (entry.load_seconds, entry.seconds) = (0.0, 0.0);
        }
    }
    assert_eq!(one, three);
}

#[test]
fn a_rotation_has_its_seed() {
    let cosine = |seed| {
        let report = of_default("int3-g64-rot", &Options { rotation_seed: seed, ..options(2) });
        report.schemes[0].comparison.all.cosine.mean
    };
    assert_eq!(cosine(1), cosine(1));
    assert_ne!(cosine(1), cosine(2));
    // At 8 bits what turning there and back adds is small: the rotation itself is undone.
    let report = of_default("int8,int8-rot", &options(2));
    assert!(named(&report, "int8-rot").comparison.all.cosine.mean > 0.98);
}

#[test]
fn errors_are_told_before_work_is_done() {
    let gguf = tiny("qwen3");
    let judge = Judge::without_heads(&gguf).unwrap();
    let failed = |list: &str| ablate(&gguf, &judge, list, &options(1)).unwrap_err();
    assert!(matches!(failed(""), AblateError::NoSchemes));
    assert!(matches!(failed("int8,int6"), AblateError::Scheme(_)));
    assert!(matches!(failed("int8,q8_0,int8"), AblateError::Twice { .. }));
    let cancelled = run(&gguf, &judge, &rows(), &schemes("int8").unwrap(), None, &options(1), &mut |_| {
        ControlFlow::Break(())
    });
    assert!(matches!(cancelled, Err(AblateError::Parity(ParityError::Cancelled))));
}

/// Rows to fit: so many of each of five tasks, then `more`.
fn to_fit(each: usize, more: &str) -> FitRows {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fit.jsonl");
    let mut text = String::new();
    for at in 0..each {
        for (task, prompt) in [
            ("code", "fix the bug in this rust function number"),
            ("cheap_chat", "good morning, nice to see you, friend"),
            ("reasoning", "explain step by step why rivers bend, case"),
            ("creative", "write a short story about dragon"),
            ("math", "what is the square of 17 plus"),
        ] {
            text.push_str(&format!("{{\"prompt\": \"{prompt} {at}\", \"task\": \"{task}\"}}\n"));
        }
    }
    std::fs::write(&file, text + more).unwrap();
    FitRows::read(&[file]).unwrap()
}

#[test]
fn heads_are_fitted_to_the_untouched_vectors_and_to_each_schemes_own() {
    let gguf = Gguf::open(Arc::new(Memory::new("model.gguf", MODEL.to_vec()))).unwrap();
    let judge = Judge::of(&pack()).unwrap();
    let fit = to_fit(
        6,
        "{\"prompt\": \" hi there, how are you?\", \"task\": \"code\"}\n{\"prompt\": \"no label\"}\n",
    );
    let list = schemes("f32,int2,int4-g32").unwrap();
    let of = |threads| {
        let (mut told, mut all) = (Vec::new(), 0);
        let report = run(&gguf, &judge, &rows(), &list, Some(&fit), &options(threads), &mut |now| {
            told.push(now.done);
            all = now.of;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(told.is_sorted() && told.last() == Some(&all), "{told:?} of {all}");
        report
    };
    let report = of(2);
    let mark = report.fit.as_ref().unwrap();
    // The judged prompt with a wrong label is not fitted to.
    assert_eq!((mark.rows, mark.overlap, mark.tasks.len(), mark.folds), (30, 1, 5, 5));
    assert!(!mark.choice.tried.is_empty() && mark.files[0].name == "fit.jsonl");
    let fitted = |scheme: &str| named(&report, scheme).fitted.as_ref().unwrap();
    let FittedHeads { kept, refitted } = fitted("f32");
    assert_eq!(kept, refitted, "the same vectors make the same head");
    assert_eq!(kept.task.unwrap().value, 1.0);
    let accuracy = kept.accuracy.unwrap();
    assert_eq!((accuracy.model.n, accuracy.difference, accuracy.low, accuracy.high), (5, 0.0, 0.0, 0.0));
    assert!(accuracy.model.hits >= 3, "{accuracy:?}");
    // Two bits leave little of the vectors: the kept head is lost on them.
    assert!(fitted("int2").kept.task.unwrap().value < 1.0);
    assert_eq!(fitted("int2").refitted.accuracy.unwrap().reference, accuracy.reference);
    for (a, b) in report.schemes.iter().zip(&of(1).schemes) {
        assert_eq!(a.fitted, b.fitted, "the same for any number of threads");
    }
    // Without heads of its own a backbone is judged by these alone.
    let gguf = tiny("qwen3");
    let judge = Judge::without_heads(&gguf).unwrap();
    let report =
        run(&gguf, &judge, &rows(), &list, Some(&fit), &options(2), &mut |_| ControlFlow::Continue(()));
    let report = report.unwrap();
    let entry = named(&report, "int2");
    assert!(
        entry.comparison.all.accuracy.is_none() && entry.fitted.as_ref().unwrap().kept.accuracy.is_some()
    );
}

#[test]
fn rows_that_cannot_be_fitted_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fit.jsonl");
    std::fs::write(&file, "{\"prompt\": \"a\", \"task\": \"code\"}\n").unwrap();
    assert!(matches!(FitRows::read(std::slice::from_ref(&file)), Err(FitError::Classes(_))));
    // The judged prompts themselves.
    let lines: Vec<String> = rows()
        .iter()
        .map(|(_, row)| {
            format!("{{\"prompt\": \"{}\", \"task\": \"{}\"}}", row.prompt, row.task.as_ref().unwrap())
        })
        .collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let fit = FitRows::read(&[file]).unwrap();
    let gguf = tiny("qwen3");
    let judge = Judge::without_heads(&gguf).unwrap();
    let list = schemes("int8").unwrap();
    let refused =
        run(&gguf, &judge, &rows(), &list, Some(&fit), &options(1), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(AblateError::Overlap { overlap: 5, left: 0 })), "{refused:?}");
}
