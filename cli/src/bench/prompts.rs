//! The prompts of a file.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::input::Rows;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The prompts of JSON lines (`.jsonl`), or of a text file with a prompt a line.
///
/// # Errors
/// A file that cannot be read, a row that is none, a file without prompts.
pub fn read(path: &Path) -> Result<Vec<String>, Failure> {
    let mut file = File::open(path).map_err(|error| Failure::file(path, &error))?;
    let prompts: Vec<String> = if path.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("jsonl")) {
        Rows::new(BufReader::new(file))
            .map(|line| {
                let line = line.map_err(|error| Failure::file(path, &error))?;
                line.row
                    .map(|row| row.prompt)
                    .map_err(|error| Failure::new(Exit::Format, format!("{}: {error}", path.display())))
            })
            .collect::<Result<_, _>>()?
    } else {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| Failure::file(path, &error))?;
        let text = String::from_utf8_lossy(&bytes);
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    };
    if prompts.is_empty() {
        return Err(Failure::new(Exit::Format, format!("{} holds no prompts", path.display())));
    }
    Ok(prompts)
}
