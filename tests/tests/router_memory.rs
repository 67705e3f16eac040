//! What a router remembers, and what it promises: prefixes, typing, conversations, deadlines, counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use zen_edge_core::backbone::{BackboneError, KvType};
use zen_edge_core::decision::{Reason, Source};
use zen_edge_core::router::{Calibration, Clock, Request, Router, RouterOptions, Session};
use zen_edge_default_pack::pack;

fn load(options: RouterOptions) -> Router {
    Router::load(&pack(), &RouterOptions { threads: Some(1), ..options }).unwrap_or_else(|e| panic!("{e}"))
}

fn plain() -> Router {
    load(RouterOptions::default())
}

/// Remembers nothing: every answer is computed from its first token.
fn forgetful() -> Router {
    load(RouterOptions { cache_bytes: Some(0), prefix_bytes: Some(0), ..RouterOptions::default() })
}

const SYSTEM: &str = "You are a careful assistant of a small bookshop. Answer in two sentences, kindly, and never promise \
                      a delivery date that is not in the order. ";

#[test]
fn a_prompt_that_begins_as_an_earlier_one_pays_for_its_new_tokens_with_the_same_bits() {
    let (router, cold) = (plain(), forgetful());
    let turns = [
        "Where is my order?",
        "Where is my order? It was two novels.",
        "Do you sell maps?",
        "Where is my order!",
    ];
    let mut read = 0;
    for (i, turn) in turns.iter().enumerate() {
        let prompt = format!("{SYSTEM}{turn}");
        let (warm, alone) = (
            router.route(&prompt, &Request::default()).unwrap(),
            cold.route(&prompt, &Request::default()).unwrap(),
        );
        assert_eq!(warm.logits, alone.logits, "{turn}");
        assert_eq!(warm.decision, alone.decision);
        assert_eq!(alone.reading.reused, 0);
        assert_eq!(
            warm.reading.reused > 30,
            i > 0,
            "{turn}: {} of {}",
            warm.reading.reused,
            warm.reading.tokens
        );
        read += warm.reading.tokens - warm.reading.reused;
    }
    let stats = router.stats();
    assert_eq!(stats.counts.prefix_hits, 3);
    assert_eq!(stats.counts.tokens_read, read as u64);
    assert!(stats.prefixes.entries >= 2 && stats.prefixes.bytes <= 32 << 20, "{:?}", stats.prefixes);
    router.clear_cache();
    assert_eq!(router.stats().prefixes.entries, 0);
}

#[test]
fn what_prefixes_hold_stays_under_its_bound() {
    // A context of up to 64 tokens of this backbone, and not two.
    let one = plain().backbone().context_bytes(KvType::F32, 64);
    let router = load(RouterOptions { prefix_bytes: Some(one + 1024), ..RouterOptions::default() });
    for topic in ["bread", "stars", "trains", "gardens"] {
        let prompt =
            format!("Tell me in a few plain sentences what a child should know about {topic} and why.");
        router.route(&prompt, &Request::default()).unwrap();
        let held = router.stats().prefixes;
        assert!(held.entries <= 1 && held.bytes <= one + 1024, "{held:?}");
    }
    assert_eq!(router.stats().prefixes.entries, 1);
    // What would not fit is not kept, and not missed.
    let long = "A sentence of the report that goes on for many pages. ".repeat(40);
    let first = router.embed(&long, &Request::default()).unwrap();
    assert!(first.reading.tokens > 64);
    assert_eq!(first.vector, forgetful().embed(&long, &Request::default()).unwrap().vector);
}

#[test]
fn typing_reads_what_is_new_and_leaves_no_trace_but_vectors() {
    let router = Arc::new(plain());
    let session = Session::new(router.clone());
    let text = "Write a python function that merges two sorted lists into one sorted list";
    let cold = forgetful();
    let request = Request { conversation: Some("c"), ..Request::default() };
    let (mut new, mut all) = (0, 0);
    for (end, _) in text.char_indices().skip(6).step_by(5) {
        let draft = session.update(&text[..end], &request).unwrap();
        assert_eq!(
            draft.logits,
            cold.route(&text[..end], &Request::default()).unwrap().logits,
            "{}",
            &text[..end]
        );
        assert!(!draft.decision.pinned && draft.id.is_none());
        new += draft.reading.tokens - draft.reading.reused;
        all += draft.reading.tokens;
    }
    assert!(new * 2 < all, "{new} of {all} tokens were read");
    let stats = router.stats();
    assert_eq!((stats.conversations, stats.counts.routed), (0, 0), "a draft is no turn and no decision");
    assert_eq!(stats.counts.tokens_read, new as u64);
    session.update(text, &request).unwrap();
    assert!(router.route(text, &request).unwrap().reading.cached, "the sent text is known");
    assert_eq!(router.stats().conversations, 1);
    session.clear();
    assert_eq!(
        session.update(text, &request).unwrap().reading.tokens,
        cold.embed(text, &Request::default()).unwrap().reading.tokens
    );
}

#[test]
fn a_newer_text_ends_the_work_on_older_ones() {
    let router = Arc::new(load(RouterOptions { cache_bytes: Some(0), ..RouterOptions::default() }));
    let session = Session::new(router.clone());
    let long = "The committee met again, and again nothing was decided about the bridge. ".repeat(30);
    let request = Request::default();
    let texts: Vec<String> = (0..6).map(|i| format!("{i} {long}")).collect();
    let barrier = Barrier::new(texts.len());
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = texts
            .iter()
            .map(|text| {
                let (session, barrier, request) = (&session, &barrier, &request);
                scope.spawn(move || {
                    barrier.wait();
                    session.update(text, request)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // The last one is answered; those whose work was overtaken say so, and no thread waits for ever.
    let answered = ended.iter().filter(|outcome| outcome.is_ok()).count();
    let stale = ended.iter().filter(|outcome| matches!(outcome, Err(BackboneError::Cancelled))).count();
    assert_eq!(answered + stale, texts.len());
    assert!(answered >= 1);
    assert_eq!(router.stats().counts.cancelled, 0, "nobody cancelled a prompt");
    // And the session goes on, with the right bits.
    let after = session.update(&texts[0], &request).unwrap();
    assert_eq!(after.logits, forgetful().route(&texts[0], &request).unwrap().logits);
}

#[test]
fn h8_a_conversation_is_held_at_its_model_until_it_is_forgotten() {
    let router = plain();
    let of = |conversation| Request { conversation, rules_only: true, ..Request::default() };
    let work = "Prove that the square root of 2 is irrational, step by step, and analyze where the proof would fail for 4.";
    let first = router.route(work, &of(Some("a"))).unwrap();
    let model = first.model().unwrap().to_owned();
    let alone = router.route("thanks!", &of(None)).unwrap();
    assert_ne!(alone.model(), Some(&*model), "without a conversation small talk goes elsewhere");
    let held = router.route("thanks!", &of(Some("a"))).unwrap();
    assert_eq!((held.model(), held.decision.pinned), (Some(&*model), true));
    assert_eq!(router.route("thanks!", &of(Some("b"))).unwrap().model(), alone.model());
    assert!(router.forget_conversation("a") && !router.forget_conversation("a"));
    assert_eq!(router.route("thanks!", &of(Some("a"))).unwrap().model(), alone.model());
    assert_eq!(router.stats().counts.held, 1);
}

/// A clock that somebody moves: each look at it takes `step` microseconds.
#[derive(Default)]
struct Moved {
    now: AtomicU64,
    step: AtomicU64,
}

impl Clock for Moved {
    fn now(&self) -> Duration {
        let step = self.step.load(Ordering::SeqCst);
        Duration::from_micros(self.now.fetch_add(step, Ordering::SeqCst) + step)
    }
}

#[test]
fn a_deadline_that_the_heads_cannot_keep_is_answered_by_rules_and_says_so() {
    let clock = Arc::new(Moved::default());
    let router = load(RouterOptions { clock: Some(clock.clone()), ..RouterOptions::default() });
    let within = |ms: f64| Request { deadline_ms: Some(ms), ..Request::default() };
    // Nothing is measured: nothing is promised.
    let unknown = router.route("why is the sky blue?", &within(1e6)).unwrap();
    assert!(matches!(unknown.decision.reason, Reason::Deadline { estimate_ms: None, .. }));
    assert_eq!((unknown.decision.source, unknown.reading.tokens), (Source::Rules, 0));
    // Each look at the clock is 1 ms from here on: the warm-up takes one.
    clock.step.store(1000, Ordering::SeqCst);
    let speed = router.warm_up().unwrap().unwrap();
    let short = speed.estimate_ms(10).unwrap();
    assert!(short < 2.0, "{speed:?}");
    let learned = router.route("why is the sky blue?", &within(1000.0)).unwrap();
    assert_eq!(learned.decision.source, Source::Learned);
    // A long prompt would take longer than the deadline.
    let long = "The committee met again, and nothing was decided about the bridge. ".repeat(60);
    let estimate = router.speed().unwrap().estimate_ms(500).unwrap();
    let refused = router.route(&long, &within(estimate / 2.0)).unwrap();
    let Reason::Deadline { estimate_ms: Some(told), deadline_ms } = refused.decision.reason else {
        panic!("{:?}", refused.decision.reason)
    };
    assert!(told > deadline_ms && deadline_ms == estimate / 2.0);
    assert_eq!(router.stats().counts.reasons["deadline"], 2);
    // A known prompt needs no backbone, whatever the deadline.
    assert!(router.route("why is the sky blue?", &within(0.0)).unwrap().reading.cached);
}

#[test]
fn a_pass_that_turns_out_slower_is_stopped_at_the_deadline() {
    let clock = Arc::new(Moved::default());
    let router = load(RouterOptions { clock: Some(clock.clone()), ..RouterOptions::default() });
    clock.step.store(1, Ordering::SeqCst);
    router.warm_up().unwrap();
    // The device has become a million times slower.
    clock.step.store(1_000_000, Ordering::SeqCst);
    let request = Request { deadline_ms: Some(3500.0), ..Request::default() };
    let outcome = router.route("why do we have leap years?", &request).unwrap();
    let Reason::Deadline { estimate_ms: Some(took), .. } = outcome.decision.reason else {
        panic!("{:?}", outcome.decision.reason)
    };
    assert!(took >= 3500.0, "{took}");
    // The next one knows before it begins.
    let before = router.stats().counts.tokens_read;
    let outcome = router.route("why do we have leap days?", &request).unwrap();
    assert!(matches!(outcome.decision.reason, Reason::Deadline { .. }));
    assert_eq!(router.stats().counts.tokens_read, before);
}

#[test]
fn h3_ten_megabytes_are_answered_in_bounded_time_as_a_long_context() {
    let router = plain();
    let sentence = "A sentence of the report that goes on for many pages. ";
    let median = |prompt: &str| {
        let mut times: Vec<_> = (0..5)
            .map(|_| {
                router.clear_cache();
                let start = Instant::now();
                let outcome = router.route(prompt, &Request::default()).unwrap();
                (start.elapsed(), outcome)
            })
            .collect();
        times.sort_by_key(|(time, _)| *time);
        times.swap_remove(2)
    };
    let (small, read) = median(&sentence.repeat(80));
    let (large, huge) = median(&sentence.repeat((10 << 20) / sentence.len()));
    assert_eq!(huge.decision.task.name(), "long_context");
    assert_eq!(huge.decision.task_source, Source::Rules);
    assert!(huge.reading.truncated && huge.reading.tokens <= router.config().max_tokens);
    // Both read as much as the contract allows; what the rest costs is one look at its characters.
    assert!(read.reading.truncated);
    assert!(large < small * 5, "{small:?} for 4 KB, {large:?} for 10 MB");
}

#[test]
fn counts_tell_who_decided_and_why() {
    let router = plain();
    router.route("why is the sky blue?", &Request::default()).unwrap();
    router.route("why is the sky blue?", &Request::default()).unwrap();
    router.route("", &Request::default()).unwrap();
    router.route("hello", &Request { rules_only: true, ..Request::default() }).unwrap();
    router.route(&"word ".repeat(3000), &Request::default()).unwrap();
    let cancel = zen_edge_core::backbone::Cancel::new();
    cancel.cancel();
    router.route("anew", &Request { cancel: Some(&cancel), ..Request::default() }).unwrap_err();
    let stats = router.stats();
    assert_eq!(stats.counts.routed, 5);
    assert_eq!((stats.counts.sources[&Source::Learned], stats.counts.sources[&Source::Rules]), (3, 2));
    assert_eq!((stats.counts.reasons["empty_input"], stats.counts.reasons["rules_only"]), (1, 1));
    assert_eq!((stats.counts.cache_hits, stats.counts.truncated, stats.counts.cancelled), (1, 1, 1));
    assert_eq!(stats.fallback_rate, Some(0.4));
    assert_eq!(stats.counts.models.values().sum::<u64>(), 5);
    assert!(stats.cache.entries == 2 && stats.cache.bytes > 0);
}

#[test]
fn temperatures_of_another_backbone_are_left_out_and_it_is_said() {
    assert_eq!(plain().calibration(), &Calibration::Fitted);
    let mut pack = pack();
    let config = String::from_utf8(pack.config.bytes.to_vec()).unwrap();
    let ours = plain().config().backbone_sha256.clone().unwrap();
    pack.config.bytes = config.replace(&ours, &"0".repeat(64)).into_bytes();
    let other = Router::load(&pack, &RouterOptions::default()).unwrap();
    assert_eq!(other.calibration(), &Calibration::OtherBackbone { fitted: "0".repeat(64), loaded: ours });
    let outcome = other.route("why is the sky blue?", &Request::default()).unwrap();
    assert!(
        outcome.decision.task_confidence.raw.is_some()
            && outcome.decision.task_confidence.calibrated.is_none()
    );
}
