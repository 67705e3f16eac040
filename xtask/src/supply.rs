//! What we build on: the dependencies' licences and sources, and the oldest Rust that we state.

use crate::run::{cargo, found, succeed};
use std::process::Command;

/// `cargo xtask deny`: licences, sources and doubled versions of everything that is linked. Advisories are left to a
/// machine that reaches their database: `cargo deny check advisories`.
pub fn deny() -> Result<(), String> {
    if !found("cargo-deny") {
        return Err("needs cargo-deny: `cargo install cargo-deny`".into());
    }
    succeed(cargo().args(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]))
}

/// The stated minimal Rust version compiles what we ship. `Some`: what this machine lacks for it.
pub fn minimal_rust() -> Result<Option<String>, String> {
    let manifest = crate::root().join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let line = text.lines().find(|line| line.starts_with("rust-version"));
    let version = line.and_then(|line| line.split('"').nth(1)).ok_or("Cargo.toml states no rust-version")?;
    let toolchain = format!("{version}.0");
    let there = Command::new("rustup").args(["run", &toolchain, "rustc", "--version"]).output();
    if !there.is_ok_and(|out| out.status.success()) {
        let how = format!("needs that toolchain: `rustup toolchain install {toolchain} --profile minimal`");
        return Ok(Some(how));
    }
    succeed(
        Command::new("rustup")
            .args(["run", &toolchain, "cargo", "check", "-p", "zen-edge"])
            .args(["--target-dir", "target/minimal-rust"])
            .current_dir(crate::root())
            // What cargo told us of its own toolchain must not reach the other one.
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN"),
    )?;
    Ok(None)
}
