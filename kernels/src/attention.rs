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
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::cell::RefCell;

/// Keys in a block of the cache.
const KEYS: usize = 64;
/// Lanes of a chain.
const WIDTH: usize = 16;
/// Tokens of a tile; a tile has their queries of every head that shares a key.
const TOKENS: usize = 8;

/// How a cache keeps its numbers. Attention computes in f32 whatever it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// As they were computed: what the pooled vector's contract asks for.
    #[default]
    F32,
    /// Rounded to f16, ties to even: half the memory.
    F16,
    /// Signed bytes with one f32 scale for each head and token, `max |x| / 127`: a little over a quarter.
    Int8,
}

impl KvType {
    /// Every type.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Int8];

    /// Its name in options and outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Bytes of a head of one token, keys or values.
    const fn head_bytes(self, head_dim: usize) -> usize {
        match self {
            Self::F32 => 4 * head_dim,
            Self::F16 => 2 * head_dim,
            Self::Int8 => head_dim + 4,
        }
    }
}

/// Keys or values, in the order that [`KvCache`] states.
#[derive(Clone, Debug)]
enum Numbers {
    F32(Vec<f32>),
    F16(Vec<f16>),
    /// Scales are `[block][head][64]`.
    Int8(Vec<i8>, Vec<f32>),
}

impl Numbers {
    const fn new(kind: KvType) -> Self {
        match kind {
            KvType::F32 => Self::F32(Vec::new()),
            KvType::F16 => Self::F16(Vec::new()),
            KvType::Int8 => Self::Int8(Vec::new(), Vec::new()),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::F32(x) => 4 * x.capacity(),
            Self::F16(x) => 2 * x.capacity(),
            Self::Int8(x, scales) => x.capacity() + 4 * scales.capacity(),
        }
    }

    /// Room for `heads` blocks of heads of `size` numbers each; what is there stays.
    fn grow(&mut self, heads: usize, size: usize) {
        fn grow<T: Copy + Default>(x: &mut Vec<T>, len: usize) {
            if x.len() < len {
                x.resize(len, T::default());
            }
        }
        match self {
            Self::F32(x) => grow(x, heads * size),
            Self::F16(x) => grow(x, heads * size),
            Self::Int8(x, scales) => {
                grow(x, heads * size);
                grow(scales, heads * KEYS);
            }
        }
    }

    /// The first `heads` blocks of heads, with no more memory than they take.
    fn first(&self, heads: usize, size: usize) -> Self {
        match self {
            Self::F32(x) => Self::F32(x[..heads * size].to_vec()),
            Self::F16(x) => Self::F16(x[..heads * size].to_vec()),
            Self::Int8(x, scales) => Self::Int8(x[..heads * size].to_vec(), scales[..heads * KEYS].to_vec()),
        }
    }

    fn zero(&mut self, range: core::ops::Range<usize>) {
        match self {
            Self::F32(x) => x[range].fill(0.0),
            Self::F16(x) => x[range].fill(f16::ZERO),
            // A scale may be NaN where the values were; the bytes beside it are read as zeros by their scale.
            Self::Int8(x, _) => x[range].fill(0),
        }
    }

    /// Writes one token's head; number `i` goes to `index(i)`, its scale to `scale`.
    fn write(&mut self, from: &[f32], scale: usize, index: impl Fn(usize) -> usize) {
        match self {
            Self::F32(x) => {
                for (i, value) in from.iter().enumerate() {
                    x[index(i)] = *value;
                }
            }
            Self::F16(x) => {
                for (i, value) in from.iter().enumerate() {
                    x[index(i)] = f16::from_f32(*value);
                }
            }
            Self::Int8(x, scales) => {
                let most = from
                    .iter()
                    .fold(0.0f32, |most, value| if value.abs() > most { value.abs() } else { most });
                // A NaN would vanish in a byte: it is kept in the scale, and so is found in the hidden state.
                let bad = from.iter().any(|value| !value.is_finite());
                scales[scale] = if bad { f32::NAN } else { most / 127.0 };
                let inverse = if most > 0.0 && !bad { 127.0 / most } else { 0.0 };
                for (i, value) in from.iter().enumerate() {
                    x[index(i)] = (value * inverse).round_ties_even() as i8;
                }
            }
        }
    }
}

/// The keys and values of one layer.
///
/// Blocks of 64 positions follow one another. In a block, each KV head's keys lie as four panels `[head_dim][16]`, its
/// values as `[64][head_dim]`: both are the weights of float chains as they stand.
#[derive(Clone, Debug)]
pub struct KvCache {
    kind: KvType,
    kv_heads: usize,
    head_dim: usize,
    len: usize,
    keys: Numbers,
    values: Numbers,
}

impl KvCache {
    /// An empty cache in f32.
    ///
    /// # Panics
    /// Where `head_dim` is not a multiple of 16.
    pub fn new(kv_heads: usize, head_dim: usize) -> Self {
        Self::of_type(KvType::F32, kv_heads, head_dim)
    }

    /// An empty cache.
    ///
    /// # Panics
    /// Where `head_dim` is not a multiple of 16.
    pub fn of_type(kind: KvType, kv_heads: usize, head_dim: usize) -> Self {
        assert!(
            head_dim > 0 && head_dim.is_multiple_of(WIDTH),
            "a head of {head_dim} values is not whole lanes"
        );
        Self { kind, kv_heads, head_dim, len: 0, keys: Numbers::new(kind), values: Numbers::new(kind) }
    }

    /// How its numbers are kept.
    pub const fn kind(&self) -> KvType {
        self.kind
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
        self.keys.memory() + self.values.memory()
    }

    /// Bytes that a cache of `len` positions takes: whole blocks of 64.
    pub const fn bytes(kind: KvType, kv_heads: usize, head_dim: usize, len: usize) -> usize {
        let blocks = len.div_ceil(KEYS);
        blocks.saturating_mul(2 * KEYS * kv_heads * kind.head_bytes(head_dim))
    }

    /// A cache of the first `len` positions, with no more memory than they take.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        let len = len.min(self.len);
        let (heads, size) = (len.div_ceil(KEYS) * self.kv_heads, KEYS * self.head_dim);
        let mut prefix = Self {
            keys: self.keys.first(heads, size),
            values: self.values.first(heads, size),
            ..Self::of_type(self.kind, self.kv_heads, self.head_dim)
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
                self.values.zero(start + len % KEYS * d..start + KEYS * d);
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
        self.keys.grow(blocks * self.kv_heads, KEYS * d);
        self.values.grow(blocks * self.kv_heads, KEYS * d);
        for token in 0..tokens {
            let (block, at) = ((self.len + token) / KEYS, (self.len + token) % KEYS);
            if at == 0 {
                self.values.zero(block * KEYS * row..(block + 1) * KEYS * row);
            }
            for head in 0..self.kv_heads {
                let from = token * row + head * d..token * row + (head + 1) * d;
                let block = block * self.kv_heads + head;
                let (to, scale) = (block * KEYS * d, block * KEYS + at);
                let panel = to + at / WIDTH * WIDTH * d + at % WIDTH;
                self.keys.write(&keys[from.clone()], scale, |i| panel + WIDTH * i);
                self.values.write(&values[from], scale, |i| to + at * d + i);
            }
        }
        self.len += tokens;
    }

    /// A block's keys of one head, `[4][head_dim][16]`; `buffer` holds them where they are not f32.
    fn key_block<'a>(&'a self, block: usize, head: usize, buffer: &'a mut Vec<f32>) -> &'a [f32] {
        let (size, block) = (KEYS * self.head_dim, block * self.kv_heads + head);
        let range = block * size..(block + 1) * size;
        match &self.keys {
            Numbers::F32(x) => return &x[range],
            Numbers::F16(x) => widen(&x[range], buffer),
            Numbers::Int8(x, scales) => {
                buffer.resize(size, 0.0);
                let panels = x[range]
                    .chunks_exact(WIDTH * self.head_dim)
                    .zip(buffer.chunks_exact_mut(WIDTH * self.head_dim));
                for ((x, out), scales) in panels.zip(scales[block * KEYS..][..KEYS].chunks_exact(WIDTH)) {
                    for (x, out) in x.chunks_exact(WIDTH).zip(out.chunks_exact_mut(WIDTH)) {
                        for ((out, x), scale) in out.iter_mut().zip(x).zip(scales) {
                            *out = f32::from(*x) * scale;
                        }
                    }
                }
            }
        }
        buffer
    }

    /// A block's values of one head, `[64][head_dim]`; `buffer` holds them where they are not f32.
    fn value_block<'a>(&'a self, block: usize, head: usize, buffer: &'a mut Vec<f32>) -> &'a [f32] {
        let (size, first) = (KEYS * self.head_dim, block * KEYS);
        let block = block * self.kv_heads + head;
        let range = block * size..(block + 1) * size;
        match &self.values {
            Numbers::F32(x) => return &x[range],
            Numbers::F16(x) => widen(&x[range], buffer),
            Numbers::Int8(x, scales) => {
                buffer.resize(size, 0.0);
                let rows = x[range].chunks_exact(self.head_dim).zip(buffer.chunks_exact_mut(self.head_dim));
                for (at, ((x, out), scale)) in rows.zip(&scales[block * KEYS..][..KEYS]).enumerate() {
                    // Behind the last position a scale is whatever it was before.
                    let scale = if first + at < self.len { *scale } else { 0.0 };
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = f32::from(*x) * scale;
                    }
                }
            }
        }
        buffer
    }
}

fn widen(x: &[f16], buffer: &mut Vec<f32>) {
    buffer.resize(x.len(), 0.0);
    x.convert_to_f32_slice(buffer);
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
    /// A block's keys or values in f32, where the cache keeps them otherwise.
    block: Vec<f32>,
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
            let panels = self.cache.key_block(block, self.kv_head, &mut buffers.block);
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
            let values = self.cache.value_block(block, self.kv_head, &mut buffers.block);
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
        // What rounding of keys and values costs here: queries, keys and values are in -1..1.
        for (kind, tolerance) in [(KvType::F32, 2e-6), (KvType::F16, 2e-3), (KvType::Int8, 2e-2)] {
            formula(kind, tolerance);
        }
    }

    fn formula(kind: KvType, tolerance: f64) {
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
                    let mut cache = KvCache::of_type(kind, kv_heads, D);
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
                assert!(
                    (f64::from(*a) - b).abs() < tolerance,
                    "{a} is not {b} with keys and values in {}",
                    kind.name()
                );
            }
        }
    }

    #[test]
    fn a_truncated_cache_goes_on_as_if_the_rest_had_never_been() {
        let mut random = Random::new(12);
        let mut rows = |n: usize| (0..n * D).map(|_| random.unit()).collect::<Vec<f32>>();
        let (k, v, q) = (rows(100), rows(100), rows(1));
        let answer = |kind: KvType, extra: bool, copied: bool| {
            let mut cache = KvCache::of_type(kind, 1, D);
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
        for kind in KvType::ALL {
            assert_eq!(answer(kind, true, false), answer(kind, false, false));
            assert_eq!(answer(kind, true, true), answer(kind, false, false));
        }
    }

    #[test]
    fn what_a_cache_keeps_is_what_its_type_says() {
        for (kind, bytes) in [(KvType::F32, 4 * D), (KvType::F16, 2 * D), (KvType::Int8, D + 4)] {
            let mut cache = KvCache::of_type(kind, 2, D);
            cache.append(&[1.0; 65 * 2 * D], &[1.0; 65 * 2 * D]);
            assert_eq!(KvCache::bytes(kind, 2, D, 65), 2 * 128 * 2 * bytes);
            assert_eq!(cache.prefix(65).memory(), KvCache::bytes(kind, 2, D, 65));
            assert_eq!(KvType::from_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn a_value_that_is_not_finite_is_not_lost_in_a_byte() {
        for bad in [f32::NAN, f32::INFINITY] {
            for kind in KvType::ALL {
                let mut cache = KvCache::of_type(kind, 1, D);
                let mut values = vec![1.0; D];
                values[3] = bad;
                cache.append(&[1.0; D], &values);
                let mut out = vec![0.0; D];
                attention(Isa::best(), &Pool::single(), &[1.0; D], 1, &cache, None, &mut out);
                assert!(out.iter().any(|x| !x.is_finite()), "{bad} in {}", kind.name());
            }
        }
    }
}
