//! Replays public outcomes through the per-user bandit and prints how it fares against simpler policies.
//!
//! ```text
//! cargo run --release -p zen-edge-tests --example bandit_simulation -- [--seeds 20] [--out DIR] [--svg FILE]
//! ```
//! Reads `../shared/data/profiles` and the default pack. The prompts' vectors are kept under `target/`, so that only the
//! first run embeds them. With `--out` the record goes to `bandit-simulation.json` and `.md` in that folder, with
//! `--svg` the plot of cumulative regret to that file.

#[path = "bandit_simulation/data.rs"]
mod data;
#[path = "bandit_simulation/plot.rs"]
mod plot;
#[path = "bandit_simulation/replay.rs"]
mod replay;
#[path = "bandit_simulation/report.rs"]
mod report;
#[path = "bandit_simulation/timing.rs"]
mod timing;

use data::{Data, PriorKind};
use replay::{Learn, Order, Policy, Scenario};
use report::{Experiment, Report};
use std::path::PathBuf;

/// The weight of cost: the default of [`zen_edge_core::decision::LAMBDA`].
const LAMBDA: f64 = zen_edge_core::decision::LAMBDA;

fn main() {
    let mut seeds = 20;
    let (mut out, mut svg) = (None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} wants a value"));
        match arg.as_str() {
            "--seeds" => seeds = value().parse().expect("--seeds wants a number"),
            "--out" => out = Some(PathBuf::from(value())),
            "--svg" => svg = Some(PathBuf::from(value())),
            _ => panic!("unknown argument {arg}; see the head of this file"),
        }
    }
    assert!(seeds >= 2, "a standard error needs two seeds");

    let loaded = data::load_all();
    let [llmrouter, routellm] = &loaded;
    let mut report = Report { seeds, timing: timing::measure(), experiments: Vec::new() };
    let mut run = |title: &str, data: &Data, weighty: bool, prior: PriorKind, scenario: Scenario| {
        let weight = if weighty { data.weighty_cost() } else { 1.0 };
        let experiment = Experiment::run(title, data, weight, prior, &scenario, seeds);
        print!("{}", experiment.markdown());
        report.experiments.push(experiment);
    };

    let once = Scenario::default();
    for data in [llmrouter, routellm] {
        for weighty in [false, true] {
            for prior in [PriorKind::Flat, PriorKind::Logistic, PriorKind::Ridge] {
                run("one pass", data, weighty, prior, once.clone());
            }
        }
    }
    let long = Scenario { passes: 8, ..once.clone() };
    for data in [llmrouter, routellm] {
        for prior in [PriorKind::Flat, PriorKind::Ridge] {
            run("eight passes", data, false, prior, long.clone());
        }
    }
    for prior in [PriorKind::Flat, PriorKind::Ridge] {
        run(
            "task after task",
            llmrouter,
            false,
            prior,
            Scenario { order: Order::Blocked, passes: 4, ..once.clone() },
        );
        run(
            "roles swapped midway",
            llmrouter,
            false,
            prior,
            Scenario { swap: true, passes: 8, ..once.clone() },
        );
    }
    let late = Policy::Ours(Learn { delay: 50, ..Learn::default() });
    let lost = Policy::Ours(Learn { lost: 0.4, ..Learn::default() });
    let both = Policy::Ours(Learn { delay: 50, lost: 0.4, ..Learn::default() });
    for prior in [PriorKind::Flat, PriorKind::Ridge] {
        let scenario = Scenario { passes: 4, extra: vec![late, lost, both], ..once.clone() };
        run("rewards late or lost", llmrouter, false, prior, scenario);
    }
    for exploration in [true, false] {
        let variants = if exploration {
            [0.0, 0.1, 0.25, 1.0]
                .map(|exploration| Learn { exploration: Some(exploration), ..Learn::default() })
                .to_vec()
        } else {
            [0.995, 0.998, 1.0]
                .map(|forgetting| Learn { forgetting: Some(forgetting), ..Learn::default() })
                .to_vec()
        };
        let extra: Vec<_> = variants.into_iter().map(Policy::Ours).collect();
        for prior in [PriorKind::Flat, PriorKind::Ridge] {
            let title =
                if exploration { "other exploration" } else { "other forgetting, roles swapped midway" };
            run(
                title,
                llmrouter,
                false,
                prior,
                Scenario { passes: 4, swap: !exploration, extra: extra.clone(), ..once.clone() },
            );
        }
    }

    println!("{}", report.timing.line());
    if let Some(folder) = out {
        report.write(&folder);
    }
    if let Some(file) = svg {
        plot::regret(&report, &file);
    }
}
