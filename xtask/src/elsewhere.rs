//! Tests of the kernels where this machine's processor is not: WebAssembly in Node, other processors under QEMU.
//!
//! Each step runs the kernels' suite and the stored hashes (`tests/tests/pooled_hashes.rs`) and says which instruction set
//! must be the best there, so that a path which silently is not taken fails.

use crate::run::{cargo, found, succeed};
use crate::test::have_target;
use std::process::Command;

/// A place where the code can run.
pub struct Elsewhere {
    /// The step's name.
    pub name: &'static str,
    place: Place,
    /// The best instruction set there.
    best: &'static str,
    /// Whether another place runs the same paths, so that this one is left to `cargo xtask test --thorough`: what it
    /// proves is that the right path is chosen there.
    pub thorough: bool,
}

enum Place {
    /// WebAssembly, built with these features.
    Node(&'static str),
    /// aarch64 on this processor.
    Aarch64(&'static str),
    /// x86-64 on this processor.
    X86(&'static str),
}

/// All of them.
pub const ALL: [Elsewhere; 7] = [
    // Built without vectors, and with those of 2021 alone; the next one has all three paths.
    place("wasm scalar", Place::Node(""), "scalar", true),
    place("wasm simd128", Place::Node("+simd128"), "simd128", true),
    place("wasm relaxed-simd", Place::Node("+simd128,+relaxed-simd"), "relaxed-simd", false),
    place("aarch64 cortex-a53", Place::Aarch64("cortex-a53"), "neon", true),
    place("aarch64 neoverse-n1", Place::Aarch64("neoverse-n1"), "neon-dotprod", true),
    place("aarch64 max", Place::Aarch64("max"), "neon-i8mm", false),
    // Proves that no instruction of AVX2 stands outside the functions that have it.
    place("x86-64 qemu64 (no AVX2)", Place::X86("qemu64"), "scalar", false),
];

const fn place(name: &'static str, place: Place, best: &'static str, thorough: bool) -> Elsewhere {
    Elsewhere { name, place, best, thorough }
}

const WASM: &str = "wasm32-wasip1";
const AARCH64: &str = "aarch64-unknown-linux-gnu";
const X86: &str = "x86_64-unknown-linux-gnu";

impl Elsewhere {
    /// What this machine lacks for it, with how to get it.
    pub fn lacks(&self) -> Option<String> {
        let (target, programs): (_, &[(&str, &str)]) = match self.place {
            Place::Node(_) => (WASM, &[("node", "install Node 20 or newer")]),
            Place::Aarch64(_) => (
                AARCH64,
                &[
                    ("qemu-aarch64-static", "install QEMU's user emulation (Debian: qemu-user-static)"),
                    (
                        "aarch64-linux-gnu-gcc",
                        "install a linker for it (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)",
                    ),
                ],
            ),
            Place::X86(_) => {
                (X86, &[("qemu-x86_64-static", "install QEMU's user emulation (Debian: qemu-user-static)")])
            }
        };
        for (program, hint) in programs {
            if !found(program) {
                return Some(format!("{program} is not there; {hint}"));
            }
        }
        have_target(target).err()
    }

    /// Lints the kernels for the target, then runs both suites there.
    pub fn run(&self) -> Result<(), String> {
        let hashes = ["test", "-p", "zen-edge-tests", "--test", "pooled_hashes"];
        if let Place::X86(_) = self.place {
            // The very programs that were built for this machine.
            self.cargo(&["test", "-p", "zen-edge-kernels", "--lib"], &[])?;
            return self.cargo(&hashes, &["--", "--nocapture"]);
        }
        self.cargo(
            &["clippy", "-p", "zen-edge-kernels", "--no-default-features"],
            &["--", "-D", "warnings"],
        )?;
        self.cargo(&["test", "-p", "zen-edge-kernels", "--no-default-features", "--lib"], &[])?;
        self.cargo(&hashes, &["--", "--nocapture"])
    }

    fn cargo(&self, words: &[&str], rest: &[&str]) -> Result<(), String> {
        let mut command = cargo();
        command.args(words).env("ZEN_EDGE_EXPECT_ISA", self.best);
        let target = match self.place {
            Place::Node(features) => {
                let script = crate::root().join("xtask/src/wasi.mjs");
                let mut runner = "node --no-warnings".to_owned();
                // Newer versions have it without the flag, and may not know the flag.
                let flag = "--experimental-wasm-relaxed-simd";
                if Command::new("node").args([flag, "-e", "0"]).output().is_ok_and(|ran| ran.status.success())
                {
                    runner = format!("{runner} {flag}");
                }
                command.env("CARGO_TARGET_WASM32_WASIP1_RUNNER", format!("{runner} {}", script.display()));
                if !features.is_empty() {
                    command
                        .env("CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS", format!("-Ctarget-feature={features}"));
                }
                WASM
            }
            Place::Aarch64(cpu) => {
                let runner = format!("qemu-aarch64-static -cpu {cpu} -L /usr/aarch64-linux-gnu");
                command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
                command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
                AARCH64
            }
            Place::X86(cpu) => {
                let runner = format!("qemu-x86_64-static -cpu {cpu}");
                command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", runner);
                return succeed(command.args(rest));
            }
        };
        succeed(command.args(["--target", target]).args(rest))
    }
}
