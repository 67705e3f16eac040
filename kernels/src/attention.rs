//! Causal attention with grouped queries over a cache of keys and values, in f32.
//!
//! Scores, softmax and the weighted sum of values are computed for a tile of queries at a time: no T × T matrix exists.
//! The order of every sum is fixed by absolute positions (see [`attention`]), so that a token's result does not depend on
//! the chunk or tile in which it was computed.

use crate::gemm::Chains;
use crate::isa::{Isa, Task, dispatch};
use crate::math;
use crate::ops::lane_sum;
use crate::pool::{Pool, SharedMut};
use crate::simd::{LANES, Simd};
use std::cell::RefCell;

/// Keys in a block of the cache.
const KEYS: usize = 64;
/// Lanes of a chain.
const WIDTH: usize = 16;
/// Tokens of a tile; a tile has their queries of every head that shares a key.
const TOKENS: usize = 8;

/// The keys and values of one layer.
///
/// Blocks of 64 positions follow one another. In a block, each KV head's keys lie as four panels `[head_dim][16]`, its
/// values as `[64][head_dim]`: both are the weights of float chains as they stand.
#[derive(Clone, Debug)]
pub struct KvCache {
    kv_heads: usize,
    head_dim: usize,
    len: usize,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl KvCache {
    /// An empty cache.
    ///
    /// # Panics
    /// Where `head_dim` is not a multiple of 16.
    pub fn new(kv_heads: usize, head_dim: usize) -> Self {
        assert!(
            head_dim > 0 && head_dim.is_multiple_of(WIDTH),
            "a head of {head_dim} values is not whole lanes"
        );
        Self { kv_heads, head_dim, len: 0, keys: Vec::new(), values: Vec::new() }
    }

    /// Positions that it holds.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that it keeps.
    pub fn memory(&self) -> usize {
        4 * (self.keys.capacity() + self.values.capacity())
    }

    /// Bytes that a cache of `len` positions takes: whole blocks of 64.
    pub const fn bytes(kv_heads: usize, head_dim: usize, len: usize) -> usize {
        let blocks = len.div_ceil(KEYS);
        blocks.saturating_mul(2 * 4 * KEYS * kv_heads * head_dim)
    }

    /// A cache of the first `len` positions, with no more memory than they take.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        let len = len.min(self.len);
        let whole = len.div_ceil(KEYS) * self.kv_heads * KEYS * self.head_dim;
        let mut prefix = Self {
            keys: self.keys[..whole].to_vec(),
            values: self.values[..whole].to_vec(),
            ..Self::new(self.kv_heads, self.head_dim)
        };
        prefix.len = len.next_multiple_of(KEYS).min(self.len);
        prefix.truncate(len);
        prefix
    }

    /// Forgets the positions from `len` on; the memory is kept.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        self.len = len;
        // Values behind the last position are multiplied by zero: an infinity left there would spread.
        if !len.is_multiple_of(KEYS) {
            let d = self.head_dim;
            for head in 0..self.kv_heads {
                let start = (len / KEYS * self.kv_heads + head) * KEYS * d;
                self.values[start + len % KEYS * d..start + KEYS * d].fill(0.0);
            }
        }
    }

    /// Appends rows of keys and values, `[token][kv_heads · head_dim]` each.
    ///
    /// # Panics
    /// Where they are not the same whole rows.
    pub fn append(&mut self, keys: &[f32], values: &[f32]) {
        let (d, row) = (self.head_dim, self.kv_heads * self.head_dim);
        assert!(
            keys.len() == values.len() && keys.len().is_multiple_of(row),
            "keys and values are not the same rows"
        );
        let tokens = keys.len() / row;
        let blocks = (self.len + tokens).div_ceil(KEYS);
        if self.keys.len() < blocks * KEYS * row {
            self.keys.resize(blocks * KEYS * row, 0.0);
            self.values.resize(blocks * KEYS * row, 0.0);
        }
        for token in 0..tokens {
            let (block, at) = ((self.len + token) / KEYS, (self.len + token) % KEYS);
            if at == 0 {
                self.values[block * KEYS * row..][..KEYS * row].fill(0.0);
            }
            for head in 0..self.kv_heads {
                let from = token * row + head * d;
                let to = (block * self.kv_heads + head) * KEYS * d;
                let panel = &mut self.keys[to + at / WIDTH * WIDTH * d..][..WIDTH * d];
                for (panel, key) in panel.chunks_exact_mut(WIDTH).zip(&keys[from..from + d]) {
                    panel[at % WIDTH] = *key;
                }
                self.values[to + at * d..][..d].copy_from_slice(&values[from..from + d]);
            }
        }
        self.len += tokens;
    }

    fn block(&self, block: usize, head: usize) -> (&[f32], &[f32]) {
        let size = KEYS * self.head_dim;
        let start = (block * self.kv_heads + head) * size;
        (&self.keys[start..start + size], &self.values[start..start + size])
    }
}

/// Attention of the queries of the last `tokens` positions of `cache`.
///
/// `q` and `out` are `[tokens][heads · head_dim]`; queries come rotated and scaled. Query head `h` reads KV head
/// `h / (heads / kv_heads)`. A token at position `p` sees positions `max(0, p + 1 − window)..=p`.
///
/// For each head: `s[k] = Σ d: q[d] · key[k][d]` in order of `d`; `m` the largest `s`; `e[k] = exp(s[k] − m)`, zero where
/// it is not seen; `sum` of `e` in eight virtual lanes by absolute position; `out[d] = (Σ k: e[k] · value[k][d]) · (1 / sum)`
/// in order of `k`.
///
/// # Panics
/// Where the shapes do not agree.
pub fn attention(
    isa: Isa,
    pool: &Pool,
    q: &[f32],
    heads: usize,
    cache: &KvCache,
    window: Option<usize>,
    out: &mut [f32],
) {
    let d = cache.head_dim;
    let row = heads * d;
    assert!(
        heads.is_multiple_of(cache.kv_heads),
        "{heads} query heads do not share {} KV heads",
        cache.kv_heads
    );
    assert!(q.len() == out.len() && q.len().is_multiple_of(row), "queries and outputs disagree");
    let tokens = q.len() / row;
    assert!(tokens <= cache.len, "more queries than positions");
    let tiles = tokens.div_ceil(TOKENS);
    let shared = SharedMut::new(out);
    // Late tiles see the most keys: they go first, so that the threads end together.
    pool.run(tiles * cache.kv_heads, &|i| {
        let (tile, kv_head) = (tiles - 1 - i / cache.kv_heads, i % cache.kv_heads);
        let first = tile * TOKENS;
        let tile = Tile {
            q,
            heads,
            kv_head,
            first,
            tokens: TOKENS.min(tokens - first),
            position: cache.len - tokens + first,
            cache,
            window: window.unwrap_or(usize::MAX),
            out: &shared,
        };
        BUFFERS.with_borrow_mut(|buffers| tile.run(isa, buffers));
    });
}

#[derive(Default)]
struct Buffers {
    q: Vec<f32>,
    scores: Vec<f32>,
    out: Vec<f32>,
    sums: Vec<f32>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

struct Tile<'a> {
    q: &'a [f32],
    heads: usize,
    kv_head: usize,
    first: usize,
    tokens: usize,
    /// Of the first token.
    position: usize,
    cache: &'a KvCache,
    window: usize,
    out: &'a SharedMut<'a, f32>,
}

impl Tile<'_> {
    fn run(&self, isa: Isa, buffers: &mut Buffers) {
        let d = self.cache.head_dim;
        let group = self.heads / self.cache.kv_heads;
        let rows = self.tokens * group;
        let first_block = self.seen(0).start / KEYS;
        let blocks = first_block..(self.position + self.tokens).div_ceil(KEYS);
        let keys = blocks.len() * KEYS;

        buffers.q.clear();
        for token in self.first..self.first + self.tokens {
            let start = (token * self.heads + self.kv_head * group) * d;
            buffers.q.extend_from_slice(&self.q[start..start + group * d]);
        }
        buffers.scores.resize(rows * keys, 0.0);
        buffers.out.resize(rows * d, 0.0);
        buffers.sums.resize(rows, 0.0);

        for (i, block) in blocks.clone().enumerate() {
            let (panels, _) = self.cache.block(block, self.kv_head);
            for (j, panel) in panels.chunks_exact(WIDTH * d).enumerate() {
                dispatch(
                    isa,
                    Chains {
                        w: panel.as_ptr(),
                        w_stride: WIDTH,
                        x: buffers.q.as_ptr(),
                        x_stride: d,
                        tokens: rows,
                        len: d,
                        out: buffers.scores[i * KEYS + j * WIDTH..].as_mut_ptr(),
                        out_stride: keys,
                        lanes: WIDTH,
                        resume: false,
                    },
                );
            }
        }
        for (r, (scores, sum)) in buffers.scores.chunks_exact_mut(keys).zip(&mut buffers.sums).enumerate() {
            let seen = self.seen(r / group);
            let seen = seen.start - first_block * KEYS..seen.end - first_block * KEYS;
            *sum = dispatch(isa, Softmax { scores, seen });
        }
        for (i, block) in blocks.enumerate() {
            let (_, values) = self.cache.block(block, self.kv_head);
            for lane in (0..d).step_by(WIDTH) {
                dispatch(
                    isa,
                    Chains {
                        w: values[lane..].as_ptr(),
                        w_stride: d,
                        x: buffers.scores[i * KEYS..].as_ptr(),
                        x_stride: keys,
                        tokens: rows,
                        len: KEYS,
                        out: buffers.out[lane..].as_mut_ptr(),
                        out_stride: d,
                        lanes: WIDTH,
                        resume: i > 0,
                    },
                );
            }
        }
        for (r, (x, sum)) in buffers.out.chunks_exact(d).zip(&buffers.sums).enumerate() {
            let (token, head) = (self.first + r / group, self.kv_head * group + r % group);
            let start = (token * self.heads + head) * d;
            // SAFETY: a token's head belongs to one tile.
            #[allow(unsafe_code)]
            let out = unsafe { self.out.slice(start..start + d) };
            let inverse = 1.0 / sum;
            for (out, x) in out.iter_mut().zip(x) {
                *out = x * inverse;
            }
        }
    }

    /// The positions that the tile's token `t` sees.
    fn seen(&self, t: usize) -> core::ops::Range<usize> {
        let end = self.position + t + 1;
        end.saturating_sub(self.window)..end
    }
}

/// Turns scores into `exp(s − m)`, zero outside `seen`, and gives their sum.
struct Softmax<'a> {
    scores: &'a mut [f32],
    seen: core::ops::Range<usize>,
}

impl Task for Softmax<'_> {
    type Output = f32;

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) -> f32 {
        let Self { scores, seen } = self;
        scores[..seen.start].fill(f32::NEG_INFINITY);
        scores[seen.end..].fill(f32::NEG_INFINITY);
        // SAFETY: the caller gives the instruction set; scores are whole blocks, and so whole vectors.
        unsafe {
            let mut lanes = [0.0f32; LANES];
            let mut max = S::f_splat(f32::NEG_INFINITY);
            for s in scores.chunks_exact(LANES) {
                max = S::f_max(max, S::f_load(s.as_ptr()));
            }
            S::f_store(lanes.as_mut_ptr(), max);
            let max = S::f_splat(lanes.into_iter().fold(f32::NEG_INFINITY, f32::max));
            for s in scores.chunks_exact_mut(LANES) {
                let e = math::exp::<S>(S::f_sub(S::f_load(s.as_ptr()), max));
                S::f_store(s.as_mut_ptr(), e);
            }
            scores[..seen.start].fill(0.0);
            scores[seen.end..].fill(0.0);
            lane_sum::<S>(scores, |e| e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    const D: usize = 32;

    /// The formula in f64.
    fn exact(q: &[f32], k: &[f32], v: &[f32], heads: usize, kv_heads: usize, window: usize) -> Vec<f64> {
        let tokens = k.len() / (kv_heads * D);
        let mut out = vec![0.0; tokens * heads * D];
        for t in 0..tokens {
            for h in 0..heads {
                let kv = h / (heads / kv_heads);
                let at = |x: &[f32], t: usize, d: usize| f64::from(x[(t * kv_heads + kv) * D + d]);
                let seen = (t + 1).saturating_sub(window)..t + 1;
                let query = &q[(t * heads + h) * D..][..D];
                let score = |key: usize| (0..D).map(|d| f64::from(query[d]) * at(k, key, d)).sum::<f64>();
                let max = seen.clone().map(score).fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = seen.clone().map(|key| (score(key) - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for d in 0..D {
                    out[(t * heads + h) * D + d] =
                        seen.clone().zip(&weights).map(|(key, w)| w * at(v, key, d)).sum::<f64>() / sum;
                }
            }
        }
        out
    }

    #[test]
    fn attention_is_the_formula_and_chunks_do_not_matter() {
        let mut random = Random::new(11);
        for (tokens, heads, kv_heads, window) in [
            (1, 2, 1, None),
            (70, 4, 2, None),
            (150, 3, 3, Some(40)),
            (130, 4, 1, Some(64)),
            (65, 2, 2, Some(1)),
        ] {
            let q: Vec<f32> = (0..tokens * heads * D).map(|_| random.unit()).collect();
            let k: Vec<f32> = (0..tokens * kv_heads * D).map(|_| random.unit()).collect();
            let v: Vec<f32> = (0..tokens * kv_heads * D).map(|_| random.unit()).collect();
            let exact = exact(&q, &k, &v, heads, kv_heads, window.unwrap_or(usize::MAX));
            let mut first: Option<Vec<f32>> = None;
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                for (chunk, threads) in [(tokens, 1), (1, 1), (7, 2), (64, 3)] {
                    let pool = Pool::new(threads);
                    let mut cache = KvCache::new(kv_heads, D);
                    let mut out = vec![0.0; q.len()];
                    for start in (0..tokens).step_by(chunk) {
                        let end = tokens.min(start + chunk);
                        let kv = start * kv_heads * D..end * kv_heads * D;
                        cache.append(&k[kv.clone()], &v[kv]);
                        let rows = start * heads * D..end * heads * D;
                        attention(isa, &pool, &q[rows.clone()], heads, &cache, window, &mut out[rows]);
                    }
                    assert_eq!(cache.len(), tokens);
                    let first = first.get_or_insert_with(|| out.clone());
                    assert!(*first == out, "{isa}, chunks of {chunk}, {threads} threads");
                }
            }
            for (a, b) in first.unwrap().iter().zip(&exact) {
                assert!((f64::from(*a) - b).abs() < 2e-6, "{a} is not {b}");
            }
        }
    }

    #[test]
    fn a_truncated_cache_goes_on_as_if_the_rest_had_never_been() {
        let mut random = Random::new(12);
        let mut rows = |n: usize| (0..n * D).map(|_| random.unit()).collect::<Vec<f32>>();
        let (k, v, q) = (rows(100), rows(100), rows(1));
        let answer = |extra: bool, copied: bool| {
            let mut cache = KvCache::new(1, D);
            cache.append(&k[..40 * D], &v[..40 * D]);
            if extra {
                cache.append(&k[50 * D..], &vec![f32::NAN; 50 * D]);
                cache = if copied { cache.prefix(40) } else { cache };
                cache.truncate(40);
            }
            cache.append(&k[40 * D..41 * D], &v[40 * D..41 * D]);
            let mut out = vec![0.0; D];
            attention(Isa::best(), &Pool::single(), &q, 1, &cache, None, &mut out);
            out
        };
        assert_eq!(answer(true, false), answer(false, false));
        assert_eq!(answer(true, true), answer(false, false));
    }
}
