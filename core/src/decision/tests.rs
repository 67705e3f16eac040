use super::heads::exp_of_negative;
use super::*;
use crate::catalog::Level;
use crate::config::RouterConfig;
use crate::heads::{Logits, TrainedMask};
use crate::rules::{Classified, Cue};
use proptest::prelude::*;
use serde_json::json;

fn catalog_of(rows: serde_json::Value) -> Catalog {
    Catalog::parse(rows.to_string().as_bytes(), "catalog").unwrap()
}

/// Models: two local, three at two providers.
fn models() -> Catalog {
    catalog_of(json!([
        {"id": "small", "backend": "local", "est_bytes": 1000, "tasks": ["cheap_chat", "general"], "quality": 0.4,
         "latency_ms": 50, "max_context": 4096},
        {"id": "large", "backend": "local", "est_bytes": 9000, "tasks": ["code"], "quality": 0.6},
        {"id": "coder", "backend": "cloud", "provider": "p", "tasks": ["code"], "cost_per_1k": 0.01, "quality": 0.8,
         "latency_ms": 400, "tokens_per_second": 100, "levels": ["balanced", "max"]},
        {"id": "sage", "backend": "cloud", "provider": "p", "tasks": ["reasoning", "general"], "cost_per_1k": 0.04,
         "quality": 0.9, "latency_ms": 900},
        {"id": "eye", "backend": "cloud", "provider": "q", "tasks": ["vision"], "cost_per_1k": 0.002},
    ]))
}

const IDS: [&str; 5] = ["small", "large", "coder", "sage", "eye"];

fn binding(catalog: &Catalog, extra: serde_json::Value) -> Binding {
    let ids: Vec<&str> = catalog.cards().iter().map(|card| card.id.as_str()).collect();
    let mut config = json!({"tasks": Task::NAMES, "catalog": ids, "hidden_size": 4, "feature_dim": 1});
    config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let config = RouterConfig::parse(config.to_string().as_bytes(), "config").unwrap();
    let mask = TrainedMask::Stated(config.trained.clone().unwrap_or_else(|| vec![true; ids.len()]));
    Binding::new(&config, &mask, catalog).unwrap()
}

/// Logits that are sure of a task and of a model.
fn logits(task: Task, route: &[f32]) -> Logits {
    Logits { task: Task::ALL.map(|t| if t == task { 5.0 } else { 0.0 }).to_vec(), route: route.to_vec() }
}

fn rules(task: Task) -> Classified {
    Classified { task, cue: Cue::Text, tokens: 20 }
}

fn by_rules(task: Task) -> Evidence<'static> {
    Evidence { rules: rules(task), has_media: false, heads: Err(Absent::RulesOnly) }
}

fn by_heads<'a>(binding: &'a Binding, logits: &'a Logits) -> Evidence<'a> {
    let heads = Ok(Learned { binding, logits, quality: None });
    Evidence { rules: rules(Task::General), has_media: false, heads }
}

/// Room for the small model alone.
fn context() -> Context {
    let memory = MemorySnapshot { available: 2000, total: 16_000, unified: true };
    Context { memory: Some(memory), ..Context::default() }
}

fn run(evidence: &Evidence, limits: &Limits, context: &Context) -> Decision {
    decide(evidence, &models(), &Policy::default(), limits, context)
}

fn why_not(decision: &Decision, model: &str) -> Option<WhyNot> {
    decision.candidates.iter().find(|c| c.model == model).unwrap().why_not
}

fn cloud(provider: &str, model: &str) -> Route {
    Route::Cloud { provider: provider.into(), model: model.into() }
}

#[test]
fn the_walk_is_that_of_hanzo_router() {
    let everywhere = Limits::default();
    // Code: `large` does not fit, so `coder`.
    let decision = run(&by_rules(Task::Code), &everywhere, &context());
    assert_eq!(decision.route, cloud("p", "coder"));
    assert_eq!((decision.source, decision.reason), (Source::Rules, Reason::RulesOnly));
    assert_eq!(why_not(&decision, "large"), Some(WhyNot::DoesNotFit { needs: 9000, budget: 1700 }));
    // With room it is loaded.
    let memory = MemorySnapshot { available: 10_600, total: 16_000, unified: true };
    let roomy = Context { memory: Some(memory), ..Context::default() };
    let decision = run(&by_rules(Task::Code), &everywhere, &roomy);
    assert_eq!(decision.route, Route::LoadLocal { model: "large".into(), est_bytes: 9000 });
    // Discrete memory: .70 of 10,600 do not hold it.
    let memory = MemorySnapshot { unified: false, ..memory };
    let discrete = Context { memory: Some(memory), ..Context::default() };
    assert_eq!(run(&by_rules(Task::Code), &everywhere, &discrete).route, cloud("p", "coder"));
    // A local model that runs is used before any other, also one of lower preference.
    let running = Context { running: vec!["small-20250101".into()], ..context() };
    assert_eq!(
        run(&by_rules(Task::Code), &everywhere, &running).route,
        Route::Reuse { model: "small".into() }
    );
    // A cloud model does not run here, whatever is claimed.
    let running = Context { running: vec!["sage".into()], ..context() };
    assert_eq!(run(&by_rules(Task::Code), &everywhere, &running).route, cloud("p", "coder"));
    // No task tag: those with `general`. Nothing at all: no fit.
    assert_eq!(run(&by_rules(Task::Math), &everywhere, &context()).model(), Some("small"));
    let none = Limits { exclude: IDS.map(Into::into).to_vec(), ..Limits::default() };
    let decision = run(&by_rules(Task::Math), &none, &context());
    assert_eq!((&decision.route, decision.model()), (&Route::NoFit, None));
    assert!(decision.candidates.iter().all(|c| c.why_not == Some(WhyNot::Excluded)));
}

#[test]
fn h17_a_policy_prefers_caps_and_defaults() {
    let policy = |text: &str| Policy::parse(text.as_bytes(), "policy").unwrap();
    let with = |text, task| {
        let decision = decide(&by_rules(task), &models(), &policy(text), &Limits::default(), &context());
        (decision.route, decision.source)
    };
    // Models that do not list the task may be preferred; unknown ids are passed over.
    let (route, _) = with("prefer: {code: [gone, sage-20250101, coder]}", Task::Code);
    assert_eq!(route, cloud("p", "sage"));
    let (route, _) = with("prefer: {code: [sage, coder]}\ncost_ceiling: 0.02", Task::Code);
    assert_eq!(route, cloud("p", "coder"));
    let (route, _) = with("memory_fraction: 0.4\ncost_ceiling: 0", Task::General);
    assert_eq!(route, Route::NoFit);
    // h17: a declared default, strictly after all else, and never beyond a limit.
    let (route, source) = with("default: eye\nmemory_fraction: 0.4\ncost_ceiling: 0.02", Task::General);
    assert_eq!((route, source), (cloud("q", "eye"), Source::Fallback));
    let (route, source) = with("default: eye", Task::General);
    assert_eq!((route.model(), source), (Some("small"), Source::Rules));
    let limits = Limits { offline: true, exclude: vec!["small".into()], ..Limits::default() };
    let decision = decide(&by_rules(Task::General), &models(), &policy("default: eye"), &limits, &context());
    assert_eq!(decision.route, Route::NoFit);
    assert_eq!(why_not(&decision, "eye"), Some(WhyNot::Offline));
}

#[test]
fn the_heads_choose_by_score() {
    let catalog = models();
    let heads = binding(&catalog, json!({}));
    let sure = logits(Task::Code, &[0.0, 0.0, 1.0, 3.0, 0.0]);
    let decision = run(&by_heads(&heads, &sure), &Limits::default(), &context());
    assert_eq!(decision.route, cloud("p", "sage"));
    assert_eq!(
        (decision.task, decision.task_source, decision.source),
        (Task::Code, Source::Learned, Source::Learned)
    );
    assert_eq!(decision.reason, Reason::BestScore);
    // score = p − .35·cost − .15·seconds; p by hand.
    let e = std::f64::consts::E;
    let sum = 3.0 + e + e.powi(3);
    let top = &decision.candidates[0];
    assert!((top.probability.unwrap() - e.powi(3) / sum).abs() < 1e-12);
    assert!((top.score.unwrap() - (e.powi(3) / sum - 0.35 * 0.04 - 0.15 * 0.9)).abs() < 1e-12);
    // The latency of `coder` is that of the first token and of 256 more.
    let coder = decision.candidates.iter().find(|c| c.model == "coder").unwrap();
    assert_eq!(coder.latency_ms, Some(400.0 + 2560.0));
    assert!((coder.score.unwrap() - (e / sum - 0.35 * 0.01 - 0.15 * 2.96)).abs() < 1e-12);
    // Weights move the choice; those of the limits go before those of the config.
    let costly = Limits { lambda: Some(20.0), ..Limits::default() };
    assert_ne!(run(&by_heads(&heads, &sure), &costly, &context()).model(), Some("sage"));
    let heads = binding(&catalog, json!({"lambda_cost": 20.0}));
    assert_ne!(run(&by_heads(&heads, &sure), &Limits::default(), &context()).model(), Some("sage"));
    let free = Limits { lambda: Some(0.0), mu: Some(0.0), ..Limits::default() };
    assert_eq!(run(&by_heads(&heads, &sure), &free, &context()).model(), Some("sage"));
    // A local model by score is reused or loaded.
    let local = logits(Task::Code, &[4.0, 0.0, 0.0, 0.0, 0.0]);
    let decision = run(&by_heads(&heads, &local), &Limits::default(), &context());
    assert_eq!(decision.route, Route::LoadLocal { model: "small".into(), est_bytes: 1000 });
    let running = Context { running: vec!["small".into()], ..context() };
    let decision = run(&by_heads(&heads, &local), &Limits::default(), &running);
    assert_eq!(decision.route, Route::Reuse { model: "small".into() });
}

#[test]
fn equal_scores_go_to_the_first_row() {
    let catalog = catalog_of(json!([
        {"id": "a", "backend": "cloud", "provider": "p"},
        {"id": "b", "backend": "cloud", "provider": "p"},
    ]));
    let config = json!({"tasks": ["code"], "catalog": ["b", "a"], "hidden_size": 4, "feature_dim": 1});
    let config = RouterConfig::parse(config.to_string().as_bytes(), "config").unwrap();
    let heads = Binding::new(&config, &TrainedMask::Stated(vec![true; 2]), &catalog).unwrap();
    let even = Logits { task: vec![0.0], route: vec![1.0, 1.0] };
    let decision = decide(
        &by_heads(&heads, &even),
        &catalog,
        &Policy::default(),
        &Limits::default(),
        &Context::default(),
    );
    assert_eq!(decision.model(), Some("b"));
}

#[test]
fn untrained_rows_are_reached_by_rules_alone() {
    let catalog = models();
    let heads = binding(&catalog, json!({"trained": ["coder"]}));
    // The noise of an untrained row may be as large as it will.
    let noise = logits(Task::Code, &[0.0, 0.0, -5.0, 90.0, 0.0]);
    let decision = run(&by_heads(&heads, &noise), &Limits::default(), &context());
    assert_eq!((decision.model(), decision.source), (Some("coder"), Source::Learned));
    assert_eq!(why_not(&decision, "sage"), Some(WhyNot::Untrained));
    assert_eq!(decision.candidates[0].probability, Some(1.0), "the softmax runs over trained rows");
    // The one trained row is not feasible: rules, which may take any.
    let limits = Limits { exclude: vec!["coder".into()], ..Limits::default() };
    let decision = run(&by_heads(&heads, &noise), &limits, &context());
    assert_eq!((decision.model(), decision.source), (Some("small"), Source::Rules));
    assert_eq!(
        (decision.reason, decision.task, decision.task_source),
        (Reason::NoTrainedFeasible, Task::Code, Source::Learned)
    );
    assert!(decision.candidates.iter().all(|c| c.why_not != Some(WhyNot::Untrained)));
    // No row at all: the task is still the heads'.
    let heads = binding(&catalog, json!({"trained": []}));
    let decision = run(&by_heads(&heads, &noise), &Limits::default(), &context());
    assert_eq!((decision.reason, decision.task), (Reason::NoTrainedRow, Task::Code));
    // h2: a card may keep a trained row from the heads.
    let rows = json!([{"id": "a", "backend": "cloud", "provider": "p", "trained": false, "tasks": ["code"]}]);
    let catalog = catalog_of(rows);
    let heads = binding(&catalog, json!({}));
    let one = logits(Task::Code, &[1.0]);
    let decision = decide(
        &by_heads(&heads, &one),
        &catalog,
        &Policy::default(),
        &Limits::default(),
        &Context::default(),
    );
    assert_eq!((decision.model(), decision.source), (Some("a"), Source::Rules));
}

#[test]
fn h5_low_confidence_goes_to_the_rules() {
    let catalog = models();
    let unsure =
        Logits { task: vec![0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], route: vec![0.0, 0.0, 9.0, 0.0, 0.0] };
    let heads = binding(&catalog, json!({"min_confidence": 0.4}));
    let decision = run(&by_heads(&heads, &unsure), &Limits::default(), &context());
    assert_eq!(
        (decision.task, decision.task_source, decision.source),
        (Task::General, Source::Rules, Source::Rules)
    );
    let Reason::LowConfidence { confidence, threshold, calibrated } = decision.reason else {
        panic!("{:?}", decision.reason)
    };
    assert!(confidence < 0.15 && threshold == 0.4 && !calibrated);
    // The caller's threshold goes before the config's.
    let limits = Limits { min_confidence: Some(0.0), ..Limits::default() };
    assert_eq!(run(&by_heads(&heads, &unsure), &limits, &context()).source, Source::Learned);
    // What the caller knows of the task needs no confidence.
    let hinted =
        Evidence { rules: Classified { cue: Cue::Hint, ..rules(Task::Math) }, ..by_heads(&heads, &unsure) };
    let decision = run(&hinted, &Limits::default(), &context());
    assert_eq!(
        (decision.task, decision.task_source, decision.source),
        (Task::Math, Source::Rules, Source::Learned)
    );
}

#[test]
fn h16_calibrated_and_raw_confidence_are_both_shown() {
    let catalog = models();
    let heads = binding(&catalog, json!({"temperature": {"task": 2.0, "route": 4.0}, "min_confidence": 0.9}));
    let sure = logits(Task::Code, &[0.0, 0.0, 4.0, 0.0, 0.0]);
    let decision = run(&by_heads(&heads, &sure), &Limits::default(), &context());
    let e = |x: f32| x.exp();
    let Confidence { raw: Some(raw), calibrated: Some(calibrated) } = decision.task_confidence else {
        panic!()
    };
    assert!((raw - e(5.0) / (e(5.0) + 7.0)).abs() < 1e-6);
    assert!((calibrated - e(2.5) / (e(2.5) + 7.0)).abs() < 1e-6);
    // The raw figure passes the threshold of .9, the calibrated one does not: it decides.
    assert!(raw > 0.9);
    assert!(matches!(decision.reason, Reason::LowConfidence { calibrated: true, .. }));
    assert_eq!(decision.confidence, Confidence::default(), "the heads did not choose the model");
    let limits = Limits { min_confidence: Some(0.1), mu: Some(0.0), ..Limits::default() };
    let decision = run(&by_heads(&heads, &sure), &limits, &context());
    let Confidence { raw: Some(raw), calibrated: Some(calibrated) } = decision.confidence else { panic!() };
    assert!(
        (raw - e(4.0) / (e(4.0) + 4.0)).abs() < 1e-6 && (calibrated - e(1.0) / (e(1.0) + 4.0)).abs() < 1e-6
    );
    // Without temperatures there is no calibrated figure, and that is said.
    let heads = binding(&catalog, json!({}));
    let decision = run(&by_heads(&heads, &sure), &limits, &context());
    assert!(decision.task_confidence.calibrated.is_none() && decision.confidence.calibrated.is_none());
}

#[test]
fn h7_h11_source_scores_and_reasons_are_always_there() {
    let catalog = models();
    let heads = binding(&catalog, json!({}));
    let sure = logits(Task::Code, &[0.0, 0.0, 1.0, 3.0, 0.0]);
    for evidence in [by_heads(&heads, &sure), by_rules(Task::Code), by_rules(Task::Reasoning)] {
        let decision = run(&evidence, &Limits::default(), &context());
        assert_eq!(decision.candidates.len(), 5);
        assert_eq!(decision.candidates[0].model, decision.model().unwrap());
        let expected = if evidence.heads.is_ok() { Source::Learned } else { Source::Rules };
        assert_eq!(decision.source, expected);
        let top: Vec<_> = decision.top(3).collect();
        assert!(!top.is_empty() && top.iter().all(|c| c.score.is_some()));
        assert!(top.windows(2).all(|pair| pair[0].score >= pair[1].score), "{top:?}");
        for candidate in &decision.candidates {
            assert_eq!(candidate.feasible, candidate.why_not.is_none(), "{candidate:?}");
        }
        assert!(!decision.reason.to_string().is_empty());
    }
    // Each cause why the heads were not asked is told.
    for (absent, words) in [
        (Absent::NotLoaded, "not loaded"),
        (Absent::EmptyInput, "empty"),
        (Absent::Deadline { estimate_ms: Some(80.0), deadline_ms: 20.0 }, "80 ms"),
        (Absent::Deadline { estimate_ms: None, deadline_ms: 20.0 }, "20 ms"),
        (Absent::TooHot, "too hot"),
        (Absent::Failed, "failed"),
    ] {
        let evidence = Evidence { heads: Err(absent), ..by_rules(Task::Code) };
        let decision = run(&evidence, &Limits::default(), &context());
        assert!(decision.reason.to_string().contains(words), "{}", decision.reason);
        assert_eq!(serde_json::to_value(decision.reason).unwrap(), serde_json::to_value(absent).unwrap());
    }
}

#[test]
fn each_reason_against_a_model() {
    let plain = Limits::default();
    let say = |limits: &Limits, context: &Context, model: &str| {
        let decision = run(&by_rules(Task::General), limits, context);
        let why = why_not(&decision, model).unwrap_or_else(|| panic!("{model} is feasible"));
        assert_ne!(decision.model(), Some(model));
        assert!(!why.to_string().is_empty());
        why
    };
    let limit = |json: serde_json::Value| -> Limits { serde_json::from_value(json).unwrap() };
    assert_eq!(say(&limit(json!({"offline": true})), &context(), "sage"), WhyNot::Offline);
    assert_eq!(say(&limit(json!({"require": {"vision": true}})), &context(), "sage"), WhyNot::NoVision);
    assert_eq!(
        say(&limit(json!({"require": {"min_context": 5000}})), &context(), "small"),
        WhyNot::ContextTooSmall { has: 4096, needs: 5000 }
    );
    assert_eq!(
        say(&limit(json!({"level": "fast"})), &context(), "coder"),
        WhyNot::LevelUnavailable { level: Level::Fast }
    );
    assert_eq!(
        say(&limit(json!({"max_cost": 0.03})), &context(), "sage"),
        WhyNot::TooExpensive { cost: 0.04, limit: 0.03 }
    );
    assert_eq!(say(&limit(json!({"min_quality": 0.1})), &context(), "eye"), WhyNot::QualityUnknown);
    assert_eq!(
        say(&limit(json!({"min_quality": 0.85})), &context(), "coder"),
        WhyNot::QualityTooLow { quality: 0.8, limit: 0.85 }
    );
    assert_eq!(say(&limit(json!({"max_latency_ms": 1000})), &context(), "eye"), WhyNot::LatencyUnknown);
    assert_eq!(
        say(&limit(json!({"max_latency_ms": 1000})), &context(), "coder"),
        WhyNot::TooSlow { latency: 2960.0, limit: 1000.0 }
    );
    // Unknown figures pass where the caller says so.
    let lenient = limit(json!({"max_latency_ms": 1000, "min_quality": 0.1, "allow_unknown": true}));
    let decision = run(&by_rules(Task::Vision), &lenient, &context());
    assert_eq!(decision.model(), Some("eye"));
    // A limit that is no number lets nothing pass.
    for limits in [
        Limits { max_cost: Some(f64::NAN), ..Limits::default() },
        Limits { min_quality: Some(f64::NAN), ..Limits::default() },
        Limits { max_latency_ms: Some(f64::NAN), ..Limits::default() },
    ] {
        assert_eq!(run(&by_rules(Task::General), &limits, &context()).route, Route::NoFit);
    }

    let provider = |json: serde_json::Value| -> Context {
        serde_json::from_value(json!({"now_ms": 1000, "providers": {"p": json}})).unwrap()
    };
    assert_eq!(say(&plain, &provider(json!({"down": true})), "sage"), WhyNot::ProviderDown);
    assert_eq!(
        say(&plain, &provider(json!({"limited_until_ms": 1001})), "sage"),
        WhyNot::RateLimited { until_ms: Some(1001) }
    );
    assert_eq!(
        say(&plain, &provider(json!({"requests_left": 0})), "sage"),
        WhyNot::RateLimited { until_ms: None }
    );
    // 20 + 256 tokens at .04 for 1,000.
    let WhyNot::BudgetSpent { expected, .. } =
        say(&plain, &provider(json!({"spent_usd": 0.99, "budget_usd": 1.0})), "sage")
    else {
        panic!()
    };
    assert!((expected - 0.01104).abs() < 1e-12);
    for fine in [
        json!({"limited_until_ms": 1000}),
        json!({"spent_usd": 0.98, "budget_usd": 1.0}),
        json!({"requests_left": 1}),
    ] {
        assert_eq!(run(&by_rules(Task::Reasoning), &plain, &provider(fine)).model(), Some("sage"));
    }

    let small = |change: fn(&mut Context)| {
        let mut context = context();
        change(&mut context);
        say(&plain, &context, "small")
    };
    assert_eq!(small(|c| c.thermal = Thermal::Serious), WhyNot::Hot);
    assert_eq!(small(|c| c.power.saving = true), WhyNot::LowPower);
    assert_eq!(small(|c| c.power.battery = Some(0.05)), WhyNot::LowPower);
    assert_eq!(small(|c| c.memory = None), WhyNot::MemoryUnknown);
    assert_eq!(
        small(|c| c.memory = Some(MemorySnapshot { available: u64::MAX, total: 1000, unified: true })),
        WhyNot::DoesNotFit { needs: 1000, budget: 850 }
    );
    // What runs already goes on, unless the device is too hot.
    let mut running =
        Context { running: vec!["small".into()], thermal: Thermal::Serious, ..Context::default() };
    assert_eq!(run(&by_rules(Task::General), &plain, &running).model(), Some("small"));
    running.thermal = Thermal::Critical;
    assert_eq!(say(&plain, &running, "small"), WhyNot::Hot);

    let rows = json!([{"id": "a", "backend": "cloud", "provider": "p", "tasks": ["general"], "disabled": true},
        {"id": "b", "backend": "local", "tasks": ["general"]}, {"id": "c", "backend": "cloud", "provider": "p"}]);
    let odd = catalog_of(rows);
    let decision = decide(&by_rules(Task::General), &odd, &Policy::default(), &plain, &context());
    assert_eq!(decision.route, Route::NoFit);
    assert_eq!(
        ["a", "b", "c"].map(|m| why_not(&decision, m).unwrap()),
        [WhyNot::Disabled, WhyNot::SizeUnknown, WhyNot::NotForTask]
    );
}

#[test]
fn the_prompt_itself_makes_demands() {
    // Media asks for a model that reads images.
    let media = Evidence { has_media: true, ..by_rules(Task::General) };
    assert_eq!(run(&media, &Limits::default(), &context()).route, Route::NoFit);
    let media = Evidence { has_media: true, ..by_rules(Task::Vision) };
    assert_eq!(run(&media, &Limits::default(), &context()).model(), Some("eye"));
    // A prompt that is longer than a context.
    let long =
        Evidence { rules: Classified { tokens: 5000, ..rules(Task::General) }, ..by_rules(Task::General) };
    let decision = run(&long, &Limits::default(), &context());
    assert_eq!(why_not(&decision, "small"), Some(WhyNot::ContextTooSmall { has: 4096, needs: 5000 }));
    // A prompt of 32,000 tokens is long_context, whatever the heads saw of its start.
    let catalog = models();
    let heads = binding(&catalog, json!({}));
    let sure = logits(Task::Code, &[0.0; 5]);
    let long = Classified { task: Task::LongContext, cue: Cue::Length, tokens: 32_000 };
    let decision = run(&Evidence { rules: long, ..by_heads(&heads, &sure) }, &Limits::default(), &context());
    assert_eq!((decision.task, decision.task_source), (Task::LongContext, Source::Rules));
    let shorter = Classified { tokens: 2_000, ..long };
    let decision =
        run(&Evidence { rules: shorter, ..by_heads(&heads, &sure) }, &Limits::default(), &context());
    assert_eq!((decision.task, decision.task_source), (Task::Code, Source::Learned));
}

#[test]
fn levels() {
    let level = |task, limits: &Limits, context: &Context| run(&by_rules(task), limits, context).level;
    let plain = Limits::default();
    assert_eq!(level(Task::CheapChat, &plain, &context()), Level::Fast);
    assert_eq!(level(Task::General, &plain, &context()), Level::Balanced);
    let saving = Context {
        running: vec!["small".into()],
        power: Power { saving: true, ..Power::default() },
        ..Context::default()
    };
    assert_eq!(level(Task::General, &plain, &saving), Level::Fast);
    let most = Limits { level: Some(Level::Max), ..Limits::default() };
    assert_eq!(level(Task::Code, &most, &context()), Level::Max);
    // `coder` has no fast level: the nearest.
    let policy = Policy::parse(b"prefer: {cheap_chat: [coder]}", "p").unwrap();
    let decision = decide(&by_rules(Task::CheapChat), &models(), &policy, &plain, &context());
    assert_eq!((decision.model(), decision.level), (Some("coder"), Level::Balanced));
}

#[test]
fn useless_logits_count_as_a_failure() {
    let catalog = models();
    let heads = binding(&catalog, json!({}));
    let good = logits(Task::Code, &[0.0; 5]);
    let mut nan = good.clone();
    nan.route[3] = f32::NAN;
    let mut infinite = good.clone();
    infinite.task[0] = f32::INFINITY;
    let short = Logits { route: vec![0.0; 4], ..good.clone() };
    for bad in [nan, infinite, short, Logits::default()] {
        let decision = run(&by_heads(&heads, &bad), &Limits::default(), &context());
        assert_eq!((decision.reason, decision.source), (Reason::Failed, Source::Rules));
    }
    // A bandit's estimates stand in for the probabilities; one that is no number does not.
    let quality = [0.0, 0.0, 0.0, 0.0, 0.9];
    let heads_say = Ok(Learned { binding: &heads, logits: &good, quality: Some(&quality) });
    let decision =
        run(&Evidence { heads: heads_say, ..by_rules(Task::Code) }, &Limits::default(), &context());
    assert_eq!(decision.model(), Some("eye"));
    let quality = [0.0, 0.0, 0.0, 0.0, f64::NAN];
    let heads_say = Ok(Learned { binding: &heads, logits: &good, quality: Some(&quality) });
    let decision =
        run(&Evidence { heads: heads_say, ..by_rules(Task::Code) }, &Limits::default(), &context());
    assert!(decision.candidates.iter().all(|c| c.score.is_none_or(f64::is_finite)));
}

#[test]
fn a_decision_survives_json() {
    let catalog = models();
    let heads = binding(&catalog, json!({"temperature": {"task": 1.5}}));
    let sure = logits(Task::Code, &[0.0, 0.0, 1.0, 3.0, 0.0]);
    for (evidence, tag) in [(by_heads(&heads, &sure), "cloud"), (by_rules(Task::General), "load_local")] {
        let decision = run(&evidence, &Limits::default(), &context());
        let value = serde_json::to_value(&decision).unwrap();
        assert_eq!(value["route"], tag);
        assert_eq!(value["model"], decision.model().unwrap());
        assert_eq!(value["task"], decision.task.name());
        assert!(value["candidates"][0]["score"].is_number());
        assert_eq!(serde_json::from_value::<Decision>(value).unwrap(), decision);
    }
    let none = Limits { max_cost: Some(-1.0), ..Limits::default() };
    let value = serde_json::to_value(run(&by_rules(Task::Code), &none, &context())).unwrap();
    assert_eq!(value["route"], "no_fit");
    assert_eq!(value["candidates"][0]["why_not"]["why"], "too_expensive");
    let limits: Limits = serde_json::from_value(json!({"lambda_cost": 1, "mu_latency": 2})).unwrap();
    assert_eq!((limits.lambda, limits.mu), (Some(1.0), Some(2.0)));
}

#[test]
fn the_exponential_is_exact_to_the_last_places() {
    assert_eq!(exp_of_negative(0.0), 1.0);
    assert_eq!(exp_of_negative(-0.0), 1.0);
    assert_eq!(exp_of_negative(-700.1), 0.0);
    assert_eq!(exp_of_negative(f64::NEG_INFINITY), 0.0);
    let mut x = -1e-9;
    while x > -699.0 {
        let (ours, platform) = (exp_of_negative(x), x.exp());
        assert!((ours - platform).abs() <= 4.0 * f64::EPSILON * platform, "{x}: {ours} and {platform}");
        x *= 1.003;
    }
}

/// A catalog, the heads' words on it and a situation, from small grids so that ties and empty sets occur.
#[derive(Clone, Debug)]
struct Case {
    catalog: Catalog,
    trained: Vec<bool>,
    logits: Option<Logits>,
    task: Task,
    has_media: bool,
    tokens: u64,
    policy: Policy,
    limits: Limits,
    context: Context,
}

impl Case {
    fn decide(&self, limits: &Limits) -> Decision {
        let binding = binding(&self.catalog, json!({"trained": self.trained, "min_confidence": 0.3}));
        let heads = self.logits.as_ref();
        let heads =
            heads.map(|logits| Learned { binding: &binding, logits, quality: None }).ok_or(Absent::NotLoaded);
        let rules = Classified { task: self.task, cue: Cue::Text, tokens: self.tokens };
        let evidence = Evidence { rules, has_media: self.has_media, heads };
        decide(&evidence, &self.catalog, &self.policy, limits, &self.context)
    }
}

fn card() -> impl Strategy<Value = serde_json::Value> {
    let figure = |values: &'static [f64]| prop::option::of(prop::sample::select(values));
    (
        prop::option::of(prop::sample::select(&[1000u64, 4000, 9000][..])),
        any::<bool>(),
        prop::sample::subsequence(Task::NAMES.to_vec(), 0..7),
        prop::sample::select(&[0u64, 0, 100, 10_000][..]),
        any::<bool>(),
        (figure(&[0.0, 0.01, 0.05]), figure(&[50.0, 900.0]), figure(&[20.0, 200.0]), figure(&[0.2, 0.5, 0.9])),
        prop::sample::subsequence(vec!["fast", "balanced", "max"], 2..4),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(bytes, local, tasks, max_context, vision, (cost, latency, speed, quality), levels, disabled)| {
            let backend = if local {
                json!({"kind": "local", "est_bytes": bytes})
            } else {
                json!({"kind": "cloud", "provider": if vision { "p" } else { "q" }})
            };
            json!({"backend": backend, "tasks": tasks, "max_context": max_context, "vision": vision, "cost_per_1k": cost,
                "latency_ms": latency, "tokens_per_second": speed, "quality": quality, "levels": levels,
                "disabled": disabled})
        })
}

fn limits(models: usize) -> impl Strategy<Value = Limits> {
    let figure = |values: &'static [f64]| prop::option::weighted(0.2, prop::sample::select(values));
    (
        (figure(&[0.0, 0.01, 0.02]), figure(&[100.0, 2000.0, 20_000.0]), figure(&[0.1, 0.4, 0.8])),
        (
            prop::bool::weighted(0.2),
            prop::bool::weighted(0.1),
            prop::sample::select(&[0u64, 0, 0, 1000][..]),
            prop::bool::weighted(0.5),
        ),
        prop::collection::vec(0..models, 0..3),
        prop::option::weighted(0.2, prop::sample::select(&Level::ALL[..])),
    )
        .prop_map(
            |(
                (max_cost, max_latency_ms, min_quality),
                (offline, vision, min_context, lenient),
                out,
                level,
            )| {
                Limits {
                    max_cost,
                    max_latency_ms,
                    min_quality,
                    offline,
                    require: Require { vision, min_context },
                    exclude: out.iter().map(|i| format!("m{i}")).collect(),
                    level,
                    allow_unknown: lenient,
                    ..Limits::default()
                }
            },
        )
}

fn case() -> impl Strategy<Value = Case> {
    prop::collection::vec(card(), 1..12).prop_flat_map(|mut cards| {
        let n = cards.len();
        for (i, card) in cards.iter_mut().enumerate() {
            card["id"] = format!("m{i}").into();
        }
        let catalog = catalog_of(cards.into());
        let logits = (prop::collection::vec(-2f32..2.0, 8), prop::collection::vec(-2f32..2.0, n))
            .prop_map(|(task, route)| Logits { task, route });
        let context = (
            prop::collection::vec(0..n, 0..3),
            prop::option::weighted(0.9, prop::sample::select(&[500u64, 5000, 20_000][..])),
            prop::sample::select(
                &[Thermal::Nominal, Thermal::Nominal, Thermal::Fair, Thermal::Serious, Thermal::Critical][..],
            ),
            (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.3)),
        )
            .prop_map(|(running, memory, thermal, (saving, down, broke))| Context {
                running: running.iter().map(|i| format!("m{i}")).collect(),
                memory: memory.map(|available| MemorySnapshot { available, total: 32_000, unified: true }),
                thermal,
                power: Power { saving, ..Power::default() },
                providers: [
                    ("p".to_owned(), Provider { down, ..Provider::default() }),
                    ("q".to_owned(), Provider { budget_usd: broke.then_some(0.001), ..Provider::default() }),
                ]
                .into(),
                now_ms: 5,
            });
        let policy = (prop::collection::vec(0..n, 0..3), prop::option::of(0..n), prop::bool::weighted(0.3));
        let task = prop::sample::select(&Task::ALL[..]);
        (
            Just(catalog),
            prop::collection::vec(prop::bool::weighted(0.7), n),
            prop::option::weighted(0.7, logits),
            (task, prop::bool::weighted(0.1), prop::sample::select(&[5u64, 500][..])),
            policy,
            limits(n),
            context,
        )
            .prop_map(
                |(catalog, trained, logits, (task, has_media, tokens), policy, limits, context)| {
                    let (prefer, default, capped) = policy;
                    let policy = Policy {
                        prefer: [(task, prefer.iter().map(|i| format!("m{i}")).collect())].into(),
                        cost_ceiling: capped.then_some(0.02),
                        default: default.map(|i| format!("m{i}")),
                        ..Policy::default()
                    };
                    Case { catalog, trained, logits, task, has_media, tokens, policy, limits, context }
                },
            )
    })
}

/// One limit made stricter.
fn tightened(limits: &Limits, which: usize, model: usize) -> Limits {
    let mut limits = limits.clone();
    let least = |limit: Option<f64>, value: f64| Some(limit.map_or(value, |limit| limit.min(value)));
    match which {
        0 => limits.max_cost = least(limits.max_cost, 0.005),
        1 => limits.max_latency_ms = least(limits.max_latency_ms, 1500.0),
        2 => limits.min_quality = Some(limits.min_quality.map_or(0.45, |limit| limit.max(0.45))),
        3 => limits.offline = true,
        4 => limits.require.vision = true,
        5 => limits.require.min_context = limits.require.min_context.max(5000),
        6 => limits.exclude.push(format!("m{model}-20250101")),
        7 => limits.level = limits.level.or(Some(Level::Max)),
        _ => limits.allow_unknown = false,
    }
    limits
}

/// What a decision is worth: who decided, then the score; nothing at all is worth least.
fn objective(decision: &Decision) -> (i32, f64) {
    let score = decision.candidates[0].score.unwrap_or(f64::NEG_INFINITY);
    match (&decision.route, decision.source) {
        (Route::NoFit, _) => (0, 0.0),
        (_, Source::Fallback) => (1, score),
        (_, Source::Rules) => (2, score),
        (_, Source::Learned | Source::Tag | Source::Both) => (3, score),
    }
}

/// The properties below say nothing where the cases never come to a branch.
#[test]
fn the_cases_reach_every_branch() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..1000 {
        let case = case().new_tree(&mut runner).unwrap().current();
        let decision = case.decide(&case.limits);
        let route = serde_json::to_value(&decision.route).unwrap()["route"].as_str().unwrap().to_owned();
        let reason = serde_json::to_value(decision.reason).unwrap()["why"].as_str().unwrap().to_owned();
        for branch in [route, reason, format!("{:?}", decision.source)] {
            *seen.entry(branch).or_insert(0) += 1;
        }
    }
    for branch in [
        "reuse",
        "load_local",
        "cloud",
        "no_fit",
        "Learned",
        "Rules",
        "Fallback",
        "best_score",
        "not_loaded",
        "no_trained_row",
        "no_trained_feasible",
        "low_confidence",
    ] {
        assert!(seen.get(branch).is_some_and(|&times| times >= 5), "{branch}: {seen:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// No limit, ability or state is ever violated by what is chosen.
    #[test]
    fn a_limit_is_never_violated(case in case()) {
        let Case { limits, context, policy, .. } = &case;
        let decision = case.decide(limits);
        let Some(id) = decision.model() else {
            prop_assert!(decision.candidates.iter().all(|c| !c.feasible));
            return Ok(());
        };
        let card = case.catalog.get(id).unwrap();
        let chosen = &decision.candidates[0];
        prop_assert_eq!(&chosen.model, id);
        prop_assert!(chosen.feasible);
        prop_assert!(!card.disabled && !limits.exclude.iter().any(|out| out == id));
        prop_assert!(limits.max_cost.is_none_or(|limit| card.cost_per_1k <= limit));
        prop_assert!(card.backend.is_local() || policy.cost_ceiling.is_none_or(|limit| card.cost_per_1k <= limit));
        prop_assert!(!limits.offline || card.backend.is_local());
        prop_assert!(!(limits.require.vision || case.has_media) || card.vision);
        prop_assert!(card.max_context == 0 || card.max_context >= limits.require.min_context.max(case.tokens));
        prop_assert!(limits.level.is_none_or(|level| card.levels.contains(&level) && decision.level == level));
        prop_assert!(card.levels.contains(&decision.level));
        if let Some(limit) = limits.max_latency_ms {
            prop_assert!(card.answer_ms(256).map_or(limits.allow_unknown, |ms| ms <= limit));
        }
        if let Some(limit) = limits.min_quality {
            prop_assert!(chosen.quality.map_or(limits.allow_unknown, |quality| quality >= limit));
        }
        match &decision.route {
            Route::Reuse { .. } => prop_assert!(context.running.iter().any(|running| running == id)),
            Route::LoadLocal { est_bytes, .. } => {
                prop_assert!(*est_bytes as f64 <= context.memory.unwrap().available as f64 * 0.85);
                prop_assert!(context.thermal < Thermal::Serious && !context.power.is_low());
            }
            Route::Cloud { provider, .. } => {
                let state = &context.providers[provider];
                prop_assert!(!state.down);
                let spent = card.cost_per_1k * (case.tokens + 256) as f64 / 1000.0;
                prop_assert!(state.budget_usd.is_none_or(|budget| spent <= budget));
            }
            Route::NoFit => unreachable!(),
        }
    }

    /// A stricter limit never leads to a better decision.
    #[test]
    fn tightening_never_improves(case in case(), which in 0usize..9, model in 0usize..12) {
        let before = case.decide(&case.limits);
        let after = case.decide(&tightened(&case.limits, which, model));
        prop_assert!(objective(&after) <= objective(&before), "{before:?}\n{after:?}");
    }

    /// What is excluded never wins, also by another spelling of its id.
    #[test]
    fn the_excluded_never_win(case in case()) {
        let mut limits = case.limits.clone();
        while let Some(id) = case.decide(&limits).model().map(str::to_owned) {
            let dated = format!("{id}-20251130");
            prop_assert!(!limits.exclude.contains(&dated));
            limits.exclude.push(dated);
        }
        prop_assert!(limits.exclude.len() <= case.limits.exclude.len() + case.catalog.cards().len());
    }

    /// The same input gives the same answer, and the order of ids in sets does not matter.
    #[test]
    fn the_same_input_gives_the_same_answer(case in case()) {
        let decision = case.decide(&case.limits);
        prop_assert_eq!(&decision, &case.decide(&case.limits));
        let mut turned = case.clone();
        turned.context.running.reverse();
        turned.limits.exclude.reverse();
        prop_assert_eq!(&decision, &turned.decide(&turned.limits));
    }

    /// The learned head never picks a model without a trained row, however large its logit.
    #[test]
    fn an_untrained_row_is_never_learned(case in case(), noise in 50f32..100.0) {
        let mut case = case;
        let trained = case.trained.clone();
        if let Some(logits) = &mut case.logits {
            logits.task[0] = 20.0;
            for (logit, trained) in logits.route.iter_mut().zip(&trained) {
                *logit += if *trained { 0.0 } else { noise };
            }
        }
        let decision = case.decide(&case.limits);
        if decision.source == Source::Learned {
            let row = case.catalog.find(decision.model().unwrap()).unwrap();
            prop_assert!(trained[row]);
        }
        // Nor does its logit move the others' scores.
        if let Some(logits) = &mut case.logits {
            for (logit, trained) in logits.route.iter_mut().zip(&trained) {
                *logit -= if *trained { 0.0 } else { 3.0 * noise };
            }
        }
        prop_assert_eq!(decision, case.decide(&case.limits));
    }
}
