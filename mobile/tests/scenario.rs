//! The scenario that every language runs (mobile/scenario): its lines are those of `expected.txt`, to the bit, in Rust here, in
//! Python (mobile/scenario/scenario.py) and in Kotlin (mobile/scenario/Scenario.kt), and on each processor.
//!
//! `ZEN_EDGE_SCENARIO_WRITE=1` writes the file anew: after a change of the default pack, or of what is asked.

use pollster::block_on;
use sha2::{Digest, Sha256};
use std::fmt::{Debug, Display};
use std::future::Future;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use zen_edge_core::bench::{Record, SCHEMA};
use zen_edge_core::decision::{Limits, MemorySnapshot, Source, Thermal};
use zen_edge_core::generate::Message;
use zen_edge_core::router::{Device, Reward};
use zen_edge_mobile::{
    BackgroundPolicy, BenchOptions, CancelToken, ChooseOptions, Engine, FileSource, GenerateOptions,
    Generation, ListenerError, LoadOptions, LoadStage, LogLevel, Outcome, PackSource, Progress, RouteOptions,
    RouterListener, TrimLevel, ZenEdgeError, footprint,
};

type Answer<T> = Result<T, ZenEdgeError>;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn long() -> String {
    "A sentence of the report that goes on for many pages. ".repeat(60)
}

fn bits(value: Option<f32>) -> String {
    value.map_or("-".into(), |value| format!("{:08x}", value.to_bits()))
}

fn double(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{:016x}", value.to_bits()))
}

fn digest(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn kind(error: &ZenEdgeError) -> String {
    let name = format!("{error:?}");
    name.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}

/// Starts a call, so that it stands in the queue, and waits for it later.
fn begun<F: Future>(call: F) -> Pin<Box<F>> {
    let mut call = Box::pin(call);
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    call
}

#[derive(Default)]
struct Told {
    stages: Mutex<Vec<LoadStage>>,
    logs: Mutex<Vec<String>>,
}

impl RouterListener for Told {
    fn on_progress(&self, progress: Progress) -> Result<(), ListenerError> {
        let mut stages = self.stages.lock().unwrap();
        if !stages.contains(&progress.stage) {
            stages.push(progress.stage);
        }
        Ok(())
    }

    fn on_log(&self, _: LogLevel, message: String) -> Result<(), ListenerError> {
        self.logs.lock().unwrap().push(message);
        Ok(())
    }
}

struct Failing;

impl RouterListener for Failing {
    fn on_progress(&self, _: Progress) -> Result<(), ListenerError> {
        Err(ListenerError::Failed { detail: "a listener that fails".into() })
    }

    fn on_log(&self, _: LogLevel, _: String) -> Result<(), ListenerError> {
        Err(ListenerError::Failed { detail: "a listener that fails".into() })
    }
}

struct Scenario {
    pack: String,
    prompts: Vec<String>,
    lines: Vec<String>,
}

macro_rules! say {
    ($scenario:expr, $($word:expr),+ $(,)?) => {
        $scenario.lines.push([$(format!("{}", $word)),+].join("\t"))
    };
}

impl Scenario {
    fn check(&mut self, name: &str, holds: bool) {
        assert!(holds, "{name} does not hold");
        say!(self, "check", name);
    }

    fn fails<T>(&mut self, name: &str, expected: &str, answer: Answer<T>) -> ZenEdgeError {
        let Err(error) = answer else { panic!("{name} does not fail") };
        assert_eq!(kind(&error), expected, "{name}: {error}");
        assert!(!error.to_string().is_empty());
        say!(self, "fails", name, expected);
        error
    }

    fn folder(&self) -> PackSource {
        PackSource::Folder { path: self.pack.clone() }
    }

    fn try_load(&self, options: LoadOptions) -> Answer<Arc<Engine>> {
        let options = LoadOptions { threads: Some(2), ..options };
        block_on(Engine::load(self.folder(), options, None, None))
    }

    fn load(&self) -> Arc<Engine> {
        self.try_load(LoadOptions::default()).unwrap()
    }

    fn outcome(&mut self, place: impl Display, outcome: &Outcome) {
        let chosen: Vec<String> = outcome
            .candidates
            .iter()
            .filter(|candidate| candidate.feasible)
            .take(3)
            .map(|candidate| format!("{}={}", candidate.model, double(candidate.score)))
            .collect();
        fn shown(value: impl Debug) -> String {
            format!("{value:?}")
        }
        say!(
            self,
            "route",
            place,
            shown(outcome.task),
            outcome.model.as_deref().unwrap_or("-"),
            shown(outcome.level),
            shown(outcome.source),
            outcome.because,
            bits(outcome.task_confidence.calibrated),
            bits(outcome.confidence.calibrated),
            outcome.tokens,
            outcome.truncated,
            chosen.join(","),
        );
    }

    fn loading(&mut self) {
        let options = LoadOptions { threads: Some(2), warm_up: true, ..LoadOptions::default() };
        let told = Arc::new(Told::default());
        let load = |listener: Arc<dyn RouterListener>, source| {
            block_on(Engine::load(source, options.clone(), Some(listener), None))
        };
        let engine = load(told.clone(), self.folder()).unwrap();
        let about = engine.about();
        if let Ok(isa) = std::env::var("ZEN_EDGE_EXPECT_ISA") {
            assert_eq!(about.isa, isa);
        }
        let words =
            (about.architecture, about.layers, about.hidden_size, about.threads, about.tasks.join(","));
        say!(self, "about", words.0, words.1, words.2, words.3, words.4);
        engine.shut_down();
        use LoadStage::{Hash, Heads, Ready, Tokenizer, WarmUp, Weights};
        let stages = told.stages.lock().unwrap().clone();
        self.check("progress", stages == [Heads, Weights, Tokenizer, Hash, WarmUp, Ready]);
        let logs = told.logs.lock().unwrap().clone();
        self.check("logs", logs.iter().any(|message| message.starts_with("loaded")));
        load(Arc::new(Failing), self.folder()).unwrap();
        self.check("a listener that fails is passed over", true);

        let bare = |source| block_on(Engine::load(source, LoadOptions::default(), None, None));
        self.fails("no folder", "Io", bare(PackSource::Folder { path: "/no/such/folder".into() }));
        let config = FileSource::Path { path: format!("{}/router_config.json", self.pack) };
        let wrong = PackSource::Heads { model: config, folder: self.pack.clone() };
        self.fails("a config as model", "ModelDamaged", bare(wrong));
        let memory = Some(MemorySnapshot { available: 10_000_000, total: 4_000_000_000, unified: true });
        let over = self.try_load(LoadOptions { memory, ..LoadOptions::default() });
        let ZenEdgeError::OverBudget { needs, available, budget, .. } =
            self.fails("budget", "OverBudget", over)
        else {
            unreachable!()
        };
        self.check("budget has figures", needs > budget && available == 10_000_000);
        let estimate = footprint(self.folder(), LoadOptions::default()).unwrap();
        self.check("footprint", estimate.mapped && estimate.total > estimate.weights && estimate.weights > 0);
        let token = CancelToken::new();
        token.cancel();
        let load = Engine::load(self.folder(), LoadOptions::default(), None, Some(Arc::new(token)));
        let cancelled = block_on(load);
        self.fails("load cancelled", "Cancelled", cancelled);
    }

    /// The same bits from a path, from a part of an open file, and from memory.
    fn sources(&mut self) {
        let names =
            ["model.gguf", "heads.safetensors", "router_config.json", "catalog.yaml", "router_policy.yaml"];
        let files = names.map(|name| std::fs::read(format!("{}/{name}", self.pack)).unwrap());
        let held = || {
            names
                .into_iter()
                .zip(&files)
                .map(|(name, file)| FileSource::Bytes { bytes: file.clone(), name: name.into() })
        };
        let pack = |mut files: Vec<FileSource>| {
            let (policy, catalog) = (files.pop(), files.pop());
            let (config, heads, model) = (files.remove(2), files.remove(1), files.remove(0));
            PackSource::Files { model, heads, config, catalog, policy }
        };
        let load = |source| {
            block_on(Engine::load(
                source,
                LoadOptions { threads: Some(2), ..LoadOptions::default() },
                None,
                None,
            ))
        };
        let mut sources = Vec::new();
        #[cfg(unix)]
        let archive = {
            use std::os::fd::AsRawFd;
            let mut archive = tempfile::tempfile().unwrap();
            archive.write_all(b"odd").unwrap();
            let described = names.into_iter().zip(&files).map(|(name, file)| {
                let offset = archive.stream_position().unwrap();
                archive.write_all(file).unwrap();
                FileSource::Descriptor {
                    fd: archive.as_raw_fd(),
                    offset,
                    length: Some(file.len() as u64),
                    name: name.into(),
                }
            });
            let described = described.collect();
            sources.push(load(pack(described)).unwrap());
            archive
        };
        // The engine has a descriptor of its own.
        #[cfg(unix)]
        drop(archive);
        sources.push(load(pack(held().collect())).unwrap());
        for engine in sources {
            let embedding = block_on(engine.embed(self.prompts[0].clone(), None, None)).unwrap();
            say!(self, "source", digest(&embedding.vector));
        }
        let mut bad: Vec<FileSource> = held().collect();
        bad[0] = FileSource::Descriptor { fd: 987_654, offset: 0, length: None, name: "asset".into() };
        self.fails("no descriptor", "Io", load(pack(bad)));
    }

    fn answers(&mut self) {
        let engine = self.load();
        let answers = FileSource::Path { path: format!("{}/selftest.json", self.pack) };
        let report = block_on(engine.self_test(Some(answers))).unwrap();
        self.check("self-test", report.passed && report.prompts > 0);
        let route = |prompt: &str, options| block_on(engine.route(prompt.into(), options, None));
        let plain = |prompt: &str| route(prompt, RouteOptions::default());
        let embed = |prompt: &str| block_on(engine.embed(prompt.into(), None, None));
        for (at, prompt) in self.prompts.clone().iter().enumerate() {
            self.outcome(at, &plain(prompt).unwrap());
            say!(self, "embed", at, digest(&embed(prompt).unwrap().vector));
        }
        let first = self.prompts[0].clone();
        self.check("a known prompt", plain(&first).unwrap().cached);
        self.outcome("long", &plain(&long().repeat(20)).unwrap());
        self.outcome("blank", &plain(" ").unwrap());
        let limited = |limits| RouteOptions { limits, ..RouteOptions::default() };
        let cheap = limited(Limits { max_cost: Some(0.0005), ..Limits::default() });
        self.outcome("cheap", &route(&first, cheap).unwrap());
        let ran = plain(&first).unwrap().backend;
        say!(self, "backend", ran.device, ran.threads, ran.adapter.is_some(), ran.fallback.is_some());
        let options = LoadOptions { device: Some(Device::Gpu), ..LoadOptions::default() };
        let ran =
            block_on(self.try_load(options).unwrap().route(first.clone(), RouteOptions::default(), None));
        let ran = ran.unwrap().backend;
        // A library without a GPU says so; one with it has a GPU, or says why not.
        self.check("a GPU or why not", ran.adapter.is_some() != ran.fallback.is_some());
        self.fails("embed nothing", "NoTokens", embed(""));
        let unknown = limited(Limits { exclude: vec!["no-such-model".into()], ..Limits::default() });
        self.fails("unknown model", "UnknownModel", route("hello", unknown));

        // Many at once give what each gives alone.
        let alone: Vec<Outcome> = self.prompts.iter().map(|prompt| plain(prompt).unwrap()).collect();
        engine.trim(TrimLevel::Caches);
        let same = std::thread::scope(|scope| {
            let asked = self.prompts.iter().zip(&alone).cycle().take(3 * alone.len());
            let threads: Vec<_> =
                asked.map(|(prompt, one)| (scope.spawn(|| plain(prompt).unwrap()), one)).collect();
            threads.into_iter().all(|(two, one)| {
                let two = two.join().unwrap();
                (one.task, &one.model, &one.candidates) == (two.task, &two.model, &two.candidates)
            })
        });
        self.check("many at once", same);
    }

    fn cancelling(&mut self) {
        let engine = self.load();
        let token = Arc::new(CancelToken::new());
        token.cancel();
        let route = |prompt: &str, token| engine.route(prompt.into(), RouteOptions::default(), token);
        self.fails("route cancelled", "Cancelled", block_on(route(&long(), Some(token))));
        drop(begun(route(&long(), None)));
        self.check("task cancelled", true);
        self.check("answers after it", block_on(route("hello", None)).unwrap().tokens > 0);

        let session = engine.session();
        let update = |text: &str| session.update(text.into(), RouteOptions::default());
        block_on(update("Write a short story about a")).unwrap();
        let draft = block_on(update("Write a short story about a lighthouse")).unwrap();
        self.check("drafts reuse", draft.reused > 0 && draft.id.is_none());
        // Behind a long prompt the older text waits, and is stale when its turn comes.
        let busy = begun(route(&format!("Busy. {}", long()), None));
        let older = begun(update("Write a short story about a lighthouse keeper"));
        let newer = begun(update("Write a short story about a lighthouse keeper's dog"));
        self.fails("superseded", "Superseded", block_on(older));
        self.check("the newer text is answered", block_on(newer).unwrap().tokens > 0);
        block_on(busy).unwrap();
        session.clear();
    }

    fn lifecycle(&mut self) {
        let options = LoadOptions { background: Some(BackgroundPolicy::Defer), ..LoadOptions::default() };
        let engine = self.try_load(options).unwrap();
        let first = self.prompts[0].clone();
        let vector = || digest(&block_on(engine.embed(first.clone(), None, None)).unwrap().vector);
        let route = |prompt: &str, options| block_on(engine.route(prompt.into(), options, None));
        let before = vector();
        for level in [TrimLevel::Contexts, TrimLevel::Caches, TrimLevel::Weights] {
            engine.trim(level);
            let stats = engine.stats().unwrap();
            say!(self, "trim", format!("{level:?}"), stats.loaded, stats.cache.entries);
        }
        let after = vector();
        self.check("weights come back", before == after && engine.stats().unwrap().reloads == 1);
        engine.set_foreground(false);
        self.fails("background", "Deferred", route("hello", RouteOptions::default()));
        engine.set_foreground(true);
        for thermal in [Thermal::Fair, Thermal::Serious, Thermal::Critical] {
            engine.set_thermal(thermal);
            say!(self, "thermal", format!("{thermal:?}"), engine.stats().unwrap().threads);
        }
        let hot = route(&first, RouteOptions::default()).unwrap();
        assert_eq!(hot.source, Source::Rules);
        self.outcome("hot", &hot);
        let generate = block_on(engine.generate("Once".into(), generation(256), None));
        self.fails("too hot to generate", "Deferred", generate);
        let choose =
            block_on(engine.choose("Once".into(), texts(&[" a", " b"]), ChooseOptions::default(), None));
        self.fails("too hot to choose", "Deferred", choose);
        engine.set_thermal(Thermal::Nominal);

        let asked = RouteOptions {
            user: Some("ann".into()),
            conversation: Some("c".into()),
            ..RouteOptions::default()
        };
        let id = route(&first, asked).unwrap().id;
        self.check("an id for a reward", id.is_some());
        let observe = |id: &str| block_on(engine.observe(id.into(), Reward::from(0.9)));
        let id = id.unwrap();
        observe(&id).unwrap();
        self.fails("rewarded twice", "UnknownOutcome", observe(&id));
        self.fails("no such outcome", "UnknownOutcome", observe("what"));
        let learning = engine.learning();
        let restore = |bytes: &[u8]| block_on(engine.restore_learning(bytes.to_vec())).unwrap();
        self.check("learning comes back", restore(&learning).is_none());
        self.check("damaged learning is told", restore(b"damaged").is_some());
        restore(&learning);
        let forgotten = engine.forget_user("ann".into()) && !engine.forget_user("ann".into());
        self.check("forgotten", forgotten);
        self.check("conversation forgotten", engine.forget_conversation("c".into()));
        let stats = engine.stats().unwrap();
        let hot = stats.reasons.get("too_hot").copied().unwrap_or_default();
        say!(self, "stats", stats.routed, hot, stats.users, stats.failed);
    }

    fn generating(&mut self) {
        let engine = self.load();
        let begin = || block_on(engine.generate("Once upon a time".into(), generation(12), None)).unwrap();
        let texts = |generation: &Generation| {
            let next = || block_on(generation.next()).unwrap();
            std::iter::from_fn(next).map(|piece| piece.text).collect::<String>()
        };
        let first = begin();
        let text = texts(&first);
        let generated = block_on(first.finish()).unwrap();
        self.check("pieces make the text", generated.text.starts_with(&text));
        let ids: Vec<String> = generated.ids.iter().map(u32::to_string).collect();
        let reason = format!("{:?}", generated.reason);
        say!(self, "generated", generated.prompt_tokens, reason, ids.join(","));
        self.fails("finished twice", "BadRequest", block_on(first.finish()));
        let second = begin();
        second.stop();
        self.check("stopped", texts(&second).is_empty());
        let stopped = block_on(second.finish()).unwrap();
        say!(self, "stopped", format!("{:?}", stopped.reason));
        let turns = vec![Message::new("user", "hello")];
        self.fails("no template", "Template", block_on(engine.render(turns)));
    }

    fn choosing(&mut self) {
        let engine = self.load();
        let choose = |options: &[&str], how, token| {
            block_on(engine.choose("Is the sky blue? Answer:".into(), texts(options), how, token))
        };
        let options = [" yes", " no", " perhaps not"];
        let plain = choose(&options, ChooseOptions::default(), None).unwrap();
        let how = ChooseOptions {
            content_free: Some("Is N/A? Answer:".into()),
            by_token: true,
            ..ChooseOptions::default()
        };
        let free = choose(&options, how, None).unwrap();
        for (name, choices) in [("choice", &plain), ("choice by token", &free)] {
            for choice in choices {
                say!(
                    self,
                    name,
                    choice.option,
                    double(Some(choice.probability)),
                    double(Some(choice.log_likelihood)),
                    double(choice.content_free),
                    choice.tokens,
                );
            }
        }
        let sum: f64 = plain.iter().map(|choice| choice.probability).sum();
        self.check("probabilities sum to one", (sum - 1.0).abs() < 1e-12);
        self.fails("no options", "BadRequest", choose(&[], ChooseOptions::default(), None));
        self.fails("the same options", "BadRequest", choose(&[" a", " a"], ChooseOptions::default(), None));
        let token = Arc::new(CancelToken::new());
        token.cancel();
        let cancelled = choose(&options, ChooseOptions::default(), Some(token));
        self.fails("choose cancelled", "Cancelled", cancelled);
        engine.shut_down();
        self.fails("choose after close", "Closed", choose(&options, ChooseOptions::default(), None));
    }

    fn closing(&mut self) {
        let engine = self.load();
        let session = engine.session();
        let generation = block_on(engine.generate("Once upon a time".into(), generation(256), None)).unwrap();
        let route = |prompt: &str| engine.route(prompt.into(), RouteOptions::default(), None);
        let busy = begun(route(&long()));
        let waiting = begun(route(&format!("Waiting. {}", long())));
        engine.shut_down();
        engine.shut_down();
        self.check("closed twice", engine.is_closed());
        self.fails("waiting at the close", "Closed", block_on(waiting));
        let _ = block_on(busy);
        self.fails("route after close", "Closed", block_on(route("hello")));
        self.fails("embed after close", "Closed", block_on(engine.embed("hello".into(), None, None)));
        let update = block_on(session.update("hello".into(), RouteOptions::default()));
        self.fails("session after close", "Closed", update);
        let generate = block_on(engine.generate("hello".into(), self::generation(256), None));
        self.fails("generate after close", "Closed", generate);
        self.fails("next after close", "Closed", block_on(generation.next()));
        self.fails("stats after close", "Closed", engine.stats());
        engine.trim(TrimLevel::Weights);
        engine.set_foreground(false);

        // Twenty cycles leave nothing behind that grows.
        let cycle = || {
            let engine = self.load();
            block_on(engine.route(self.prompts[0].clone(), RouteOptions::default(), None)).unwrap();
            engine.shut_down();
        };
        (0..3).for_each(|_| cycle());
        let before = resident();
        (0..20).for_each(|_| cycle());
        let after = resident();
        self.check("twenty cycles", after < before + (24 << 20));
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn generation(max_tokens: u32) -> GenerateOptions {
    GenerateOptions { max_tokens, ..GenerateOptions::default() }
}

/// Bytes of this process that are in memory and belong to no file; 0 where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) << 10
}

#[test]
fn the_scenario_gives_the_lines_that_every_language_gives() {
    let prompts = std::fs::read_to_string(repository("mobile/scenario/prompts.txt")).unwrap();
    let mut scenario = Scenario {
        pack: repository("packs/default").to_str().unwrap().to_owned(),
        prompts: prompts.lines().map(str::to_owned).collect(),
        lines: Vec::new(),
    };
    let parts: [fn(&mut Scenario); 8] = [
        Scenario::loading,
        Scenario::sources,
        Scenario::answers,
        Scenario::cancelling,
        Scenario::lifecycle,
        Scenario::generating,
        Scenario::choosing,
        Scenario::closing,
    ];
    for part in parts {
        part(&mut scenario);
    }
    let text = scenario.lines.join("\n") + "\n";
    let expected = repository("mobile/scenario/expected.txt");
    if std::env::var_os("ZEN_EDGE_SCENARIO_WRITE").is_some() {
        std::fs::write(&expected, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&expected).unwrap();
    for (ours, theirs) in text.lines().zip(expected.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(text.lines().count(), expected.lines().count());
}

/// The bench gives a record that the comparison reads, of this device as it was told.
#[test]
fn a_bench_gives_the_record_that_every_device_gives() {
    let pack = repository("packs/default").to_str().unwrap().to_owned();
    let load = Engine::load(PackSource::Folder { path: pack }, LoadOptions::default(), None, None);
    let engine = block_on(load).unwrap();
    let options = BenchOptions {
        date: "2026-01-01T00:00:00Z".into(),
        device: "a phone".into(),
        platform: "a system".into(),
        prefill: Some(vec![8]),
        decode: Some(vec![2]),
        repetitions: Some(1),
        decisions: Some(1),
        read_bytes: Some(1 << 20),
        ..BenchOptions::default()
    };
    let json = block_on(engine.bench(options.clone(), None)).unwrap();
    let record = Record::parse(&json).unwrap();
    assert_eq!((&*record.device.name, &*record.device.platform), ("a phone", "a system"));
    assert!(json.contains(SCHEMA));
    let none = BenchOptions { repetitions: Some(0), ..options.clone() };
    assert_eq!(kind(&block_on(engine.bench(none, None)).unwrap_err()), "BadRequest");
    let token = CancelToken::new();
    token.cancel();
    assert_eq!(
        kind(&block_on(engine.bench(options.clone(), Some(Arc::new(token)))).unwrap_err()),
        "Cancelled"
    );
    engine.set_thermal(Thermal::Critical);
    assert_eq!(kind(&block_on(engine.bench(options, None)).unwrap_err()), "Deferred");
}

/// A call that is dropped at any moment leaves an engine that answers.
#[test]
fn dropped_calls_leave_an_engine_that_answers() {
    let pack = repository("packs/default").to_str().unwrap().to_owned();
    let engine =
        block_on(Engine::load(PackSource::Folder { path: pack }, LoadOptions::default(), None, None));
    let engine = engine.unwrap();
    for i in 0..20 {
        let prompt = format!("{i} {}", long());
        drop(begun(engine.route(prompt.clone(), RouteOptions::default(), None)));
        let mut embed = pin!(engine.embed(prompt, None, None));
        let _ = embed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    let outcome = block_on(engine.route("hello".into(), RouteOptions::default(), None)).unwrap();
    assert!(outcome.tokens > 0 && !outcome.cached);
}

/// Where a GPU was asked for nothing is submitted to it in the background, its start included, and the answers say so.
#[test]
fn in_the_background_no_gpu_is_touched() {
    let pack = repository("packs/default").to_str().unwrap().to_owned();
    let options = LoadOptions { device: Some(Device::Gpu), ..LoadOptions::default() };
    let engine = block_on(Engine::load(PackSource::Folder { path: pack }, options, None, None)).unwrap();
    let route =
        |prompt: &str| block_on(engine.route(prompt.into(), RouteOptions::default(), None)).unwrap().backend;
    let reloads = || engine.stats().unwrap().reloads;
    let seen = route("one");
    engine.set_foreground(false);
    let unseen = route("two");
    assert_eq!((&*unseen.device, &unseen.adapter), ("cpu", &None));
    assert!(unseen.fallback.is_some_and(|why| why.contains("not seen")));
    // Weights that come back in the background leave the GPU alone, and it has its turn when the app is seen.
    engine.trim(TrimLevel::Weights);
    assert_eq!(route("three").device, "cpu");
    assert_eq!((route("four").device, reloads()), ("cpu".to_owned(), 1));
    engine.set_foreground(true);
    let again = route("five");
    assert_eq!(
        (&again.device, &again.adapter, &again.fallback, reloads()),
        (&seen.device, &seen.adapter, &seen.fallback, 2)
    );
    engine.set_foreground(false);
    assert_eq!((route("six").device, reloads()), ("cpu".to_owned(), 2));
}
