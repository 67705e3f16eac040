//! What we build on: the dependencies' licences, sources and known faults, and the oldest Rust that we state.

use crate::run::{cargo, found, shown, succeed};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The workspaces of the repository, each with its lock file.
const WORKSPACES: [&str; 4] = ["", "fuzz", "xtask/bindgen", "xtask/wasm"];
/// The npm packages, each with its lock file.
const NPM: [&str; 5] = ["benches/web", "mobile/scenario", "wasm/npm", "wasm/npm/test/runtimes", "web-demo"];

/// `cargo xtask deny`: what is locked is there, untouched and not withdrawn; licences, sources and doubled versions of
/// what is linked; and known faults, where their databases can be reached. What was not checked is said.
pub fn deny() -> Result<(), String> {
    if let Some(why) = lacks_deny() {
        return Err(why);
    }
    npm_locks()?;
    for workspace in WORKSPACES {
        yanked(workspace)?;
        let manifest = Path::new(workspace).join("Cargo.toml");
        let deny = |checks: &[&str]| {
            let mut command = cargo();
            command.args(["deny", "--config", "deny.toml", "--manifest-path"]).arg(&manifest);
            command.args(["--log-level", "error", "check", "--hide-inclusion-graph"]).args(checks);
            command
        };
        succeed(&mut deny(&["bans", "licenses", "sources"]))?;
        let what = format!("RustSec's advisories for {}", manifest.display());
        advisories(&mut deny(&["advisories"]), &what, "failed to fetch advisory database")?;
    }
    for package in NPM {
        advisories(
            Command::new(crate::wasm::npm()).arg("audit").current_dir(crate::root().join(package)),
            &format!("npm's advisories for {package}"),
            "audit endpoint returned an error",
        )?;
    }
    Ok(())
}

/// What this machine lacks for [`deny`].
pub fn lacks_deny() -> Option<String> {
    (!found("cargo-deny")).then(|| "needs cargo-deny: `cargo install cargo-deny`".to_owned())
}

/// Runs a check whose database lies elsewhere. That it cannot be reached is no fault of ours: it is said, loudly.
fn advisories(command: &mut Command, what: &str, unreachable: &str) -> Result<(), String> {
    let ran = command.output().map_err(|e| format!("{what}: cannot be asked for: {e}"))?;
    let said = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if ran.status.success() {
        eprintln!("{what}: nothing known");
        return Ok(());
    }
    if said.contains(unreachable) {
        eprintln!("NOT CHECKED {what}: the database cannot be reached from here");
        return Ok(());
    }
    Err(format!("{what}:\n{said}"))
}

/// No version of a lock file was withdrawn from its registry. Cargo takes a withdrawn version only from a lock file: so a
/// package that asks for exactly what is locked, without one, is resolved where none was.
fn yanked(workspace: &str) -> Result<(), String> {
    let path = crate::root().join(workspace).join("Cargo.lock");
    let lock = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let locked = registry_packages(&lock);
    let folder = crate::root().join("target/xtask/locked");
    let write = |file: &str, text: &str| {
        let path = folder.join(file);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    std::fs::create_dir_all(folder.join("src")).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut manifest =
        "[package]\nname = \"locked\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n".to_owned();
    for (i, (name, version)) in locked.iter().enumerate() {
        let _ = writeln!(
            manifest,
            "n{i} = {{ package = \"{name}\", version = \"={version}\", default-features = false }}"
        );
    }
    write("Cargo.toml", &manifest)?;
    write("src/lib.rs", "")?;
    let _ = std::fs::remove_file(folder.join("Cargo.lock"));
    let mut command = cargo();
    command.args(["generate-lockfile", "--quiet"]).current_dir(&folder);
    let ran = command.output().map_err(|e| format!("`{}` could not be started: {e}", shown(&command)))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() {
        eprintln!("{}: {} locked versions, none withdrawn", path.display(), locked.len());
    } else if said.contains("failed to select a version") {
        return Err(format!("{}: a locked version is not to be had any more: {said}", path.display()));
    } else {
        eprintln!("NOT CHECKED whether a version of {} was withdrawn: {said}", path.display());
    }
    Ok(())
}

/// Name and version of what a `Cargo.lock` has from registries.
fn registry_packages(lock: &str) -> BTreeSet<(String, String)> {
    lock.split("[[package]]")
        .filter_map(|entry| {
            let field = |key: &str| {
                let value = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
                value.strip_suffix('"')
            };
            field("source")?.starts_with("registry+").then_some(())?;
            // What follows a plus sign is no part of a requirement.
            let version = field("version")?.split('+').next()?;
            Some((field("name")?.to_owned(), version.to_owned()))
        })
        .collect()
}

/// Every npm package is pinned by its hash, and none was deprecated when it was locked.
fn npm_locks() -> Result<(), String> {
    for package in NPM {
        let path = crate::root().join(package).join("package-lock.json");
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let locked = npm_lock(&text).map_err(|why| format!("{}: {why}", path.display()))?;
        eprintln!("{}: {locked} packages, each with its hash, none deprecated", path.display());
    }
    Ok(())
}

/// How many packages a `package-lock.json` holds; an error where one has no hash or is deprecated.
fn npm_lock(text: &str) -> Result<usize, String> {
    let lock: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let packages = lock["packages"].as_object().ok_or("it has no `packages`")?;
    let mut locked = 0;
    for (place, package) in packages {
        // The package itself, and what lies beside it in the repository.
        if !Path::new(place).starts_with("node_modules") || package["link"] == true {
            continue;
        }
        if !package["integrity"].is_string() {
            return Err(format!("`{place}` has no hash"));
        }
        if let Some(why) = package["deprecated"].as_str() {
            return Err(format!("`{place}` is deprecated: {why}"));
        }
        locked += 1;
    }
    Ok(locked)
}

/// What Miri runs: the package, and the tests whose names contain one of the words. Files that are mapped, threads of rayon
/// and instruction sets beyond the scalar one are beyond it.
const MIRI: [(&str, &[&str]); 2] = [
    ("zen-edge-kernels", &["format::", "memory::", "pool::tests::every", "scalar", "ops::", "math::"]),
    ("zen-edge-core", &["gguf::", "tensors::", "cache::", "bandit::file", "room::"]),
];
/// What it skips of them: mapped files, and tests that would take hours there.
const NOT_MIRI: [&str; 2] = ["mapped", "part"];

/// `cargo xtask miri`: the readers, the scalar kernels and the pool under an interpreter that finds undefined behaviour.
pub fn miri() -> Result<(), String> {
    for (package, words) in MIRI {
        let mut command = Command::new("cargo");
        command.args(["+nightly", "miri", "test", "-p", package, "--lib", "--no-default-features", "--"]);
        command.args(words).args(NOT_MIRI.iter().flat_map(|word| ["--skip", word]));
        command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
        // proptest asks where it is, which Miri forbids unless it is told.
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "4");
        command.current_dir(crate::root());
        succeed(&mut command)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_file_of_the_repository_is_looked_at() {
        let listed = Command::new("git")
            .args(["ls-files", "*Cargo.lock", "*package-lock.json"])
            .current_dir(crate::root())
            .output();
        // A source archive has no history.
        let Some(listed) = listed.ok().filter(|out| out.status.success()) else { return };
        let found: BTreeSet<String> =
            String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
        let locks = WORKSPACES.map(|w| Path::new(w).join("Cargo.lock")).into_iter();
        let known = locks.chain(NPM.map(|p| Path::new(p).join("package-lock.json")));
        assert_eq!(found, known.map(|path| path.display().to_string()).collect());
    }

    #[test]
    fn locked_versions_are_those_from_registries() {
        let lock = "version = 4\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"a\"\nversion = \"1.2.3+c4\"\nsource = \"registry+https://example.org\"\nchecksum = \"00\"\n";
        assert_eq!(registry_packages(lock), BTreeSet::from([("a".to_owned(), "1.2.3".to_owned())]));
        let whole = std::fs::read_to_string(crate::root().join("Cargo.lock")).unwrap();
        assert!(registry_packages(&whole).len() > 100);
    }

    #[test]
    fn a_package_without_hash_or_with_a_warning_is_refused() {
        let lock = |fields: &str| {
            format!(
                r#"{{"packages": {{"": {{}}, "../x": {{}}, "node_modules/l": {{"link": true}}, "node_modules/a": {{{fields}}}}}}}"#
            )
        };
        assert_eq!(npm_lock(&lock(r#""integrity": "sha512-x""#)), Ok(1));
        assert!(npm_lock(&lock("")).unwrap_err().contains("no hash"));
        assert!(npm_lock(&lock(r#""integrity": "x", "deprecated": "use b""#)).unwrap_err().contains("use b"));
        assert!(npm_lock("{}").is_err());
    }
}
