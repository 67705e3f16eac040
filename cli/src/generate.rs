//! `zen-edge generate`: the backbone continues a text, or answers in a chat.

use crate::engine;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::input::{self, Prompts};
use crate::output;
use serde::Serialize;
use std::io::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use zen_edge_core::generate::{GenerateOptions, Generated, Generator, Message, Sampling};
use zen_edge_core::router::BackendInfo;
use zen_edge_kernels::attention::KvType;

/// The arguments of `zen-edge generate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: input::Args,
    #[command(flatten)]
    engine: engine::Args,
    /// Put the model's chat template around the prompt
    #[arg(long)]
    chat: bool,
    /// What the model is told before the prompt; with the chat template
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Most tokens that are generated
    #[arg(short = 'n', long, value_name = "N", default_value_t = 256)]
    max_tokens: usize,
    /// A text that ends the generation and is not part of it; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// How keys and values are kept: f32, f16 (half the memory) or int8 (a quarter)
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = kv_type)]
    kv: KvType,
    /// Print JSON when it has ended: the text, why it ended, tokens and times
    #[arg(long)]
    json: bool,
}

/// How a token is taken.
#[derive(clap::Args, Debug)]
struct SamplingArgs {
    /// 0 always takes the most probable token; 1 samples as the model was trained
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f32,
    /// Sample from so many of the most probable tokens; 0 is off
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Sample from the fewest tokens that reach this probability together; 1 is off
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f32,
    /// Sample from tokens of at least this share of the largest probability; 0 is off
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f32,
    /// Make tokens among the last 64 less probable; 1 is off
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repetition_penalty: f32,
    /// The same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

pub fn kv_type(name: &str) -> Result<KvType, String> {
    KvType::from_name(name).ok_or_else(|| "it is f32, f16 or int8".to_owned())
}

/// What `zen-edge generate --json` prints.
#[derive(Serialize)]
struct Answer {
    text: String,
    ended_by: &'static str,
    prompt_tokens: usize,
    tokens: usize,
    backend: BackendInfo,
    timings: Speed,
}

#[derive(Serialize)]
struct Speed {
    prefill_ms: f64,
    decode_ms: f64,
    /// After the first token, which belongs to prefill; `None` where there is none.
    tokens_per_second: Option<f64>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let Prompts::One(prompt) = args.input.prompts()? else {
        return Err(Failure::new(
            Exit::Usage,
            "generate takes one prompt: give it as an argument or a text file",
        ));
    };
    let generator = args.engine.generator()?;
    let prompt = if args.chat {
        let system = args.system.iter().map(|text| Message::new("system", text.as_str()));
        generator.render(&system.chain([Message::new("user", prompt)]).collect::<Vec<_>>())?
    } else {
        prompt
    };
    let sampling = Sampling {
        temperature: args.sampling.temperature,
        repetition_penalty: args.sampling.repetition_penalty,
        top_k: args.sampling.top_k,
        top_p: args.sampling.top_p,
        min_p: args.sampling.min_p,
        seed: args.sampling.seed,
        ..Sampling::default()
    };
    let options = GenerateOptions {
        max_tokens: args.max_tokens,
        sampling,
        stop: args.stop.clone(),
        kv: args.kv,
        plain_text: args.engine.plain_text(),
        ..GenerateOptions::default()
    };
    let (done, prefill, decode) = timed(&generator, &prompt, &options, &mut |text| {
        if args.json {
            return ControlFlow::Continue(());
        }
        // A reader that has gone ends the program quietly.
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    let tokens = done.ids.len();
    let speed = (tokens > 1).then(|| (tokens - 1) as f64 / decode.as_secs_f64());
    let backbone = generator.backbone();
    let backend = BackendInfo::cpu(backbone);
    if args.json {
        output::json(&Answer {
            text: done.text,
            ended_by: done.reason.name(),
            prompt_tokens: done.prompt_tokens,
            tokens,
            backend,
            timings: Speed {
                prefill_ms: prefill.as_secs_f64() * 1e3,
                decode_ms: decode.as_secs_f64() * 1e3,
                tokens_per_second: speed,
            },
        });
        return Ok(());
    }
    output::line("");
    let speed = speed.map_or_else(String::new, |speed| format!(", then {speed:.1} tokens/s"));
    anstream::eprintln!(
        "{} tokens read in {:.0} ms, {tokens} generated{speed} on {} with {} thread{}; ended by {}",
        done.prompt_tokens,
        prefill.as_secs_f64() * 1e3,
        backend.isa,
        backend.threads,
        if backend.threads == 1 { "" } else { "s" },
        done.reason.name().replace('_', " ")
    );
    Ok(())
}

/// A generation with the time to its first token and that of the others.
fn timed(
    generator: &Generator,
    prompt: &str,
    options: &GenerateOptions,
    on: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<(Generated, Duration, Duration), Failure> {
    let start = Instant::now();
    let mut first = None;
    let mut generation = generator.begin(prompt, options)?;
    while let Some(piece) = generation.next_piece()? {
        first.get_or_insert_with(|| start.elapsed());
        if !piece.text.is_empty() && on(&piece.text).is_break() {
            break;
        }
    }
    let whole = start.elapsed();
    let first = first.unwrap_or(whole);
    Ok((generation.finish(), first, whole - first))
}
