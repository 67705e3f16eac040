//! `zen-edge stats`: how prompts were decided, so that falling back silently is not silent.

use crate::engine::{Engine, PackArgs};
use crate::failure::Failure;
use crate::output::{self, plain};
use crate::state::{Kept, State};
use owo_colors::OwoColorize;
use serde::Serialize;
use zen_edge_core::bandit::{BanditStats, UserStats};
use zen_edge_core::decision::Source;

/// The arguments of `zen-edge stats`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    /// Show what this user's rewards taught
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[command(flatten)]
    pack: PackArgs,
}

/// What is shown. Its fields are the JSON of `zen-edge stats --json`: part of the interface.
#[derive(Serialize)]
struct Shown {
    /// The folder that it is kept in.
    folder: String,
    /// `null` before the first prompt.
    #[serde(flatten)]
    kept: Option<Kept>,
    /// The share of prompts that the heads did not decide.
    fallback_rate: Option<f64>,
    /// What was learned for these heads.
    bandit: BanditStats,
    /// What the user that was asked for taught; `null` where nothing.
    user: Option<UserStats>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let engine = Engine::open(&args.pack.engine, args.pack.heads.as_deref())?;
    let state = State::open()?;
    let router = engine.router();
    state.load_learning(router)?;
    let kept = state.counts()?;
    let shown = Shown {
        folder: state.folder().display().to_string(),
        fallback_rate: kept.as_ref().and_then(|kept| kept.counts.fallback_rate()),
        kept,
        user: args.user.as_deref().and_then(|user| router.user(user)),
        bandit: router.stats().bandit,
    };
    if args.json {
        output::json(&shown);
    } else {
        shown.lines(args.user.as_deref()).iter().for_each(|line| output::line(line));
    }
    Ok(())
}

impl Shown {
    fn lines(&self, user: Option<&str>) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.kept {
            None => lines.push("No prompt has been routed yet.".to_owned()),
            Some(kept) => lines.extend(counted(kept, self.fallback_rate)),
        }
        lines.push(String::new());
        let b = &self.bandit;
        lines.push(match (b.users, b.pending) {
            (0, 0) => {
                "Nothing was learned for these heads: `route --user` and `observe` teach them.".to_owned()
            }
            (users, pending) => format!(
                "learned: users {users}, rewards {}, answers that wait for one {pending}, given up {}; {}",
                b.observed,
                b.missing,
                output::bytes(b.bytes as u64)
            ),
        });
        match (user, &self.user) {
            (Some(user), Some(stats)) => lines.extend(learned(user, stats)),
            (Some(user), None) => lines.push(format!("nothing was learned from {}", plain(user))),
            (None, _) => {}
        }
        lines.push(String::new());
        let kept = format!("kept in {}, without the text of any prompt", plain(&self.folder));
        lines.push(kept.dimmed().to_string());
        lines
    }
}

fn counted(kept: &Kept, rate: Option<f64>) -> Vec<String> {
    let counts = &kept.counts;
    let of = |n: u64| format!("{:>5.1} %", 100.0 * n as f64 / counts.routed.max(1) as f64);
    let mut table = output::table(&["prompts", "", ""]);
    let mut row = |what: String, n: u64| {
        table.add_row([what, n.to_string(), of(n)]);
    };
    row("routed".into(), counts.routed);
    for (source, n) in &counts.sources {
        let by = match source {
            Source::Learned => "by the learned heads",
            Source::Rules => "by rules",
            Source::Fallback => "by the policy's default",
            Source::Tag => "by the backbone's route tag",
            Source::Both => "by heads and route tag",
        };
        row(format!("  {by}"), *n);
        if *source == Source::Rules {
            for (reason, n) in &counts.reasons {
                row(format!("    {}", plain(&reason.replace('_', " "))), *n);
            }
        }
    }
    for (what, n) in [
        ("no model fits", counts.no_fit),
        ("read in part: too long", counts.truncated),
        ("known already", counts.cache_hits),
        ("begun like an earlier one", counts.prefix_hits),
        ("held at the conversation's model", counts.held),
        ("cancelled", counts.cancelled),
        ("failed", counts.failed),
    ] {
        if n > 0 {
            row(what.into(), n);
        }
    }
    output::right(&mut table, 1..3);
    let mut lines: Vec<String> = output::rows(&table).collect();
    if let Some(rate) = rate.filter(|rate| *rate > 0.0) {
        lines.push(
            format!("the heads did not decide {:.1} % of the prompts", 100.0 * rate).yellow().to_string(),
        );
    }
    for (what, by) in [("tasks", &counts.tasks), ("models", &counts.models)] {
        let mut by: Vec<_> = by.iter().collect();
        by.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
        let by: Vec<String> = by.iter().map(|(name, n)| format!("{} {n}", plain(name))).collect();
        if !by.is_empty() {
            lines.push(format!("{what}: {}", by.join(", ")));
        }
    }
    lines
}

fn learned(user: &str, stats: &UserStats) -> Vec<String> {
    let mut table = output::table(&["model", "rewards", "mean quality"]);
    for arm in &stats.arms {
        table.add_row([plain(&arm.model), arm.pulls.to_string(), format!("{:.2}", arm.quality)]);
    }
    output::right(&mut table, 1..3);
    let mut lines = vec![format!(
        "{}: {} rewards, which count as {:.1} after forgetting; {}",
        plain(user),
        stats.observations,
        stats.effective,
        output::bytes(stats.bytes as u64)
    )];
    lines.extend(output::rows(&table));
    lines
}
