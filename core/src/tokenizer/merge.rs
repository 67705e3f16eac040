//! The joining of symbols to tokens, for both models: again and again the pair with the lowest key, of equals the
//! leftmost, as Hugging Face `tokenizers` does (`Word::merge_all`).

use super::vocab::{hash, mix};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

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
    /// The key of a pair of neighbours, the lowest first, and the token that they become. Pairs with the same key become the
    /// same token. [`NEVER`] is no key.
    fn pair(&self, left: Symbol, right: Symbol, word: &[u8]) -> Option<(u64, u32)>;
}

/// The key of a pair that becomes nothing.
const NEVER: u64 = u64::MAX;

/// Up to this many symbols a scan over all keys beats the queue, whose tables cost more than they save.
const SHORT: usize = 64;

/// The memory that joining needs, kept from word to word.
#[derive(Default)]
pub struct Scratch {
    /// The word's symbols: the caller's input, then the result.
    pub symbols: Vec<Symbol>,
    keys: Vec<(u64, u32)>,
    /// The symbols before and after each.
    links: Vec<(u32, u32)>,
    queue: Queue,
}

/// The pairs of a long word by key, then by place.
///
/// One heap of all pairs was tried: 1.3 MB/s on a word of a million letters, most of it cache misses. A word has far
/// fewer keys than pairs, so here the heap holds keys, and each key a list of places that is sorted once.
#[derive(Default)]
struct Queue {
    keys: BinaryHeap<Reverse<(u64, u32)>>,
    buckets: Vec<Bucket>,
    of_key: HashMap<u64, u32, BuildHasherDefault<KeyHasher>>,
    free: Vec<u32>,
}

/// The pairs of one key, each as `place << 32 | end`.
///
/// A pair is out of date where the two symbols at its place no longer end at its end: symbols only grow, so the same
/// stretch in two parts is the same two parts.
#[derive(Default)]
struct Bucket {
    id: u32,
    pairs: Vec<u64>,
    /// How many of `pairs` are done; they are sorted if it is not `None`.
    done: Option<usize>,
    /// Pairs that came after the sorting.
    late: BinaryHeap<Reverse<u64>>,
}

impl Queue {
    fn push(&mut self, key: u64, id: u32, place: u32, end: u32) {
        let pair = u64::from(place) << 32 | u64::from(end);
        let Self { keys, buckets, of_key, free } = self;
        let index = *of_key.entry(key).or_insert_with(|| {
            let index = free.pop().unwrap_or_else(|| {
                buckets.push(Bucket::default());
                buckets.len() as u32 - 1
            });
            buckets[index as usize].id = id;
            keys.push(Reverse((key, index)));
            index
        });
        let bucket = &mut buckets[index as usize];
        match bucket.done {
            None => bucket.pairs.push(pair),
            Some(_) => bucket.late.push(Reverse(pair)),
        }
    }

    /// The first pair: its place, its end and what it becomes.
    fn pop(&mut self) -> Option<(u32, u32, u32)> {
        loop {
            let &Reverse((key, index)) = self.keys.peek()?;
            let bucket = &mut self.buckets[index as usize];
            if bucket.done.is_none() {
                bucket.pairs.sort_unstable();
            }
            let done = bucket.done.get_or_insert(0);
            let listed = bucket.pairs.get(*done).copied();
            let late = bucket.late.peek().map(|&Reverse(pair)| pair);
            let pair = match (listed, late) {
                (Some(pair), None) => pair,
                (Some(pair), Some(late)) => pair.min(late),
                (None, Some(late)) => late,
                (None, None) => {
                    bucket.pairs.clear();
                    bucket.done = None;
                    self.keys.pop();
                    self.of_key.remove(&key);
                    self.free.push(index);
                    continue;
                }
            };
            if listed == Some(pair) {
                *done += 1;
            } else {
                bucket.late.pop();
            }
            return Some(((pair >> 32) as u32, pair as u32, bucket.id));
        }
    }
}

/// Keys are ranks: mixing them is enough.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes);
    }

    fn write_u64(&mut self, key: u64) {
        let h = mix(key);
        self.0 = h ^ h >> 32;
    }
}

impl Scratch {
    /// Joins `symbols` until no pair is left that becomes anything.
    pub fn merge(&mut self, merges: &impl Merges, word: &[u8]) {
        if self.symbols.len() <= SHORT {
            self.merge_short(merges, word);
        } else {
            self.merge_long(merges, word);
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

    /// A queue of pairs over a linked list of symbols: O(n log n), so that no word is too long.
    fn merge_long(&mut self, merges: &impl Merges, word: &[u8]) {
        const NONE: u32 = u32::MAX;
        const GONE: u32 = u32::MAX;
        let Self { symbols, links, queue, .. } = self;
        let n = symbols.len() as u32;
        links.clear();
        links.extend((0..n).map(|i| (i.wrapping_sub(1), if i + 1 < n { i + 1 } else { NONE })));
        let push = |queue: &mut Queue, place: u32, left: Symbol, right: Symbol| {
            if let Some((key, id)) = merges.pair(left, right, word) {
                queue.push(key, id, place, right.end);
            }
        };
        for (place, pair) in (0..).zip(symbols.windows(2)) {
            push(queue, place, pair[0], pair[1]);
        }
        while let Some((place, end, id)) = queue.pop() {
            let at = place as usize;
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
                links[after as usize].0 = place;
                push(queue, place, symbols[at], symbols[after as usize]);
            }
            if prev != NONE {
                push(queue, prev, symbols[prev as usize], symbols[at]);
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
