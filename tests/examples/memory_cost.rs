//! What a decision costs without the backbone, what a known prompt costs, and what a known beginning saves.
//!
//!     cargo run --release -p zen-edge-tests --example memory_cost -- [MODEL.gguf HEADS_DIR]
//!
//! Prints JSON; `benches/memory_cost.py` keeps it as a record. Every figure is a median, and what is compared is measured
//! in turn within one run.

use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zen_edge_core::pack::Pack;
use zen_edge_core::router::{Request, Router, RouterOptions, Session};
use zen_edge_core::source::Memory;
use zen_edge_default_pack::pack as inside;

/// Microseconds.
fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let done = std::hint::black_box(work());
    (us(start.elapsed()), done)
}

/// The value that a share of the sorted values lies below.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let value = values[((values.len() - 1) as f64 * share).round() as usize];
    (value * 10.0).round() / 10.0
}

const SENTENCE: &str =
    "The committee met again in the old town hall, and nothing was decided about the bridge. ";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (name, pack) = match &words[..] {
        [] => ("default pack".to_owned(), inside()),
        [model, heads] => {
            let source = Arc::new(Memory::open(model).unwrap_or_else(|e| panic!("{model}: {e}")));
            let name = std::path::Path::new(model).file_name().unwrap_or_default().to_string_lossy();
            (name.into_owned(), Pack::with_heads(source, heads).unwrap_or_else(|e| panic!("{e}")))
        }
        _ => panic!("give nothing, or a GGUF and the folder of its heads"),
    };
    // Room for 400 tokens' keys and values, whatever the backbone's size.
    let options = RouterOptions { prefix_bytes: Some(256 << 20), ..RouterOptions::default() };
    let router = Arc::new(Router::load(&pack, &options).unwrap_or_else(|e| panic!("{e}")));
    let forgetful = RouterOptions { cache_bytes: Some(0), prefix_bytes: Some(0), ..RouterOptions::default() };
    let forgetful = Router::load(&pack, &forgetful).unwrap_or_else(|e| panic!("{e}"));
    let plain = Request::default();
    let large = router.backbone().multiply_adds() > 100_000_000;

    // Without the backbone: rules alone; and heads and decision over a vector that is known.
    let prompt = "why is the sky blue?";
    router.route(prompt, &plain).unwrap();
    let by_rules = Request { rules_only: true, ..Request::default() };
    let (mut rules, mut known, mut heads, mut user) = (vec![], vec![], vec![], vec![]);
    for _ in 0..2000 {
        rules.push(timed(|| router.route(prompt, &by_rules).unwrap()).0);
        let (time, outcome) = timed(|| router.route(prompt, &plain).unwrap());
        known.push(time);
        heads.push(us(outcome.reading.timings.heads));
        let with_user = Request { user: Some("u"), ..Request::default() };
        user.push(timed(|| router.route(prompt, &with_user).unwrap()).0);
    }

    let mut lengths = Vec::new();
    for sentences in [1, 6, 20] {
        let runs = if large { 5 } else { 15 };
        let (mut cold, mut again, mut longer, mut tokens, mut new) = (vec![], vec![], vec![], 0, 0);
        for run in 0..runs {
            router.clear_cache();
            let text = format!("{run} {}", SENTENCE.repeat(sentences));
            let more = format!("{text}What now?");
            router.route(&text, &plain).unwrap();
            again.push(timed(|| router.route(&text, &plain).unwrap()).0);
            let (time, outcome) = timed(|| router.route(&more, &plain).unwrap());
            longer.push(time);
            new = outcome.reading.tokens - outcome.reading.reused;
            let (time, alone) = timed(|| forgetful.route(&more, &plain).unwrap());
            cold.push(time);
            tokens = alone.reading.tokens;
            assert_eq!(alone.logits, outcome.logits, "a known beginning gives the same bits");
        }
        let [cold, again, longer] = [&mut cold, &mut again, &mut longer].map(|times| quantile(times, 0.5));
        lengths.push(json!({"tokens": tokens, "new_tokens": new, "cold_us": cold, "repeated_us": again, "longer_us": longer}));
    }

    // Typing a sentence of two lines, five characters at a time.
    let text = format!("{SENTENCE}{SENTENCE}");
    let (mut drafts, mut alone) = (vec![], vec![]);
    for _ in 0..if large { 1 } else { 5 } {
        router.clear_cache();
        let session = Session::new(router.clone());
        for (end, _) in text.char_indices().skip(5).step_by(5) {
            drafts.push(timed(|| session.update(&text[..end], &plain).unwrap()).0);
            alone.push(timed(|| forgetful.route(&text[..end], &plain).unwrap()).0);
        }
    }

    let report = json!({
        "model": name,
        "isa": router.backbone().isa().name(),
        "threads": router.backbone().threads(),
        "rules_us": {"p50": quantile(&mut rules, 0.5), "p99": quantile(&mut rules, 0.99)},
        "heads_and_decision_us": {"p50": quantile(&mut heads, 0.5), "p99": quantile(&mut heads, 0.99)},
        "repeated_us": {"p50": quantile(&mut known, 0.5), "p99": quantile(&mut known, 0.99)},
        "repeated_with_user_us": {"p50": quantile(&mut user, 0.5), "p99": quantile(&mut user, 0.99)},
        "lengths": lengths,
        "typing_us": {
            "draft_p50": quantile(&mut drafts, 0.5), "draft_p99": quantile(&mut drafts, 0.99),
            "alone_p50": quantile(&mut alone, 0.5), "alone_p99": quantile(&mut alone, 0.99),
        },
    });
    println!("{report}");
}
