//! How the program ends: one code for each kind of failure, so that scripts can tell them apart (docs/cli.md).

use std::process::ExitCode;

/// The exit codes. They are part of the interface: a code keeps its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Anything without a code of its own.
    Other = 1,
    /// The command line makes no sense (clap's own code).
    Usage = 2,
    /// A file or folder is not there or cannot be read.
    Missing = 3,
    /// A file is not what it should be: no GGUF, damaged, truncated, rows that are no JSON.
    Format = 4,
    /// A sound file that this version cannot run: architecture, tensor type, tokenizer.
    Unsupported = 5,
    /// Backbone, heads, config and catalog do not fit each other.
    Mismatch = 6,
    /// A download that could not be made.
    Network = 7,
    /// A download or a kept file whose length or hash is wrong.
    Integrity = 8,
    /// A figure below its threshold: `verify` as a gate.
    Unmet = 9,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
