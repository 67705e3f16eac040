//! `zen-edge serve`: the engine behind HTTP, on this machine. docs/serve.md is its manual.

mod app;
mod chat;
mod embeddings;
mod fields;
mod gate;
mod guard;
mod listen;
mod metrics;
mod refusal;
mod routing;

use crate::engine::{Embedder, PackArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::state::State;
use app::Server;
use gate::Gate;
use guard::Guard;
use metrics::Metrics;
use serde::Serialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zen_edge_core::generate::Generator;
use zen_edge_core::pack::LoadError;

/// Names the API key where the command line does not.
const KEY: &str = "ZEN_EDGE_API_KEY";

/// The arguments of `zen-edge serve`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Where to listen; anything but this machine's own addresses asks for an API key
    #[arg(long, value_name = "NAME|IP", default_value = "127.0.0.1")]
    host: String,
    /// The port; 0: one that is free, which is printed
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Answer only requests with this key; ZEN_EDGE_API_KEY gives it without showing it to other users of the machine
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Another name by which clients may call the model; may be given several times
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Let pages of this origin ask, `*` for all; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    cors: Vec<String>,
    /// Let requests call this server by another name than this machine's own; may be given several times
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Print where it listens as JSON
    #[arg(long)]
    json: bool,
    /// Do not add this run to what `zen-edge stats` shows
    #[arg(long)]
    no_stats: bool,
    #[command(flatten)]
    pack: PackArgs,
    #[command(flatten)]
    limits: Limits,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Limits")]
struct Limits {
    /// Requests that are computed at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Requests that may wait; more are refused at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    queue: u16,
    /// Seconds in which an answer must be there, waiting included
    #[arg(long, value_name = "S", default_value_t = 120.0, value_parser = seconds)]
    timeout: f64,
    /// Bytes that a request's body may have
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    max_body: usize,
    /// Tokens that a prompt may have, where no heads' config cuts it [default: the positions that the model was trained for]
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Seconds that requests may still take when the server is told to end
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    grace: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match crate::ask::amount(text) {
        Ok(value) if value <= 1e6 => Ok(value),
        _ => Err("give a number of seconds from 0 to 1000000".into()),
    }
}

/// Where the server listens, for programs.
#[derive(Serialize)]
struct Listening<'a> {
    listening: &'a str,
    host: String,
    port: u16,
    model: &'a str,
    routes: bool,
    chats: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    // What the command line alone can tell comes before a model is read.
    let key = key(args)?;
    let addresses = addresses(&args.host, args.port)?;
    let loopback = addresses.iter().all(|address| address.ip().is_loopback());
    if !loopback && key.is_none() {
        let message = format!(
            "{} can be reached from other machines: give a key by {KEY} or --api-key, or listen on 127.0.0.1",
            args.host
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    let cors = app::cors(&args.cors).map_err(|why| Failure::new(Exit::Usage, why))?;
    let listener = bind(&addresses)?;

    let embedder = Embedder::open_with(&args.pack.engine, args.pack.heads.as_deref())?;
    if let Some(engine) = embedder.engine() {
        // A deadline is promised by the measured speed: one pass before the first prompt.
        engine.router().warm_up().map_err(LoadError::from)?;
    }
    let model = embedder.name();
    let server = Arc::new(Server {
        metrics: Metrics::new(&model, embedder.backbone().isa().name()),
        gate: Gate::new(args.limits.concurrency.into(), args.limits.queue.into()),
        guard: Guard::new(loopback.then(|| args.allow_host.clone()), args.cors.clone(), key.as_deref()),
        max_tokens: args.limits.max_tokens.unwrap_or(embedder.backbone().shape().context),
        max_body: args.limits.max_body,
        timeout: Duration::from_secs_f64(args.limits.timeout),
        since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        generator: embedder.generator().map_err(|error| error.to_string()),
        names: [model].into_iter().chain(args.alias.iter().cloned()).collect(),
        embedder,
    });

    let failed = |error: std::io::Error| Failure::new(Exit::Other, format!("the server cannot run: {error}"));
    let address = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // One for each request that is computed: the gate lets no more in. They stay, so that none waits for a thread.
        .max_blocking_threads(usize::from(args.limits.concurrency) + 1)
        .thread_keep_alive(Duration::from_secs(3600))
        .build()
        .map_err(failed)?;
    let grace = Duration::from_secs_f64(args.limits.grace);
    let app = app::app(server.clone(), cors);
    let ended = runtime.block_on(async {
        let signals = listen::Signals::new()?;
        say(args, address, &server);
        listen::serve(listener, app, signals, grace).await
    });
    // What still runs is cancelled: its connections are gone with the runtime.
    runtime.shutdown_timeout(Duration::from_secs(5));
    ended.map_err(failed)?;
    if let (Some(engine), false) = (server.embedder.engine(), args.no_stats) {
        let kept = State::open().and_then(|state| state.add(&engine.router().stats().counts));
        if let Err(failure) = kept {
            anstream::eprintln!("note: this run is not counted: {failure}; --no-stats asks for that");
        }
    }
    Ok(())
}

fn say(args: &Args, address: SocketAddr, server: &Server) {
    let url = format!("http://{address}");
    let model = &server.names[0];
    let routes = server.embedder.engine().is_some();
    let chats = server.generator.as_ref().is_ok_and(Generator::has_template);
    if args.json {
        let (host, port) = (address.ip().to_string(), address.port());
        output::json(&Listening { listening: &url, host, port, model, routes, chats });
        return;
    }
    output::line(&format!("listening on {url}"));
    let parts = [(true, "vectors"), (routes, "decisions"), (chats, "chat")];
    let parts: Vec<&str> = parts.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
    output::line(&format!("serves {}: {}", output::plain(model), parts.join(", ")));
}

/// The key: from the command line, else from the environment.
fn key(args: &Args) -> Result<Option<String>, Failure> {
    let key = match &args.api_key {
        Some(key) => Some(key.clone()),
        None => match std::env::var(KEY) {
            Ok(key) if !key.is_empty() => Some(key),
            Ok(_) | Err(std::env::VarError::NotPresent) => None,
            Err(error) => return Err(Failure::new(Exit::Usage, format!("{KEY}: {error}"))),
        },
    };
    match key {
        // What no header can carry would lock everybody out.
        Some(key) if key.is_empty() || key.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) => {
            Err(Failure::new(Exit::Usage, "an API key is one or more printable ASCII characters"))
        }
        key => Ok(key),
    }
}

fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    match (name, port).to_socket_addrs().map(Iterator::collect::<Vec<_>>) {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(Failure::new(Exit::Usage, format!("{host} has no address"))),
        Err(error) => {
            Err(Failure::new(Exit::Usage, format!("{host} is no name or address of a host: {error}")))
        }
    }
}

fn bind(addresses: &[SocketAddr]) -> Result<std::net::TcpListener, Failure> {
    let listener = std::net::TcpListener::bind(addresses).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| {
        let place: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let place = place.join(", ");
        Failure::new(Exit::Network, format!("cannot listen on {place}: {error}; --port chooses another port"))
    })
}
