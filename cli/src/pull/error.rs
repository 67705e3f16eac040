//! What can go wrong in a pull: one variant for one cause, and what to do.

use crate::exit::Exit;
use std::path::PathBuf;

/// Why a pull did not end with a verified file in its place.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("give the name of what to fetch; `zen-edge pull --list` shows the names")]
    NoName,
    #[error("`{name}` is no name that this program knows ({known}); another GGUF is fetched by `--url`")]
    UnknownName { name: String, known: String },
    #[error(
        "`{0}` cannot be a name: letters, digits, `.`, `_` and `-` make one, and it starts with a letter or digit"
    )]
    BadName(String),
    #[error("`{0}` is no sha256: that is 64 hexadecimal digits")]
    BadHash(String),
    #[error("there is no cache folder on this system: give one by `--dir` or ZEN_EDGE_CACHE")]
    NoCache,
    #[error("{what} {}: {source}", path.display())]
    Disk { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("another pull is at work on {}: wait for it to end", path.display())]
    Locked { path: PathBuf },
    #[error("{url} cannot be reached: {why}; check the connection and run the same command again{kept}")]
    Unreachable { url: String, why: String, kept: Kept },
    #[error("{url} answers {status}: {meaning}")]
    Status { url: String, status: u16, meaning: &'static str },
    #[error(
        "{url} broke off at {got} of {expected} bytes, {tries} times in a row; run the same command again{kept}"
    )]
    BrokeOff { url: String, got: u64, expected: Total, tries: u32, kept: Kept },
    #[error(
        "{url} announces {said} bytes where {expected} are expected{source_note}: it is another file, or a page in its place"
    )]
    WrongLength { url: String, said: u64, expected: u64, source_note: &'static str },
    #[error("{url} sent more than the {expected} bytes expected: nothing is kept")]
    TooLong { url: String, expected: u64 },
    #[error(
        "{url} says neither how long the file is nor what it hashes to, so it could not be known whether it came whole; give `--sha256`"
    )]
    NoMeasure { url: String },
    #[error("{url} sends no GGUF: it starts with {start}{hint}")]
    NotGguf { url: String, start: String, hint: &'static str },
    #[error(
        "what came from {url} has the sha256 {got}, not {expected} ({basis}); it is thrown away. Pull again; where that \
         ends the same way, the file there has changed or something between rewrites it"
    )]
    WrongHash { url: String, got: String, expected: String, basis: &'static str },
    #[error("the answer of {url} makes no sense: {why}")]
    Protocol { url: String, why: String },
    #[error("{repo} holds no GGUF with {quant} in its name; it holds: {names}")]
    NoSuchQuant { repo: String, quant: String, names: String },
    #[error("{repo} holds several GGUF files with {quant} in their names ({names}): choose one by `--url`")]
    Ambiguous { repo: String, quant: String, names: String },
    #[error(
        "the hub states sha256 {said} for {file}, but this program pins {pinned}: the file there has changed, and is not fetched"
    )]
    PinBroken { file: String, said: String, pinned: String },
    #[error("what {url} sends is as long as it should be, but no sound GGUF, and is thrown away: {why}")]
    NotSound { url: String, why: String },
    #[error("{} is damaged: {why}; `zen-edge pull {name}` fetches it anew", path.display())]
    Damaged { path: PathBuf, why: String, name: String },
}

/// Whether a part is on the disk, for messages.
#[derive(Clone, Copy, Debug)]
pub struct Kept(pub u64);

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 > 0 { write!(f, ", it goes on from byte {}", self.0) } else { Ok(()) }
    }
}

/// A length that may be unknown, for messages.
#[derive(Clone, Copy, Debug)]
pub struct Total(pub Option<u64>);

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(total) => total.fmt(f),
            None => f.write_str("an unknown number of"),
        }
    }
}

impl PullError {
    /// The exit code of the cause (docs/cli.md).
    pub fn exit(&self) -> Exit {
        match self {
            Self::NoName | Self::UnknownName { .. } | Self::BadName(_) | Self::BadHash(_) => Exit::Usage,
            Self::NoCache | Self::Disk { .. } | Self::Locked { .. } => Exit::Other,
            Self::NotGguf { .. } | Self::NotSound { .. } => Exit::Format,
            Self::Unreachable { .. }
            | Self::Status { .. }
            | Self::BrokeOff { .. }
            | Self::Protocol { .. }
            | Self::NoSuchQuant { .. }
            | Self::Ambiguous { .. } => Exit::Network,
            Self::WrongLength { .. }
            | Self::TooLong { .. }
            | Self::NoMeasure { .. }
            | Self::WrongHash { .. }
            | Self::PinBroken { .. }
            | Self::Damaged { .. } => Exit::Integrity,
        }
    }
}
