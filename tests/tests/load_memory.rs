//! What loading and routing allocate: at most what the parts need, nothing that stays behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use zen_edge_core::pack::Pack;
use zen_edge_core::router::{Request, Router, RouterOptions};
use zen_edge_core::source::Memory;
use zen_edge_default_pack::pack;
use zen_edge_tests::counting::{Counting, MOST, NOW};
use zen_edge_tests::{need, peers, shared};

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most bytes that `run` holds at once beyond what was there before, and what it leaves.
fn measured<T>(run: impl FnOnce() -> T) -> (usize, usize, T) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let done = run();
    (MOST.load(Ordering::Relaxed) - before, NOW.load(Ordering::Relaxed).saturating_sub(before), done)
}

fn options() -> RouterOptions {
    RouterOptions { threads: Some(2), ..RouterOptions::default() }
}

/// Bytes of this process that are in memory and belong to no file.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kib| kib << 10)
}

const MB: usize = 1 << 20;

/// One test after the other: they share the counts.
#[test]
fn loading_allocates_what_the_parts_need_and_closing_gives_it_back() {
    // The default pack: 5 MB of files, of which only heads and vocabulary become memory of our own.
    let (most, _, router) = measured(|| Router::load(&pack(), &options()).unwrap());
    println!("default pack: {:.1} MB at most while loading", most as f64 / 1e6);
    assert!(most < 16 * MB, "{most}");
    let long = "A sentence of the report that goes on for many pages. ".repeat((10 << 20) / 54);
    let (most, ..) = measured(|| router.route(&long, &Request::default()).unwrap());
    println!("a prompt of 10 MB: {:.1} MB at most", most as f64 / 1e6);
    assert!(most < 32 * MB, "{most}");
    drop(long);
    drop(router);

    // Open, route, close: what stays behind after the first ones is nothing.
    let cycle = |i: usize| {
        let router = Router::load(&pack(), &options()).unwrap();
        let prompt = format!("Prompt {i}: why is the sky blue?");
        router
            .route(&prompt, &Request { user: Some("u"), conversation: Some("c"), ..Request::default() })
            .unwrap();
    };
    (0..5).for_each(cycle);
    let (heap, rss) = (NOW.load(Ordering::Relaxed), resident());
    (5..55).for_each(cycle);
    let (heap_after, rss_after) = (NOW.load(Ordering::Relaxed), resident());
    println!("50 cycles: heap {heap} to {heap_after}, resident {rss:?} to {rss_after:?}");
    assert!(heap_after < heap + 64 * 1024, "{heap} to {heap_after}");
    if let (Some(before), Some(after)) = (rss, rss_after) {
        assert!(after < before + 8 * MB, "{before} to {after}");
    }

    // A backbone of 0.4 GB: its weights stay in the file.
    let name = "loading_allocates_what_the_parts_need (0.6B)";
    let model = peers("models/qwen3-0.6b-rand-q4_k_m.gguf");
    let Some(model) = need(name, "the 0.6B model of `cargo xtask peers --all`", model) else { return };
    let Some(heads) = need(name, "the published heads", shared("data/zen-router")) else { return };
    let pack = Pack::with_heads(Arc::new(Memory::open(model).unwrap()), heads).unwrap();
    let (most, _, router) = measured(|| Router::load(&pack, &options()).unwrap());
    println!("0.6B: {:.1} MB at most while loading", most as f64 / 1e6);
    assert!(most < 64 * MB, "{most}");
    let (most, ..) = measured(|| router.route("why is the sky blue?", &Request::default()).unwrap());
    println!("0.6B, a short prompt: {:.1} MB at most", most as f64 / 1e6);
    assert!(most < 64 * MB, "{most}");
}
