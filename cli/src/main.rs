//! `zen-edge`: route prompts on the device.

mod ablate;
mod ask;
mod batch;
mod bench;
mod choose;
mod compare;
mod embed;
mod engine;
mod exit;
mod failure;
mod fit;
mod generate;
#[cfg(feature = "gpu")]
mod gpu_report;
mod input;
mod inspect;
mod learn;
mod model;
mod output;
mod pull;
mod quantize;
mod route;
mod serve;
mod state;
mod stats;
mod verify;
mod view;

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
    /// Say which task a prompt is and which model should answer it
    Route(Box<route::Args>),
    /// Tell how an answer turned out, so that the next decision for this user is better
    Observe(learn::ObserveArgs),
    /// Erase what was learned from a user, or everything that is kept between runs
    Forget(learn::ForgetArgs),
    /// Show how prompts were decided so far, how often the heads were not asked, and what was learned
    Stats(stats::Args),
    /// Print the vector that the heads read: the last token's hidden state, not normalised
    Embed(embed::Args),
    /// Continue a text, or answer in a chat: the backbone as a language model
    Generate(Box<generate::Args>),
    /// Say how probable each of given answers is after a prompt
    Choose(choose::Args),
    /// Tell what a GGUF or safetensors file is, what is in it, and what of it can be run here
    Inspect(inspect::Args),
    /// Answer over HTTP on this machine, as llama-server and OpenAI do: vectors, decisions, chat
    Serve(Box<serve::Args>),
    /// Fetch a backbone into the user's cache: resumed, verified, whole or not there at all
    Pull(pull::Args),
    /// Make a smaller GGUF of a float model: its weights in fewer bits, with the error of each tensor
    Quantize(quantize::Args),
    /// Measure how fast this machine is, and set beside it how fast it could be at most
    Bench(Box<bench::Args>),
    /// Set records of several machines side by side
    Compare(compare::Args),
    /// Tell whether a backbone decides as a reference in float arithmetic does; with thresholds, a gate
    Verify(Box<verify::Args>),
    /// Tell what schemes of quantisation cost the decision
    Ablate(Box<ablate::Args>),
    /// Fit heads to a backbone from rows: labelled prompts, outcomes of models
    Fit(Box<fit::Args>),
    /// Tell what GPU there is, whether it gives the CPU's answers, and how fast it is
    #[cfg(feature = "gpu")]
    GpuReport(gpu_report::Args),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Route(args) => route::run(&args),
        Command::Observe(args) => learn::observe(&args),
        Command::Forget(args) => learn::forget(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Embed(args) => embed::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Choose(args) => choose::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Pull(args) => pull::run(&args).map_err(Into::into),
        Command::Quantize(args) => quantize::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Ablate(args) => ablate::run(&args),
        Command::Fit(args) => fit::run(&args),
        #[cfg(feature = "gpu")]
        Command::GpuReport(args) => gpu_report::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            anstream::eprintln!("error: {failure}");
            failure.exit.into()
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_well_formed() {
        <super::Args as clap::CommandFactory>::command().debug_assert();
    }
}
