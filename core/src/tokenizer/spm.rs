//! SentencePiece's BPE, as a GGUF holds it: the score of a token says when two neighbours become it.
//!
//! Inside, spaces are spaces: `▁` of the vocabulary and of the text is one.

use super::merge::{Merges, Scratch, Symbol};
use super::spec::{TieBreak, TokenType};
use super::vocab::{Blob, TokenMap, mix};
use super::{TokenizerError, normalize::SPACE_SIGN};
use crate::room::{self, NoMemory};

pub struct Spm {
    map: TokenMap,
    /// Where the tokens stand when sorted by score, the highest first; in 22 bits, like ids.
    order: Box<[u32]>,
    ties: TieBreak,
    /// The tokens of the bytes; [`NO_BYTE`] where there is none.
    byte_ids: [u32; 256],
    unk: Option<u32>,
    /// Whether every byte has its token, so that no unknown token is ever needed.
    complete: bool,
    /// The longest token that text can become.
    longest: usize,
    neighbours: Neighbours,
}

const NO_BYTE: u32 = u32::MAX;
/// Set in the id of a symbol that stays what it is: a byte of a character that has no token.
const FIXED: u32 = 1 << 31;

impl Spm {
    /// `kind` gives the type of a token; `blob` holds the tokens' bytes, byte tokens as they are written.
    pub fn new(
        blob: &Blob,
        kind: impl Fn(u32) -> TokenType,
        scores: &[f32],
        ties: TieBreak,
        byte_ids: [Option<u32>; 256],
        unk: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let n = blob.len() as u32;
        let mut map = TokenMap::with_room(blob.len())?;
        let mut neighbours = Neighbours::new()?;
        let mut longest = 0;
        let reachable =
            |id| matches!(kind(id), TokenType::Normal | TokenType::Undefined | TokenType::UserDefined);
        for id in (0..n).filter(|&id| reachable(id)) {
            let Some(text) = blob.get(id).and_then(|bytes| std::str::from_utf8(bytes).ok()) else { continue };
            map.insert(id, blob)?;
            longest = longest.max(text.len());
            let mut chars = text.chars();
            if let Some(mut left) = chars.next() {
                for right in chars {
                    neighbours.insert(left, right);
                    left = right;
                }
            }
        }

        // User-defined tokens go first, whatever their score: SentencePiece gives them none, converters write any.
        let score = |id: u32| match kind(id) {
            TokenType::UserDefined => f32::INFINITY,
            _ => scores.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY),
        };
        if let Some(id) = (0..n).find(|&id| score(id).is_nan()) {
            return Err(TokenizerError::ScoreNotANumber { id });
        }
        let refused = TokenizerError::no_memory("the order of the tokens");
        let mut sorted: Vec<u32> = room::room(blob.len()).map_err(refused)?;
        sorted.extend(0..n);
        // In place: a stable sort would take memory.
        sorted.sort_unstable_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        let mut order = room::filled(blob.len(), 0).map_err(refused)?.into_boxed_slice();
        for (place, &id) in (0..).zip(&sorted) {
            // With ties by the longest left part, tokens of one score share a place: the length decides before the id.
            order[id as usize] = match sorted.get((place as usize).wrapping_sub(1)) {
                Some(&before) if ties == TieBreak::LongestLeft && score(before) == score(id) => {
                    order[before as usize]
                }
                _ => place,
            };
        }

        let lacking = (0..=255).find(|&byte: &u8| byte_ids[usize::from(byte)].is_none());
        if let (Some(byte), None) = (lacking, unk) {
            return Err(TokenizerError::NoFallback { byte });
        }
        Ok(Self {
            map,
            order,
            ties,
            byte_ids: byte_ids.map(|id| id.unwrap_or(NO_BYTE)),
            unk,
            complete: lacking.is_none(),
            longest,
            neighbours,
        })
    }

    /// The end of the stretch that begins at `pos`: up to two characters that stand side by side in no token, so that
    /// nothing is joined across. In most languages these are words.
    pub fn next(&self, text: &str, pos: usize) -> usize {
        if !self.complete {
            // A run of unknown characters is one token, however long.
            return text.len();
        }
        let mut chars = text[pos..].char_indices();
        let Some((_, mut left)) = chars.next() else { return text.len() };
        for (at, right) in chars {
            if !self.neighbours.contains(left, right) {
                return pos + at;
            }
            left = right;
        }
        text.len()
    }

    /// Appends the ids of a stretch.
    pub fn encode(&self, word: &str, blob: &Blob, scratch: &mut Scratch, out: &mut Vec<u32>) {
        scratch.symbols.clear();
        let bytes = word.as_bytes();
        for (at, c) in word.char_indices() {
            let (start, end) = (at as u32, (at + c.len_utf8()) as u32);
            let symbols = &mut scratch.symbols;
            if let Some(id) = self.map.get(&bytes[at..end as usize], blob) {
                symbols.push(Symbol { id, start, end });
                continue;
            }
            let of_byte = |at: u32| self.byte_ids[usize::from(bytes[at as usize])];
            if (start..end).all(|at| of_byte(at) != NO_BYTE) {
                symbols.extend((start..end).map(|at| Symbol {
                    id: of_byte(at) | FIXED,
                    start: at,
                    end: at + 1,
                }));
            } else if let Some(unk) = self.unk {
                // A run of what has no token is one unknown token.
                match symbols.last_mut() {
                    Some(last) if last.id == unk | FIXED => last.end = end,
                    _ => symbols.push(Symbol { id: unk | FIXED, start, end }),
                }
            }
        }
        scratch.merge(&Pairs { spm: self, blob }, bytes);
        out.extend(scratch.symbols.iter().map(|symbol| symbol.id & !FIXED));
    }

    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.map.memory() + 4 * self.order.len() + 8 * self.neighbours.bits.len()
    }
}

struct Pairs<'a> {
    spm: &'a Spm,
    blob: &'a Blob,
}

impl Merges for Pairs<'_> {
    #[inline]
    fn pair(&self, left: Symbol, right: Symbol, word: &[u8]) -> Option<(u64, u32)> {
        let (start, middle, end) = (left.start as usize, right.start as usize, right.end as usize);
        if (left.id | right.id) & FIXED != 0 || end - start > self.spm.longest {
            return None;
        }
        let id = self.spm.map.get(&word[start..end], self.blob)?;
        let order = u64::from(self.spm.order[id as usize]) << 42;
        let tie = match self.spm.ties {
            // The right part follows from the left one.
            TieBreak::LeftId => u64::from(left.id),
            TieBreak::LongestLeft => {
                let chars =
                    |bytes: &[u8]| bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count().min(1023);
                let left = 1023 - chars(&word[start..middle]) as u64;
                let right = 1023 - chars(&word[middle..end]) as u64;
                left << 32 | right << 22 | u64::from(id)
            }
        };
        Some((order | tie, id))
    }
}

/// Which characters stand side by side in some token: a set of hashes. A pair that is wrongly said to be in it costs
/// time, not truth. Gemma's 262,144 tokens fill a tenth of it.
struct Neighbours {
    bits: Box<[u64]>,
}

impl Neighbours {
    const BITS: u32 = 21;

    fn new() -> Result<Self, TokenizerError> {
        let bits = room::filled(1 << (Self::BITS - 6), 0);
        let bits = bits.map_err(TokenizerError::no_memory("the pairs of characters"))?;
        Ok(Self { bits: bits.into_boxed_slice() })
    }

    #[inline]
    fn place(left: char, right: char) -> (usize, u64) {
        let h = mix(u64::from(left as u32) << 32 | u64::from(right as u32)) >> (64 - Self::BITS);
        ((h >> 6) as usize, 1 << (h & 63))
    }

    fn insert(&mut self, left: char, right: char) {
        let (word, bit) = Self::place(left, right);
        self.bits[word] |= bit;
    }

    #[inline]
    fn contains(&self, left: char, right: char) -> bool {
        let (word, bit) = Self::place(left, right);
        self.bits[word] & bit != 0
    }
}

/// The byte of a byte token: `<0x0A>`.
pub fn byte_of(token: &[u8]) -> Option<u8> {
    let hex = token.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if hex.len() != 2 {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// A token as it is held: `▁` is a space.
pub fn spaced(token: &[u8], out: &mut Vec<u8>) -> Result<(), NoMemory> {
    let mut rest = token;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(SPACE_SIGN.as_bytes()) {
            room::push(out, b' ')?;
            rest = after;
        } else {
            room::push(out, byte)?;
            rest = after;
        }
    }
    Ok(())
}
