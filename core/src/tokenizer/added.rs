//! Added tokens: those that are matched in the text as they stand, before anything else happens to it.
//!
//! As Hugging Face `tokenizers` does: from left to right, the longest that begins at a place. A GGUF does not hold the
//! flags `lstrip`, `rstrip`, `single_word` and `normalized` of `tokenizer.json`; in the model families that are supported
//! all are false.

use super::TokenizerError;
use super::normalize::Normalizer;
use crate::room;
use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

/// The most bytes of added tokens together. Gemma 3, with the most in use, has 77,000. The matcher takes some forty times
/// as many while it is built.
const MAX_BYTES: usize = 1 << 20;
/// Up to this many bytes the matcher may be a table of all states and bytes, which is the fastest. The crate itself chooses
/// one by the number of tokens alone: of one token of 4 MB it made 4 GB.
const MAX_TABLE: usize = 4096;

/// Refuses more bytes of added tokens than any vocabulary has: asked before they are copied, and before the matcher is built.
pub fn within(bytes: usize) -> Result<(), TokenizerError> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(TokenizerError::AddedTokens { reason: format!("they have {bytes} bytes, the limit is {MAX_BYTES}") })
}

/// The matcher.
pub struct Added {
    automaton: Option<AhoCorasick>,
    /// The token of each pattern, and whether it is a control token.
    tokens: Box<[(u32, bool)]>,
    longest: usize,
}

impl Added {
    /// From the texts, ids and whether each is a control token.
    pub fn new(tokens: Vec<(Vec<u8>, u32, bool)>) -> Result<Self, TokenizerError> {
        let bytes: usize = tokens.iter().map(|(text, ..)| text.len()).sum();
        within(bytes)?;
        let longest = tokens.iter().map(|(text, ..)| text.len()).max().unwrap_or(0);
        let automaton = if tokens.is_empty() {
            None
        } else {
            Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .kind((bytes > MAX_TABLE).then_some(AhoCorasickKind::ContiguousNFA))
                    .build(tokens.iter().map(|(text, ..)| text))
                    .map_err(|error| TokenizerError::AddedTokens { reason: error.to_string() })?,
            )
        };
        let mut by_pattern =
            room::room(tokens.len()).map_err(TokenizerError::no_memory("the added tokens"))?;
        by_pattern.extend(tokens.iter().map(|&(_, id, control)| (id, control)));
        Ok(Self { automaton, tokens: by_pattern.into_boxed_slice(), longest })
    }

    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + 8 * self.tokens.len()
            + self.automaton.as_ref().map_or(0, AhoCorasick::memory_usage)
    }
}

/// A part of a text.
pub enum Part<'t> {
    /// A stretch between added tokens. The stretch after it may go on where this one ends.
    Text(&'t str),
    /// An added token.
    Token(u32),
}

/// A text's parts, found as they are asked for: of a text that is cut off early the rest is never searched.
pub struct Parts<'t, 'a> {
    added: &'a Added,
    text: &'t str,
    plain: bool,
    normalizer: Normalizer,
    pos: usize,
    /// Where the search goes on; past `pos` after a control token that does not count.
    searched: usize,
    found: Option<(usize, usize, u32)>,
}

impl<'t, 'a> Parts<'t, 'a> {
    /// The parts of a text; with `plain`, control tokens are text.
    pub fn new(added: &'a Added, text: &'t str, plain: bool, normalizer: Normalizer) -> Self {
        Self { added, text, plain, normalizer, pos: 0, searched: 0, found: None }
    }

    /// The next part: of text at least `size` bytes, unless an added token or the end comes first, and no more than to the
    /// next place where it may be cut.
    pub fn next(&mut self, size: usize) -> Option<Part<'t>> {
        let limit = self.normalizer.boundary(self.text, self.pos.saturating_add(size));
        self.search(limit);
        let end = match self.found {
            Some((start, end, id)) if start == self.pos => {
                self.pos = end;
                self.found = None;
                return Some(Part::Token(id));
            }
            Some((start, ..)) => limit.min(start),
            None => limit,
        };
        let text = &self.text[self.pos..end];
        self.pos = end;
        (!text.is_empty()).then_some(Part::Text(text))
    }

    /// Finds the first added token that counts, if it begins before `limit`.
    fn search(&mut self, limit: usize) {
        let Some(automaton) = &self.added.automaton else { return };
        while self.found.is_none() && self.searched < limit {
            let window = self.searched..self.text.len().min(limit.saturating_add(self.added.longest));
            match automaton.find(Input::new(self.text).span(window)) {
                Some(found) if found.start() < limit => {
                    self.searched = found.end();
                    let (id, control) = self.added.tokens[found.pattern().as_usize()];
                    if !(control && self.plain) {
                        self.found = Some((found.start(), found.end(), id));
                    }
                }
                _ => self.searched = limit,
            }
        }
    }
}
