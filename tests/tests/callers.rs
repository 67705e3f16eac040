//! Many callers of one router: each gets what it would get alone, whatever the others do, and whatever breaks in them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use zen_edge_core::backbone::{BackboneError, Cancel, Interrupt};
use zen_edge_core::lifecycle::{Device, LifecycleError, Managed, ManagedOptions, TrimLevel};
use zen_edge_core::pack::Pack;
use zen_edge_core::router::{self, Clock, Request, Router, RouterOptions, Session};
use zen_edge_core::source::{Memory, Source};
use zen_edge_default_pack::pack;
use zen_edge_tests::root;

/// The threads of this name are those in which something breaks.
const BREAKS: &str = "breaks";

fn breaks() -> bool {
    std::thread::current().name() == Some(BREAKS)
}

/// A clock of the app's own, with a fault.
struct FaultyClock(Instant);

impl Clock for FaultyClock {
    fn now(&self) -> Duration {
        assert!(!breaks(), "the app's clock is broken");
        self.0.elapsed()
    }
}

/// A source of the app's own, without views and with a fault.
struct FaultySource(Memory);

impl Source for FaultySource {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        assert!(!breaks(), "the app's storage is broken");
        self.0.read_at(offset, buf)
    }
}

fn prompts() -> Vec<String> {
    let mut prompts: Vec<String> = [
        "why is the sky blue?",
        "write a python function to reverse a linked list",
        "Was ist der Unterschied zwischen TCP und UDP?",
        "你好，请用两句话解释什么是量子纠缠。",
        "thanks!",
        "",
    ]
    .map(str::to_owned)
    .to_vec();
    // One begins as the other, and both are longer than a chunk.
    let long = "A sentence of the report that goes on for many pages. ".repeat(30);
    prompts.push(long.clone());
    prompts.push(long + "What does it say?");
    prompts
}

/// The logits of a prompt, bit by bit.
fn bits(router: &Router, prompt: &str, request: &Request<'_>) -> Result<Option<Vec<u32>>, BackboneError> {
    let outcome = router.route(prompt, request)?;
    Ok(outcome.logits.map(|logits| logits.task.iter().chain(&logits.route).map(|v| v.to_bits()).collect()))
}

/// What each prompt gets from a router that remembers nothing and has one caller.
fn alone(prompts: &[String]) -> Vec<Option<Vec<u32>>> {
    let options = RouterOptions {
        threads: Some(1),
        cache_bytes: Some(0),
        prefix_bytes: Some(0),
        ..RouterOptions::default()
    };
    let router = Router::load(&pack(), &options).unwrap();
    prompts.iter().map(|prompt| bits(&router, prompt, &Request::default()).unwrap()).collect()
}

/// Caches so small that callers push out what others have put in.
fn crowded() -> RouterOptions {
    RouterOptions {
        threads: Some(3),
        cache_bytes: Some(5000),
        prefix_bytes: Some(3 << 20),
        ..RouterOptions::default()
    }
}

#[test]
fn sixteen_callers_of_every_kind_get_what_they_would_get_alone() {
    let prompts = prompts();
    let expected = alone(&prompts);
    let router = Arc::new(Router::load(&pack(), &crowded()).unwrap());
    let start = Barrier::new(16);
    std::thread::scope(|scope| {
        for caller in 0..16_usize {
            let (router, prompts, expected, start) = (&router, &prompts, &expected, &start);
            scope.spawn(move || {
                let session = Session::new(router.clone());
                let (user, talk) = (format!("user {}", caller % 3), format!("talk {}", caller % 5));
                start.wait();
                for round in 0..10 {
                    let at = (caller * 7 + round) % prompts.len();
                    let (prompt, expected) = (&prompts[at], &expected[at]);
                    let request = Request {
                        user: (caller % 2 == 0).then_some(&*user),
                        conversation: (caller % 3 == 0).then_some(&*talk),
                        ..Request::default()
                    };
                    match caller % 8 {
                        // Cancelled at once, or after somebody else has begun.
                        0 => {
                            let cancel = Cancel::new();
                            let request = Request { cancel: Some(&cancel), ..request };
                            let got = std::thread::scope(|scope| {
                                scope.spawn(|| cancel.cancel());
                                bits(router, prompt, &request)
                            });
                            match got {
                                Ok(got) => assert_eq!(got, *expected, "caller {caller}, {prompt:?}"),
                                Err(error) => assert!(matches!(error, BackboneError::Cancelled), "{error}"),
                            }
                        }
                        1 => {
                            let outcome = session.update(prompt, &request).unwrap();
                            let got = outcome.logits.map(|logits| {
                                logits.task.iter().chain(&logits.route).map(|v| v.to_bits()).collect()
                            });
                            assert_eq!(got, *expected, "caller {caller}, {prompt:?}");
                        }
                        2 => {
                            router.clear_cache();
                            router.clear_contexts();
                            router.forget_user(&user);
                            router.forget_conversation(&talk);
                            assert!(router.learning().len() > 32);
                            router.stats();
                        }
                        _ => {
                            let outcome = router.route(prompt, &request).unwrap();
                            if let Some(id) = outcome.id {
                                // Another caller may have forgotten the user meanwhile.
                                let _ = router.observe(id, round as f64 / 10.0);
                            }
                            let got = outcome.logits.map(|logits| {
                                logits.task.iter().chain(&logits.route).map(|v| v.to_bits()).collect()
                            });
                            assert_eq!(got, *expected, "caller {caller}, {prompt:?}");
                        }
                    }
                }
            });
        }
    });
    // What the caches hold is still what is true.
    for (prompt, expected) in prompts.iter().zip(&expected) {
        assert_eq!(bits(&router, prompt, &Request::default()).unwrap(), *expected, "{prompt:?}");
    }
    assert_eq!(router.stats().counts.failed, 0);
}

#[test]
fn a_panic_in_an_apps_own_code_ends_its_request_and_no_other() {
    let prompts = prompts();
    let expected = alone(&prompts);
    let whole = pack();
    let mut model = vec![0; whole.model.len() as usize];
    whole.model.read_at(0, &mut model).unwrap();
    let pack = Pack { model: Arc::new(FaultySource(Memory::new("model.gguf", model))), ..whole };
    let clock: Arc<dyn Clock> = Arc::new(FaultyClock(Instant::now()));
    let broken = AtomicUsize::new(0);
    for clock in [None, Some(clock)] {
        let router = Router::load(&pack, &RouterOptions { clock, ..crowded() }).unwrap();
        std::thread::scope(|scope| {
            for caller in 0..8_usize {
                let (router, prompts, expected, broken) = (&router, &prompts, &expected, &broken);
                let name = if caller % 2 == 0 { BREAKS } else { "works" };
                let body = move || {
                    for round in 0..8 {
                        let at = (caller * 3 + round) % prompts.len();
                        // Of texts that nobody else has sent nothing is known: the source is asked for them.
                        let text = if breaks() {
                            format!("{caller} {round} {}", prompts[at])
                        } else {
                            prompts[at].clone()
                        };
                        let request =
                            Request { user: Some("ann"), conversation: Some("talk"), ..Request::default() };
                        let got = catch_unwind(AssertUnwindSafe(|| bits(router, &text, &request)));
                        match got {
                            Ok(got) if !breaks() => assert_eq!(got.unwrap(), expected[at], "{text:?}"),
                            // A fault is met only where the app's code is called.
                            Ok(_) => {}
                            Err(_) => {
                                assert!(breaks(), "a fault of another caller reached this one");
                                broken.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                };
                std::thread::Builder::new().name(name.into()).spawn_scoped(scope, body).unwrap();
            }
        });
        for (prompt, expected) in prompts.iter().zip(&expected) {
            assert_eq!(bits(&router, prompt, &Request::default()).unwrap(), *expected, "{prompt:?}");
        }
        assert!(broken.swap(0, Ordering::Relaxed) > 0, "nothing broke: the test shows nothing");
    }
}

/// Counts how often a pass asks whether it shall stop, and stops it after some.
struct After(AtomicUsize, usize);

impl Interrupt for After {
    fn stops(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) >= self.1
    }
}

/// A pass asks often enough: none of the stretches between two questions is more than a small part of a long prompt. At 0.6B
/// (docs/security.md) such a part is below 50 ms.
#[test]
fn a_cancel_is_heard_within_a_small_part_of_a_long_prompt() {
    let options = RouterOptions { threads: Some(2), cache_bytes: Some(0), ..RouterOptions::default() };
    let router = Router::load(&pack(), &options).unwrap();
    let backbone = router.backbone();
    let ids: Vec<u32> = (0..3000).map(|i| i * 7919 % backbone.shape().vocab as u32).collect();
    let questions = After(AtomicUsize::new(0), usize::MAX);
    let begun = Instant::now();
    backbone.embed_in(&mut backbone.context(), &ids, Some(&questions)).unwrap();
    let whole = begun.elapsed();
    let asked = questions.0.into_inner();
    println!("{asked} questions in {whole:?}");
    assert!(asked >= 20 * backbone.shape().layers, "{asked} questions");
    // The longest stretch: time between a cancel and the end, the shortest of three, for another process may have the core.
    let mut latest = Duration::ZERO;
    for at in 1..8 {
        let took = (0..3).map(|_| {
            let cancel = Cancel::new();
            std::thread::scope(|scope| {
                let (cancel, ids) = (&cancel, &ids);
                let pass = scope.spawn(move || {
                    let ended = backbone.embed_in(&mut backbone.context(), ids, Some(cancel));
                    (Instant::now(), ended)
                });
                std::thread::sleep(whole * at / 10);
                let asked = Instant::now();
                cancel.cancel();
                let (ended, result) = pass.join().unwrap();
                match result {
                    Err(error) => assert!(matches!(error, BackboneError::Cancelled), "{error}"),
                    Ok(_) => return Duration::ZERO,
                }
                ended.saturating_duration_since(asked)
            })
        });
        latest = latest.max(took.min().unwrap());
    }
    println!("a cancel took {latest:?} at most, the whole prompt {whole:?}");
    assert!(latest < whole / 5, "{latest:?} of {whole:?}");
    // What was cancelled leaves nothing behind.
    let request = Request::default();
    assert!(router.route("why is the sky blue?", &request).is_ok());
}

/// A source that the device refuses from one moment on.
struct Leaves(Memory, AtomicBool);

impl Source for Leaves {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.1.load(Ordering::Relaxed) {
            return Err(io::Error::other("the file is gone"));
        }
        self.0.read_at(offset, buf)
    }
}

#[test]
fn what_answers_goes_on_where_it_cannot_be_loaded_for_a_gpu() {
    let mut pack = pack();
    let bytes = std::fs::read(root().join("packs/default/model.gguf")).unwrap();
    let source = Arc::new(Leaves(Memory::new("model", bytes), AtomicBool::new(false)));
    pack.model = source.clone();
    let router = RouterOptions { device: router::Device::Auto, threads: Some(1), ..RouterOptions::default() };
    let router = Managed::load(pack, ManagedOptions { router, ..ManagedOptions::default() }).unwrap();
    let foreground = router.device();
    router.set_device(Device { foreground: false, ..foreground });
    router.trim(TrimLevel::Weights);
    let before = router.route("thanks!", &Request::default()).unwrap();
    // Seen again: the weights would be loaded anew, with the GPU.
    router.set_device(foreground);
    source.1.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let after = router.route("thanks!", &Request::default()).unwrap();
        assert_eq!(before.logits, after.logits);
    }
    // What has no other is an error with its cause.
    router.trim(TrimLevel::Weights);
    let error = router.route("thanks!", &Request::default()).unwrap_err();
    assert!(matches!(&error, LifecycleError::Load(_)) && error.to_string().contains("gone"), "{error}");
}
