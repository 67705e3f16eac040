//! The joining of symbols to tokens, for both models: again and again the pair with the lowest key, of equals the
//! leftmost, as Hugging Face `tokenizers` does (`Word::merge_all`).

use super::vocab::hash;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A stretch of a word that is one token so far.
#[derive(Clone, Copy)]
pub struct Symbol {
    /// The token.
    pub id: u32,
    /// Its bytes in the word.
    pub start: u32,
    /// Where they end.
    pub end: u32,
}

/// Which pairs become what.
pub trait Merges {
    /// The key of a pair of neighbours, the lowest first, and the token that they become. [`NEVER`] is no key.
    fn pair(&self, left: Symbol, right: Symbol, word: &[u8]) -> Option<(u64, u32)>;
}

/// The key of a pair that becomes nothing.
const NEVER: u64 = u64::MAX;

/// Up to this many symbols a scan over all keys beats the heap (measured on English, code and Chinese; the two meet between
/// 60 and 100 symbols).
const SHORT: usize = 64;

/// The memory that joining needs, kept from word to word.
#[derive(Default)]
pub struct Scratch {
    /// The word's symbols: the caller's input, then the result.
    pub symbols: Vec<Symbol>,
    keys: Vec<(u64, u32)>,
    links: Vec<(u32, u32)>,
    heap: BinaryHeap<Reverse<Entry>>,
}

/// A pair in the heap. It is out of date where the two symbols at `pos` no longer end at `end`: symbols only grow, so the
/// same stretch in two parts is the same two parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: u64,
    pos: u32,
    end: u32,
    id: u32,
}

impl Scratch {
    /// Joins `symbols` until no pair is left that becomes anything.
    pub fn merge(&mut self, merges: &impl Merges, word: &[u8]) {
        if self.symbols.len() <= SHORT {
            self.merge_short(merges, word)
        } else {
            self.merge_long(merges, word)
        }
    }

    /// Looks at all keys each time: quadratic, but in cache and without bookkeeping.
    fn merge_short(&mut self, merges: &impl Merges, word: &[u8]) {
        let Self { symbols, keys, .. } = self;
        let pair = |left, right| merges.pair(left, right, word).unwrap_or((NEVER, 0));
        keys.clear();
        keys.extend(symbols.windows(2).map(|pair_of| pair(pair_of[0], pair_of[1])));
        loop {
            let mut least = NEVER;
            let mut at = 0;
            for (i, &(key, _)) in keys.iter().enumerate() {
                if key < least {
                    (least, at) = (key, i);
                }
            }
            if least == NEVER {
                return;
            }
            symbols[at].id = keys[at].1;
            symbols[at].end = symbols[at + 1].end;
            symbols.remove(at + 1);
            keys.remove(at);
            if at > 0 {
                keys[at - 1] = pair(symbols[at - 1], symbols[at]);
            }
            if at < keys.len() {
                keys[at] = pair(symbols[at], symbols[at + 1]);
            }
        }
    }

    /// A heap of pairs over a linked list of symbols: O(n log n), so that no word is too long.
    fn merge_long(&mut self, merges: &impl Merges, word: &[u8]) {
        const NONE: u32 = u32::MAX;
        const GONE: u32 = u32::MAX;
        let Self { symbols, links, heap, .. } = self;
        let entry = |pos: u32, left: Symbol, right: Symbol| {
            merges.pair(left, right, word).map(|(key, id)| Reverse(Entry { key, pos, end: right.end, id }))
        };
        let n = symbols.len() as u32;
        links.clear();
        links.extend((0..n).map(|i| (i.wrapping_sub(1), if i + 1 < n { i + 1 } else { NONE })));
        // From a vector it is built in linear time; taken from the old heap, its memory is used again.
        let mut entries = std::mem::take(heap).into_vec();
        entries.clear();
        entries.extend((0..n - 1).filter_map(|i| entry(i, symbols[i as usize], symbols[i as usize + 1])));
        *heap = BinaryHeap::from(entries);

        while let Some(Reverse(Entry { pos, end, id, .. })) = heap.pop() {
            let at = pos as usize;
            let (prev, next) = links[at];
            if symbols[at].start == GONE || next == NONE || symbols[next as usize].end != end {
                continue;
            }
            symbols[at].id = id;
            symbols[at].end = end;
            symbols[next as usize].start = GONE;
            let after = links[next as usize].1;
            links[at].1 = after;
            if after != NONE {
                links[after as usize].0 = pos;
                heap.extend(entry(pos, symbols[at], symbols[after as usize]));
            }
            if prev != NONE {
                heap.extend(entry(prev, symbols[prev as usize], symbols[at]));
            }
        }
        symbols.retain(|symbol| symbol.start != GONE);
    }
}

/// The ids of words seen before in the same text: words repeat, and a look-up is ten times faster than joining.
///
/// One place for a hash, the newest word in it; bounded in slots and in bytes, so no text makes it grow.
pub struct WordCache {
    slots: Box<[Slot]>,
    bytes: Vec<u8>,
    ids: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u64,
    bytes: u32,
    ids: u32,
    byte_len: u16,
    id_len: u16,
}

impl WordCache {
    const SLOTS: usize = 1 << 13;
    const MAX_BYTES: usize = 1 << 19;
    /// The longest word that is kept.
    const MAX_WORD: usize = 96;
    /// The shortest text for which the cache's own memory pays.
    pub const WORTH_IT: usize = 1 << 12;

    pub fn new() -> Self {
        Self {
            slots: vec![Slot::default(); Self::SLOTS].into_boxed_slice(),
            bytes: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Appends the word's ids, from the cache or from `join`, which appends them itself.
    #[inline]
    pub fn get_or(&mut self, word: &[u8], out: &mut Vec<u32>, join: impl FnOnce(&mut Vec<u32>)) {
        if word.len() > Self::MAX_WORD {
            return join(out);
        }
        let hash = hash(word);
        // The hash's lower bits choose the token map's slots; the upper ones are better mixed anyway.
        let index = (hash >> 40) as usize & (Self::SLOTS - 1);
        let slot = self.slots[index];
        if slot.hash == hash
            && slot.byte_len as usize == word.len()
            && &self.bytes[slot.bytes as usize..][..word.len()] == word
        {
            out.extend_from_slice(&self.ids[slot.ids as usize..][..slot.id_len as usize]);
            return;
        }
        let before = out.len();
        join(out);
        let ids = &out[before..];
        if self.bytes.len() + word.len() > Self::MAX_BYTES {
            self.slots.fill(Slot::default());
            self.bytes.clear();
            self.ids.clear();
        }
        // At most MAX_WORD ids: every token has a byte at least.
        self.slots[index] = Slot {
            hash,
            bytes: self.bytes.len() as u32,
            ids: self.ids.len() as u32,
            byte_len: word.len() as u16,
            id_len: ids.len() as u16,
        };
        self.bytes.extend_from_slice(word);
        self.ids.extend_from_slice(ids);
    }
}
