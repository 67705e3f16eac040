//! Shared libraries for targets whose system libraries are not here: linked with the linker that comes with Rust and empty
//! stand-ins, so that exports, alignment and size can be looked at. They do not run.

use super::{Made, NAME, PACKAGE, PackageArgs, elf, folder, io, sysroot_tool};
use crate::run::{cargo, succeed};
use std::path::PathBuf;

/// Android's targets.
const ANDROID: [&str; 2] = ["aarch64-linux-android", "x86_64-linux-android"];

/// The targets that are checked.
const CHECKED: [&str; 4] =
    ["aarch64-linux-android", "x86_64-linux-android", "aarch64-apple-ios", "aarch64-apple-ios-sim"];

/// A linker that understands what is said to a C compiler, and the folder of its empty libraries.
fn linker() -> Result<(PathBuf, PathBuf), String> {
    let stubs = folder().join("stubs");
    std::fs::create_dir_all(&stubs).map_err(io(&stubs))?;
    for name in ["c", "m", "dl", "log", "gcc", "unwind", "pthread"] {
        let path = stubs.join(format!("lib{name}.a"));
        std::fs::write(&path, "!<arch>\n").map_err(io(&path))?;
    }
    let path = stubs.join("cc");
    let script = format!(
        "#!/bin/sh\n# `cc` as far as rustc speaks to it, over a bare linker.\nset -f\nfor word in \"$@\"; do\n  shift\n  case \"$word\" in\n    \
         -Wl,*) IFS=,; for part in ${{word#-Wl,}}; do set -- \"$@\" \"$part\"; done; unset IFS ;;\n    \
         -m64|-nodefaultlibs|-fuse-ld=*|--target=*) ;;\n    *) set -- \"$@\" \"$word\" ;;\n  esac\ndone\n\
         exec '{}' -flavor gnu --unresolved-symbols=ignore-all \"$@\"\n",
        sysroot_tool("rust-lld")?.display()
    );
    std::fs::write(&path, script).map_err(io(&path))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).map_err(io(&path))?;
    }
    Ok((path, stubs))
}

/// Links for an Android target, in a profile.
fn link(target: &str, profile: &str, features: &[&str]) -> Result<PathBuf, String> {
    let (linker, stubs) = linker()?;
    let mut command = cargo();
    command.args(["rustc", "--package", PACKAGE, "--lib", "--crate-type", "cdylib"]);
    command.args(["--target", target, "--profile", profile]).args(features);
    if profile == "dev" {
        // It is looked at, and not run: what counts is how soon it is made.
        for package in ["kernels", "core"] {
            command.arg("--config").arg(format!("profile.dev.package.zen-edge-{package}.opt-level=0"));
        }
    }
    command.arg("--");
    let mut said = std::ffi::OsString::from("-Clinker=");
    said.push(linker);
    command.arg(said).arg("-L").arg(stubs);
    succeed(&mut command)?;
    let made = if profile == "dev" { "debug" } else { profile };
    Ok(super::target_folder().join(target).join(made).join(format!("lib{NAME}.so")))
}

/// Compiles for every phone target, and links for one of Android's: what a test has time for.
pub fn quick() -> Result<Option<String>, String> {
    if cfg!(not(unix)) {
        return Ok(Some("the stand-in for a linker is a shell script".into()));
    }
    let (mut lacking, mut words) = (Vec::new(), vec!["check", "--package", PACKAGE]);
    for target in CHECKED {
        match crate::test::have_target(target) {
            Ok(()) => words.extend(["--target", target]),
            Err(why) => lacking.push(format!("{target}: {why}")),
        }
    }
    succeed(cargo().args(words))?;
    // The simulator's is the phone's with another name; not every mirror has it.
    if lacking.iter().any(|why| !why.starts_with("aarch64-apple-ios-sim")) {
        return Ok(Some(lacking.join("; ")));
    }
    for why in lacking {
        eprintln!("not checked: {why}");
    }
    let made = Made::from(&super::library()?, folder().join("bindings"))?;
    let library = link(ANDROID[0], "dev", &[])?;
    made.verify(&library)?;
    elf::check(&library, &made.bindings)?;
    // One that is aligned to pages of 4 KiB is seen: this machine's own.
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        match elf::check(&super::library()?, &made.bindings) {
            Err(why) if why.contains("aligned to 4096") => {}
            other => return Err(format!("an alignment to pages of 4 KiB is not seen: {other:?}")),
        }
    }
    Ok(None)
}

/// As they are shipped, for both of Android's targets: exports, alignment, sizes.
pub fn run(args: &PackageArgs) -> Result<(), String> {
    let mut made: Option<Made> = None;
    let mut fits = Ok(());
    for target in ANDROID {
        crate::test::have_target(target)?;
        let library = link(target, "mobile", &args.features())?;
        let made = match &made {
            None => made.insert(Made::from(&library, folder().join("bindings"))?),
            Some(made) => made,
        };
        made.verify(&library)?;
        let shipped = folder().join("links").join(target).join(format!("lib{NAME}.so"));
        super::copy(&library, &shipped)?;
        super::strip(&shipped)?;
        // Both are told, whatever the first one weighs.
        fits = fits.and(args.fits(target, elf::check(&shipped, &made.bindings)?));
    }
    fits
}
