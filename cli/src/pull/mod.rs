//! `zen-edge pull`: a backbone from its hub into the user's cache, resumed, verified, published whole or not at all.

mod error;
mod fetch;
mod hub;
pub mod registry;
pub mod store;
#[cfg(test)]
mod tests;

pub use error::PullError;

use crate::output::{self, bytes};
use fetch::{Download, Wanted, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use owo_colors::OwoColorize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{Basis, Manifest, Slot};

/// The arguments of `zen-edge pull`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to fetch: a name that `--list` shows, or a name of your own for a file given by --url
    name: Option<String>,
    /// Show the names that can be pulled and what has been pulled
    #[arg(long, conflicts_with_all = ["name", "url", "sha256", "verify"])]
    list: bool,
    /// The quantisation, as the file's name has it [default: the one that `--list` shows]
    #[arg(long, value_name = "NAME")]
    quant: Option<String>,
    /// Where to keep it [default: the user's cache, or $ZEN_EDGE_CACHE/models]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Fetch this GGUF, whatever the name means elsewhere
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// What the file must hash to: checked instead of what the hub states
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Hash a file that is there already, even if it seems untouched
    #[arg(long)]
    verify: bool,
    /// Give up after so many tries in a row that bring nothing
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    tries: u32,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// What the quantisation is called when a file is given by `--url` alone.
const CUSTOM: &str = "custom";

/// Runs the command.
pub fn run(args: &Args) -> Result<(), PullError> {
    let folder = store::folder(args.dir.as_deref())?;
    if args.list {
        list(&folder, args.json);
        return Ok(());
    }
    let name = args.name.as_ref().ok_or(PullError::NoName)?;
    let given = args.sha256.as_deref().map(given_hash).transpose()?;
    let entry = if args.url.is_some() { None } else { Some(registry::find(name)?) };
    let default_quant = entry.as_ref().map_or(CUSTOM, |entry| &entry.quant);
    let mut quant = args.quant.clone().unwrap_or_else(|| default_quant.to_owned());
    if entry.is_some() {
        // q4_k_m and Q4_K_M are one; the hub's file is found under either.
        quant.make_ascii_uppercase();
    }
    let slot = Slot::new(&folder, name, &quant)?;
    let lock = slot.lock()?;
    let mut bar = Bar::new(&slot);
    match slot.whole(args.verify) {
        Ok(Some(manifest)) if fits(&manifest, args.url.as_deref(), given.as_deref()) => {
            report(&slot, &manifest, Way::Kept, args.json);
            return Ok(());
        }
        Ok(Some(_)) => bar.note("what is there is another file than the one asked for: it is replaced"),
        Ok(None) => {}
        Err(PullError::Damaged { why, .. }) => {
            bar.note(&format!("what is there is damaged ({why}): fetched anew"));
        }
        Err(error) => return Err(error),
    }
    let agent = agent(args.url.as_deref().or(entry.as_ref().map(|entry| entry.endpoint.as_str())));
    let pause = Duration::from_secs(1);
    let mut wanted = match (&args.url, &entry) {
        (Some(url), _) => {
            let (size, hash) = fetch::linked(&agent, url);
            let basis = if hash.is_some() { Basis::Hub } else { Basis::None };
            Wanted { url: url.clone(), size, sha256: hash, basis }
        }
        (None, Some(entry)) => hub::resolve(&agent, entry, &quant, args.tries, pause, &mut bar)?,
        (None, None) => unreachable!("without a URL the name was looked up"),
    };
    if let Some(hash) = given {
        wanted.sha256 = Some(hash);
        wanted.basis = Basis::Given;
    }
    let download = Download {
        agent: &agent,
        wanted,
        part: slot.part(),
        record: slot.part_record(),
        tries: args.tries,
        pause,
        magic: b"GGUF",
    };
    let got = download.run(&mut bar)?;
    bar.end();
    if let Err(why) = sound(&slot.part()) {
        download.discard()?;
        return Err(PullError::NotSound { url: download.wanted.url, why });
    }
    let manifest = slot.publish(Manifest {
        name: name.clone(),
        quant,
        url: download.wanted.url,
        size: got.size,
        sha256: got.sha256,
        basis: download.wanted.basis,
        etag: got.etag,
        modified: 0,
    })?;
    drop(lock);
    report(&slot, &manifest, Way::Fetched { resumed: got.resumed }, args.json);
    Ok(())
}

/// Whether what lies there is what is asked for now.
fn fits(manifest: &Manifest, url: Option<&str>, sha256: Option<&str>) -> bool {
    match (url, sha256) {
        (_, Some(hash)) => manifest.sha256 == hash,
        (Some(url), None) => manifest.url == url,
        (None, None) => true,
    }
}

/// Whether the file can be opened as a GGUF, every tensor within it: what a hash that the hub itself states cannot tell,
/// and all that can be told where no hash is known.
fn sound(path: &Path) -> Result<(), String> {
    let source = zen_edge_core::source::Memory::open(path).map_err(|error| error.to_string())?;
    zen_edge_core::gguf::Gguf::open(std::sync::Arc::new(source)).map(drop).map_err(|error| error.to_string())
}

fn given_hash(text: &str) -> Result<String, PullError> {
    let hash = text.trim().to_ascii_lowercase();
    if fetch::is_sha256(&hash) { Ok(hash) } else { Err(PullError::BadHash(text.to_owned())) }
}

/// The HTTP client: statuses are ours to judge, and a silent server is not waited for endlessly.
fn agent(start: Option<&str>) -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        // A redirect must not lead from https to http.
        .https_only(
            start.is_some_and(|url| url.starts_with("https://")) && std::env::var_os("HF_ENDPOINT").is_none(),
        )
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_per_read(Some(Duration::from_secs(60)))
        .user_agent(concat!("zen-edge/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

/// The progress bar; on a standard error that is no terminal only the notes are seen.
struct Bar {
    bar: ProgressBar,
    started: bool,
}

impl Bar {
    fn new(slot: &Slot) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        bar.set_message(format!("{} {}", slot.name, slot.quant));
        Self { bar, started: false }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Bar {
    fn at(&mut self, done: u64, total: Option<u64>) {
        if !self.started || self.bar.length() != total {
            self.started = true;
            let template = match total {
                Some(_) => {
                    "{msg}  {wide_bar}  {decimal_bytes} of {decimal_total_bytes}  {decimal_bytes_per_sec}  {eta} left"
                }
                None => "{msg}  {spinner}  {decimal_bytes}  {decimal_bytes_per_sec}",
            };
            self.bar.set_style(ProgressStyle::with_template(template).expect("the template is our own"));
            if let Some(total) = total {
                self.bar.set_length(total);
            }
            // The speed is that of this run: what lay on the disk did not come over the wire.
            self.bar.set_position(done);
            self.bar.reset_eta();
        }
        self.bar.set_position(done);
    }

    fn note(&mut self, text: &str) {
        if self.bar.is_hidden() {
            anstream::eprintln!("{text}");
        } else {
            self.bar.println(text);
        }
    }
}

enum Way {
    Kept,
    Fetched { resumed: u64 },
}

fn report(slot: &Slot, manifest: &Manifest, way: Way, json: bool) {
    if json {
        let fetched = matches!(way, Way::Fetched { .. });
        let resumed = if let Way::Fetched { resumed } = way { resumed } else { 0 };
        output::json(&serde_json::json!({
            "name": slot.name,
            "quant": slot.quant,
            "path": slot.file,
            "url": manifest.url,
            "size": manifest.size,
            "sha256": manifest.sha256,
            "verified_against": manifest.basis,
            "fetched": fetched,
            "resumed_from": resumed,
        }));
        return;
    }
    let what = match way {
        Way::Kept => "there already".to_owned(),
        Way::Fetched { resumed: 0 } => "fetched".to_owned(),
        Way::Fetched { resumed } => format!("fetched, resumed at {}", bytes(resumed)),
    };
    let verified = match manifest.basis {
        Basis::None => format!("length and structure only ({})", manifest.basis.words()),
        basis => format!("length and sha256 ({})", basis.words()),
    };
    output::line(&format!("{} {}  {}  {what}", slot.name.bold(), slot.quant, bytes(manifest.size)));
    output::line(&format!("  from      {}", manifest.url));
    output::line(&format!("  sha256    {}", manifest.sha256));
    output::line(&format!("  verified  {verified}"));
    output::line(&format!("  kept at   {}", slot.file.display()));
}

fn list(folder: &Path, json: bool) {
    let pulled = store::pulled(folder);
    let entries = registry::all();
    let state = |slot: &Slot| match slot.whole(false) {
        Ok(Some(manifest)) => (Some(manifest), "whole".to_owned()),
        Ok(None) => (None, "gone".to_owned()),
        Err(error) => (None, error.to_string()),
    };
    if json {
        let known: Vec<_> = entries
            .iter()
            .map(|e| {
                serde_json::json!({"name": e.name, "about": e.about, "repo": e.repo, "quant": e.quant, "license": e.license})
            })
            .collect();
        let there: Vec<_> = pulled
            .iter()
            .map(|slot| {
                let (manifest, state) = state(slot);
                serde_json::json!({
                    "name": slot.name, "quant": slot.quant, "path": slot.file, "state": state,
                    "size": manifest.as_ref().map(|m| m.size), "sha256": manifest.map(|m| m.sha256),
                })
            })
            .collect();
        output::json(&serde_json::json!({"known": known, "pulled": there, "folder": folder}));
        return;
    }
    let mut table = output::table(&["name", "default", "what it is", "licence"]);
    for entry in &entries {
        table.add_row([&entry.name, &entry.quant, &entry.about, &entry.license]);
    }
    output::line(&table.trim_fmt());
    if pulled.is_empty() {
        output::line(&format!("Nothing has been pulled into {}", folder.display()));
        return;
    }
    let mut table = output::table(&["pulled", "size", "state", "file"]);
    for slot in &pulled {
        let (manifest, state) = state(slot);
        let size = manifest.map_or_else(|| "-".to_owned(), |manifest| bytes(manifest.size));
        table.add_row([
            format!("{}:{}", slot.name, slot.quant),
            size,
            state,
            slot.file.display().to_string(),
        ]);
    }
    output::line(&table.trim_fmt());
}
