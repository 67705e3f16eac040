//! Which file a word on the command line means: a path, or a name that was pulled.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::pull::{registry, store};
use std::path::{Path, PathBuf};

/// The file of `word`: a path that exists, else a pulled `NAME` or `NAME:QUANT`.
///
/// # Errors
/// [`Exit::Missing`] where it is neither, with what to do; [`Exit::Integrity`] where a pulled file is damaged.
pub fn locate(word: &Path) -> Result<PathBuf, Failure> {
    if word.exists() {
        return Ok(word.to_path_buf());
    }
    let Some(text) = word.to_str() else { return Err(missing(word, None)) };
    let name = text.split(':').next().unwrap_or(text);
    let known = registry::find(name).ok();
    match store::find(text, known.as_ref().map(|entry| entry.quant.as_str()))? {
        Some(file) => Ok(file),
        None => Err(missing(word, known.as_ref())),
    }
}

fn missing(word: &Path, known: Option<&registry::Entry>) -> Failure {
    let shown = word.display();
    let message = match known {
        Some(entry) => match word.to_str().and_then(|word| word.split_once(':')) {
            Some((_, quant)) => format!(
                "{shown} has not been pulled: run `zen-edge pull {} --quant {quant}`, or name a GGUF file",
                entry.name
            ),
            None => format!(
                "{shown} has not been pulled: run `zen-edge pull {}`, or name a GGUF file",
                entry.name
            ),
        },
        None => {
            format!(
                "there is no file {shown}, nor a pulled backbone of that name (`zen-edge pull --list` shows them)"
            )
        }
    };
    Failure::new(Exit::Missing, message)
}
