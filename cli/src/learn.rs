//! `zen-edge observe` and `zen-edge forget`: rewards in, and out again.

use crate::ask::{amount, share};
use crate::engine::{Engine, PackArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::state::State;
use zen_edge_core::bandit::OutcomeId;
use zen_edge_core::router::Reward;

/// The arguments of `zen-edge observe`.
#[derive(clap::Args, Debug)]
pub struct ObserveArgs {
    /// The id that `zen-edge route --user` gave
    outcome: OutcomeId,
    /// How good the answer was, 0 to 1
    #[arg(long, value_name = "Q", value_parser = share)]
    quality: f64,
    /// What it cost, in USD for 1,000 tokens [default: the catalog's figure]
    #[arg(long, value_name = "USD", value_parser = amount)]
    cost: Option<f64>,
    /// How many milliseconds it took [default: the catalog's estimate]
    #[arg(long, value_name = "MS", value_parser = amount)]
    latency_ms: Option<f64>,
    #[command(flatten)]
    pack: PackArgs,
}

/// Runs `zen-edge observe`.
pub fn observe(args: &ObserveArgs) -> Result<(), Failure> {
    let engine = Engine::open(&args.pack.engine, args.pack.heads.as_deref())?;
    let router = engine.router();
    let state = State::open()?;
    state.load_learning(router)?;
    let reward = Reward { quality: args.quality, cost_per_1k: args.cost, latency_ms: args.latency_ms };
    router.observe(args.outcome, reward).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    state.save_learning(router)
}

/// What is to be erased.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
pub struct What {
    /// What this user's rewards taught
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Everything: counts, and what all users taught all heads
    #[arg(long)]
    all: bool,
}

/// The arguments of `zen-edge forget`.
#[derive(clap::Args, Debug)]
pub struct ForgetArgs {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    pack: PackArgs,
}

/// Runs `zen-edge forget`.
pub fn forget(args: &ForgetArgs) -> Result<(), Failure> {
    let state = State::open()?;
    let Some(user) = &args.what.user else {
        let erased = state.erase()?;
        let files = if erased == 1 { "file" } else { "files" };
        output::line(&format!("{erased} {files} erased in {}", state.folder().display()));
        return Ok(());
    };
    let engine = Engine::open(&args.pack.engine, args.pack.heads.as_deref())?;
    state.load_learning(engine.router())?;
    if engine.router().forget_user(user) {
        state.save_learning(engine.router())?;
        output::line(&format!("what {} taught is erased", output::plain(user)));
    } else {
        output::line(&format!("nothing was learned from {}", output::plain(user)));
    }
    Ok(())
}
