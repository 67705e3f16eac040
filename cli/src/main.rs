//! `zen-edge`: route prompts on the device.

mod exit;
mod output;
mod pull;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Route prompts on the device: what kind of task a prompt is, and which model should answer it.
#[derive(Parser)]
#[command(name = "zen-edge", version, propagate_version = true, max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch a backbone into the user's cache: resumed where it broke off, verified, whole or not there at all
    Pull(pull::Args),
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Pull(args) => match pull::run(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                anstream::eprintln!("error: {error}");
                error.exit().into()
            }
        },
    }
}
