//! `fit` end to end: rows in, a pack's files out, and a router that reads them decides what the fit says.

use std::path::{Path, PathBuf};
use zen_edge_core::backbone::Pooling;
use zen_edge_core::config::RouterConfig;
use zen_edge_core::decision::Source;
use zen_edge_core::pack::{Pack, Part};
use zen_edge_core::router::{Calibration, Request, Router, RouterOptions};
use zen_edge_default_pack::pack;
use zen_edge_forge::fit::report::SCHEMA;
use zen_edge_forge::fit::{FitError, Fitted, Inputs, Options, Progress, Reading, Target, fit};
use zen_edge_tests::{need, shared};

fn write(folder: &Path, name: &str, lines: &[String]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

/// Labelled prompts of three tasks from several sources.
fn labelled(n: usize) -> Vec<String> {
    const KINDS: [(&str, &str); 3] = [
        ("code", "write a python function that sorts a list of numbers"),
        ("math", "calculate the integral of the polynomial x^2 + 3x"),
        ("cheap_chat", "hello there, how are you doing today?"),
    ];
    (0..n)
        .map(|i| {
            let (task, text) = KINDS[i % 3];
            let (prompt, source) = (format!("{text} ({i})"), format!("{task}-{}", i / 3 % 4));
            serde_json::json!({"prompt": prompt, "task": task, "source": source, "lang": "en"}).to_string()
        })
        .collect()
}

/// Outcomes of two models: the dear one is right where there is something to calculate.
fn outcomes(n: usize) -> Vec<String> {
    (0..2 * n)
        .map(|i| {
            let hard = (i / 2).is_multiple_of(2);
            let prompt = match hard {
                true => format!("calculate the integral of {}x^2", i / 2),
                false => format!("hello, I am person {}", i / 2),
            };
            let (model, cost, right) = if i.is_multiple_of(2) {
                ("org/Dear-Model", 0.01, hard)
            } else {
                ("cheap-model", 0.0002, !hard)
            };
            let task = if hard { "math" } else { "cheap_chat" };
            serde_json::json!({"prompt": prompt, "model": model, "quality": f64::from(u8::from(right)),
                "cost": cost, "latency_ms": null, "task": task})
            .to_string()
        })
        .collect()
}

fn inputs(rows: Vec<PathBuf>) -> Inputs {
    Inputs { rows, model: pack().model, base: "small".to_owned(), catalog: None, cache: None, date: None }
}

/// The reading of the default pack's heads.
fn options() -> Options {
    let config = RouterConfig::parse(&pack().config.bytes, "c").unwrap();
    let reading = Reading {
        max_chars: config.max_chars,
        max_tokens: config.max_tokens,
        add_bos: config.add_bos,
        add_eos: config.add_eos,
        ..Reading::default()
    };
    Options { reading, ..Options::default() }
}

fn run(inputs: &Inputs, options: &Options) -> Result<Fitted, FitError> {
    fit(inputs, options, &mut |_| {})
}

fn router(folder: &Path) -> Router {
    let pack = Pack::with_heads(pack().model, folder).unwrap();
    Router::load(&pack, &RouterOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn rows_become_a_pack_that_a_fresh_router_decides_by() {
    let folder = tempfile::tempdir().unwrap();
    let rows = vec![
        write(folder.path(), "rows.jsonl", &labelled(120)),
        write(folder.path(), "profiles.jsonl", &outcomes(80)),
    ];
    let cache = folder.path().join("vectors");
    let inputs = Inputs { cache: Some(cache), ..inputs(rows) };
    let mut steps = Vec::new();
    let fitted = fit(&inputs, &options(), &mut |step| steps.push(step)).unwrap();
    assert!(matches!(steps[0], Progress::Reading(0, of) if of > 0));
    assert!(steps.iter().any(|step| matches!(step, Progress::Reading(done, of) if done == of)));
    let out = folder.path().join("out");
    fitted.write(&out).unwrap();
    let mut names: Vec<String> = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["catalog.yaml", "heads.safetensors", "report.html", "report.json", "router_config.json"]
    );

    let (one, other) = (router(&out), router(&out));
    assert_eq!(one.calibration(), &Calibration::Fitted);
    assert_eq!(one.heads().trained().rows(), [true, true]);
    assert!(one.config().unknown.is_empty(), "{:?}", one.config().unknown);
    for (prompt, task, model) in [
        ("calculate the integral of 77x^2", "math", "org/Dear-Model"),
        ("hello, I am person 1000", "cheap_chat", "cheap-model"),
    ] {
        let a = one.route(prompt, &Request::default()).unwrap();
        let b = other.route(prompt, &Request::default()).unwrap();
        assert_eq!(a.decision, b.decision);
        assert_eq!((a.decision.task.name(), a.decision.model()), (task, Some(model)), "{prompt}");
        assert_eq!(a.decision.source, Source::Learned);
        assert_eq!(
            one.heads().features(&one.embed(prompt, &Request::default()).unwrap().vector).unwrap().len(),
            256
        );
    }

    let report = &fitted.report;
    let held = report.task.held_out.as_ref().unwrap();
    assert_eq!((report.schema, report.task.split, report.task.groups), (SCHEMA, "source", 12));
    assert!(held.scores.balanced_accuracy > 0.95 && report.task.dealings.len() == 3, "{held:?}");
    assert_eq!(report.task.confusion.iter().flatten().sum::<usize>(), 120);
    let route = report.route.as_ref().unwrap();
    assert_eq!(route.panels.len(), 1);
    assert!(route.panels[0].head.quality > 0.95 && route.panels[0].random.quality == 0.5, "{route:?}");
    assert_eq!(report.embedding.read, 200);

    // The next run reads nothing, and one thread gives the same heads as two.
    let again = run(&inputs, &Options { threads: Some(1), ..options() }).unwrap();
    assert_eq!(again.report.embedding.read, 0);
    let two = run(&inputs, &Options { threads: Some(2), ..options() }).unwrap();
    assert!(again.heads == fitted.heads && two.heads == fitted.heads);
    assert_eq!((&again.config, &again.catalog), (&fitted.config, &fitted.catalog));
}

#[test]
fn a_catalog_of_ones_own_and_a_read_out_of_several_parts() {
    let folder = tempfile::tempdir().unwrap();
    let rows = vec![
        write(folder.path(), "rows.jsonl", &labelled(60)),
        write(folder.path(), "profiles.jsonl", &outcomes(60)),
    ];
    let catalog = "models:\n  - {id: cheap-model, backend: cloud, provider: p, tasks: [general], cost_per_1k: 0.0002}\n  \
                   - {id: a-local-one, backend: local, est_bytes: 1000, tasks: [general]}\n  \
                   - {id: dear-model, backend: cloud, provider: p, tasks: [math], cost_per_1k: 0.02}\n";
    let part = Part::new("mine.yaml", catalog);
    let reading = Reading { pooling: "last+mean@1+length".parse().unwrap(), ..options().reading };
    let options = Options { reading, feature_dim: Some(20), ..options() };
    for target in [Target::Utility, Target::Soft, Target::Hard] {
        let inputs = Inputs { catalog: Some(part.clone()), ..inputs(rows.clone()) };
        let fitted = run(&inputs, &Options { target, tfidf: false, ..options.clone() }).unwrap();
        let out = folder.path().join(format!("{target:?}"));
        fitted.write(&out).unwrap();
        assert_eq!(std::fs::read(out.join("catalog.yaml")).unwrap(), catalog.as_bytes());
        let router = router(&out);
        assert_eq!(router.config().pooling, "last+mean@1+length".parse::<Pooling>().unwrap());
        assert_eq!(router.heads().trained().rows(), [true, false, true], "no outcomes, not trained");
        let outcome = router.route("calculate the integral of 4x^2", &Request::default()).unwrap();
        assert_eq!(outcome.decision.model(), Some("dear-model"), "{target:?}");
        let vector = router.embed("hello", &Request::default()).unwrap().vector;
        assert_eq!((vector.len(), router.heads().features(&vector).unwrap().len()), (513, 20));
    }
    let short = Part::new("short.yaml", "models:\n  - {id: cheap-model, backend: cloud, provider: p}\n");
    let error = run(&Inputs { catalog: Some(short), ..inputs(rows) }, &options).unwrap_err();
    assert!(matches!(&error, FitError::UnknownModels { ids, .. } if ids == &["org/Dear-Model"]), "{error}");
}

#[test]
fn rows_that_name_the_model_teach_it() {
    let folder = tempfile::tempdir().unwrap();
    let line = |i: usize, reward: bool| {
        let hard = i.is_multiple_of(2);
        let prompt = match hard {
            true => format!("calculate the integral of {i}x^2"),
            false => format!("hello, I am person {i}"),
        };
        let mut row = serde_json::json!({"prompt": prompt, "task": if hard { "math" } else { "cheap_chat" },
            "route": if hard { "a" } else { "b" }});
        if reward {
            // Each model was tried on each prompt by turns.
            let route = if (i / 2).is_multiple_of(2) { "a" } else { "b" };
            row["route"] = route.into();
            row["reward"] = f64::from(u8::from((route == "a") == hard)).into();
        }
        row.to_string()
    };
    for reward in [false, true] {
        let lines: Vec<String> = (0..80).map(|i| line(i, reward)).collect();
        let rows = vec![write(folder.path(), "rows.jsonl", &lines)];
        let out = folder.path().join(format!("{reward}"));
        run(&inputs(rows), &options()).unwrap().write(&out).unwrap();
        let router = router(&out);
        for (prompt, model) in [("calculate the integral of 401x^2", "a"), ("hello, I am person 403", "b")] {
            let outcome = router.route(prompt, &Request::default()).unwrap();
            assert_eq!(outcome.decision.model(), Some(model), "{prompt}, rewards {reward}");
        }
    }
}

#[test]
fn few_rows_are_no_panic_and_no_claim() {
    let folder = tempfile::tempdir().unwrap();
    for n in [2, 3, 4, 7] {
        let rows = vec![
            write(folder.path(), "rows.jsonl", &labelled(n)),
            write(folder.path(), "profiles.jsonl", &outcomes(3)),
        ];
        let fitted = run(&inputs(rows), &options()).unwrap();
        let out = folder.path().join(n.to_string());
        fitted.write(&out).unwrap();
        let router = router(&out);
        assert_eq!(router.heads().trained().count(), 0, "three outcomes train no row");
        assert!(router.config().tasks.len() == n.min(3), "a task without rows is no row of the head");
        let outcome = router.route("calculate the integral of 77x^2", &Request::default()).unwrap();
        assert!(outcome.decision.model().is_some(), "rules choose");
        assert!(fitted.report.notes.iter().any(|note| note.contains("vision")), "{:?}", fitted.report.notes);
    }
    // One source: nothing to hold out by, so prompts are.
    let mut lines = labelled(30);
    lines.iter_mut().for_each(|line| *line = line.replace("code-", "x").replace("\"source\"", "\"other\""));
    let rows = vec![
        write(folder.path(), "rows.jsonl", &[lines.clone(), lines].concat()),
        write(folder.path(), "profiles.jsonl", &outcomes(3)),
    ];
    let report = run(&inputs(rows), &options()).unwrap().report;
    assert_eq!((report.task.split, report.data.duplicates, report.data.task_rows), ("prompt", 30, 30));
    assert!(report.task.calibration.is_some());
}

#[test]
fn what_cannot_be_fitted_is_refused_by_cause() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, lines: &[String], options: &Options| {
        run(&inputs(vec![write(folder.path(), name, lines)]), options).unwrap_err()
    };
    let plain = options();
    let code: Vec<String> = labelled(9).into_iter().step_by(3).collect();
    assert!(matches!(refused("a", &code, &plain), FitError::Classes(of) if of == ["code"]));
    assert!(matches!(refused("b", &["{\"prompt\": \"x\"}".to_owned()], &plain), FitError::Classes(_)));
    assert!(matches!(refused("c", &labelled(9), &plain), FitError::NoModels));
    assert!(matches!(refused("d", &[], &plain), FitError::Rows(_)));
    assert!(matches!(run(&inputs(Vec::new()), &plain).unwrap_err(), FitError::NoRows));
    let error = refused("e", &["{\"prompt\": \"x\", \"task\": \"cooking\"}".to_owned()], &plain).to_string();
    assert!(error.contains("e:1: ") && error.contains("cooking"), "{error}");
    for options in [
        Options { l2: Some(0.0), ..plain.clone() },
        Options { l2: Some(f64::NAN), ..plain.clone() },
        Options { lambda: -1.0, ..plain.clone() },
        Options { feature_dim: Some(0), ..plain.clone() },
        Options { reading: Reading { max_tokens: 0, ..plain.reading.clone() }, ..plain.clone() },
    ] {
        assert!(matches!(refused("f", &outcomes(3), &options), FitError::Option { .. }));
    }
    let reading = Reading { pooling: "mean@9".parse().unwrap(), ..plain.reading.clone() };
    let error = refused("g", &outcomes(3), &Options { reading, ..plain });
    assert!(error.to_string().contains("mean@9"), "{error}");
}

/// The real rows, of which a part is enough: on sources held out the head is far better than what needs no backbone.
#[test]
fn h14_on_sources_held_out_the_head_beats_words() {
    let name = "h14_on_sources_held_out_the_head_beats_words";
    let Some(dev) = need(name, "the labelled prompts", shared("data/prompts/dev.jsonl")) else { return };
    let text = std::fs::read_to_string(dev).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Long documents take most of the time and are told by their length.
    let lines: Vec<String> = text.lines().filter(|line| line.len() < 1500).map(str::to_owned).collect();
    let rows = vec![write(folder.path(), "dev.jsonl", &lines), write(folder.path(), "p", &outcomes(5))];
    let report = run(&inputs(rows), &options()).unwrap().report;
    let of = |name| report.task.baselines[name].scores.balanced_accuracy;
    let head = report.task.held_out.as_ref().unwrap().scores.balanced_accuracy;
    assert_eq!(report.task.split, "source");
    assert!(
        head > of("tf-idf") + 0.05 && head > of("keywords") + 0.2 && head > of("majority") + 0.2,
        "{head}"
    );
    let calibration = report.task.calibration.as_ref().unwrap();
    assert!(calibration.ece[1] <= calibration.ece[0] + 0.01 && calibration.ece[1] < 0.1, "{calibration:?}");
}
