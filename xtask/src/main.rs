//! `cargo xtask …`: every chore that needs more than cargo.

mod elsewhere;
mod mobile;
mod peers;
mod run;
mod sbom;
mod supply;
mod test;
mod wasm;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Chores of Zen Edge that need more than cargo.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Format, lints, tests, documentation and the targets that this machine is not: what CI runs.
    Test(test::Args),
    /// Fetch what some tests need and the repository does not hold: tokenizers and small models of others.
    Peers(peers::Args),
    /// The dependencies: licences, sources, doubled and withdrawn versions, known faults; what was not checked is said.
    Deny,
    /// Readers, scalar kernels and pool under Miri, on a nightly toolchain.
    Miri,
    /// What a build contains, as a CycloneDX document.
    Sbom(sbom::Args),
    /// The engine for browsers in its four builds, and the npm package around them.
    Wasm(wasm::Args),
    /// Swift, Kotlin and Python over the library that apps call.
    Bindings(mobile::BindingsArgs),
    /// The scenario that every language runs, in each that this machine has.
    Scenario(mobile::ScenarioArgs),
    /// The Python package, for this machine.
    Wheel,
    /// The Kotlin library for Android: libraries, bindings, default pack, and the AAR where Gradle is there.
    Aar(mobile::PackageArgs),
    /// The Swift package: an XCFramework of the static libraries, bindings and default pack.
    Xcframework(mobile::PackageArgs),
}

fn main() -> ExitCode {
    if std::env::var_os(test::STUB_COMPILER).is_some() {
        return ExitCode::SUCCESS;
    }
    let done = match Args::parse().chore {
        Chore::Test(args) => test::run(&args),
        Chore::Peers(args) => peers::run(&args),
        Chore::Deny => supply::deny(),
        Chore::Miri => supply::miri(),
        Chore::Sbom(args) => sbom::run(&args),
        Chore::Wasm(args) => wasm::run(&args),
        Chore::Bindings(args) => mobile::bindings(&args),
        Chore::Scenario(args) => mobile::run_scenario(&args),
        Chore::Wheel => mobile::wheel(),
        Chore::Aar(args) => mobile::aar(&args),
        Chore::Xcframework(args) => mobile::xcframework(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ lies in the repository").to_path_buf()
}
