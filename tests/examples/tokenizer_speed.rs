//! How long a vocabulary takes to be ready, what memory it takes, and how fast text becomes ids.
//!
//!     cargo run --release -p zen-edge-tests --example tokenizer_speed
//!
//! With `ZEN_EDGE_PYTHON` naming a Python that has `tokenizers`, the same texts go through it in the same run.

#[path = "../tests/tokenizer_support/mod.rs"]
mod tokenizer_support;

use std::time::Instant;
use tokenizer_support::{prompts, spec};
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
use zen_edge_tests::{fixture, peers};

const BARE: EncodeOptions = EncodeOptions { plain_text: false, add_bos: Some(false), add_eos: Some(false) };

/// Seconds of this thread on a core, where the system tells (a busy machine then does not show), else of the clock.
fn now(start: Instant) -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|stat| stat.split_whitespace().next()?.parse::<u64>().ok())
        .map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}

/// The mean of many runs, in seconds: the system's clock of a thread is coarse.
fn mean<T>(runs: u32, mut work: impl FnMut() -> T) -> f64 {
    best(3, || {
        for _ in 0..runs {
            std::hint::black_box(work());
        }
    }) / f64::from(runs)
}

/// The best of some runs, in seconds.
fn best<T>(runs: usize, mut work: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    (0..runs)
        .map(|_| {
            let begin = now(start);
            std::hint::black_box(work());
            now(start) - begin
        })
        .fold(f64::INFINITY, f64::min)
}

/// 1 MB of each kind: prompts of a language, code, and texts made to be slow.
fn texts(test: &str) -> Vec<(String, String)> {
    const SIZE: usize = 1_000_000;
    let cut = |text: String| {
        let end = (0..=text.len().min(SIZE)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text[..end].to_owned()
    };
    let mut texts: Vec<(String, String)> = Vec::new();
    if let Some(prompts) = prompts(test) {
        let is_code = |id: &str| {
            ["classeval", "humaneval", "mbpp", "cruxeval", "mxeval", "exercism"]
                .iter()
                .any(|source| id.starts_with(source))
        };
        let join = |wanted: &dyn Fn(&str, &str) -> bool| {
            let all: Vec<&str> = prompts
                .iter()
                .filter(|(id, lang, _)| wanted(id, lang))
                .map(|(_, _, text)| text.as_str())
                .collect();
            let all = all.join("\n\n");
            cut(all.repeat(1 + SIZE / all.len().max(1)))
        };
        texts.push(("english".into(), join(&|id, lang| lang == "en" && !is_code(id))));
        texts.push(("code".into(), join(&|id, _| is_code(id))));
        texts.push(("chinese".into(), join(&|_, lang| lang == "zh")));
        texts.push(("others".into(), join(&|_, lang| lang != "en" && lang != "zh")));
    }
    let mut state = 1_u64;
    let mut random = |alphabet: &[char]| {
        (0..SIZE / 2)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                alphabet[(state >> 33) as usize % alphabet.len()]
            })
            .collect::<String>()
    };
    let letters: Vec<char> = ('a'..='z').collect();
    let han: Vec<char> = ('\u{4e00}'..='\u{9fa5}').collect();
    texts.push(("one word of a".into(), "a".repeat(SIZE)));
    texts.push(("one word of random letters".into(), cut(random(&letters).repeat(2))));
    texts.push(("one word of random han".into(), cut(random(&han))));
    texts.push(("spaces".into(), " ".repeat(SIZE)));
    texts.push(("newlines and spaces".into(), "\n ".repeat(SIZE / 2)));
    texts.push(("digits".into(), "1".repeat(SIZE)));
    texts.push(("signs".into(), "!".repeat(SIZE)));
    texts.push(("marks to compose".into(), cut("e\u{301}".repeat(SIZE / 3))));
    texts.push(("marks to reorder".into(), cut("\u{301}\u{323}".repeat(SIZE / 4))));
    texts.push(("half special tokens".into(), cut("<|im_end".repeat(SIZE / 8))));
    texts.push(("special tokens".into(), cut("<|im_end|>".repeat(SIZE / 10))));
    texts
}

fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn main() {
    let test = "tokenizer_speed";
    let texts = texts(test);
    for name in ["qwen3", "llama3", "gemma3", "smollm2"] {
        let Some(spec) = spec(test, name) else { continue };
        let copies: Vec<_> = (0..20).map(|_| spec.clone()).collect();
        let mut copies = copies.into_iter();
        let before = resident();
        let mut tokenizer = None;
        let first = best(1, || tokenizer = Some(Tokenizer::new(spec.clone()).unwrap()));
        let after = resident();
        let load = best(20, || Tokenizer::new(copies.next().unwrap()).unwrap());
        let tokenizer = tokenizer.unwrap();
        println!(
            "\n{name}: {} tokens ready in {:.1} ms (first {:.1}), tables {:.1} MB, resident +{:.1} MB",
            tokenizer.vocab_len(),
            load * 1e3,
            first * 1e3,
            tokenizer.memory() as f64 / 1e6,
            after.zip(before).map_or(f64::NAN, |(a, b)| a.saturating_sub(b) as f64 / 1e6)
        );
        let theirs = theirs(name, &texts);
        println!("{:28} {:>9} {:>10} {:>12}", "MB/s", "ours", "tokens", "tokenizers");
        for (i, (kind, text)) in texts.iter().enumerate() {
            let tokens = tokenizer.encode(text, &BARE).len();
            let seconds = best(3, || tokenizer.encode(text, &BARE));
            let theirs = theirs.get(i).map_or("-".into(), |s| format!("{:.2}", text.len() as f64 / 1e6 / s));
            println!("{kind:28} {:>9.2} {tokens:>10} {theirs:>12}", text.len() as f64 / 1e6 / seconds);
        }
        let huge = "hello world, ".repeat(800_000);
        let limited = mean(50, || tokenizer.encode_limited(&huge, &BARE, 2048));
        println!("the first 2,048 tokens of {} MB: {:.3} ms", huge.len() / 1_000_000, limited * 1e3);
        let short = "write a python function to reverse a linked list";
        println!("a short prompt: {:.1} us", mean(10_000, || tokenizer.encode(short, &BARE)) * 1e6);
    }
}

/// Seconds that Hugging Face `tokenizers` takes for each text, on one thread.
fn theirs(name: &str, texts: &[(String, String)]) -> Vec<f64> {
    let Some(python) = std::env::var_os("ZEN_EDGE_PYTHON") else { return Vec::new() };
    let file = peers(&format!("tokenizers/{name}/tokenizer.json"));
    if !file.exists() {
        return Vec::new();
    }
    let input = serde_json::to_string(&texts.iter().map(|(_, text)| text).collect::<Vec<_>>()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("texts.json");
    std::fs::write(&path, input).unwrap();
    let output = std::process::Command::new(python)
        .arg(fixture("tokenizer/speed.py"))
        .args([file, path])
        .env("TOKENIZERS_PARALLELISM", "false")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
