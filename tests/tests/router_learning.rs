//! A router learns from its users' rewards: ids, late and missing rewards, files, and that it pays.

use zen_edge_core::bandit::{BanditOptions, FreshStart};
use zen_edge_core::decision::{Limits, Source};
use zen_edge_core::router::{ObserveError, Request, Reward, Router, RouterOptions, Session};
use zen_edge_default_pack::pack;

fn load() -> Router {
    let options = RouterOptions { threads: Some(1), ..RouterOptions::default() };
    Router::load(&pack(), &options).unwrap_or_else(|e| panic!("{e}"))
}

const PROMPTS: [&str; 6] = [
    "write a python function to reverse a linked list",
    "What is the integral of x squared from 0 to 3?",
    "Write a poem about the sea in autumn.",
    "Why do ships float although steel is heavy?",
    "Summarise the plot of Hamlet in five sentences.",
    "Translate 'good morning' into Japanese.",
];

/// The user's own taste: this model, which the head seldom picks, is always right for them; all others are not.
fn taste(model: &str) -> f64 {
    if model == "mixtral-8x7b-instruct-v0.1" { 1.0 } else { 0.1 }
}

fn teach(router: &Router, user: &str, rounds: usize) -> f64 {
    let mut last = 0.0;
    for round in 0..rounds {
        let mut sum = 0.0;
        for prompt in PROMPTS {
            let outcome = router.route(prompt, &Request { user: Some(user), ..Request::default() }).unwrap();
            assert_eq!(outcome.decision.source, Source::Learned);
            let quality = taste(outcome.model().unwrap());
            router.observe(outcome.id.unwrap(), quality).unwrap_or_else(|e| panic!("round {round}: {e}"));
            sum += quality;
        }
        last = sum / PROMPTS.len() as f64;
    }
    last
}

#[test]
fn rewards_of_one_user_move_their_choice_and_nobody_elses() {
    let router = load();
    let before = router.route(PROMPTS[0], &Request::default()).unwrap();
    let (learned, untaught) = (teach(&router, "ann", 20), teach(&load(), "ann", 1));
    assert!(learned > 0.8 && untaught < 0.5, "{learned} after 20 rounds, {untaught} in the first");
    let stats = router.user("ann").unwrap();
    assert_eq!(stats.observations, 120);
    assert!(stats.bytes <= 64 << 10, "{} bytes", stats.bytes);
    // Without a user, and for another one, nothing has changed.
    assert_eq!(router.route(PROMPTS[0], &Request::default()).unwrap().decision, before.decision);
    let other = router.route(PROMPTS[0], &Request { user: Some("bob"), ..Request::default() }).unwrap();
    assert_eq!(
        load().route(PROMPTS[0], &Request { user: Some("bob"), ..Request::default() }).unwrap().model(),
        other.model()
    );
    // A limit goes before what was learned.
    let limits = Limits { exclude: vec!["mixtral-8x7b-instruct-v0.1".into()], ..Limits::default() };
    let limited =
        router.route(PROMPTS[0], &Request { user: Some("ann"), limits, ..Request::default() }).unwrap();
    assert_ne!(limited.model(), Some("mixtral-8x7b-instruct-v0.1"));
    assert!(router.forget_user("ann") && !router.forget_user("ann"));
    assert_eq!(router.user("ann"), None);
}

#[test]
fn a_floor_of_quality_is_held_against_the_head_and_not_against_what_exploration_hopes() {
    let router = load();
    let chosen = |user| {
        let limits = Limits { min_quality: Some(0.1), ..Limits::default() };
        let outcome = router.route(PROMPTS[1], &Request { user, limits, ..Request::default() }).unwrap();
        outcome.decision.candidates.iter().filter(|c| c.feasible).map(|c| c.model.clone()).collect::<Vec<_>>()
    };
    let (mut without, mut with) = (chosen(None), chosen(Some("u")));
    without.sort();
    with.sort();
    assert!(!without.is_empty() && without.len() < 11, "{without:?}");
    assert_eq!(with, without);
}

#[test]
fn an_untrained_row_is_not_taken_however_it_is_rewarded() {
    let router = load();
    for prompt in PROMPTS.iter().cycle().take(60) {
        let outcome = router.route(prompt, &Request { user: Some("u"), ..Request::default() }).unwrap();
        assert!(outcome.decision.candidates[0].trained, "{:?}", outcome.model());
        router.observe(outcome.id.unwrap(), 0.0).unwrap();
    }
}

#[test]
fn an_id_is_rewarded_once_and_late_or_never() {
    let router = load();
    let request = Request { user: Some("u"), ..Request::default() };
    let ids: Vec<_> =
        PROMPTS.iter().map(|prompt| router.route(prompt, &request).unwrap().id.unwrap()).collect();
    assert_eq!(router.stats().bandit.pending, 6);
    // In any order.
    for &id in ids[1..].iter().rev() {
        router.observe(id, 0.5).unwrap();
        assert!(matches!(router.observe(id, 0.5), Err(ObserveError::Unknown(_))));
    }
    assert!(matches!(router.observe(ids[0], f64::NAN), Err(ObserveError::NotFinite(_))));
    assert_eq!((router.stats().bandit.pending, router.stats().bandit.observed), (1, 5));
    // Who is no user has no id, and neither has what rules decided without the backbone, nor a draft.
    assert_eq!(router.route(PROMPTS[0], &Request::default()).unwrap().id, None);
    assert_eq!(router.route(PROMPTS[0], &Request { rules_only: true, ..request.clone() }).unwrap().id, None);
    let router = std::sync::Arc::new(router);
    assert_eq!(Session::new(router.clone()).update(PROMPTS[0], &request).unwrap().id, None);
    assert_eq!(router.stats().bandit.pending, 1);
}

#[test]
fn what_an_answer_cost_beyond_the_catalogs_figure_counts_against_it() {
    let quality_after = |reward: Reward| {
        let router = load();
        let outcome = router.route(PROMPTS[0], &Request { user: Some("u"), ..Request::default() }).unwrap();
        router.observe(outcome.id.unwrap(), reward).unwrap();
        router.user("u").unwrap().arms[0].quality
    };
    let router = load();
    let outcome = router.route(PROMPTS[0], &Request { user: Some("u"), ..Request::default() }).unwrap();
    let card = router.catalog().get(outcome.model().unwrap()).unwrap();
    assert!((quality_after(0.7.into()) - 0.7).abs() < 1e-6);
    let as_stated = Reward { quality: 0.7, cost_per_1k: Some(card.cost_per_1k), latency_ms: None };
    assert!((quality_after(as_stated) - 0.7).abs() < 1e-6);
    // λ is .35 in the config, μ .15 a second by default.
    let dearer = Reward { quality: 0.7, cost_per_1k: Some(card.cost_per_1k + 0.2), latency_ms: Some(1000.0) };
    assert!((quality_after(dearer) - (0.7 - 0.35 * 0.2 - 0.15)).abs() < 1e-6);
}

#[test]
fn learning_survives_a_restart_with_what_waits_and_a_damaged_file_costs_the_learning_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("learning.bin");
    let router = load();
    assert!(router.load_learning(&path).unwrap().is_none(), "nothing is there yet");
    teach(&router, "ann", 10);
    let request = Request { user: Some("ann"), ..Request::default() };
    let waiting = router.route(PROMPTS[0], &request).unwrap().id.unwrap();
    router.save_learning(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for prompt in PROMPTS {
        assert!(
            !bytes.windows(8).any(|window| window == &prompt.as_bytes()[..8]),
            "no text of a prompt is kept"
        );
    }

    let again = load();
    assert!(again.load_learning(&path).unwrap().is_none());
    assert_eq!(again.user("ann"), router.user("ann"));
    assert_eq!(
        again.route(PROMPTS[1], &request).unwrap().decision,
        router.route(PROMPTS[1], &request).unwrap().decision
    );
    again.observe(waiting, 1.0).unwrap();

    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x40;
    let router = load();
    assert!(router.restore_learning(&damaged).is_some());
    assert_eq!(router.user("ann"), None);
    assert!(router.route(PROMPTS[0], &request).unwrap().id.is_some());
    let why = load().restore_learning(&bytes[..bytes.len() / 3]).unwrap().to_string();
    assert!(!why.is_empty());

    // Other heads: the estimates would be nonsense.
    let mut other = pack();
    let heads = zen_edge_default_pack::HEADS.to_vec();
    let mut changed = heads.clone();
    let last = changed.len() - 2;
    changed[last] ^= 1;
    other.heads = std::sync::Arc::new(zen_edge_core::source::Memory::new("other heads", changed));
    let config = String::from_utf8(other.config.bytes.clone()).unwrap();
    other.config.bytes = config.replace("heads_sha256", "formerly").into_bytes();
    let other = Router::load(&other, &RouterOptions::default()).unwrap();
    assert!(matches!(other.restore_learning(&bytes), Some(FreshStart::OtherHeads { .. })));
}

#[test]
fn users_and_waiting_outcomes_are_capped() {
    let bandit = BanditOptions { max_users: 3, max_pending: 4, ..BanditOptions::default() };
    let options = RouterOptions { threads: Some(1), bandit, ..RouterOptions::default() };
    let router = Router::load(&pack(), &options).unwrap();
    for user in ["a", "b", "c", "d", "e"] {
        let outcome = router.route(PROMPTS[0], &Request { user: Some(user), ..Request::default() }).unwrap();
        router.observe(outcome.id.unwrap(), 1.0).unwrap();
    }
    for prompt in PROMPTS {
        router.route(prompt, &Request { user: Some("e"), ..Request::default() }).unwrap();
    }
    let stats = router.stats().bandit;
    assert_eq!((stats.users, stats.evictions, stats.pending, stats.missing), (3, 2, 4, 2));
    assert!(router.user("a").is_none() && router.user("e").is_some());
}
