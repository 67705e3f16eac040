//! The pre-tokenizers: hand-written scanners for the regular expressions of `tokenizer.json`.
//!
//! Each finds where the piece that begins at a position ends, looking at the text itself only: no backtracking, and no
//! character is looked at more than a few times. The alternatives are tried in the order of the expression, which is
//! quoted at each scanner.

use super::PreTokenizer;
use super::classes::{Classes, LETTER, NUMBER, NUMERIC, OTHER, SIGN, SPACE, classes};

/// A text with the classes of its characters at hand.
#[derive(Clone, Copy)]
pub struct Scanner<'a> {
    text: &'a str,
    classes: &'static Classes,
    pre: PreTokenizer,
}

/// A character's classes, and where the next one begins. At the end of the text: no class, and the same position.
type At = (u8, usize);

impl<'a> Scanner<'a> {
    pub fn new(text: &'a str, pre: PreTokenizer) -> Self {
        Self { text, classes: classes(), pre }
    }

    /// The end of the piece that begins at `pos`, which is before the end of the text.
    pub fn next(&self, pos: usize) -> usize {
        match self.pre {
            PreTokenizer::Qwen2 => self.cl100k(pos, 1),
            PreTokenizer::Llama3 => self.cl100k(pos, 3),
            PreTokenizer::SmolLm => self.smollm(pos),
            PreTokenizer::Gpt2 => self.gpt2(pos, 0),
            PreTokenizer::Default => self.default(pos),
        }
    }

    /// Up to where pieces keep their ends whatever text follows: a piece is final if it ends at or before this.
    ///
    /// Only white space looks beyond the character after it, up to the next that is none.
    pub fn settled(&self) -> usize {
        self.text.char_indices().rev().find(|&(_, c)| !c.is_whitespace()).map_or(0, |(at, _)| at)
    }

    #[inline]
    fn at(&self, pos: usize) -> At {
        match self.text.as_bytes().get(pos) {
            None => (0, pos),
            Some(&byte) if byte < 0x80 => (self.classes.of(byte as char), pos + 1),
            Some(_) => match self.text[pos..].chars().next() {
                None => (0, pos),
                Some(c) => (self.classes.of(c), pos + c.len_utf8()),
            },
        }
    }

    /// As [`Scanner::at`], but a character of the classes `stop` ends the text.
    #[inline]
    fn at_until(&self, pos: usize, stop: u8) -> At {
        let (class, end) = self.at(pos);
        if class & stop != 0 { (0, pos) } else { (class, end) }
    }

    #[inline]
    fn byte(&self, pos: usize) -> u8 {
        self.text.as_bytes().get(pos).copied().unwrap_or(0)
    }

    /// The end of the run of characters of a class.
    #[inline]
    fn run(&self, mut pos: usize, class: u8, stop: u8) -> usize {
        loop {
            let (c, end) = self.at_until(pos, stop);
            if c & class == 0 {
                return pos;
            }
            pos = end;
        }
    }

    /// `[\r\n]*`
    #[inline]
    fn newlines(&self, mut pos: usize) -> usize {
        while matches!(self.byte(pos), b'\r' | b'\n') {
            pos += 1;
        }
        pos
    }

    /// `\s+(?!\S)|\s+`, the first character being white space that ends at `next`: the run without its last character,
    /// unless the text ends there or it is the only one.
    #[inline]
    fn white(&self, pos: usize, next: usize, stop: u8) -> usize {
        let mut last = pos;
        let mut end = next;
        loop {
            let (class, after) = self.at_until(end, stop);
            if class & SPACE == 0 {
                return if after == end || last == pos { end } else { last };
            }
            last = end;
            end = after;
        }
    }

    /// The tiktoken family, with one or up to three digits together:
    ///
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    fn cl100k(&self, pos: usize, digits: usize) -> usize {
        let (class, next) = self.at(pos);
        let byte = self.byte(pos);
        if class & LETTER != 0 {
            return self.run(next, LETTER, 0);
        }
        if class & NUMBER != 0 {
            let mut end = next;
            for _ in 1..digits {
                let (class, after) = self.at(end);
                if class & NUMBER == 0 {
                    break;
                }
                end = after;
            }
            return end;
        }
        if byte == b'\''
            && let Some(end) = self.contraction(pos, true)
        {
            return end;
        }
        let (class2, next2) = self.at(next);
        if class2 & LETTER != 0 && !matches!(byte, b'\r' | b'\n') {
            return self.run(next2, LETTER, 0);
        }
        if class & OTHER != 0 {
            return self.newlines(self.run(next, OTHER, 0));
        }
        if byte == b' ' && class2 & OTHER != 0 {
            return self.newlines(self.run(next2, OTHER, 0));
        }
        // `\s*[\r\n]+` takes the run of white space up to its last newline, if it has one.
        let mut newline = None;
        let mut end = pos;
        loop {
            if matches!(self.byte(end), b'\r' | b'\n') {
                newline = Some(end + 1);
            }
            let (class, after) = self.at(end);
            if class & SPACE == 0 {
                break;
            }
            end = after;
        }
        newline.unwrap_or_else(|| self.white(pos, next, 0))
    }

    /// GPT-2's expression, on the text up to the first character of the classes `stop`:
    ///
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    fn gpt2(&self, pos: usize, stop: u8) -> usize {
        let (mut class, mut next) = self.at(pos);
        match self.byte(pos) {
            b'\'' => {
                if let Some(end) = self.contraction(pos, false) {
                    return end;
                }
            }
            b' ' => {
                let (class2, next2) = self.at_until(next, stop);
                if class2 & (LETTER | NUMBER | OTHER) != 0 {
                    (class, next) = (class2, next2);
                }
            }
            _ => {}
        }
        match class & (LETTER | NUMBER | OTHER) {
            0 => self.white(pos, next, stop),
            class => self.run(next, class, stop),
        }
    }

    /// `Digits { individual_digits: true }`, then GPT-2's expression on each piece between.
    fn smollm(&self, pos: usize) -> usize {
        let (class, next) = self.at(pos);
        if class & NUMERIC != 0 { next } else { self.gpt2(pos, NUMERIC) }
    }

    /// llama.cpp's `default`, each expression on the pieces that the one before left:
    ///
    /// 1. `[\p{P}\$\+<=>\^~\|]+`
    /// 2. `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`
    /// 3. `\p{N}+`
    /// 4. `[0-9][0-9][0-9]`
    fn default(&self, pos: usize) -> usize {
        let (class, next) = self.at(pos);
        if class & SIGN != 0 {
            return self.run(next, SIGN, 0);
        }
        if class & NUMBER == 0 {
            // The third expression takes the space off the number after it.
            let space_before_number = self.byte(pos) == b' ' && self.at(next).0 & NUMBER != 0;
            return if space_before_number { next } else { self.gpt2(pos, SIGN) };
        }
        // Within a run of numbers: three ASCII digits, or what stands before the next three.
        let mut at = pos;
        loop {
            if (0..3).all(|i| self.byte(at + i).is_ascii_digit()) {
                return if at == pos { at + 3 } else { at };
            }
            let (class, next) = self.at(at);
            if class & NUMBER == 0 {
                return at;
            }
            at = next;
        }
    }

    /// `'s|'t|'re|'ve|'m|'ll|'d`. Without case, `ſ` (U+017F) is an s, as Oniguruma folds it.
    #[inline]
    fn contraction(&self, pos: usize, any_case: bool) -> Option<usize> {
        let fold = |byte: u8| if any_case { byte.to_ascii_lowercase() } else { byte };
        match (fold(self.byte(pos + 1)), fold(self.byte(pos + 2))) {
            (b's' | b't' | b'm' | b'd', _) => Some(pos + 2),
            (b'r' | b'v', b'e') | (b'l', b'l') => Some(pos + 3),
            _ if any_case && self.text[pos + 1..].starts_with('ſ') => Some(pos + 1 + 'ſ'.len_utf8()),
            _ => None,
        }
    }
}
