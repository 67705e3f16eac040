//! Commands of other programs: found, shown, run.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Cargo, as it called us.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::root());
    command
}

/// What a person would have typed.
pub fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_stem().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Whether `program` can be started at all (`program --version`).
pub fn found(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs to the end; an error names the command and how it ended.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("`{}` could not be started: {error}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed ({status})", shown(command))) }
}
