//! `cargo xtask wasm`: the four builds of the engine for browsers, and the npm package around them (wasm/npm/dist).
//!
//! One opcode of relaxed SIMD makes a module invalid where there is none, and a module with threads needs shared memory:
//! so there are four modules, and the package picks one at run time. Those with threads need a nightly compiler with its
//! sources, for the standard library must be built with atomics.

use crate::run::{cargo, found, succeed};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub struct Args {
    /// Only builds whose name contains this word.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// The simplest build alone, and not optimised as far as it goes: enough for the tests of everything around it.
    #[arg(long)]
    quick: bool,
    /// A missing nightly compiler is a failure, not a skip.
    #[arg(long)]
    no_skip: bool,
}

struct Build {
    name: &'static str,
    relaxed: bool,
    threads: bool,
}

const BUILDS: [Build; 4] = [
    Build { name: "simd128", relaxed: false, threads: false },
    Build { name: "relaxed-simd", relaxed: true, threads: false },
    Build { name: "simd128-threads", relaxed: false, threads: true },
    Build { name: "relaxed-simd-threads", relaxed: true, threads: true },
];

/// What a build may take on its way to a page, compressed as servers do it.
const MOST: u64 = 1_000_000;

/// The shared memory is imported, and its maximum here is all that 32 bits reach: the package declares one that the model
/// needs. The exports are what starts a thread.
const SHARED: [&str; 7] = [
    "--shared-memory",
    "--import-memory",
    "--max-memory=4294967296",
    "--export=__wasm_init_tls",
    "--export=__tls_size",
    "--export=__tls_align",
    "--export=__tls_base",
];

/// The npm package's folder.
pub fn package() -> PathBuf {
    crate::root().join("wasm/npm")
}

/// npm, by the name that it has here.
pub fn npm() -> &'static str {
    if cfg!(windows) { "npm.cmd" } else { "npm" }
}

/// Builds what can be built here; without `no_skip`, what cannot is told of.
pub fn run(args: &Args) -> Result<(), String> {
    if !found(npm()) {
        return Err("needs npm, which comes with Node.js".into());
    }
    let package = package();
    succeed(Command::new(npm()).arg("ci").current_dir(&package))?;
    let made = package.join("build");
    std::fs::create_dir_all(&made).map_err(|e| format!("cannot make {}: {e}", made.display()))?;
    let nightly = has_nightly();
    if let (Err(why), true) = (&nightly, args.no_skip) {
        return Err(why.clone());
    }
    for build in &BUILDS {
        if args.only.as_ref().is_some_and(|word| !build.name.contains(word.as_str())) {
            continue;
        }
        if args.quick && build.name != BUILDS[0].name {
            // An older one would not be of these sources.
            let _ = std::fs::remove_file(made.join(format!("{}.wasm", build.name)));
            continue;
        }
        if let (true, Err(why)) = (build.threads, &nightly) {
            eprintln!("SKIPPED {}: {why}", build.name);
            // An older one would not be of these sources.
            let _ = std::fs::remove_file(made.join(format!("{}.wasm", build.name)));
            continue;
        }
        eprintln!("==> {}", build.name);
        make(build, &made, args.quick)?;
    }
    let mut large = Vec::new();
    println!("{:<22} {:>12} {:>12}", "build", "bytes", "gzip");
    for build in &BUILDS {
        let file = made.join(format!("{}.wasm", build.name));
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let packed = packed(&file)?;
        println!("{:<22} {:>12} {packed:>12}", build.name, bytes.len());
        if packed > MOST && !args.quick {
            large.push(build.name);
        }
    }
    if !large.is_empty() {
        return Err(format!("{} would take more than {MOST} bytes of a page's load", large.join(", ")));
    }
    succeed(Command::new("node").arg("scripts/build.mjs").current_dir(&package))
}

fn has_nightly() -> Result<(), String> {
    let help = "threads need a nightly compiler with its sources: `rustup toolchain install nightly --component rust-src --target wasm32-unknown-unknown`";
    let sysroot =
        Command::new("rustc").args(["+nightly", "--print", "sysroot"]).stderr(Stdio::null()).output();
    match sysroot {
        Ok(out) if out.status.success() => {
            let sysroot = String::from_utf8_lossy(&out.stdout).trim().to_owned();
            let sources = Path::new(&sysroot).join("lib/rustlib/src/rust/library");
            if sources.is_dir() { Ok(()) } else { Err(help.to_owned()) }
        }
        _ => Err(help.to_owned()),
    }
}

fn make(build: &Build, made: &Path, quick: bool) -> Result<(), String> {
    // Features are in the flags and not in the names of cargo's folders: each build has a folder of its own.
    let target = target_folder().join("wasm-builds").join(build.name);
    let mut features = vec!["+simd128"];
    if build.relaxed {
        features.push("+relaxed-simd");
    }
    let mut flags = Vec::new();
    if build.threads {
        features.extend(["+atomics", "+bulk-memory", "+mutable-globals"]);
        flags.extend(SHARED.map(|arg| format!("-Clink-arg={arg}")));
    }
    flags.push(format!("-Ctarget-feature={}", features.join(",")));
    let mut command = if build.threads {
        // `cargo +nightly` is rustup's; the cargo that called us may be another's.
        let mut command = Command::new("cargo");
        command.current_dir(crate::root()).env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
        command.args(["+nightly", "build", "-Zbuild-std=std,panic_abort", "--features", "threads"]);
        command
    } else {
        let mut command = cargo();
        command.arg("build");
        command
    };
    command.args(["--package", "zen-edge-wasm", "--profile", "wasm", "--target", "wasm32-unknown-unknown"]);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")).env_remove("RUSTFLAGS");
    if quick {
        command.args(["--config", "profile.wasm.lto=\"thin\"", "--config", "profile.wasm.codegen-units=16"]);
    }
    succeed(command.arg("--target-dir").arg(&target))?;

    let module = target.join("wasm32-unknown-unknown/wasm/zen_edge_wasm.wasm");
    let bindgen = crate::root().join("xtask/wasm/Cargo.toml");
    let mut command = cargo();
    command.args(["run", "--quiet", "--locked", "--manifest-path"]).arg(bindgen);
    command.arg("--target-dir").arg(target_folder().join("wasm-builds/bindgen"));
    command.arg("--").arg(&module).arg(made).arg(build.name).env_remove("RUSTFLAGS");
    succeed(&mut command)?;

    let optimiser = package().join("node_modules/binaryen/bin/wasm-opt");
    let (from, to) =
        (made.join(format!("{}_bg.wasm", build.name)), made.join(format!("{}.wasm", build.name)));
    let mut command = Command::new("node");
    command.arg(optimiser).args([
        if quick { "-O1" } else { "-O3" },
        "--enable-simd",
        "--enable-bulk-memory",
        "--enable-sign-ext",
    ]);
    command.args(["--enable-nontrapping-float-to-int", "--enable-mutable-globals"]);
    command.args(["--enable-reference-types", "--enable-multivalue"]);
    if build.relaxed {
        command.arg("--enable-relaxed-simd");
    }
    if build.threads {
        command.arg("--enable-threads");
    }
    succeed(command.arg(&from).arg("-o").arg(&to))
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// The file's size after gzip, by Node's zlib.
fn packed(file: &Path) -> Result<u64, String> {
    const SCRIPT: &str = "console.log(require('zlib').gzipSync(require('fs').readFileSync(process.argv[1]), { level: 9 }).length)";
    let out = Command::new("node").args(["-e", SCRIPT]).arg(file).output();
    let out = out.map_err(|e| format!("node could not be started: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    text.trim().parse().map_err(|_| format!("{} could not be compressed", file.display()))
}
