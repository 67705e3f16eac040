//! What we build on: the dependencies' licences and sources, and the oldest Rust that we state.

use crate::run::{cargo, found, succeed};
use std::process::Command;

/// Why a check is left out on this machine.
pub struct Absent(pub String);

/// `cargo deny` on bans, licences and sources. Advisories are left to a machine with the network.
pub fn deny() -> Result<Result<(), String>, Absent> {
    if !found("cargo-deny") {
        return Err(Absent("needs cargo-deny: `cargo install cargo-deny`".into()));
    }
    Ok(succeed(cargo().args(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"])))
}

/// The stated minimal Rust version compiles what we ship.
pub fn minimal_rust(workspace: &str) -> Result<Result<(), String>, Absent> {
    let line = workspace.lines().find(|line| line.starts_with("rust-version"));
    let version = line.and_then(|line| line.split('"').nth(1)).unwrap_or_default();
    let toolchain = format!("{version}.0");
    let there = Command::new("rustup")
        .args(["run", &toolchain, "rustc", "--version"])
        .output()
        .is_ok_and(|out| out.status.success());
    if !there {
        return Err(Absent(format!(
            "needs that toolchain: `rustup toolchain install {toolchain} --profile minimal`"
        )));
    }
    Ok(succeed(
        Command::new("rustup")
            .args([
                "run",
                &toolchain,
                "cargo",
                "check",
                "-p",
                "zen-edge",
                "-p",
                "zen-edge-core",
                "-p",
                "zen-edge-kernels",
            ])
            .args(["--target-dir", "target/minimal-rust"])
            .current_dir(crate::root())
            // What cargo told us of its own toolchain must not reach the other one.
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN"),
    ))
}
