//! What the cross-crate tests share: where their inputs lie, and how a test is skipped so that it is seen.
//!
//! A test that needs something which a machine may lack asks [`need`]. Where it is absent the test is *skipped
//! visibly*: its name and the reason go to the file that `ZEN_EDGE_SKIPS` names (`cargo xtask test` prints and counts
//! them) and to standard error. With `ZEN_EDGE_NO_SKIP=1` (`cargo xtask test --no-skip`) a skip is a failure.

pub mod counting;
pub mod fuzzing;

use std::io::Write;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_path_buf()
}

/// A path under `../shared`, the data that lies beside the repository and is not part of it.
pub fn shared(relative: &str) -> PathBuf {
    root().parent().map_or_else(|| PathBuf::from("shared"), |parent| parent.join("shared")).join(relative)
}

/// A path under `target/peers`, where `cargo xtask peers` puts real models and tokenizers from the registries.
pub fn peers(relative: &str) -> PathBuf {
    std::env::var_os("ZEN_EDGE_PEERS")
        .map_or_else(|| root().join("target/peers"), PathBuf::from)
        .join(relative)
}

/// A path under `tests/fixtures`, committed.
pub fn fixture(relative: &str) -> PathBuf {
    root().join("tests/fixtures").join(relative)
}

/// `path` where it exists; else records that `test` is skipped for want of `what` and gives `None`.
///
/// # Panics
/// With `ZEN_EDGE_NO_SKIP=1` in the environment, where nothing may be skipped.
pub fn need(test: &str, what: &str, path: impl AsRef<Path>) -> Option<PathBuf> {
    let path = path.as_ref();
    if path.exists() {
        return Some(path.to_path_buf());
    }
    skip(test, &format!("needs {what} ({} is absent)", path.display()));
    None
}

/// Records that `test` is skipped, and why.
///
/// # Panics
/// With `ZEN_EDGE_NO_SKIP=1` in the environment, unless `ZEN_EDGE_MAY_SKIP` names the test.
pub fn skip(test: &str, why: &str) {
    let may = std::env::var("ZEN_EDGE_MAY_SKIP").is_ok_and(|names| names.split(',').any(|name| name == test));
    assert!(
        may || std::env::var_os("ZEN_EDGE_NO_SKIP").is_none_or(|v| v != "1"),
        "{test} may not be skipped here: {why}"
    );
    eprintln!("SKIPPED {test}: {why}");
    if let Some(file) = std::env::var_os("ZEN_EDGE_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(file)
    {
        // One write call a line: tests run in parallel and in several processes.
        let _ = file.write_all(format!("{test}: {why}\n").as_bytes());
    }
}
