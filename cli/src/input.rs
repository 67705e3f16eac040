//! Where prompts come from: the command line, a text file (one prompt), or JSON lines (one prompt a row).

use crate::exit::Exit;
use crate::failure::Failure;
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The arguments that name the prompts.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Args {
    /// The prompt, taken as it is: no escapes are read, no template is put around it
    #[arg(conflicts_with = "file")]
    prompt: Option<String>,
    /// Read the prompt from a file, or from standard input (`-`); a .jsonl file holds a prompt a row
    #[arg(short, long, value_name = "F")]
    file: Option<PathBuf>,
    /// Take the input as JSON lines whatever it is called: {"prompt": "…", "id": …} a row
    #[arg(long, requires = "file")]
    jsonl: bool,
}

/// What the arguments name.
pub enum Prompts {
    /// One prompt.
    One(String),
    /// One a row; `length` is that of the file in bytes, where it is known.
    Rows { reader: Box<dyn BufRead>, name: String, length: Option<u64> },
}

impl Args {
    /// Opens the input, and reads it where it is one prompt.
    pub fn prompts(&self) -> Result<Prompts, Failure> {
        if let Some(prompt) = &self.prompt {
            return Ok(Prompts::One(prompt.clone()));
        }
        let Some(path) = &self.file else {
            return Err(Failure::new(
                Exit::Usage,
                "give a prompt, or a file by --file (`-` is standard input)",
            ));
        };
        let stdin = path.as_os_str() == "-";
        let rows = self.jsonl || path.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("jsonl"));
        let (mut reader, length): (Box<dyn BufRead>, Option<u64>) = if stdin {
            (Box::new(BufReader::new(std::io::stdin())), None)
        } else {
            let (file, length) = open(path)?;
            (Box::new(BufReader::new(file)), Some(length))
        };
        let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
        if rows {
            return Ok(Prompts::Rows { reader, name, length });
        }
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|error| Failure::file(path, &error))?;
        Ok(Prompts::One(one_prompt(&bytes)))
    }
}

fn open(path: &Path) -> Result<(File, u64), Failure> {
    let fail = |error: std::io::Error| Failure::file(path, &error);
    let file = File::open(path).map_err(fail)?;
    let about = file.metadata().map_err(fail)?;
    if about.is_dir() {
        return Err(fail(std::io::ErrorKind::IsADirectory.into()));
    }
    Ok((file, about.len()))
}

/// A file's content as a prompt. The one line end that closes a text file is the file's, not the prompt's (with
/// last-token pooling it would be the very token that counts); a byte order mark is not text; invalid UTF-8 is
/// repaired with U+FFFD, as everywhere.
fn one_prompt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let text = text.strip_suffix('\n').map_or(&*text, |text| text.strip_suffix('\r').unwrap_or(text));
    text.to_owned()
}

/// One row of JSON lines.
#[derive(Debug, Deserialize)]
pub struct Row {
    /// Kept as it is and given back with the answer.
    #[serde(default)]
    pub id: Option<serde_json::Value>,
    /// The prompt.
    pub prompt: String,
}

/// A row as it was read: its number from 1, its length in bytes, and what it holds.
pub struct Line {
    pub number: u64,
    pub bytes: u64,
    pub row: Result<Row, String>,
}

/// The rows of a reader; blank ones are passed over, unreadable ones are told of.
pub struct Rows<R> {
    reader: R,
    number: u64,
}

impl<R: BufRead> Rows<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, number: 0 }
    }
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = std::io::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = 0;
        loop {
            let mut line = Vec::new();
            match self.reader.read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Ok(n) => bytes += n as u64,
                Err(error) => return Some(Err(error)),
            }
            self.number += 1;
            let text = String::from_utf8_lossy(&line);
            let text = if self.number == 1 { text.trim_start_matches('\u{feff}') } else { &text };
            if text.trim().is_empty() {
                continue;
            }
            let row = serde_json::from_str(text)
                .map_err(|error| format!("row {} is no {{\"prompt\": \"…\"}}: {error}", self.number));
            return Some(Ok(Line { number: self.number, bytes, row }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_file_is_one_prompt_without_its_last_line_end() {
        assert_eq!(one_prompt(b"a\nb\n"), "a\nb");
        assert_eq!(one_prompt(b"a\r\n"), "a");
        assert_eq!(one_prompt(b"a\n\n"), "a\n");
        assert_eq!(one_prompt(b"a "), "a ");
        assert_eq!(one_prompt(b"\xef\xbb\xbfa"), "a");
        assert_eq!(one_prompt(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(one_prompt(b""), "");
    }

    #[test]
    fn b7_escapes_are_not_read() {
        assert_eq!(one_prompt(br"a\nb"), r"a\nb");
    }

    #[test]
    fn rows_keep_their_numbers_and_ids() {
        let text = "\u{feff}{\"prompt\":\"a\",\"id\":7}\r\n\n  \n{\"prompt\":\"b\\nc\",\"x\":1}\n{\"id\":1}\nnope\n{\"prompt\":\"z\"}";
        let rows: Vec<Line> = Rows::new(text.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(rows.iter().map(|line| line.number).collect::<Vec<_>>(), [1, 4, 5, 6, 7]);
        assert_eq!(rows.iter().map(|line| line.bytes).sum::<u64>(), text.len() as u64);
        let first = rows[0].row.as_ref().unwrap();
        assert_eq!((first.prompt.as_str(), first.id.clone()), ("a", Some(7.into())));
        assert_eq!(rows[1].row.as_ref().unwrap().prompt, "b\nc");
        assert!(rows[2].row.as_ref().unwrap_err().contains("missing field `prompt`"));
        assert!(rows[3].row.as_ref().unwrap_err().contains("row 6"));
        assert!(rows[4].row.is_ok());
    }
}
