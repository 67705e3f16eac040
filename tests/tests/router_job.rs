//! Prompts that are answered in steps, as a browser's worker does it.

use std::sync::Arc;
use zen_edge_core::backbone::BackboneError;
use zen_edge_core::decision::Reason;
use zen_edge_core::router::{Request, Router, RouterOptions, Session};
use zen_edge_default_pack::pack;

fn load(chunk: Option<usize>) -> Arc<Router> {
    let options = RouterOptions { threads: Some(1), chunk, ..RouterOptions::default() };
    Arc::new(Router::load(&pack(), &options).unwrap_or_else(|e| panic!("{e}")))
}

const PROMPT: &str =
    "Prove that the square root of two is irrational, and then explain the proof to a child of ten.";

#[test]
fn a_job_answers_as_route_does_and_is_counted_once() {
    let (at_once, stepped) = (load(None), load(Some(8)));
    let request = Request { user: Some("u"), ..Request::default() };
    for prompt in [PROMPT, "", "Prove that the square root of two is irrational, and then sing."] {
        let expected = at_once.route(prompt, &request).unwrap();
        let mut job = stepped.begin(prompt, &request);
        let mut steps = 0;
        while !job.step() {
            steps += 1;
        }
        assert!(job.step(), "what is done stays done");
        let outcome = job.outcome().unwrap();
        assert_eq!((&outcome.logits, &outcome.decision), (&expected.logits, &expected.decision));
        assert_eq!(outcome.id.is_some(), expected.id.is_some());
        assert_eq!(outcome.reading.reused, expected.reading.reused);
        assert_eq!(prompt.is_empty(), steps == 0);
    }
    assert_eq!(stepped.stats().counts, at_once.stats().counts);
    // Now it is known, and what is asked for at once does the steps itself.
    assert!(stepped.begin(PROMPT, &request).outcome().unwrap().reading.cached);
    let vector = stepped.begin_embed(PROMPT, &Request { rules_only: true, ..Request::default() });
    assert_eq!(
        vector.embedding().unwrap().vector,
        at_once.embed(PROMPT, &Request::default()).unwrap().vector
    );
}

#[test]
fn a_dropped_job_is_cancelled_and_leaves_nothing_behind() {
    let router = load(Some(8));
    let mut job = router.begin(PROMPT, &Request::default());
    assert!(!job.step() && !job.step());
    drop(job);
    let stats = router.stats();
    assert_eq!((stats.counts.cancelled, stats.counts.routed, stats.cache.entries), (1, 0, 0));
    assert_eq!(stats.prefixes.entries, 0, "half a prompt is no prefix");
    let again = router.route(PROMPT, &Request::default()).unwrap();
    assert_eq!(again.logits, load(None).route(PROMPT, &Request::default()).unwrap().logits);
}

#[test]
fn a_jobs_deadline_is_kept_between_steps() {
    let router = load(Some(8));
    router.warm_up().unwrap();
    let request = Request { deadline_ms: Some(1e-3), ..Request::default() };
    let outcome = router.begin(PROMPT, &request).outcome().unwrap();
    assert!(matches!(outcome.decision.reason, Reason::Deadline { .. }), "{:?}", outcome.decision.reason);
}

#[test]
fn a_session_in_steps_pays_for_what_is_new_and_ends_what_is_old() {
    let router = load(Some(8));
    let session = Arc::new(Session::new(router.clone()));
    let words: Vec<&str> = PROMPT.split(' ').collect();
    let mut read = 0;
    for n in [6, 10, words.len()] {
        let text = words[..n].join(" ");
        let outcome = session.begin(&text, &Request::default()).outcome().unwrap();
        assert_eq!(outcome.logits, load(None).route(&text, &Request::default()).unwrap().logits);
        assert!(outcome.id.is_none());
        read += outcome.reading.tokens - outcome.reading.reused;
    }
    assert_eq!(router.stats().counts.tokens_read, read as u64);
    assert!(router.stats().counts.tokens_reused > 0);

    let mut old = session.begin("Prove that the square root of five", &Request::default());
    assert!(!old.step());
    let new = session.begin("Prove that the moon is not made of cheese", &Request::default());
    assert!(old.step(), "a newer text has come");
    assert!(matches!(old.outcome(), Err(BackboneError::Cancelled)));
    assert!(new.outcome().is_ok());
}
