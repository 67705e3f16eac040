//! What answers prompts: a backbone with its heads, behind a small trait so that commands can be tested without one.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::model::locate;
use crate::output::plain;
use crate::view::{self, View};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zen_edge_core::pack::Pack;
use zen_edge_core::router::{Outcome, Request, Router, RouterError, RouterOptions};
use zen_edge_core::source::{Memory, Source};

/// The arguments that choose the backbone and how it runs.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Args {
    /// The backbone: a GGUF file, or the name of a pulled one [default: the pack inside the program]
    #[arg(short, long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// Threads [default: as many as the machine has cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The instruction set, by its name in the output; the result has the same bits on each [default: the fastest here]
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,
    /// Take special tokens that stand in the prompt, such as <|im_end|>, as plain text
    #[arg(long)]
    plain_text: bool,
}

/// The vector of a prompt: the last token's hidden state after the final norm, not normalised.
#[derive(Clone, Debug, Serialize)]
pub struct Embedding {
    /// The values, as many as the backbone is wide.
    pub embedding: Vec<f32>,
    /// The Euclidean norm.
    pub norm: f32,
    /// How many tokens were read.
    pub tokens: usize,
    /// Whether the prompt was longer than what was read of it.
    pub truncated: bool,
    /// What computed it.
    pub backend: view::Backend,
}

/// Answers prompts.
pub trait Engine {
    /// Which task the prompt is, and which model should answer it.
    fn route(&self, prompt: &str) -> Result<View, Failure>;
    /// The prompt's vector.
    fn embed(&self, prompt: &str) -> Result<Embedding, Failure>;
}

/// The engine of this program: a router of the core, or a backbone alone.
pub struct Local {
    router: Router,
    request: Request,
}

/// The file of the heads in a `--heads` folder.
const HEADS: &str = "heads.safetensors";
/// What they expect.
const CONFIG: &str = "router_config.json";
/// The models that they choose among; a folder without one has the ids of the config.
const CATALOG: &str = "catalog.yaml";

/// A backbone with heads: both from the command line, or from the default pack.
///
/// # Errors
/// With the exit code of the cause: a missing file, a damaged one, one that this version cannot run, parts that do not fit.
pub fn open(args: &Args, heads: Option<&Path>) -> Result<Local, Failure> {
    use zen_edge_default_pack as default;
    let model = model(args)?;
    let (heads, config, catalog) = match heads {
        None => (
            inside(HEADS, default::HEADS),
            inside(CONFIG, default::CONFIG),
            Some(inside(CATALOG, default::CATALOG)),
        ),
        Some(folder) => {
            if !folder.is_dir() {
                let what = if folder.exists() { "is a file" } else { "is not there" };
                return Err(Failure::new(
                    Exit::Missing,
                    format!(
                        "--heads {} {what}; it takes a folder with {HEADS} and {CONFIG}",
                        folder.display()
                    ),
                ));
            }
            let catalog = folder.join(CATALOG);
            let catalog = if catalog.exists() { Some(mapped(&catalog)?) } else { None };
            (mapped(&folder.join(HEADS))?, mapped(&folder.join(CONFIG))?, catalog)
        }
    };
    load(args, Pack::from_parts(model, Some(heads), Some(config), catalog))
}

/// A backbone without heads.
///
/// # Errors
/// As [`open`].
pub fn open_backbone(args: &Args) -> Result<Local, Failure> {
    if args.model.is_none() {
        // The default pack's own config says how much of a prompt is read.
        return open(args, None);
    }
    load(args, Pack::from_parts(model(args)?, None, None, None))
}

fn load(args: &Args, pack: Pack) -> Result<Local, Failure> {
    let options = RouterOptions {
        threads: args.threads.map(usize::from),
        isa: args.isa.clone(),
        ..RouterOptions::default()
    };
    let router = Router::load(pack, &options).map_err(|error| failure(&error))?;
    Ok(Local { router, request: Request { plain_text: args.plain_text, ..Request::default() } })
}

fn model(args: &Args) -> Result<Arc<dyn Source>, Failure> {
    match &args.model {
        Some(word) => mapped(&locate(word)?),
        None => Ok(inside("model.gguf", zen_edge_default_pack::MODEL)),
    }
}

fn inside(name: &str, bytes: &'static [u8]) -> Arc<dyn Source> {
    Arc::new(Memory::new(format!("default pack: {name}"), bytes))
}

fn mapped(path: &Path) -> Result<Arc<dyn Source>, Failure> {
    Ok(Arc::new(Memory::open(path).map_err(|error| Failure::file(path, &error))?))
}

fn failure(error: &RouterError) -> Failure {
    let exit = match error {
        RouterError::Mock(_) => Exit::Mismatch,
    };
    Failure::new(exit, plain(&error.to_string()))
}

impl Engine for Local {
    fn route(&self, prompt: &str) -> Result<View, Failure> {
        let outcome = self.router.route(prompt, &self.request).map_err(|error| failure(&error))?;
        Ok(shown(&outcome))
    }

    fn embed(&self, prompt: &str) -> Result<Embedding, Failure> {
        let embedded = self.router.embed(prompt, &self.request).map_err(|error| failure(&error))?;
        let norm = embedded.vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        Ok(Embedding {
            norm: norm as f32,
            embedding: embedded.vector,
            tokens: embedded.tokens,
            truncated: embedded.truncated,
            backend: view::Backend {
                isa: embedded.backend.isa.to_owned(),
                threads: embedded.backend.threads,
            },
        })
    }
}

fn shown(outcome: &Outcome) -> View {
    let models: Vec<view::Choice> = outcome
        .top
        .iter()
        .map(|ranked| view::Choice {
            id: ranked.id.clone(),
            probability: ranked.probability,
            logit: ranked.logit,
            trained: ranked.trained,
        })
        .collect();
    View {
        task: outcome.task.id.clone(),
        model: outcome.model.as_ref().map(|model| model.id.clone()),
        confidence: view::Confidence {
            task: outcome.task.probability,
            model: outcome.model.as_ref().map(|model| model.probability),
        },
        top3: models.iter().take(3).cloned().collect(),
        scores: view::Scores {
            tasks: outcome
                .tasks
                .iter()
                .map(|task| view::Scored {
                    id: task.id.clone(),
                    probability: task.probability,
                    logit: task.logit,
                })
                .collect(),
            models,
        },
        tokens: outcome.tokens,
        truncated: outcome.truncated,
        source: outcome.source.to_string(),
        backend: view::Backend { isa: outcome.backend.isa.to_owned(), threads: outcome.backend.threads },
        timings: view::Timings::new(outcome.timings.tokenize, outcome.timings.prefill, outcome.timings.heads),
    }
}
