//! `zen-edge route`: a task and a model for each prompt.

use crate::ask;
use crate::batch;
use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::input::{self, Prompts};
use crate::output;
use crate::state::State;
use crate::view::Show;
use zen_edge_core::decision::TagUse;
use zen_edge_core::generate::{ChooseOptions, TagFrame};
use zen_edge_core::router::TagRequest;

/// The arguments of `zen-edge route`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: input::Args,
    #[command(flatten)]
    pack: engine::PackArgs,
    /// Print JSON, for programs (rows of JSON lines are always answered so)
    #[arg(long)]
    json: bool,
    /// Show every model with its score, or why it fell out
    #[arg(long, conflicts_with = "json")]
    explain: bool,
    /// Let this user's rewards count, and give each answer an id that `zen-edge observe` rewards
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Do not add this run to what `zen-edge stats` shows
    #[arg(long)]
    no_stats: bool,
    /// Ask the backbone for its route tag too: tag alone decides, or both, heads and tag [default: the heads alone]
    #[arg(long, value_name = "WHO", value_parser = tag_use)]
    tag: Option<TagUse>,
    /// How the prompt stands before the tag, with {prompt} in its place [default: the model's chat template, else the
    /// prompt and a line end]
    #[arg(long, value_name = "TEXT", requires = "tag")]
    tag_frame: Option<String>,
    #[command(flatten)]
    ask: ask::Args,
}

fn tag_use(name: &str) -> Result<TagUse, String> {
    match name {
        "tag" => Ok(TagUse::Tag),
        "both" => Ok(TagUse::Both),
        _ => Err("it is tag or both".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    // The input first: a wrong path is told of before a model is read.
    let prompts = args.input.prompts()?;
    let asked = args.ask.read()?;
    let mut engine = Engine::open(&args.pack.engine, args.pack.heads.as_deref())?;
    engine.ask(asked, args.user.clone())?;
    if let Some(how) = args.tag {
        let frame = args.tag_frame.clone().map_or_else(TagFrame::default, TagFrame::Text);
        engine.ask_tag(TagRequest { how, frame, choose: ChooseOptions::default() })?;
    }
    // What is learned is another process's too: it waits until this one has saved.
    let learning = args.user.as_ref().map(|_| State::open()).transpose()?;
    if let Some(state) = &learning {
        state.load_learning(engine.router())?;
    }
    let answered = answer(args, prompts, &engine);
    if let Some(state) = &learning {
        state.save_learning(engine.router())?;
    }
    if !args.no_stats {
        let counts = engine.router().stats().counts;
        let kept = match learning {
            Some(state) => state.add(&counts),
            None => State::open().and_then(|state| state.add(&counts)),
        };
        if let Err(failure) = kept {
            anstream::eprintln!("note: this run is not counted: {failure}; --no-stats asks for that");
        }
    }
    answered
}

fn answer(args: &Args, prompts: Prompts, engine: &Engine) -> Result<(), Failure> {
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
                if args.explain {
                    output::line("");
                    view.explain().iter().for_each(|text| output::line(text));
                }
            }
            Ok(())
        }
    }
}
