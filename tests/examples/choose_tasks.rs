//! How often a language model names the task of a prompt without any training: `choose` over the eight task names.
//!
//!     cargo run --release -p zen-edge-tests --example choose_tasks -- MODEL.gguf [ROWS [KV]]
//!
//! Reads `../shared/data/prompts/test.jsonl`, the same number of rows of each task, in the file's order. Prints JSON:
//! balanced accuracy of the plain probabilities, of those with a content-free prompt taken off, and of the mean over tokens;
//! and the seconds.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use zen_edge_core::backbone::BackboneOptions;
use zen_edge_core::catalog::Task;
use zen_edge_core::generate::{ChooseOptions, Generator};
use zen_edge_core::source::Memory;

/// Characters of a prompt that are read: the tasks differ in their beginnings.
const CHARACTERS: usize = 600;

/// How a task is said in words.
fn words(task: Task) -> String {
    format!(" {}", task.name().replace('_', " "))
}

fn framed(text: &str) -> String {
    let kinds: Vec<String> = Task::ALL.iter().map(|task| task.name().replace('_', " ")).collect();
    format!("Kinds of requests: {}.\n\nRequest: {text}\n\nThe kind of this request is", kinds.join(", "))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("give a GGUF")?;
    let each: usize = args.next().map_or(Ok(50), |n| n.parse())?;
    let rows = std::fs::read_to_string(zen_edge_tests::shared("data/prompts/test.jsonl"))?;
    let generator = Generator::open(Arc::new(Memory::open(&model)?), &BackboneOptions::default())?;
    let options: Vec<String> = Task::ALL.iter().map(|task| words(*task)).collect();
    let plain = ChooseOptions { plain_text: true, ..ChooseOptions::default() };
    let free = generator.choose(&framed("N/A"), &options, &plain)?;

    let start = Instant::now();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut right: [BTreeMap<&str, usize>; 3] = Default::default();
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row)?;
        let Some(task) = row["task"].as_str().and_then(Task::from_name) else { continue };
        let count = seen.entry(task.name()).or_default();
        if *count >= each {
            continue;
        }
        *count += 1;
        let text: String = row["prompt"].as_str().unwrap_or_default().chars().take(CHARACTERS).collect();
        let choices = generator.choose(&framed(&text), &options, &plain)?;
        let best = |score: &dyn Fn(usize) -> f64| {
            let best = (0..choices.len()).rev().max_by(|a, b| score(*a).total_cmp(&score(*b)));
            best.map(|i| Task::ALL[i])
        };
        let answers = [
            best(&|i| choices[i].log_likelihood),
            best(&|i| choices[i].log_likelihood - free[i].log_likelihood),
            best(&|i| choices[i].log_likelihood / choices[i].tokens as f64),
        ];
        for (right, answer) in right.iter_mut().zip(answers) {
            *right.entry(task.name()).or_default() += usize::from(answer == Some(task));
        }
    }
    let balanced = |right: &BTreeMap<&str, usize>| {
        let shares = seen.iter().map(|(task, n)| right.get(task).copied().unwrap_or(0) as f64 / *n as f64);
        (1000.0 * shares.sum::<f64>() / seen.len() as f64).round() / 1000.0
    };
    let prompts: usize = seen.values().sum();
    println!(
        "{}",
        json!({
            "model": std::path::Path::new(&model).file_name().map(|name| name.to_string_lossy().into_owned()),
            "prompts": prompts,
            "rows": seen,
            "balanced_accuracy": {
                "plain": balanced(&right[0]),
                "content_free": balanced(&right[1]),
                "by_token": balanced(&right[2]),
            },
            "right": { "plain": right[0], "content_free": right[1], "by_token": right[2] },
            "seconds": start.elapsed().as_secs_f64().round(),
        })
    );
    Ok(())
}
