//! The scenario in each language, and on each processor: the lines of mobile/scenario/expected.txt everywhere.

use super::{Made, copy, copy_folder, folder, fresh, io, library, wheel};
use crate::run::{cargo, found, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A step of `cargo xtask test`, and of `cargo xtask scenario`.
pub struct Step {
    /// Its name.
    pub name: &'static str,
    run: fn() -> Result<Option<String>, String>,
    /// Whether another step runs the same paths, so that this one is left to `--thorough`.
    pub thorough: bool,
}

impl Step {
    /// Runs it; what this machine lacks for it, where it lacks something.
    pub fn run(&self) -> Result<Option<String>, String> {
        (self.run)()
    }
}

const fn step(name: &'static str, run: fn() -> Result<Option<String>, String>, thorough: bool) -> Step {
    Step { name, run, thorough }
}

/// All of them. Rust's on this machine is a test of the crate.
pub const STEPS: [Step; 7] = [
    step("mobile python", python, false),
    step("mobile kotlin", kotlin, false),
    step("mobile swift", swift, false),
    step("mobile link", link, false),
    step("mobile aarch64 max", || aarch64("max", "neon-i8mm"), false),
    step("mobile aarch64 neoverse-n1", || aarch64("neoverse-n1", "neon-dotprod"), true),
    step("mobile aarch64 cortex-a53", || aarch64("cortex-a53", "neon"), true),
];

fn scenario(file: &str) -> PathBuf {
    crate::root().join("mobile/scenario").join(file)
}

fn compiler() -> PathBuf {
    folder().join("kotlin-compiler")
}

fn parsers() -> PathBuf {
    folder().join("parsers")
}

fn python_program() -> Option<&'static str> {
    ["python3", "python"].into_iter().find(|name| found(name))
}

/// Fetches the Kotlin compiler by npm and the parsers by pip, pinned.
pub fn fetch() -> Result<(), String> {
    if !kotlinc().is_file() {
        let at = compiler();
        fresh(&at)?;
        for file in ["package.json", "package-lock.json", ".npmrc"] {
            copy(&scenario(file), &at.join(file))?;
        }
        succeed(
            Command::new(crate::wasm::npm()).args(["ci", "--silent", "--ignore-scripts"]).current_dir(&at),
        )?;
    }
    if !parsers().join("tree_sitter_kotlin").is_dir() {
        let python = python_program().ok_or("needs Python 3 with pip")?;
        let mut command = Command::new(python);
        command.args(["-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:"]);
        command.args(["--disable-pip-version-check", "--root-user-action", "ignore", "--target"]);
        succeed(command.arg(parsers()).arg("--requirement").arg(scenario("requirements.txt")))?;
    }
    Ok(())
}

fn kotlinc() -> PathBuf {
    compiler().join("node_modules/kotlin-compiler/bin/kotlinc")
}

/// What every scenario is told, and where its lines go.
fn told(command: &mut Command, out: &Path) -> Result<(), String> {
    fresh(out.parent().unwrap_or(out))?;
    succeed(command.arg(crate::root().join("packs/default")).arg(scenario("prompts.txt")).arg(out))?;
    same(out)
}

/// Whether the lines are those that every language gives.
fn same(lines: &Path) -> Result<(), String> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(io(path));
    let (ours, expected) = (read(lines)?, read(&scenario("expected.txt"))?);
    for (at, (ours, expected)) in ours.lines().zip(expected.lines()).enumerate() {
        if ours != expected {
            return Err(format!("line {} is\n  {ours}\nand should be\n  {expected}", at + 1));
        }
    }
    let (ours, expected) = (ours.lines().count(), expected.lines().count());
    if ours == expected { Ok(()) } else { Err(format!("{ours} lines, {expected} should be")) }
}

/// A file whose first checksum is another one: as if it came from another build.
fn other_checksum(from: &Path, to: &Path, before: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(from).map_err(io(from))?;
    let at = text.find(before).ok_or_else(|| format!("{} compares no checksum", from.display()))?;
    let at = at + before.len();
    let digits = text[at..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |end| at + end);
    let checksum: u32 = text[at..digits].parse().map_err(|_| "a checksum is no number".to_owned())?;
    let parent = to.parent().unwrap_or(to);
    std::fs::create_dir_all(parent).map_err(io(parent))?;
    std::fs::write(to, format!("{}{}{}", &text[..at], checksum ^ 1, &text[digits..])).map_err(io(to))
}

/// The same in a compiled class: one of the checksums that its source compares becomes another one.
fn other_constant(source: &Path, class: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(source).map_err(io(source))?;
    let checksums = text.split("and 0xFFFF) != ").skip(1);
    let mut checksums = checksums.filter_map(|rest| rest.split(')').next()?.parse::<u32>().ok());
    // Smaller ones are no constants of the class, but part of the code.
    let checksum = checksums.find(|sum| *sum > 0x7fff).ok_or("the bindings compare no checksum")?;
    let mut bytes = std::fs::read(class).map_err(io(class))?;
    let [_, _, high, low] = checksum.to_be_bytes();
    let constant = [3, 0, 0, high, low];
    let at =
        bytes.windows(5).position(|window| window == constant).ok_or("the class compares no checksum")?;
    bytes[at + 4] ^= 1;
    std::fs::write(class, bytes).map_err(io(class))
}

/// A run that must fail, by the words that it says.
fn refused(command: &mut Command, words: &str) -> Result<(), String> {
    let ran = command.output().map_err(|error| format!("cannot be started: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned() + &String::from_utf8_lossy(&ran.stdout);
    if ran.status.success() || !said.contains(words) {
        return Err(format!("bindings of another build are not refused ({}):\n{said}", ran.status));
    }
    Ok(())
}

fn python() -> Result<Option<String>, String> {
    let Some(python) = python_program() else { return Ok(Some("needs Python 3".into())) };
    let library = library()?;
    let site = folder().join("python");
    fresh(&site)?;
    let package = site.join("zen_edge");
    wheel::layout(&library, &package, &folder().join("bindings-python"))?;
    let run = |site: &Path| {
        let mut command = Command::new(python);
        command.arg(scenario("scenario.py")).env("PYTHONPATH", site).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    told(&mut run(&site), &folder().join("out-python/lines.txt"))?;
    // Bindings of another build refuse this library.
    let other = folder().join("python-other");
    fresh(&other)?;
    copy_folder(&package, &other.join("zen_edge"), &|path| !path.ends_with("pack"))?;
    let bindings = "zen_edge/_bindings.py";
    let before = "uniffi_zen_edge_mobile_checksum_func_engine_version() != ";
    other_checksum(&site.join(bindings), &other.join(bindings), before)?;
    refused(&mut run(&other), "checksum mismatch")?;
    Ok(None)
}

fn kotlin() -> Result<Option<String>, String> {
    let jna =
        std::env::var_os("JNA_JAR").map_or_else(|| PathBuf::from("/usr/share/java/jna.jar"), PathBuf::from);
    let java = Command::new("java").arg("-version").output().is_ok_and(|ran| ran.status.success());
    if !java {
        return Ok(Some("needs a Java runtime (Debian: default-jre-headless)".into()));
    }
    if !jna.is_file() {
        return Ok(Some(
            "needs JNA (Debian: libjna-java), at /usr/share/java/jna.jar or where JNA_JAR says".into(),
        ));
    }
    if !kotlinc().is_file() {
        return Ok(Some(
            "the Kotlin compiler is not there: `cargo xtask scenario --fetch` fetches it".into(),
        ));
    }
    let library = library()?;
    let made = Made::from(&library, folder().join("bindings"))?;
    let lib = compiler().join("node_modules/kotlin-compiler/lib");
    let path = |jars: &[&Path]| std::env::join_paths(jars).map_err(|error| error.to_string());
    let coroutines = lib.join("kotlinx-coroutines-core-jvm.jar");
    let generated = made.bindings.join("kotlin/ai/zenlm/edge/zen_edge.kt");
    let out = folder().join("kotlin-classes");
    let compile = |generated: &Path, more: &[PathBuf], out: &Path| {
        fresh(out)?;
        let mut command = Command::new("bash");
        command.arg(kotlinc()).arg("-nowarn").arg("-cp").arg(path(&[&jna, &coroutines])?);
        succeed(command.arg(generated).args(more).arg("-d").arg(out))
    };
    let facade = crate::root().join("mobile/kotlin/zen-edge/src/main/kotlin/ai/zenlm/edge/Router.kt");
    compile(&generated, &[facade, scenario("Scenario.kt"), scenario("Snippets.kt")], &out)?;
    let jre = |classes: &[&Path]| -> Result<Command, String> {
        let mut command = Command::new("java");
        let mut jars = vec![jna.as_path(), coroutines.as_path()];
        let stdlib = lib.join("kotlin-stdlib.jar");
        jars.extend(classes);
        jars.push(&stdlib);
        let at = format!("-Djna.library.path={}", library.parent().unwrap_or(&library).display());
        command.arg(at).arg("-cp").arg(path(&jars)?).arg("ScenarioKt");
        Ok(command)
    };
    told(&mut jre(&[&out])?, &folder().join("out-kotlin/lines.txt"))?;
    // Bindings of another build refuse this library.
    let other = folder().join("kotlin-other");
    fresh(&other)?;
    copy_folder(&out, &other, &|_| true)?;
    other_constant(&generated, &other.join("ai/zenlm/edge/Zen_edgeKt.class"))?;
    let mut command = jre(&[&other])?;
    command.arg("packs/default").arg(scenario("prompts.txt")).arg(other.join("lines.txt"));
    refused(command.current_dir(crate::root()), "checksum mismatch")?;
    Ok(None)
}

/// Every Swift source, and the Kotlin ones that want Android, parse.
fn swift() -> Result<Option<String>, String> {
    let Some(python) = python_program() else { return Ok(Some("needs Python 3".into())) };
    if !parsers().join("tree_sitter_swift").is_dir() {
        return Ok(Some("the parsers are not there: `cargo xtask scenario --fetch` fetches them".into()));
    }
    let generated = folder().join("bindings-swift");
    fresh(&generated)?;
    super::generate("swift", &library()?, &generated)?;
    let mut files = vec![generated.join("ZenEdge.swift")];
    sources(&crate::root().join("mobile/swift"), &mut files)?;
    sources(&crate::root().join("mobile/kotlin"), &mut files)?;
    let mut command = Command::new(python);
    succeed(command.arg(scenario("parse.py")).args(files).env("PYTHONPATH", parsers()))?;
    // Nor does anything else call itself Swift's concurrent work.
    let text = std::fs::read_to_string(generated.join("ZenEdge.swift")).map_err(io(&generated))?;
    if text.contains("enum Task ") || text.contains("struct Task ") {
        return Err("a type of the bindings is called Task, which hides Swift's".into());
    }
    Ok(None)
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io(folder))? {
        entries.push(entry.map_err(io(folder))?.path());
    }
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.ends_with("generated") && !path.ends_with("build") {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "swift" || end == "kt" || end == "kts") {
            files.push(path);
        }
    }
    Ok(())
}

fn link() -> Result<Option<String>, String> {
    super::links::quick()
}

/// The Rust scenario on an aarch64 processor that QEMU is.
fn aarch64(cpu: &str, isa: &str) -> Result<Option<String>, String> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    for program in ["qemu-aarch64-static", "aarch64-linux-gnu-gcc"] {
        if !found(program) {
            return Ok(Some(format!(
                "{program} is not there (Debian: qemu-user-static, gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
            )));
        }
    }
    if let Err(why) = crate::test::have_target(TARGET) {
        return Ok(Some(why));
    }
    let runner = format!("qemu-aarch64-static -cpu {cpu} -L /usr/aarch64-linux-gnu");
    let mut command = cargo();
    command.args(["test", "--package", "zen-edge-mobile", "--target", TARGET, "--test", "scenario"]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
    command.env("ZEN_EDGE_EXPECT_ISA", isa);
    succeed(&mut command)?;
    Ok(None)
}
