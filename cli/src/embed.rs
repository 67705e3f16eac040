//! `zen-edge embed`: the vector that the heads read.

use crate::batch;
use crate::engine::{self, Embedder};
use crate::failure::Failure;
use crate::input::{self, Prompts};
use crate::output;

/// The arguments of `zen-edge embed`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: input::Args,
    #[command(flatten)]
    engine: engine::Args,
    /// Print JSON: the vector with its norm, the tokens and the backend (rows of JSON lines are always answered so)
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let prompts = args.input.prompts()?;
    let engine = Embedder::open(&args.engine)?;
    match prompts {
        Prompts::Rows { reader, name, length } => {
            batch::run(reader, &name, length, &mut std::io::stdout().lock(), |prompt| engine.embed(prompt))
        }
        Prompts::One(prompt) => {
            let embedding = engine.embed(&prompt)?;
            if args.json {
                output::json(&embedding);
            } else {
                // One value a line, each with the digits that give back the same float: for `paste`, `awk`, `numpy.loadtxt`.
                embedding.embedding.iter().for_each(|value| output::line(&value.to_string()));
            }
            Ok(())
        }
    }
}
