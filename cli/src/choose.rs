//! `zen-edge choose`: how probable each of given answers is.

use crate::engine;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::input::{self, Prompts};
use crate::output::{self, plain};
use serde::Serialize;
use zen_edge_core::generate::ChooseOptions;

/// The arguments of `zen-edge choose`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: input::Args,
    #[command(flatten)]
    engine: engine::Args,
    /// A text that may follow the prompt, as it stands behind it; to be given twice or more
    #[arg(short = 'o', long = "option", value_name = "TEXT", required = true)]
    options: Vec<String>,
    /// A prompt of the same form without content: what an option has there is taken off
    #[arg(long, value_name = "PROMPT")]
    content_free: Option<String>,
    /// Compare by the mean over an option's tokens, for options of very different lengths
    #[arg(long)]
    by_token: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    option: &'a str,
    probability: f64,
    log_likelihood: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_free: Option<f64>,
    tokens: usize,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let Prompts::One(prompt) = args.input.prompts()? else {
        return Err(Failure::new(
            Exit::Usage,
            "choose takes one prompt: give it as an argument or a text file",
        ));
    };
    let generator = args.engine.generator()?;
    let how = ChooseOptions {
        content_free: args.content_free.clone(),
        by_token: args.by_token,
        plain_text: args.engine.plain_text(),
        ..ChooseOptions::default()
    };
    let choices = generator.choose(&prompt, &args.options, &how)?;
    let mut shown: Vec<Shown<'_>> = args
        .options
        .iter()
        .zip(&choices)
        .map(|(option, choice)| Shown {
            option,
            probability: choice.probability,
            log_likelihood: choice.log_likelihood,
            content_free: choice.content_free,
            tokens: choice.tokens,
        })
        .collect();
    if args.json {
        output::json(&shown);
        return Ok(());
    }
    shown.sort_by(|a, b| b.probability.total_cmp(&a.probability));
    let mut table = output::table(&["option", "probability", "log likelihood", "tokens"]);
    for row in shown {
        table.add_row([
            plain(row.option.trim()),
            format!("{:.3}", row.probability),
            format!("{:.2}", row.log_likelihood),
            row.tokens.to_string(),
        ]);
    }
    output::right(&mut table, 1..4);
    output::rows(&table).for_each(|row| output::line(&row));
    Ok(())
}
