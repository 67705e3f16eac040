//! Tests of the kernels where this machine's processor is not: WebAssembly in Node, other processors under QEMU.
//!
//! Each step runs the kernels' suite and the stored hashes (`tests/tests/pooled_hashes.rs`) and says which instruction set
//! must be the best there, so that a path which silently is not taken fails.

use crate::run::{cargo, found, succeed};
use crate::test::have_target;
use serde_json::Value;
use std::process::{Command, Stdio};

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
            Place::X86(_) if cfg!(not(target_arch = "x86_64")) => {
                return Some("needs a machine with such a processor: it runs what was built for that".into());
            }
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
        let suites = ["-p", "zen-edge-kernels", "-p", "zen-edge-tests", "--lib", "--test", "pooled_hashes"];
        let features = match self.place {
            Place::X86(cpu) => return self.run_built(cpu),
            Place::Node(_) => &["--no-default-features"][..],
            // Those of the mobile scenario there: one build serves both.
            Place::Aarch64(_) => &["--no-default-features", "--features", "zen-edge-tests/threads"],
        };
        let lint = ["clippy", "-p", "zen-edge-kernels", "--no-default-features"];
        self.cargo(&lint, &["--", "-D", "warnings"])?;
        self.cargo(&[&["test"], &suites[..], features].concat(), &["--", "--nocapture"])
    }

    /// Runs the very programs that the step `tests` runs on this machine's own processor.
    fn run_built(&self, cpu: &str) -> Result<(), String> {
        let mut build = cargo();
        build.args(["test", "--workspace", "--lib", "--test", "pooled_hashes", "--no-run"]);
        build.args(["--message-format", "json-render-diagnostics"]);
        let build = build.stderr(Stdio::inherit()).output().map_err(|e| format!("cargo: {e}"))?;
        if !build.status.success() {
            return Err(format!("the tests are not built ({})", build.status));
        }
        let programs = String::from_utf8_lossy(&build.stdout);
        let programs: Vec<Value> =
            programs.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        for (folder, name) in [("kernels", "zen_edge_kernels"), ("tests", "pooled_hashes")] {
            let program = programs
                .iter()
                .filter(|made| made["target"]["name"] == name && made["profile"]["test"] == true)
                .find_map(|made| made["executable"].as_str())
                .ok_or_else(|| format!("cargo names no program for {name}"))?;
            let mut command = Command::new("qemu-x86_64-static");
            // A graphics driver that runs on the CPU would be emulated with the rest.
            command.args(["-cpu", cpu, program, "--nocapture", "--skip", "gpu::"]);
            command.env("ZEN_EDGE_EXPECT_ISA", self.best);
            succeed(command.current_dir(crate::root().join(folder)))?;
        }
        Ok(())
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
            Place::X86(_) => X86,
        };
        succeed(command.args(["--target", target]).args(rest))
    }
}
