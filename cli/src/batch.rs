//! Many prompts: a row in, a row out, in order; a row that cannot be read is answered with its error and the rest goes on.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::input::Rows;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{BufRead, ErrorKind, Write};

/// An answer beside the id of its row.
#[derive(Serialize)]
struct Answered<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a serde_json::Value>,
    #[serde(flatten)]
    answer: T,
}

/// A row without an answer.
#[derive(Serialize)]
struct Refused<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a serde_json::Value>,
    row: u64,
    error: &'a str,
}

/// Answers every row of `reader` on `out`.
///
/// # Errors
/// [`Exit::Format`] at the end where rows could not be read or answered (their errors stand in the output).
pub fn run<T: Serialize>(
    reader: impl BufRead,
    name: &str,
    length: Option<u64>,
    out: &mut impl Write,
    mut answer: impl FnMut(&str) -> Result<T, Failure>,
) -> Result<(), Failure> {
    let bar = progress(length);
    let (mut rows, mut refused, mut last) = (0u64, 0u64, None);
    for line in Rows::new(reader) {
        let line = line.map_err(|e| Failure::new(Exit::Missing, format!("{name} cannot be read on: {e}")))?;
        rows += 1;
        let text = match &line.row {
            Ok(row) => match answer(&row.prompt) {
                Ok(answer) => serde_json::to_string(&Answered { id: row.id.as_ref(), answer }),
                Err(failure) => {
                    refused += 1;
                    last = Some(failure.exit);
                    let error = failure.message.as_str();
                    serde_json::to_string(&Refused { id: row.id.as_ref(), row: line.number, error })
                }
            },
            Err(error) => {
                refused += 1;
                last = Some(Exit::Format);
                serde_json::to_string(&Refused { id: None, row: line.number, error })
            }
        };
        let text = text.map_err(|e| Failure::new(Exit::Other, format!("an answer is no JSON: {e}")))?;
        // Row by row: whoever reads on the other side of a pipe has each answer at once.
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(e) => return Err(Failure::new(Exit::Other, format!("cannot write the answers: {e}"))),
        }
        bar.inc(line.bytes);
        bar.set_message(format!("{rows} prompts"));
    }
    bar.finish_and_clear();
    match last {
        None => Ok(()),
        Some(exit) => Err(Failure::new(
            exit,
            format!(
                "{refused} of {rows} rows of {name} have no answer; each says why in its place in the output"
            ),
        )),
    }
}

/// The bar goes by bytes: rows are not known before the end. It is drawn on a terminal only.
fn progress(length: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr_with_hz(5));
    let template = match length {
        Some(_) => "{wide_bar} {percent}%  {msg}  {elapsed}, {eta} left",
        None => "{spinner} {msg}  {elapsed}",
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is our own"));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Length {
        length: usize,
    }

    #[test]
    fn answers_come_in_order_with_their_ids_and_errors_in_their_place() {
        let rows = "{\"prompt\":\"aaa\",\"id\":\"x\"}\n[]\n{\"prompt\":\"\",\"id\":{\"n\":1}}\n{\"prompt\":\"bad\"}\n{\"prompt\":\"b\"}\n";
        let mut out = Vec::new();
        let failure = run(rows.as_bytes(), "rows", None, &mut out, |prompt| {
            if prompt == "bad" {
                return Err(Failure::new(Exit::Unsupported, "no"));
            }
            Ok(Length { length: prompt.len() })
        })
        .unwrap_err();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], r#"{"id":"x","length":3}"#);
        assert!(lines[1].starts_with(r#"{"row":2,"error":"row 2 is no"#), "{}", lines[1]);
        assert_eq!(lines[2], r#"{"id":{"n":1},"length":0}"#);
        assert_eq!(lines[3], r#"{"row":4,"error":"no"}"#);
        assert_eq!(lines[4], r#"{"length":1}"#);
        assert_eq!(failure.exit, Exit::Unsupported);
        assert!(failure.message.starts_with("2 of 5 rows"), "{}", failure.message);
    }

    #[test]
    fn no_rows_are_no_error() {
        let mut out = Vec::new();
        run("\n\n".as_bytes(), "rows", Some(2), &mut out, |_| Ok(Length { length: 0 })).unwrap();
        assert!(out.is_empty());
    }
}
