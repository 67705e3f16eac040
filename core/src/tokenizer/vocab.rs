//! The tables: tokens by id, ids by bytes, merges by pair. Flat arrays; nothing is allocated for a single token.

use super::TokenizerError;
use crate::room;

/// The most tokens: SentencePiece's merge keys hold ids in 22 bits. The largest vocabularies in use have 2^18.
pub const MAX_TOKENS: usize = 1 << 22;
/// The most bytes of all tokens together.
pub const MAX_BYTES: usize = 1 << 30;

/// Keys that need more steps than this fall together by design: at the load factors used here, the longest run of a
/// million random keys is below 200.
const MAX_PROBES: usize = 1024;

const K: u64 = 0x9E37_79B9_7F4A_7C15;

/// Multiply and fold, eight bytes at a time. No 128-bit product: it is a call on wasm32.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    let mut h = (bytes.len() as u64).wrapping_mul(K);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes([
            chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
        ]);
        h = mix(h ^ word);
    }
    let mut last = 0;
    for &byte in chunks.remainder() {
        last = last << 8 | u64::from(byte);
    }
    mix(mix(h ^ last))
}

#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(K);
    x ^ x >> 29
}

/// The tokens' bytes by id.
#[derive(Default)]
pub struct Blob {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Blob {
    pub fn with_room(tokens: usize, bytes: usize) -> Result<Self, TokenizerError> {
        let refused = TokenizerError::no_memory("the tokens");
        Ok(Self { bytes: room::room(bytes).map_err(refused)?, ends: room::room(tokens).map_err(refused)? })
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// No more than [`MAX_BYTES`] in all, which the caller has made sure of.
    pub fn push(&mut self, token: &[u8]) -> Result<(), TokenizerError> {
        let refused = TokenizerError::no_memory("the tokens");
        room::extend(&mut self.bytes, token).map_err(refused)?;
        room::push(&mut self.ends, self.bytes.len() as u32).map_err(refused)
    }

    #[inline]
    pub fn get(&self, id: u32) -> Option<&[u8]> {
        let end = *self.ends.get(id as usize)? as usize;
        let start = if id == 0 { 0 } else { self.ends[id as usize - 1] as usize };
        Some(&self.bytes[start..end])
    }

    pub fn memory(&self) -> usize {
        self.bytes.capacity() + 4 * self.ends.capacity()
    }
}

/// The id of a token's bytes: open addressing, linear probing. The hash's upper half beside the id saves the look into
/// the blob where two keys only share a slot.
pub struct TokenMap {
    slots: Box<[(u32, u32)]>,
}

const FREE: u32 = u32::MAX;

/// At most seven tenths full: a smaller table stays in the cache, which saves more than shorter runs would.
fn slots_for(keys: usize) -> usize {
    (keys.max(8) * 10 / 7).next_power_of_two()
}

impl TokenMap {
    pub fn with_room(tokens: usize) -> Result<Self, TokenizerError> {
        let slots = room::filled(slots_for(tokens), (0, FREE));
        let slots = slots.map_err(TokenizerError::no_memory("the table of the tokens"))?;
        Ok(Self { slots: slots.into_boxed_slice() })
    }

    /// Enters a token that lies in the blob, and says whether it is new: of equal ones the first keeps its place.
    pub fn insert(&mut self, id: u32, blob: &Blob) -> Result<bool, TokenizerError> {
        let Some(key) = blob.get(id) else { return Ok(false) };
        let (mut slot, tag, mask) = self.start(key);
        for _ in 0..MAX_PROBES {
            let (t, i) = self.slots[slot];
            if i == FREE {
                self.slots[slot] = (tag, id);
                return Ok(true);
            }
            if t == tag && blob.get(i) == Some(key) {
                return Ok(false);
            }
            slot = (slot + 1) & mask;
        }
        Err(TokenizerError::Crowded { what: "tokens" })
    }

    #[inline]
    pub fn get(&self, key: &[u8], blob: &Blob) -> Option<u32> {
        let (mut slot, tag, mask) = self.start(key);
        loop {
            let (t, i) = self.slots[slot];
            if i == FREE {
                return None;
            }
            if t == tag && blob.get(i) == Some(key) {
                return Some(i);
            }
            slot = (slot + 1) & mask;
        }
    }

    #[inline]
    fn start(&self, key: &[u8]) -> (usize, u32, usize) {
        let h = hash(key);
        let mask = self.slots.len() - 1;
        (h as usize & mask, (h >> 32) as u32, mask)
    }

    pub fn memory(&self) -> usize {
        self.slots.len() * 8
    }
}

/// A merge: `left` and `right` become `id`; a lower `rank` goes first.
#[derive(Clone, Copy)]
struct Merge {
    left: u32,
    right: u32,
    rank: u32,
    id: u32,
}

/// The merge of a pair of ids: open addressing, a slot of 16 bytes so that a look-up touches one cache line.
pub struct MergeMap {
    slots: Box<[Merge]>,
}

impl MergeMap {
    pub fn with_room(merges: usize) -> Result<Self, TokenizerError> {
        let slots = room::filled(slots_for(merges), Merge { left: FREE, right: 0, rank: 0, id: 0 });
        let slots = slots.map_err(TokenizerError::no_memory("the table of the merges"))?;
        Ok(Self { slots: slots.into_boxed_slice() })
    }

    /// Enters a merge. Of equal pairs the last one counts, as in Hugging Face `tokenizers`.
    pub fn insert(&mut self, left: u32, right: u32, rank: u32, id: u32) -> Result<(), TokenizerError> {
        let mask = self.slots.len() - 1;
        let mut slot = Self::place(left, right, self.slots.len());
        for _ in 0..MAX_PROBES {
            let merge = self.slots[slot];
            if merge.left == FREE || (merge.left, merge.right) == (left, right) {
                self.slots[slot] = Merge { left, right, rank, id };
                return Ok(());
            }
            slot = (slot + 1) & mask;
        }
        Err(TokenizerError::Crowded { what: "merges" })
    }

    /// Rank and id of what the pair becomes.
    #[inline]
    pub fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let mask = self.slots.len() - 1;
        let mut slot = Self::place(left, right, self.slots.len());
        loop {
            let merge = self.slots[slot];
            if (merge.left, merge.right) == (left, right) {
                return Some((merge.rank, merge.id));
            }
            if merge.left == FREE {
                return None;
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Where to look first in a table of so many slots, a power of two.
    #[inline]
    pub fn place(left: u32, right: u32, slots: usize) -> usize {
        let h = mix(u64::from(left) << 32 | u64::from(right));
        (h ^ h >> 32) as usize & (slots - 1)
    }

    pub fn memory(&self) -> usize {
        self.slots.len() * size_of::<Merge>()
    }
}
