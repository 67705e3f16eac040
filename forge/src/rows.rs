//! Rows of prompts, from a file of JSON lines.
//!
//! A row is an object with `prompt` and, where they are known, `task`, `source`, `lang` and `id`; other keys are left alone.
//! That is zen-router's training format and that of most public sets. [`read_fit`] also reads which model a prompt was given
//! to and how that went: `route` and `reward`, or `model`, `quality`, `cost` and `latency_ms`.

use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use zen_edge_core::catalog::Task;

/// The most bytes that one line may have.
pub const MAX_LINE_BYTES: u64 = 64 << 20;

/// Why rows are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line is no row.
    #[error("{file}:{line}: {why}")]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// There is not a single row.
    #[error("{file}: no rows; a line is an object such as {{\"prompt\": \"Hi!\", \"task\": \"cheap_chat\"}}")]
    Empty {
        /// The file.
        file: PathBuf,
    },
}

/// A prompt and what is known of it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Row {
    /// The text.
    pub prompt: String,
    /// Its task's name, see [`Task::NAMES`].
    #[serde(default)]
    pub task: Option<String>,
    /// Where it comes from: rows of one source are held out together.
    #[serde(default)]
    pub source: Option<String>,
    /// Its language.
    #[serde(default)]
    pub lang: Option<String>,
    /// What it is called.
    #[serde(default)]
    pub id: Option<String>,
}

impl Row {
    /// Its task, where it states one.
    pub fn task(&self) -> Option<Task> {
        self.task.as_deref().and_then(Task::from_name)
    }
}

/// The rows of a file, one a line; blank lines are passed over.
///
/// # Errors
/// [`RowsError`]: a file that cannot be read, a line that is no row or names a task that does not exist, no rows.
pub fn read(file: &Path) -> Result<Vec<Row>, RowsError> {
    each(file, |row: Row| match &row.task {
        Some(name) if row.task().is_none() => {
            Err(format!("the task `{name}` is not one of {}", Task::NAMES.join(", ")))
        }
        _ => Ok(row),
    })
}

/// How a model did on a prompt: a profile row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The text.
    pub prompt: String,
    /// The model's id, as the file has it.
    pub model: String,
    /// How good the answer was, as a rule 0 to 1.
    pub quality: f64,
    /// USD for this answer.
    pub cost: Option<f64>,
    /// Milliseconds until the answer was there.
    pub latency_ms: Option<f64>,
    /// The prompt's task.
    pub task: Option<Task>,
}

/// A line of a file that heads are fitted on.
#[derive(Clone, Debug, PartialEq)]
pub enum FitRow {
    /// A prompt with its labels.
    Prompt {
        /// The prompt and what is known of it.
        row: Row,
        /// The model that should answer, or that did.
        route: Option<String>,
        /// What that was worth: quality, less what the answer cost.
        reward: Option<f64>,
    },
    /// One model's outcome on a prompt.
    Outcome(Outcome),
}

/// All keys of both kinds of line.
#[derive(Deserialize)]
struct AnyRow {
    #[serde(flatten)]
    row: Row,
    route: Option<String>,
    reward: Option<f64>,
    model: Option<String>,
    quality: Option<f64>,
    cost: Option<f64>,
    latency_ms: Option<f64>,
}

/// The rows that heads are fitted on, one a line: a line with `model` and `quality` is an outcome, any other a labelled
/// prompt.
///
/// # Errors
/// As [`read`]; also for a blank prompt, an outcome without `model` or `quality`, a figure out of its range.
pub fn read_fit(file: &Path) -> Result<Vec<FitRow>, RowsError> {
    each(file, |any: AnyRow| {
        let AnyRow { row, route, reward, model, quality, cost, latency_ms } = any;
        if row.prompt.trim().is_empty() {
            return Err("the prompt is blank: no model reads it, take the row out".to_owned());
        }
        if let (Some(name), None) = (&row.task, row.task()) {
            return Err(format!("the task `{name}` is not one of {}", Task::NAMES.join(", ")));
        }
        let blank = |id: &Option<String>| id.as_ref().is_some_and(|id| id.trim().is_empty());
        if blank(&model) || blank(&route) {
            return Err("the model's id is blank".to_owned());
        }
        match (model, quality) {
            (None, None) => Ok(FitRow::Prompt { row, route, reward }),
            (Some(model), Some(quality)) => {
                for (key, value) in [("cost", cost), ("latency_ms", latency_ms)] {
                    if value.is_some_and(|value| value < 0.0) {
                        return Err(format!("`{key}` is below 0"));
                    }
                }
                let task = row.task();
                Ok(FitRow::Outcome(Outcome { prompt: row.prompt, model, quality, cost, latency_ms, task }))
            }
            (Some(_), None) => Err("an outcome needs `quality` beside `model`".to_owned()),
            (None, Some(_)) => Err("an outcome needs `model` beside `quality`".to_owned()),
        }
    })
}

/// The lines of a file as values of one type, each checked.
///
/// # Errors
/// As [`read`], with what `check` says of a line.
pub fn each<T: serde::de::DeserializeOwned, R>(
    file: &Path,
    mut check: impl FnMut(T) -> Result<R, String>,
) -> Result<Vec<R>, RowsError> {
    use std::io::Read;
    let io = |source| RowsError::Io { file: file.to_owned(), source };
    let mut reader = BufReader::new(std::fs::File::open(file).map_err(io)?);
    let (mut rows, mut text) = (Vec::new(), Vec::new());
    for line in 1.. {
        text.clear();
        if reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut text).map_err(io)? == 0 {
            break;
        }
        let wrong = |why: String| RowsError::Line { file: file.to_owned(), line, why };
        if text.len() as u64 == MAX_LINE_BYTES {
            return Err(wrong(format!("longer than {MAX_LINE_BYTES} bytes")));
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let value = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        rows.push(check(value).map_err(wrong)?);
    }
    if rows.is_empty() { Err(RowsError::Empty { file: file.to_owned() }) } else { Ok(rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn rows_are_read_and_other_keys_left_alone() {
        let file = file("{\"prompt\":\"a\",\"task\":\"code\",\"license\":\"MIT\"}\n\n{\"prompt\":\"b\"}");
        let rows = read(file.path()).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].task(), rows[1].task()), (Some(Task::Code), None));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let file = file("{\"prompt\":\"a\"}\n{\"prompt\":\"b\",\"task\":\"cooking\"}\n");
        let error = read(file.path()).unwrap_err().to_string();
        assert!(error.contains(":2: the task `cooking`"), "{error}");
        std::fs::write(file.path(), "{\"prompt\":\"a\"}\nno\n").unwrap();
        assert!(matches!(read(file.path()), Err(RowsError::Line { line: 2, .. })));
    }

    #[test]
    fn outcomes_and_labelled_prompts_are_told_apart() {
        let file = file(
            "{\"prompt\":\"a\",\"task\":\"code\",\"route\":\"m\",\"reward\":0.5,\"source\":\"s\"}\n\
             {\"prompt\":\"a\",\"model\":\"m\",\"quality\":1,\"cost\":0.01,\"latency_ms\":null,\"task\":\"math\"}\n",
        );
        let rows = read_fit(file.path()).unwrap();
        let FitRow::Prompt { row, route, reward } = &rows[0] else { panic!("{rows:?}") };
        assert_eq!((row.source.as_deref(), route.as_deref(), *reward), (Some("s"), Some("m"), Some(0.5)));
        let FitRow::Outcome(outcome) = &rows[1] else { panic!("{rows:?}") };
        assert_eq!((outcome.quality, outcome.cost, outcome.latency_ms), (1.0, Some(0.01), None));
        assert_eq!(outcome.task, Some(Task::Math));
        for (line, word) in [
            ("{\"prompt\":\" \"}", "blank"),
            ("{\"prompt\":\"a\",\"task\":\"cooking\"}", "cooking"),
            ("{\"prompt\":\"a\",\"model\":\"m\"}", "quality"),
            ("{\"prompt\":\"a\",\"quality\":1}", "model"),
            ("{\"prompt\":\"a\",\"model\":\"m\",\"quality\":1,\"cost\":-1}", "cost"),
            ("{\"prompt\":\"a\",\"model\":\"m\",\"quality\":1e999}", "out of range"),
            ("{\"prompt\":\"a\",\"route\":\"\"}", "blank"),
        ] {
            std::fs::write(file.path(), line).unwrap();
            let error = read_fit(file.path()).unwrap_err().to_string();
            assert!(error.contains(":1: ") && error.contains(word), "{error}");
        }
    }

    #[test]
    fn no_rows_and_no_file_are_errors() {
        let empty = file("\n\n");
        assert!(matches!(read(empty.path()), Err(RowsError::Empty { .. })));
        assert!(matches!(read(Path::new("/nowhere/rows.jsonl")), Err(RowsError::Io { .. })));
    }
}
