//! `cargo xtask test`: everything that must hold before a change is merged, with a summary that hides nothing.

use crate::elsewhere;
use crate::run::{cargo, shown, succeed};
use crate::supply;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// With this variable set, xtask is a C compiler and an archiver that do nothing.
///
/// `cargo check` for another target runs build scripts, and that of `ring` compiles C: for Windows and macOS that
/// wants a cross compiler and an SDK that hardly anyone has. A check reads no object file, so a stub in their place
/// lets all of our Rust be checked for those targets on any machine.
pub const STUB_COMPILER: &str = "ZEN_EDGE_STUB_COMPILER";

#[derive(clap::Args)]
pub struct Args {
    /// A test or a target that cannot run here is a failure, not a skip.
    #[arg(long)]
    no_skip: bool,
    /// Also on the processors and in the builds whose paths another step runs.
    #[arg(long)]
    thorough: bool,
    /// Only the steps whose name contains this word.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Passed on to `cargo test`: a filter, or after another `--` options of the test harness.
    #[arg(last = true, value_name = "CARGO TEST")]
    rest: Vec<String>,
}

/// What a step found.
#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
    filtered: u64,
}

struct Session {
    no_skip: bool,
    /// Where tests append `name: why` when they skip themselves (tests/src/lib.rs).
    skips: PathBuf,
    counts: Counts,
    done: Vec<(String, Duration, Result<(), String>)>,
}

/// The targets that this machine need not be, the packages that must compile there, and with what words.
const TARGETS: [(&str, &[&str]); 3] = [
    ("wasm32-unknown-unknown", &["-p", "zen-edge-core", "--no-default-features"]),
    ("x86_64-pc-windows-gnu", &["-p", "zen-edge", "-p", "zen-edge-core", "-p", "zen-edge-kernels"]),
    ("aarch64-apple-darwin", &["-p", "zen-edge", "-p", "zen-edge-core", "-p", "zen-edge-kernels"]),
];

/// The npm package: its types, then its tests where it runs.
const NPM: [(&str, &str); 5] = [
    ("npm types", "types"),
    ("npm node", "test/node.test.mjs"),
    ("npm deno and bun", "test/runtimes.test.mjs"),
    ("npm browser", "test/browser.test.mjs"),
    ("npm bundlers", "test/bundlers.test.mjs"),
];

/// Runs every step, then prints what was run, for how long, and what was skipped.
pub fn run(args: &Args) -> Result<(), String> {
    let folder = crate::root().join("target/xtask");
    std::fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    let skips = folder.join("skips.txt");
    std::fs::write(&skips, "").map_err(|e| format!("cannot write {}: {e}", skips.display()))?;
    let mut session = Session { no_skip: args.no_skip, skips, counts: Counts::default(), done: Vec::new() };
    let wanted = |name: &str| args.only.as_ref().is_none_or(|word| name.contains(word.as_str()));

    if wanted("format") {
        session.step("format", |_| succeed(cargo().args(["fmt", "--all", "--check"])));
    }
    if wanted("lints") {
        session.step("lints", |_| {
            succeed(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
        });
    }
    if wanted("tests") {
        session.step("tests", |session| session.cargo_test(&args.rest));
    }
    if wanted("documentation") {
        session.step("documentation", |_| {
            succeed(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
        });
    }
    if wanted("release") {
        session.step("release", |_| first_words());
    }
    // Named apart from `check wasm32…`, so that `--only npm` is these.
    for (name, script) in NPM {
        if wanted(name) {
            session.step(name, |session| session.npm(name, script));
        }
    }
    if wanted("web page") {
        session.step("web page", Session::web_page);
    }
    for (target, words) in TARGETS {
        let name = format!("check {target}");
        if wanted(&name) {
            session.step(&name, |session| session.check(target, words));
        }
    }
    if wanted("supply chain") {
        session.step("supply chain", |session| match supply::lacks_deny() {
            Some(why) => session.skip("supply chain", &why),
            None => supply::deny(),
        });
    }
    if wanted("minimal rust") {
        session.step("minimal rust", |session| match supply::minimal_rust()? {
            Some(why) => session.skip("minimal rust", &why),
            None => Ok(()),
        });
    }
    for place in elsewhere::ALL {
        if wanted(place.name) && (args.thorough || args.only.is_some() || !place.thorough) {
            session.step(place.name, |session| match place.lacks() {
                Some(why) => session.skip(place.name, &why),
                None => place.run(),
            });
        }
    }
    for step in &crate::mobile::STEPS {
        if wanted(step.name) && (args.thorough || args.only.is_some() || !step.thorough) {
            session.step(step.name, |session| match step.run()? {
                Some(why) => session.skip(step.name, &why),
                None => Ok(()),
            });
        }
    }
    if session.done.is_empty() {
        return Err("no step has that word in its name".into());
    }
    session.summary()
}

impl Session {
    fn step(&mut self, name: &str, body: impl FnOnce(&mut Self) -> Result<(), String>) {
        eprintln!("\n==> {name}");
        let start = Instant::now();
        let result = body(self);
        if let Err(why) = &result {
            eprintln!("==> {name}: {why}");
        }
        self.done.push((name.to_owned(), start.elapsed(), result));
    }

    /// `cargo test --workspace`, its output passed through and its closing lines added up.
    fn cargo_test(&mut self, rest: &[String]) -> Result<(), String> {
        let mut command = cargo();
        command.args(["test", "--workspace", "--no-fail-fast"]).args(rest);
        command.env("ZEN_EDGE_SKIPS", &self.skips).stdin(Stdio::null()).stdout(Stdio::piped());
        if self.no_skip {
            command.env("ZEN_EDGE_NO_SKIP", "1");
        } else {
            command.env_remove("ZEN_EDGE_NO_SKIP");
        }
        // The harness colours its words only on a terminal, and we stand between it and the terminal.
        if std::io::stdout().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        let mut child =
            command.spawn().map_err(|e| format!("`{}` could not be started: {e}", shown(&command)))?;
        let mut output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut line = Vec::new();
        loop {
            line.clear();
            match output.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {
                    let _ = std::io::stdout().write_all(&line);
                    self.counts.add(&String::from_utf8_lossy(&line));
                }
                Err(error) => return Err(format!("the output of cargo test broke off: {error}")),
            }
        }
        let status = child.wait().map_err(|e| format!("cargo test cannot be waited for: {e}"))?;
        if !status.success() {
            return Err(format!("`{}` failed ({status})", shown(&command)));
        }
        if self.counts.passed == 0 && self.counts.filtered == 0 {
            return Err("cargo test ran no test".into());
        }
        if self.no_skip && self.counts.ignored > 0 {
            return Err(format!(
                "{} tests are marked `ignore`: none may be skipped here",
                self.counts.ignored
            ));
        }
        Ok(())
    }

    /// A step of the npm package, which `cargo xtask wasm` builds.
    fn npm(&mut self, name: &str, script: &str) -> Result<(), String> {
        let package = crate::wasm::package();
        let browser = !["types", "test/node.test.mjs", "test/runtimes.test.mjs"].contains(&script);
        if let Some(why) = lacks_npm(&package, browser) {
            return self.skip(name, &why);
        }
        if script == "test/runtimes.test.mjs" {
            let got = Command::new(crate::wasm::npm())
                .arg("ci")
                .current_dir(package.join("test/runtimes"))
                .status();
            if !got.is_ok_and(|status| status.success()) {
                return self.skip(name, "npm carries no Deno or Bun for this machine, or cannot be reached");
            }
        }
        if script == "types" {
            return succeed(Command::new(crate::wasm::npm()).args(["run", "check"]).current_dir(&package));
        }
        node_test(&package, script)
    }

    /// The page over the package: its types, its build, and a person's ways through it in a browser.
    fn web_page(&mut self) -> Result<(), String> {
        if let Some(why) = lacks_npm(&crate::wasm::package(), true) {
            return self.skip("web page", &why);
        }
        let page = crate::root().join("web-demo");
        for words in [&["ci"][..], &["run", "check"], &["run", "build"]] {
            succeed(Command::new(crate::wasm::npm()).args(words).current_dir(&page))?;
        }
        node_test(&page, "test/page.test.mjs")
    }

    /// `cargo check` for a target that this machine is not.
    fn check(&mut self, target: &str, words: &[&str]) -> Result<(), String> {
        if let Err(why) = have_target(target) {
            return self.skip(&format!("check {target}"), &why);
        }
        let stub = std::env::current_exe().map_err(|e| format!("xtask does not know its own path: {e}"))?;
        let under = target.replace('-', "_");
        succeed(
            cargo()
                .args(["check", "--target", target])
                .args(words)
                .env(STUB_COMPILER, "1")
                .env(format!("CC_{under}"), &stub)
                .env(format!("AR_{under}"), &stub)
                // Without it the build script of `ring` asks Xcode for the macOS SDK.
                .env("SDKROOT", "/MacOSX.sdk"),
        )
    }

    fn skip(&self, name: &str, why: &str) -> Result<(), String> {
        let may =
            std::env::var("ZEN_EDGE_MAY_SKIP").is_ok_and(|names| names.split(',').any(|one| one == name));
        if self.no_skip && !may {
            return Err(format!("may not be skipped here: {why}"));
        }
        eprintln!("SKIPPED {name}: {why}");
        let line = format!("{name}: {why}\n");
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.skips)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|e| format!("cannot note the skip in {}: {e}", self.skips.display()))
    }

    /// For people: each step with its time, each skip with its reason, then one line with the sums.
    fn summary(&self) -> Result<(), String> {
        let skips = std::fs::read_to_string(&self.skips).unwrap_or_default();
        let mut skips: Vec<&str> = skips.lines().collect();
        skips.sort_unstable();
        // A test may ask for several absent things; each is one line, the same line only once.
        skips.dedup();
        println!("\nSummary");
        for (name, time, result) in &self.done {
            let mark = if result.is_ok() { "ok    " } else { "FAILED" };
            println!("  {mark}  {:>6.1} s  {name}", time.as_secs_f64());
        }
        if self.counts.ignored > 0 {
            println!("  {} tests are marked `ignore`", self.counts.ignored);
        }
        if !skips.is_empty() {
            println!("Skipped on this machine ({}):", skips.len());
            for skip in &skips {
                println!("  {skip}");
            }
            println!(
                "  `cargo xtask peers` fetches what can be fetched; CONTRIBUTING.md says what the rest needs."
            );
        }
        let failed: Vec<&str> = self
            .done
            .iter()
            .filter(|(_, _, result)| result.is_err())
            .map(|(name, ..)| name.as_str())
            .collect();
        let skipped = skips.len() as u64 + self.counts.ignored;
        if self.done.iter().any(|(name, ..)| name == "tests") {
            println!(
                "total: {} passed, {} failed, {skipped} skipped",
                self.counts.passed, self.counts.failed
            );
        }
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
    }
}

impl Counts {
    /// Adds a closing line of the test harness: `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        if !line.starts_with("test result: ") {
            return;
        }
        for part in line.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next().and_then(|n| n.parse::<u64>().ok()), words.next())
            else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                "filtered" => self.filtered += number,
                _ => {}
            }
        }
    }
}

/// What this machine lacks for the steps of the npm package and of the page.
fn lacks_npm(package: &std::path::Path, browser: bool) -> Option<String> {
    if !crate::run::found("node") || !crate::run::found(crate::wasm::npm()) {
        return Some("needs Node.js with npm".into());
    }
    if !package.join("dist/index.js").exists() {
        return Some("the package is not built: `cargo xtask wasm` does it".into());
    }
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".into());
    let lacks = browser && !crate::run::found(&chromium);
    lacks.then(|| "needs Chromium at /usr/bin/chromium or where CHROMIUM says".into())
}

/// Runs a test of Node's own runner. What the native program answers is what the package must answer.
fn node_test(folder: &std::path::Path, script: &str) -> Result<(), String> {
    succeed(cargo().args(["build", "--release", "--package", "zen-edge"]))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from);
    let program = target.join("release").join(format!("zen-edge{}", std::env::consts::EXE_SUFFIX));
    succeed(
        Command::new("node")
            .args(["--experimental-wasm-relaxed-simd", "--test", "--test-timeout=600000", script])
            .env("ZEN_EDGE_CLI", program)
            .current_dir(folder),
    )
}

/// What the README shows first: `cargo run --release -- route "…"` prints a task, a model and two more.
fn first_words() -> Result<(), String> {
    let mut command = cargo();
    command.args(["run", "--release", "--", "route", "write a python function to reverse a linked list"]);
    let ran = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let ran = ran.map_err(|e| format!("`{}` could not be started: {e}", shown(&command)))?;
    let text = String::from_utf8_lossy(&ran.stdout);
    print!("{text}");
    let starts: Vec<&str> = text.lines().take(4).filter_map(|line| line.split_whitespace().next()).collect();
    if ran.status.success() && starts == ["task", "model", "2", "3"] {
        Ok(())
    } else {
        Err(format!("`{}` ({}) does not print a task, a model and the top 3", shown(&command), ran.status))
    }
}

/// Sees to it that the standard library of `target` is installed; an error says why it is not.
pub fn have_target(target: &str) -> Result<(), String> {
    let installed = |sysroot: &str| {
        std::path::Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib").is_dir()
    };
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).current_dir(crate::root()).output();
    let sysroot = sysroot.map_err(|e| format!("rustc cannot be asked for its folder: {e}"))?;
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).into_owned();
    if installed(&sysroot) {
        return Ok(());
    }
    if !crate::run::found("rustup") {
        return Err(format!(
            "the standard library of {target} is not installed, and there is no rustup to add it"
        ));
    }
    succeed(Command::new("rustup").args(["target", "add", target]).current_dir(crate::root()))?;
    if installed(&sysroot) {
        Ok(())
    } else {
        Err(format!("rustup did not add {target} to {}", sysroot.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let mut counts = Counts::default();
        counts.add(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s\n",
        );
        counts.add("test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out\n");
        counts.add("test a::b ... ok\n");
        assert_eq!((counts.passed, counts.failed, counts.ignored, counts.filtered), (4, 4, 1, 2));
    }
}
