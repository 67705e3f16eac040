//! Byte-level BPE: the bytes of a piece of text are joined by ranked merges.

use super::merge::{Merges, Scratch, Symbol};
use super::spec::{Strings, TokenType};
use super::vocab::{Blob, MergeMap, TokenMap};
use super::{TokenizerError, bytes};

pub struct Bpe {
    merges: MergeMap,
    /// The token of each byte; [`NO_BYTE`] where there is none.
    byte_ids: [u32; 256],
    /// llama-bpe: tokens by their bytes, because a piece that is a token is that token, whatever the merges say.
    whole: Option<TokenMap>,
}

/// A byte without a token. SmolLM2 lacks 21 of them: control characters and bytes that hardly occur in UTF-8.
const NO_BYTE: u32 = u32::MAX;

impl Bpe {
    /// `kinds` runs beside the blob, which holds the tokens' bytes, decoded.
    pub fn new(
        blob: &Blob,
        reachable: impl Fn(u32) -> bool,
        merges: &Strings,
        ignore_merges: bool,
    ) -> Result<Self, TokenizerError> {
        let mut map = TokenMap::with_room(blob.len())?;
        // From this id on, no token has the bytes of an earlier one.
        let mut unique_from = 0;
        for id in (0..blob.len() as u32).filter(|&id| reachable(id)) {
            if !map.insert(id, blob)? {
                unique_from = id + 1;
            }
        }
        let mut byte_ids = [NO_BYTE; 256];
        for byte in 0..=255_u8 {
            let id = map.get(&[byte], blob);
            if id.is_none() && matches!(byte, b'\n' | b' '..=b'~') {
                return Err(TokenizerError::MissingByte { byte });
            }
            byte_ids[usize::from(byte)] = id.unwrap_or(NO_BYTE);
        }
        let limit = u32::MAX as usize;
        if merges.len() >= limit {
            return Err(TokenizerError::TooManyMerges { merges: merges.len(), limit });
        }
        let mut table = MergeMap::with_room(merges.len())?;
        let mut joined = Vec::new();
        let mut expected = 0;
        for (index, merge) in merges.iter().enumerate() {
            let printable = || String::from_utf8_lossy(merge).into_owned();
            // The first part has at least one character, which may itself be a space in no vocabulary that is in use.
            let Some(space) = merge.iter().skip(1).position(|&byte| byte == b' ').map(|at| at + 1) else {
                return Err(TokenizerError::MergeFormat { index, merge: printable() });
            };
            let (left, right) = (&merge[..space], &merge[space + 1..]);
            if right.is_empty() || right.contains(&b' ') {
                return Err(TokenizerError::MergeFormat { index, merge: printable() });
            }
            let unknown = |token: &[u8]| TokenizerError::MergeUnknownToken {
                index,
                merge: printable(),
                token: String::from_utf8_lossy(token).into_owned(),
            };
            joined.clear();
            if !bytes::decode(left, &mut joined) {
                return Err(unknown(left));
            }
            let middle = joined.len();
            if !bytes::decode(right, &mut joined) {
                return Err(unknown(right));
            }
            let left_id = map.get(&joined[..middle], blob).ok_or_else(|| unknown(left))?;
            let right_id = map.get(&joined[middle..], blob).ok_or_else(|| unknown(right))?;
            // Most vocabularies list their tokens in the order of their merges: the next id saves a look into the map.
            expected =
                if expected >= unique_from && reachable(expected) && blob.get(expected) == Some(&joined) {
                    expected
                } else {
                    map.get(&joined, blob).ok_or_else(|| unknown(&[left, right].concat()))?
                };
            let id = expected;
            expected += 1;
            table.insert(left_id, right_id, index as u32, id)?;
        }
        Ok(Self { merges: table, byte_ids, whole: ignore_merges.then_some(map) })
    }

    /// Appends the ids of a piece.
    pub fn encode(&self, piece: &str, blob: &Blob, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let piece = piece.as_bytes();
        if let Some(id) = self.whole.as_ref().and_then(|map| map.get(piece, blob)) {
            out.push(id);
            return;
        }
        scratch.symbols.clear();
        // What has no token is left out, as Hugging Face `tokenizers` leaves it out where there is no unknown token.
        scratch.symbols.extend(
            (0..)
                .zip(piece)
                .map(|(at, &byte)| Symbol { id: self.byte_ids[usize::from(byte)], start: at, end: at + 1 })
                .filter(|symbol| symbol.id != NO_BYTE),
        );
        scratch.merge(&self.merges, piece);
        out.extend(scratch.symbols.iter().map(|symbol| symbol.id));
    }

    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.merges.memory() + self.whole.as_ref().map_or(0, TokenMap::memory)
    }
}

impl Merges for MergeMap {
    #[inline]
    fn pair(&self, left: Symbol, right: Symbol, _: &[u8]) -> Option<(u64, u32)> {
        self.get(left.id, right.id).map(|(rank, id)| (rank.into(), id))
    }
}

/// Whether text can become a token of this type: the others are matched as they stand, or never.
pub fn reachable(kind: TokenType) -> bool {
    matches!(kind, TokenType::Normal | TokenType::Undefined | TokenType::Byte)
}
