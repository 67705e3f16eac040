//! `zen-edge route`: a task and a model for each prompt.

use crate::batch;
use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::input::{self, Prompts};
use crate::output;
use std::path::PathBuf;

/// The arguments of `zen-edge route`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: input::Args,
    #[command(flatten)]
    engine: engine::Args,
    /// A folder with the heads that belong to the backbone: heads.safetensors, router_config.json and, where they
    /// are there, catalog.yaml and router_policy.yaml [default: the pack inside the program]
    #[arg(long, value_name = "DIR")]
    heads: Option<PathBuf>,
    /// Print JSON, for programs (rows of JSON lines are always answered so)
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    // The input first: a wrong path is told of before a model is read.
    let prompts = args.input.prompts()?;
    let engine = Engine::open(&args.engine, args.heads.as_deref())?;
    match prompts {
        Prompts::Rows { reader, name, length } => {
            batch::run(reader, &name, length, &mut std::io::stdout().lock(), |prompt| engine.route(prompt))
        }
        Prompts::One(prompt) => {
            let view = engine.route(&prompt)?;
            if args.json {
                output::json(&view);
            } else {
                view.lines().iter().for_each(|text| output::line(text));
            }
            Ok(())
        }
    }
}
