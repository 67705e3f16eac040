//! The catalog: one row for each model that a prompt can be routed to.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of work a prompt asks for, in the order of zen-router's task head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Write, explain or repair code, queries, shell commands.
    Code,
    /// Deduction, puzzles, arguments.
    Reasoning,
    /// From word problems to proofs.
    Math,
    /// Stories, poems, role-play.
    Creative,
    /// A question about an image.
    Vision,
    /// A long document and a question.
    LongContext,
    /// Greetings and small talk.
    CheapChat,
    /// All else; a model with this tag takes any task.
    General,
}

impl Task {
    /// The eight tasks in the order of the task head.
    pub const ALL: [Self; 8] = [
        Self::Code,
        Self::Reasoning,
        Self::Math,
        Self::Creative,
        Self::Vision,
        Self::LongContext,
        Self::CheapChat,
        Self::General,
    ];
    /// Their names in files and messages.
    pub const NAMES: [&'static str; 8] =
        ["code", "reasoning", "math", "creative", "vision", "long_context", "cheap_chat", "general"];

    /// The name in files and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The task of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|&n| n == name).map(|i| Self::ALL[i])
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A model id without surrounding blanks and without a trailing `-YYYYMMDD`: providers add dates to ids that logs and
/// catalogs write without.
///
/// Eight digits that are no date (`-99999999`) stay, and so does an id that is nothing but a date.
#[must_use]
pub fn normalise_id(id: &str) -> &str {
    let id = id.trim();
    let Some((head, date)) = id.rsplit_once('-') else { return id };
    let bytes = date.as_bytes();
    if head.is_empty() || bytes.len() != 8 || !bytes.iter().all(u8::is_ascii_digit) {
        return id;
    }
    let number =
        |from: usize, to: usize| bytes[from..to].iter().fold(0, |n, &d| n * 10 + u32::from(d - b'0'));
    let is_date = (1970..2200).contains(&number(0, 4))
        && (1..=12).contains(&number(4, 6))
        && (1..=31).contains(&number(6, 8));
    if is_date { head } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_names_and_order_agree() {
        for (row, task) in Task::ALL.into_iter().enumerate() {
            assert_eq!(task as usize, row);
            assert_eq!(Task::from_name(task.name()), Some(task));
            assert_eq!(serde_json::to_value(task).unwrap(), task.name());
        }
        assert_eq!(Task::from_name("Code"), None);
    }

    #[test]
    fn dates_fall_off_ids() {
        for (id, normal) in [
            ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
            (" o3 ", "o3"),
            ("gpt-5.5", "gpt-5.5"),
            ("m-99999999", "m-99999999"),
            ("m-20251301", "m-20251301"),
            ("m-2025100", "m-2025100"),
            ("-20251001", "-20251001"),
            ("20251001", "20251001"),
            ("m-20251001-20251002", "m-20251001"),
            ("m-２０２５１００１", "m-２０２５１００１"),
        ] {
            assert_eq!(normalise_id(id), normal, "{id}");
        }
    }
}
