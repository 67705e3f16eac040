//! Vectors of prompts that were read before: a repeated prompt costs a look-up.

use lru::LruCache;
use std::sync::Mutex;

/// What the cache may hold where nothing else is asked for: some hundreds of prompts at 0.6B.
pub const DEFAULT_BYTES: usize = 4 << 20;

/// What a prompt's vector depends on beside the router: the text that is read, and how its special tokens are taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub plain_text: bool,
    pub text: Box<str>,
}

/// A vector and what was read for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub vector: Vec<f32>,
    pub tokens: usize,
    pub truncated: bool,
}

/// The prompts used last, bounded in bytes. Shared between threads.
pub(crate) struct VectorCache {
    limit: usize,
    held: Mutex<Held>,
}

struct Held {
    entries: LruCache<Key, Entry>,
    bytes: usize,
}

impl VectorCache {
    /// A cache of at most `limit` bytes; 0 holds nothing.
    pub fn new(limit: usize) -> Self {
        Self { limit, held: Mutex::new(Held { entries: LruCache::unbounded(), bytes: 0 }) }
    }

    /// The entry of a prompt, which thereby was used last.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        self.lock().entries.get(key).cloned()
    }

    /// Keeps an entry, and forgets those that were used longest ago until the bound holds.
    pub fn put(&self, key: Key, entry: Entry) {
        let size = size(&key, &entry);
        if size > self.limit {
            return;
        }
        let mut held = self.lock();
        if let Some((key, old)) = held.entries.push(key, entry) {
            held.bytes -= self::size(&key, &old);
        }
        held.bytes += size;
        while held.bytes > self.limit {
            let Some((key, old)) = held.entries.pop_lru() else { break };
            held.bytes -= self::size(&key, &old);
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let mut held = self.lock();
        held.entries.clear();
        held.bytes = 0;
    }

    /// Prompts and bytes that it holds.
    pub fn len(&self) -> (usize, usize) {
        let held = self.lock();
        (held.entries.len(), held.bytes)
    }

    /// The entries, whatever befell another thread: each change leaves them whole.
    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Bytes that an entry takes: its vector, its text, and the table's own part.
fn size(key: &Key, entry: &Entry) -> usize {
    4 * entry.vector.capacity() + key.text.len() + 160
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key { plain_text: false, text: text.into() }
    }

    fn entry(tokens: usize) -> Entry {
        Entry { vector: vec![1.0; 10], tokens, truncated: false }
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_the_bound_holds() {
        let one = size(&key("a"), &entry(1));
        let cache = VectorCache::new(3 * one);
        for (i, text) in ["a", "b", "c"].into_iter().enumerate() {
            cache.put(key(text), entry(i));
        }
        assert_eq!(cache.get(&key("a")), Some(entry(0)));
        cache.put(key("d"), entry(3));
        assert_eq!(cache.len(), (3, 3 * one));
        assert_eq!(cache.get(&key("b")), None);
        assert_eq!(cache.get(&key("a")), Some(entry(0)));
        // The same prompt again takes no more room.
        cache.put(key("a"), entry(9));
        assert_eq!(cache.len(), (3, 3 * one));
        assert_eq!(cache.get(&key("a")), Some(entry(9)));
        cache.clear();
        assert_eq!(cache.len(), (0, 0));
    }

    #[test]
    fn what_is_larger_than_the_bound_is_not_kept() {
        let cache = VectorCache::new(100);
        cache.put(key("a"), entry(1));
        assert_eq!(cache.len(), (0, 0));
    }

    /// Eight threads that put, look up and clear: what is found is what was put, and the bytes are those of the entries.
    #[test]
    fn threads_share_a_cache() {
        let rounds = if cfg!(miri) { 20 } else { 2000 };
        let cache = VectorCache::new(8000);
        std::thread::scope(|scope| {
            for thread in 0..8_usize {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let i = (thread * 31 + round * 17) % 40;
                        let key = key(&format!("prompt {i}"));
                        match round % 50 {
                            49 => cache.clear(),
                            n if n % 3 == 0 => cache.put(key, entry(i)),
                            _ => {
                                if let Some(found) = cache.get(&key) {
                                    assert_eq!(found, entry(i));
                                }
                            }
                        }
                        assert!(cache.len().1 <= 8000);
                    }
                });
            }
        });
        let held = cache.lock();
        assert_eq!(held.bytes, held.entries.iter().map(|(key, entry)| size(key, entry)).sum::<usize>());
    }
}
