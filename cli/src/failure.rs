//! Why the program ends early: a message that says what to do, and its exit code.

use crate::exit::Exit;
use crate::pull::PullError;
use std::io::ErrorKind;

/// A message for a person and a code for a script.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong, with what, and what to do.
    pub message: String,
}

impl Failure {
    /// A failure of one's own words.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// A file that cannot be opened or read.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        let path = path.display();
        match error.kind() {
            ErrorKind::NotFound => Self::new(Exit::Missing, format!("there is no file {path}")),
            ErrorKind::IsADirectory => Self::new(Exit::Missing, format!("{path} is a folder, not a file")),
            ErrorKind::PermissionDenied => {
                Self::new(Exit::Missing, format!("{path} may not be read: {error}"))
            }
            _ => Self::new(Exit::Missing, format!("{path} cannot be read: {error}")),
        }
    }
}

impl From<PullError> for Failure {
    fn from(error: PullError) -> Self {
        Self { exit: error.exit(), message: error.to_string() }
    }
}
