//! A router in an app that the system watches: what is given back, what comes back, and that answers keep their bits.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zen_edge_core::backbone::{BackboneError, Cancel};
use zen_edge_core::decision::{MemorySnapshot, Reason, Source, Thermal};
use zen_edge_core::generate::GenerateOptions;
use zen_edge_core::lifecycle::{
    Background, Deferral, Device, Footprint, LifecycleError, Managed, ManagedOptions, TrimLevel, Work,
};
use zen_edge_core::pack::{LoadError, Pack};
use zen_edge_core::router::{Outcome, Request, RouterOptions, Stage};
use zen_edge_core::source::Memory;
use zen_edge_default_pack::pack;
use zen_edge_tests::counting::{Counting, MOST, NOW};
use zen_edge_tests::{need, peers, shared};

#[global_allocator]
static COUNTING: Counting = Counting;

const PROMPT: &str = "write a python function to reverse a linked list";
const GB: u64 = 1 << 30;

fn options() -> ManagedOptions {
    ManagedOptions {
        router: RouterOptions { threads: Some(2), ..RouterOptions::default() },
        ..ManagedOptions::default()
    }
}

fn managed() -> Arc<Managed> {
    Arc::new(Managed::load(pack(), options()).unwrap())
}

fn bits(outcome: &Outcome) -> Vec<u32> {
    let logits = outcome.logits.as_ref().expect("the heads were asked");
    logits.task.iter().chain(&logits.route).map(|x| x.to_bits()).collect()
}

/// One test after the other: they share the allocator's counts.
#[test]
fn lifecycle() {
    g13_trim_gives_back_and_what_was_dropped_comes_back_with_the_same_bits();
    what_was_learned_outlives_the_weights();
    g9_g15_heat_and_background_are_followed();
    g12_a_pack_that_does_not_fit_is_refused_with_the_figures();
    stages_are_told_and_loading_can_be_broken_off();
    sessions_survive_a_trim_and_newer_text_ends_older();
    a_generation_waits_for_the_device_and_goes_on();
    closed_is_closed_and_twenty_cycles_leave_nothing();
    estimates_are_above_what_is_measured_and_near_it();
}

fn g13_trim_gives_back_and_what_was_dropped_comes_back_with_the_same_bits() {
    let router = managed();
    let first = router.route(PROMPT, &Request::default()).unwrap();
    let held = NOW.load(Ordering::Relaxed);
    router.trim(TrimLevel::Contexts);
    let stats = router.stats().unwrap();
    assert_eq!((stats.router.prefixes.entries, stats.router.cache.entries, stats.loaded), (0, 1, true));
    router.trim(TrimLevel::Caches);
    let stats = router.stats().unwrap();
    assert_eq!((stats.router.cache.entries, stats.loaded, stats.reloads), (0, true, 0));
    router.trim(TrimLevel::Weights);
    let trimmed = NOW.load(Ordering::Relaxed);
    let stats = router.stats().unwrap();
    assert_eq!((stats.loaded, stats.reloads, stats.router.counts.routed), (false, 0, 1));
    // Heads, vocabulary and all else went: of what a loaded router holds less than a tenth is left.
    assert!(trimmed + (1 << 20) < held, "{held} to {trimmed}");
    let again = router.route(PROMPT, &Request::default()).unwrap();
    assert_eq!(bits(&first), bits(&again));
    assert!(!again.reading.cached);
    let stats = router.stats().unwrap();
    assert_eq!((stats.loaded, stats.reloads, stats.router.counts.routed), (true, 1, 2));
    // A prompt that is being read while the weights are dropped is answered: other threads trim all the time.
    std::thread::scope(|scope| {
        for i in 0..4 {
            let (router, first) = (&router, &first);
            scope.spawn(move || {
                for n in 0..8 {
                    if i == 0 {
                        router.trim(TrimLevel::Weights);
                    } else {
                        let outcome = router.route(PROMPT, &Request::default()).unwrap();
                        assert_eq!(bits(&outcome), bits(first), "{n}");
                    }
                }
            });
        }
    });
}

fn what_was_learned_outlives_the_weights() {
    let router = managed();
    let request = Request { user: Some("ann"), conversation: Some("c"), ..Request::default() };
    let id = router.route(PROMPT, &request).unwrap().id.expect("a user's decision has an id");
    router.trim(TrimLevel::Weights);
    assert!(router.user("ann").is_none());
    router.observe(id, 1.0).unwrap();
    assert!(matches!(router.observe(id, 1.0), Err(LifecycleError::Observe(_))));
    let learned = router.learning();
    router.trim(TrimLevel::Weights);
    assert_eq!(router.learning(), learned);
    assert!(router.user("ann").is_some());
    assert!(router.forget_user("ann") && !router.forget_user("ann"));
    assert!(router.forget_conversation("c") && !router.forget_conversation("c"));
    assert!(!router.stats().unwrap().loaded);
}

fn g9_g15_heat_and_background_are_followed() {
    let router = managed();
    let cool = router.route(PROMPT, &Request::default()).unwrap();
    assert_eq!(cool.reading.backend.threads, 2);
    let state = |foreground, thermal| {
        router.trim(TrimLevel::Caches);
        router.set_device(Device { foreground, thermal });
    };
    for (foreground, thermal) in [(true, Thermal::Fair), (true, Thermal::Serious), (false, Thermal::Nominal)]
    {
        state(foreground, thermal);
        let outcome = router.route(PROMPT, &Request::default()).unwrap();
        assert_eq!(outcome.reading.backend.threads, 1, "{foreground} {thermal:?}");
        assert_eq!(bits(&outcome), bits(&cool));
    }
    state(true, Thermal::Critical);
    let outcome = router.route(PROMPT, &Request::default()).unwrap();
    assert_eq!((outcome.decision.reason, outcome.decision.source), (Reason::TooHot, Source::Rules));
    assert_eq!((outcome.logits.is_none(), outcome.reading.tokens), (true, 0));
    assert_eq!(router.stats().unwrap().router.counts.reasons["too_hot"], 1);
    assert!(router.embed(PROMPT, &Request::default()).is_ok());
    state(true, Thermal::Nominal);
    assert_eq!(router.route(PROMPT, &Request::default()).unwrap().reading.backend.threads, 2);

    let deferring = ManagedOptions { background: Background::Defer, ..options() };
    let router = Arc::new(Managed::load(pack(), deferring).unwrap());
    let session = router.session();
    router.set_device(Device { foreground: false, ..Device::default() });
    assert_eq!(router.work(), Work::Deferred(Deferral::Background));
    let asked = Request::default();
    for refused in [
        router.route(PROMPT, &asked).map(|_| ()),
        router.embed(PROMPT, &asked).map(|_| ()),
        session.update(PROMPT, &asked, &session.supersede()).map(|_| ()),
    ] {
        assert!(matches!(refused, Err(LifecycleError::Deferred(Deferral::Background))));
    }
    router.set_device(Device::default());
    router.route(PROMPT, &asked).unwrap();
    // It answers what it is: closed, not deferred.
    router.set_device(Device { foreground: false, ..Device::default() });
    router.close();
    assert!(matches!(router.route(PROMPT, &asked), Err(LifecycleError::Closed)));
}

fn g12_a_pack_that_does_not_fit_is_refused_with_the_figures() {
    let memory = |available| Some(MemorySnapshot { available, total: 8 * GB, unified: true });
    let Err(LifecycleError::OverBudget(over)) =
        Managed::load(pack(), ManagedOptions { memory: memory(20 << 20), ..options() })
    else {
        panic!("a pack that needs its caches' 36 MB alone fits into 20 MiB")
    };
    assert_eq!((over.available, over.needs), (20 << 20, over.footprint.total()));
    assert!(over.needs > over.budget && over.to_string().contains("MB available"));
    Managed::load(pack(), ManagedOptions { memory: memory(2 * GB), ..options() }).unwrap();
    // Smaller caches make it fit, and a policy's own share counts.
    let mut small = options();
    (small.router.cache_bytes, small.router.prefix_bytes) = (Some(0), Some(0));
    let needs = Footprint::of(&pack(), &small.router).unwrap().total();
    small.memory = memory(needs + needs / 4);
    Managed::load(pack(), small.clone()).unwrap();
    let mut strict = pack();
    strict.policy = Some(zen_edge_core::pack::Part::new("p", "memory_fraction: 0.5"));
    assert!(matches!(Managed::load(strict, small), Err(LifecycleError::OverBudget(_))));
}

fn stages_are_told_and_loading_can_be_broken_off() {
    let mut stages = Vec::new();
    let all = Managed::load_watched(pack(), options(), &mut |stage| {
        stages.push(stage);
        ControlFlow::Continue(())
    });
    drop(all.unwrap());
    assert_eq!(stages[..3], [Stage::Heads, Stage::Weights, Stage::Tokenizer]);
    let size = pack().model.len();
    assert_eq!(stages.last(), Some(&Stage::Hash { done: size, of: size }));
    for at in 0..stages.len() {
        let mut seen = 0;
        let broken = Managed::load_watched(pack(), options(), &mut |_| {
            seen += 1;
            if seen > at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let Err(LifecycleError::Load(why)) = broken else { panic!("{at}: it loads") };
        assert!(matches!(*why, LoadError::Cancelled), "{at}: {why}");
        assert_eq!(seen, at + 1);
    }
}

fn sessions_survive_a_trim_and_newer_text_ends_older() {
    let router = managed();
    let session = router.session();
    let asked = Request::default();
    session.update("Write a short story about a", &asked, &session.supersede()).unwrap();
    let text = "Write a short story about a lighthouse";
    let draft = session.update(text, &asked, &session.supersede()).unwrap();
    assert!(draft.reading.reused > 0);
    router.trim(TrimLevel::Weights);
    assert!(!router.stats().unwrap().loaded, "a session keeps the weights");
    let again = session.update(text, &asked, &session.supersede()).unwrap();
    assert_eq!((again.reading.reused, bits(&again)), (0, bits(&draft)));
    // A text that waits for its turn while a newer one comes has nothing to do.
    let (older, newer) = (session.supersede(), session.supersede());
    let stale = session.update(text, &asked, &older);
    assert!(matches!(stale, Err(LifecycleError::Backbone(BackboneError::Cancelled))));
    session.update(text, &asked, &newer).unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let cancelled = session.update(text, &Request { cancel: Some(&cancel), ..asked }, &session.supersede());
    assert!(matches!(cancelled, Err(LifecycleError::Backbone(BackboneError::Cancelled))));
    // Drafts are no decisions, also where the rules give them.
    router.set_device(Device { thermal: Thermal::Critical, ..Device::default() });
    let hot = session.update(text, &Request::default(), &session.supersede()).unwrap();
    assert_eq!(hot.decision.reason, Reason::TooHot);
    assert_eq!(router.stats().unwrap().router.counts.routed, 0);
}

fn a_generation_waits_for_the_device_and_goes_on() {
    let router = managed();
    let options = GenerateOptions { max_tokens: 6, ..GenerateOptions::default() };
    let begin = || router.generate("Once upon a time", &options).unwrap();
    let mut whole = begin();
    while whole.next_piece().unwrap().is_some() {}
    let whole = whole.finish().unwrap();
    assert_eq!(whole.ids.len(), 6);
    let mut halted = begin();
    halted.next_piece().unwrap();
    router.set_device(Device { thermal: Thermal::Critical, ..Device::default() });
    assert!(matches!(halted.next_piece(), Err(LifecycleError::Deferred(Deferral::TooHot))));
    let refused = router.generate("Once", &options).map(|_| ());
    assert!(matches!(refused, Err(LifecycleError::Deferred(Deferral::TooHot))));
    router.set_device(Device::default());
    // The weights stay as long as it needs them.
    router.trim(TrimLevel::Weights);
    while halted.next_piece().unwrap().is_some() {}
    assert_eq!(halted.finish().unwrap(), whole);
    let mut closed = begin();
    router.close();
    assert!(matches!(closed.next_piece(), Err(LifecycleError::Closed)));
    assert!(matches!(closed.finish(), Err(LifecycleError::Closed)));
}

fn closed_is_closed_and_twenty_cycles_leave_nothing() {
    let cycle = || {
        let router = managed();
        let session = router.session();
        session.update(PROMPT, &Request::default(), &session.supersede()).unwrap();
        router.route(PROMPT, &Request { user: Some("u"), ..Request::default() }).unwrap();
        let before = NOW.load(Ordering::Relaxed);
        router.close();
        router.close();
        assert!(router.is_closed());
        // Closing gives the memory back while the handle still lives.
        assert!(NOW.load(Ordering::Relaxed) + (1 << 20) < before);
        let asked = Request::default();
        assert!(matches!(router.route(PROMPT, &asked), Err(LifecycleError::Closed)));
        assert!(matches!(router.embed(PROMPT, &asked), Err(LifecycleError::Closed)));
        assert!(matches!(router.stats(), Err(LifecycleError::Closed)));
        let closed = session.update(PROMPT, &asked, &session.supersede());
        assert!(matches!(closed, Err(LifecycleError::Closed)));
        router.trim(TrimLevel::Weights);
        router.set_device(Device::default());
    };
    // The threads of a pool end some time after it: what they hold goes with them.
    let settled = || {
        let mut now = NOW.load(Ordering::Relaxed);
        for _ in 0..100 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let next = NOW.load(Ordering::Relaxed);
            if next == now {
                break;
            }
            now = next;
        }
        now
    };
    (0..3).for_each(|_| cycle());
    let before = settled();
    (0..20).for_each(|_| cycle());
    let after = settled();
    println!("20 cycles: {before} to {after} bytes");
    assert!(after < before + (64 << 10), "{before} to {after}");
}

/// The most bytes that loading and two prompts hold at once, beside the estimate of the process's own memory.
fn measured(name: &str, pack: &Pack, sentences: usize) {
    // Without the caches, which fill up only in time.
    let mut options = options();
    (options.router.cache_bytes, options.router.prefix_bytes) = (Some(0), Some(0));
    let footprint = Footprint::of(pack, &options.router).unwrap();
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let router = Managed::load(pack.clone(), options).unwrap();
    let long = "A sentence of the report that goes on for many pages. ".repeat(sentences);
    router.route(&long, &Request::default()).unwrap();
    let most = (MOST.load(Ordering::Relaxed) - before) as u64;
    println!("{name}: {most} bytes at most, {} estimated: {footprint:?}", footprint.private());
    assert!(most <= footprint.private(), "{name}: {most}, {footprint:?}");
    assert!(footprint.private() <= 6 * most, "{name}: {most}, {footprint:?}");
    assert_eq!(footprint.weights, router.router().unwrap().backbone().weight_bytes() + norms(&router));
}

/// What the weights have beside the matrices: the norms' vectors.
fn norms(router: &Managed) -> u64 {
    let router = router.router().unwrap();
    let shape = router.backbone().shape();
    let per_layer = match shape.architecture.name() {
        "gemma3" => 4 * shape.hidden + 2 * shape.head_dim,
        "qwen3" => 2 * shape.hidden + 2 * shape.head_dim,
        _ => 2 * shape.hidden,
    };
    4 * (shape.layers * per_layer + shape.hidden) as u64
}

fn estimates_are_above_what_is_measured_and_near_it() {
    measured("default pack", &pack(), 80);
    let name = "estimates_are_above_what_is_measured (0.6B)";
    let model = peers("models/qwen3-0.6b-rand-q4_k_m.gguf");
    let Some(model) = need(name, "the 0.6B model of `cargo xtask peers --all`", model) else { return };
    let Some(heads) = need(name, "the published heads", shared("data/zen-router")) else { return };
    let pack = Pack::with_heads(Arc::new(Memory::open(model).unwrap()), heads).unwrap();
    measured("0.6B", &pack, 4);
    assert!(Footprint::of(&pack, &RouterOptions::default()).unwrap().mapped);
}
