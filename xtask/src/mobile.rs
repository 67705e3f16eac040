//! The phones' packages: bindings over a built library, the scenario in each language, the wheel, the AAR and the XCFramework.
//!
//! What goes into a package comes from one job: the library is built, the bindings are generated from that very file, and
//! [`Made::verify`] generates them again from what is shipped and compares.

mod apple;
mod elf;
mod links;
mod scenario;
mod wheel;

pub use scenario::STEPS;

use crate::run::{cargo, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library's package, and its name as linkers know it.
const PACKAGE: &str = "zen-edge-mobile-library";
const NAME: &str = "zen_edge";

/// What the engine may add to an app, in bytes, and with a GPU: on arm64, which phones are. On x86-64, which emulators are, there is no
/// bound: it has the paths of processors with and without AVX2.
const MOST: u64 = 3_000_000;
const MOST_WITH_GPU: u64 = 6_000_000;

#[derive(clap::Args)]
pub struct BindingsArgs {
    /// Where they go; `target/mobile/bindings` where it is not said.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct ScenarioArgs {
    /// The language or the place whose name contains this word; all where it is not said.
    only: Option<String>,
    /// Fetch what they need, and run nothing.
    #[arg(long)]
    fetch: bool,
}

#[derive(clap::Args)]
pub struct PackageArgs {
    /// Build and check what this machine can, and say what it cannot; nothing is put together that lacks a part.
    #[arg(long)]
    check: bool,
    /// With the engine of chat templates, so that `generate` takes a chat's turns.
    #[arg(long)]
    chat_template: bool,
    /// With the GPU, which the option `device` then asks for.
    #[arg(long)]
    gpu: bool,
}

impl PackageArgs {
    /// What cargo is told.
    fn features(&self) -> Vec<&'static str> {
        let features = [(self.chat_template, "chat-template"), (self.gpu, "gpu")];
        let on = features.into_iter().filter(|(on, _)| *on);
        on.flat_map(|(_, feature)| ["--features", feature]).collect()
    }

    /// Fails where a library is larger than an app should carry.
    fn fits(&self, target: &str, bytes: u64) -> Result<(), String> {
        let most = if self.gpu { MOST_WITH_GPU } else { MOST };
        println!("{target:<28} {:>6.2} MB", bytes as f64 / 1e6);
        if bytes <= most || target.starts_with("x86_64") {
            return Ok(());
        }
        Err(format!("{target}: {bytes} bytes are more than the {most} that an app should carry"))
    }
}

/// A language that has bindings, by the generator's word for it, and the files that it makes.
const LANGUAGES: [(&str, &[&str]); 3] = [
    ("kotlin", &["ai/zenlm/edge/zen_edge.kt"]),
    ("swift", &["ZenEdge.swift", "ZenEdgeFFI.h", "ZenEdgeFFI.modulemap"]),
    ("python", &["zen_edge.py"]),
];

/// Where everything goes that is made here.
fn folder() -> PathBuf {
    target_folder().join("mobile")
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let parent = to.parent().unwrap_or(to);
    std::fs::create_dir_all(parent).map_err(io(parent))?;
    std::fs::copy(from, to).map_err(io(from))?;
    Ok(())
}

/// Copies a folder's files; `keep` says which.
fn copy_folder(from: &Path, to: &Path, keep: &dyn Fn(&Path) -> bool) -> Result<(), String> {
    for entry in std::fs::read_dir(from).map_err(io(from))? {
        let path = entry.map_err(io(from))?.path();
        let at = to.join(path.file_name().unwrap_or_default());
        if !keep(&path) {
            continue;
        }
        if path.is_dir() {
            copy_folder(&path, &at, keep)?;
        } else {
            copy(&path, &at)?;
        }
    }
    Ok(())
}

/// An empty folder.
fn fresh(path: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(path)(error)),
        _ => {}
    }
    std::fs::create_dir_all(path).map_err(io(path))
}

/// The files of the default pack, into a package.
fn copy_pack(to: &Path) -> Result<(), String> {
    let parts = ["gguf", "safetensors", "json", "yaml"];
    copy_folder(&crate::root().join("packs/default"), to, &|path| {
        path.extension().and_then(|end| end.to_str()).is_some_and(|end| parts.contains(&end))
    })
}

/// The library of this machine as `cargo build` makes it: for tests, and with their features, so that their build serves both.
/// (The scenario in Rust runs on aarch64 with those that an app has.)
fn library() -> Result<PathBuf, String> {
    succeed(cargo().args(["build", "--package", PACKAGE, "--package", "zen-edge-tests", "--lib"]))?;
    Ok(target_folder().join("debug").join(dynamic(std::env::consts::OS)))
}

/// The dynamic library's file name.
fn dynamic(os: &str) -> String {
    match os {
        "windows" => format!("{NAME}.dll"),
        "macos" | "ios" => format!("lib{NAME}.dylib"),
        _ => format!("lib{NAME}.so"),
    }
}

/// The library for a target, as it is shipped: optimised as a whole, with its symbols, which the generator reads.
fn build(target: &str, kind: &str, features: &[&str]) -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["rustc", "--package", PACKAGE, "--lib", "--profile", "mobile"]);
    command.args(["--target", target, "--crate-type", kind]).args(features).envs(apple::OLDEST);
    succeed(&mut command)?;
    let os = if target.contains("apple") { "macos" } else { "linux" };
    let file = if kind == "staticlib" { format!("lib{NAME}.a") } else { dynamic(os) };
    Ok(target_folder().join(target).join("mobile").join(file))
}

/// Generates one language's bindings from a library. The generator is a program of its own, of the library's uniffi.
fn generate(language: &str, library: &Path, out: &Path) -> Result<(), String> {
    let manifest = crate::root().join("xtask/bindgen/Cargo.toml");
    let mut command = cargo();
    command.args(["run", "--quiet", "--locked", "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(folder().join("bindgen"));
    command.args(["--", "generate", "--no-format", "--language", language, "--out-dir"]);
    command.arg(out).arg(library).stdout(std::process::Stdio::null());
    succeed(&mut command)
}

/// Bindings and the library that they were generated from.
struct Made {
    /// With a folder for each language.
    bindings: PathBuf,
}

impl Made {
    /// Generates every language's bindings from a library.
    fn from(library: &Path, bindings: PathBuf) -> Result<Self, String> {
        fresh(&bindings)?;
        for (language, files) in LANGUAGES {
            let out = bindings.join(language);
            generate(language, library, &out)?;
            if let Some(missing) = files.iter().find(|file| !out.join(file).is_file()) {
                return Err(format!("the generator made no {missing}"));
            }
        }
        Ok(Self { bindings })
    }

    /// Whether these are the bindings of a library, to the byte: what is shipped together belongs together.
    fn verify(&self, library: &Path) -> Result<(), String> {
        let again = folder().join("verify");
        fresh(&again)?;
        for (language, files) in LANGUAGES {
            generate(language, library, &again.join(language))?;
            for file in files {
                let read = |folder: &Path| {
                    let path = folder.join(language).join(file);
                    std::fs::read(&path).map_err(io(&path))
                };
                if read(&self.bindings)? != read(&again)? {
                    return Err(format!(
                        "{file} is not what {} asks for: bindings and library must come from one build",
                        library.display()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// `cargo xtask bindings`.
pub fn bindings(args: &BindingsArgs) -> Result<(), String> {
    let out = args.out.clone().unwrap_or_else(|| folder().join("bindings"));
    Made::from(&library()?, out.clone())?;
    println!("{}", out.display());
    Ok(())
}

/// `cargo xtask scenario`.
pub fn run_scenario(args: &ScenarioArgs) -> Result<(), String> {
    if args.fetch {
        return scenario::fetch();
    }
    let mut ran = 0;
    for step in &STEPS {
        if args.only.as_ref().is_none_or(|word| step.name.contains(word.as_str())) {
            ran += 1;
            match step.run()? {
                None => println!("{}: ok", step.name),
                Some(why) => println!("SKIPPED {}: {why}", step.name),
            }
        }
    }
    if ran == 0 { Err("no scenario has that word in its name".into()) } else { Ok(()) }
}

/// `cargo xtask wheel`.
pub fn wheel() -> Result<(), String> {
    let wheel = wheel::build()?;
    println!("{}", wheel.display());
    Ok(())
}

/// `cargo xtask xcframework`.
pub fn xcframework(args: &PackageArgs) -> Result<(), String> {
    apple::run(args)
}

/// The ABIs of an AAR: Android's names, and Rust's.
const ABIS: [(&str, &str); 2] = [("arm64-v8a", "aarch64-linux-android"), ("x86_64", "x86_64-linux-android")];

/// `cargo xtask aar`: the libraries by cargo-ndk, the bindings from them, the Gradle project around them, and the AAR where Gradle
/// is to be had.
pub fn aar(args: &PackageArgs) -> Result<(), String> {
    let lacks = lacks_ndk();
    if args.check {
        if let Some(why) = lacks {
            println!(
                "not run: linking with the NDK ({why}); checked instead with a linker and no system libraries:"
            );
        }
        return links::run(args);
    }
    if let Some(why) = lacks {
        return Err(format!("{why}; `--check` builds and checks what needs no NDK"));
    }
    let project = folder().join("kotlin");
    fresh(&project)?;
    copy_folder(&crate::root().join("mobile/kotlin"), &project, &|path| {
        !path.ends_with("build") && !path.ends_with(".gradle") && !path.ends_with("generated")
    })?;
    let main = project.join("zen-edge/src/main");
    let mut made = None;
    for (abi, target) in ABIS {
        let mut command = cargo();
        command.args(["ndk", "--target", abi, "--platform", "24", "build", "--package", PACKAGE]);
        succeed(command.args(["--profile", "mobile"]).args(args.features()))?;
        let library = target_folder().join(target).join("mobile").join(dynamic("android"));
        let made = match &made {
            None => made.insert(Made::from(&library, folder().join("bindings"))?),
            Some(made) => made,
        };
        made.verify(&library)?;
        let shipped = main.join("jniLibs").join(abi).join(dynamic("android"));
        copy(&library, &shipped)?;
        strip(&shipped)?;
        args.fits(target, elf::check(&shipped, &made.bindings)?)?;
    }
    let Some(made) = made else { return Err("there are no ABIs".into()) };
    copy_folder(&made.bindings.join("kotlin"), &project.join("generated"), &|_| true)?;
    copy_pack(&main.join("assets/zen-edge"))?;
    if !crate::run::found("gradle") {
        println!(
            "{}\nnot run: Gradle is not there; `gradle :zen-edge:assembleRelease` in it makes the AAR",
            project.display()
        );
        return Ok(());
    }
    succeed(Command::new("gradle").args(["--quiet", ":zen-edge:assembleRelease"]).current_dir(&project))?;
    println!("{}", project.join("zen-edge/build/outputs/aar/zen-edge-release.aar").display());
    Ok(())
}

fn lacks_ndk() -> Option<String> {
    if std::env::var_os("ANDROID_NDK_HOME").is_none_or(|path| !Path::new(&path).is_dir()) {
        return Some("ANDROID_NDK_HOME names no NDK (r28 or newer)".into());
    }
    let there = cargo().args(["ndk", "--version"]).output().is_ok_and(|ran| ran.status.success());
    (!there).then(|| "cargo-ndk is not there: `cargo install cargo-ndk`".into())
}

/// Takes the symbols away that nothing needs at run time, with the tool that comes with Rust.
fn strip(library: &Path) -> Result<(), String> {
    succeed(Command::new(sysroot_tool("rust-objcopy")?).arg("--strip-all").arg(library))
}

/// A tool that comes with Rust's compiler.
fn sysroot_tool(name: &str) -> Result<PathBuf, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = |what: &[&str]| -> Result<String, String> {
        let ran = Command::new(&rustc).args(what).current_dir(crate::root()).output();
        let ran = ran.map_err(|error| format!("rustc cannot be asked: {error}"))?;
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let version = said(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let path = Path::new(said(&["--print", "sysroot"])?.trim())
        .join("lib/rustlib")
        .join(host)
        .join("bin")
        .join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if path.is_file() { Ok(path) } else { Err(format!("this Rust comes without {name}")) }
}
