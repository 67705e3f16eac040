//! The forward pass: chunks of one or several prompts through the layers.

use super::weights::Layer;
use super::{Backbone, BackboneError};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use zen_edge_kernels::attention::{KvCache, KvType, attention};
use zen_edge_kernels::format::dequantize;
use zen_edge_kernels::gemm::{Activations, Input, Matrix, Product, matmul};
use zen_edge_kernels::ops::{self, RopeTable};

/// What may end a forward pass early. It is asked between two layers of a chunk.
pub trait Interrupt: Sync {
    /// Whether to stop now.
    fn stops(&self) -> bool;
}

/// Stops a forward pass from another thread.
#[derive(Debug, Default)]
pub struct Cancel(AtomicBool);

impl Interrupt for Cancel {
    fn stops(&self) -> bool {
        self.is_cancelled()
    }
}

impl Cancel {
    /// Not cancelled.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Cancels; for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a prompt's tokens leave behind for those that follow: the keys and values of every layer.
///
/// A prompt that begins as an earlier one goes on from its context and gets the very same bits.
#[derive(Clone, Debug)]
pub struct Context {
    tokens: Vec<u32>,
    layers: Vec<KvCache>,
}

impl Context {
    /// The tokens whose keys and values it holds.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets the tokens from `len` on; the memory is kept.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        for layer in &mut self.layers {
            layer.truncate(len);
        }
    }

    /// How many of `ids` it has from their start on.
    pub fn shared(&self, ids: &[u32]) -> usize {
        self.tokens.iter().zip(ids).take_while(|(a, b)| a == b).count()
    }

    /// A context of the first `len` tokens, with no more memory than they take.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        let layers = self.layers.iter().map(|layer| layer.prefix(len)).collect();
        Self { tokens: self.tokens[..len.min(self.tokens.len())].to_vec(), layers }
    }

    /// Bytes of memory that it keeps.
    pub fn memory(&self) -> usize {
        4 * self.tokens.capacity() + self.layers.iter().map(KvCache::memory).sum::<usize>()
    }
}

/// Where a segment's keys and values go.
enum Caches<'a> {
    /// Every layer's are kept.
    Kept(&'a mut Context),
    /// As before, and the pass has the context for itself.
    Owned(Context),
    /// One layer's at a time: all that a prompt needs that nothing follows. At 0.6B that is 8 KB a token, not 229.
    Passing(KvCache),
    /// A layer's at a time too, after those of the context that all branches go on from.
    Branch,
}

/// A prompt, or what is left of it, on its way through the layers together with others.
struct Segment<'a> {
    caches: Caches<'a>,
    ids: Cow<'a, [u32]>,
    /// Position of the first of `ids`.
    start: usize,
}

impl Caches<'_> {
    /// The cache of a layer; a branch has the trunk's.
    fn layer<'a>(&'a mut self, trunk: Option<&'a mut Context>, layer: usize) -> &'a mut KvCache {
        match self {
            Self::Kept(context) => &mut context.layers[layer],
            Self::Owned(context) => &mut context.layers[layer],
            Self::Passing(cache) => cache,
            Self::Branch => &mut trunk.expect("branches have a trunk").layers[layer],
        }
    }
}

/// Memory of a forward pass, reused from layer to layer. Only `x` is as long as the prompt.
#[derive(Default)]
struct Scratch {
    /// The residual stream, `[token][hidden]`.
    x: Vec<f32>,
    h: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    quantized: Activations,
    full: RopeTable,
    sliding: RopeTable,
}

/// Whose hidden states a walk ends with.
enum Wanted {
    /// Those of these rows: each segment's last token.
    Rows(Vec<usize>),
    /// Every token's.
    All,
}

/// Where several segments are on their way through the layers.
struct Walk<'a> {
    segments: Vec<Segment<'a>>,
    /// The context that branches go on from.
    trunk: Option<&'a mut Context>,
    chunk: usize,
    scratch: Scratch,
    positions: Vec<usize>,
    wanted: Wanted,
    layer: usize,
    /// The first row of the chunk.
    start: usize,
    /// Whether the chunk's attention is done, and what follows it in the layer is not.
    attended: bool,
}

/// A prompt on its way through the layers, for a caller that must do other things in between: [`Backbone::begin`].
pub struct Pass {
    walk: Walk<'static>,
    /// The tokens that the context had before.
    shared: usize,
    finished: bool,
}

impl Pass {
    /// The context that it was begun with: with the prompt's tokens after its end, with those that it shared before.
    pub fn into_context(self) -> Option<Context> {
        let segment = self.walk.segments.into_iter().next()?;
        let Caches::Owned(mut context) = segment.caches else { return None };
        if self.finished {
            context.tokens.extend_from_slice(&segment.ids);
        } else {
            context.truncate(self.shared);
        }
        Some(context)
    }
}

impl Backbone {
    /// Begins a pass over `ids` that is made in steps. With a context, the tokens that it shares with their start are
    /// reused and the rest is appended to it.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub fn begin(&self, ids: &[u32], context: Option<Context>) -> Result<Pass, BackboneError> {
        self.check(ids)?;
        let (shared, caches) = match context {
            Some(mut context) => {
                let shared = context.shared(ids).min(ids.len() - 1);
                context.truncate(shared);
                (shared, Caches::Owned(context))
            }
            None => (0, Caches::Passing(self.cache())),
        };
        let segment = Segment { caches, ids: ids[shared..].to_vec().into(), start: shared };
        Ok(Pass { walk: self.walk(vec![segment], self.chunk)?, shared, finished: false })
    }

    /// Makes one step of a pass, at most half a layer of a chunk: the vector after the last one, else `None`. The bits are
    /// those of [`embed`](Self::embed).
    ///
    /// # Errors
    /// As [`embed`](Self::embed); a pass that has ended has no tokens left.
    pub fn step(&self, pass: &mut Pass) -> Result<Option<Vec<f32>>, BackboneError> {
        let Some(mut vectors) = self.advance(&mut pass.walk)? else { return Ok(None) };
        let vector = vectors.pop().ok_or(BackboneError::NoTokens)?;
        pass.finished = true;
        Ok(Some(vector))
    }

    /// A context that holds no tokens.
    pub fn context(&self) -> Context {
        self.context_of(KvType::F32)
    }

    /// A context that holds no tokens and keeps keys and values as `kind` says. Only [`KvType::F32`] keeps the contract
    /// that a reused prefix changes no bit of a vector.
    pub fn context_of(&self, kind: KvType) -> Context {
        let cache = || KvCache::of_type(kind, self.shape.kv_heads, self.shape.head_dim);
        Context { tokens: Vec::new(), layers: (0..self.shape.layers).map(|_| cache()).collect() }
    }

    /// Bytes that a context of `tokens` tokens takes.
    pub fn context_bytes(&self, kind: KvType, tokens: usize) -> usize {
        let cache = KvCache::bytes(kind, self.shape.kv_heads, self.shape.head_dim, tokens);
        cache.saturating_mul(self.shape.layers).saturating_add(4 * tokens)
    }

    fn cache(&self) -> KvCache {
        KvCache::new(self.shape.kv_heads, self.shape.head_dim)
    }

    /// The hidden state of the last of `ids` after the final norm, not normalised: `hidden_size` values.
    ///
    /// # Errors
    /// No tokens, an id that is not in the vocabulary, a hidden state that is not finite, a file that cannot be read.
    pub fn embed(&self, ids: &[u32]) -> Result<Vec<f32>, BackboneError> {
        self.embed_chunked(ids, self.chunk)
    }

    /// [`embed`](Self::embed) that can be stopped.
    ///
    /// # Errors
    /// As [`embed`](Self::embed), and [`BackboneError::Cancelled`].
    pub fn embed_cancellable(
        &self,
        ids: &[u32],
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<f32>, BackboneError> {
        self.embed_alone(ids, self.chunk, Some(interrupt))
    }

    /// [`embed`](Self::embed) with `chunk` tokens at a time. The result does not depend on it.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub fn embed_chunked(&self, ids: &[u32], chunk: usize) -> Result<Vec<f32>, BackboneError> {
        self.embed_alone(ids, chunk, None)
    }

    fn embed_alone(
        &self,
        ids: &[u32],
        chunk: usize,
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<f32>, BackboneError> {
        self.check(ids)?;
        let segment = Segment { caches: Caches::Passing(self.cache()), ids: ids.into(), start: 0 };
        let mut vectors = self.forward(vec![segment], chunk, interrupt)?;
        vectors.pop().ok_or(BackboneError::NoTokens)
    }

    /// The hidden state of the last of `ids`, with the tokens that `context` shares with their start reused and the rest
    /// appended to it.
    ///
    /// # Errors
    /// As [`embed`](Self::embed), and [`BackboneError::Cancelled`]: the context then holds the shared tokens alone.
    pub fn embed_in(
        &self,
        context: &mut Context,
        ids: &[u32],
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<f32>, BackboneError> {
        self.check(ids)?;
        // The last token is computed anew even where all are known: its hidden state is not kept.
        let shared = context.shared(ids).min(ids.len() - 1);
        context.truncate(shared);
        let segment = Segment { caches: Caches::Kept(context), ids: ids[shared..].into(), start: shared };
        let result = self.forward(vec![segment], self.chunk, interrupt);
        match &result {
            Ok(_) => context.tokens.extend_from_slice(&ids[shared..]),
            // Some layers have the tokens, some do not: forget them in all.
            Err(_) => context.truncate(shared),
        }
        result?.pop().ok_or(BackboneError::NoTokens)
    }

    /// The hidden states of every token of several continuations of `trunk`, each as if it alone followed: per
    /// continuation `[token][hidden_size]`. The trunk is left as it was.
    ///
    /// They go through the layers together, so that the weights are unpacked once for all of them, and share the trunk's
    /// keys and values: nothing is copied.
    ///
    /// # Errors
    /// As [`embed_in`](Self::embed_in), for the first continuation that has the fault.
    pub fn branches(
        &self,
        trunk: &mut Context,
        continuations: &[&[u32]],
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<Vec<f32>>, BackboneError> {
        for ids in continuations {
            self.check(ids)?;
        }
        let start = trunk.tokens.len();
        let mut out = Vec::with_capacity(continuations.len());
        for batch in self.batches(continuations) {
            let segments: Vec<_> = batch
                .iter()
                .map(|ids| Segment { caches: Caches::Branch, ids: (*ids).into(), start })
                .collect();
            // A branch must not be cut by a chunk: its keys are gone after its turn in a layer.
            let tokens = batch.iter().map(|ids| ids.len()).sum();
            let mut walk = self.walk(segments, tokens)?;
            walk.wanted = Wanted::All;
            walk.trunk = Some(&mut *trunk);
            let done = self.run(&mut walk, interrupt);
            drop(walk);
            // Where the pass ended early, a branch's keys may still be there.
            trunk.truncate(start);
            let mut rows = done?.into_iter();
            out.extend(batch.iter().map(|ids| rows.by_ref().take(ids.len()).flatten().collect::<Vec<f32>>()));
        }
        Ok(out)
    }

    /// Prompts in groups of no more tokens than go through a layer together.
    fn batches<'a, 'b>(&self, prompts: &'a [&'b [u32]]) -> impl Iterator<Item = &'a [&'b [u32]]> {
        let (mut rest, chunk) = (prompts, self.chunk);
        std::iter::from_fn(move || {
            let mut tokens = rest.first()?.len();
            let more = rest[1..].iter().take_while(|ids| {
                tokens += ids.len();
                tokens <= chunk
            });
            let (batch, after) = rest.split_at(1 + more.count());
            rest = after;
            Some(batch)
        })
    }

    /// The hidden states of several prompts: each is exactly the vector that the prompt gets alone.
    ///
    /// Short prompts go through the layers together, so that the weights are unpacked once for all of them.
    ///
    /// # Errors
    /// As [`embed`](Self::embed), for the first prompt that has the fault.
    pub fn embed_batch(&self, prompts: &[&[u32]]) -> Result<Vec<Vec<f32>>, BackboneError> {
        for ids in prompts {
            self.check(ids)?;
        }
        let mut out = Vec::with_capacity(prompts.len());
        for batch in self.batches(prompts) {
            let segments = batch
                .iter()
                .map(|ids| Segment { caches: Caches::Passing(self.cache()), ids: (*ids).into(), start: 0 })
                .collect();
            out.extend(self.forward(segments, self.chunk, None)?);
        }
        Ok(out)
    }

    pub(super) fn check(&self, ids: &[u32]) -> Result<(), BackboneError> {
        if ids.is_empty() {
            return Err(BackboneError::NoTokens);
        }
        match ids.iter().find(|id| **id as usize >= self.shape.vocab) {
            Some(id) => Err(BackboneError::Token { id: *id, vocab: self.shape.vocab }),
            None => Ok(()),
        }
    }

    /// The segments' tokens through every layer; the hidden state of each one's last token, in order.
    fn forward(
        &self,
        segments: Vec<Segment<'_>>,
        chunk: usize,
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<Vec<f32>>, BackboneError> {
        self.run(&mut self.walk(segments, chunk)?, interrupt)
    }

    fn run(
        &self,
        walk: &mut Walk<'_>,
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<Vec<f32>>, BackboneError> {
        loop {
            if interrupt.is_some_and(Interrupt::stops) {
                return Err(BackboneError::Cancelled);
            }
            if let Some(vectors) = self.advance(walk)? {
                return Ok(vectors);
            }
        }
    }

    fn walk<'a>(&self, segments: Vec<Segment<'a>>, chunk: usize) -> Result<Walk<'a>, BackboneError> {
        let mut scratch = Scratch::default();
        self.gather(&segments, &mut scratch.x)?;
        let positions = segments.iter().flat_map(|s| s.start..s.start + s.ids.len()).collect();
        let pooled = segments
            .iter()
            .scan(0, |rows, s| {
                *rows += s.ids.len();
                Some(*rows - 1)
            })
            .collect();
        let chunk = chunk.max(1);
        let wanted = Wanted::Rows(pooled);
        Ok(Walk {
            segments,
            trunk: None,
            chunk,
            scratch,
            positions,
            wanted,
            layer: 0,
            start: 0,
            attended: false,
        })
    }

    /// Half a layer of a chunk, or what comes after the last layer: then the vectors.
    ///
    /// Layer after layer, `chunk` tokens at a time: beside the residual stream, memory does not grow with the prompt.
    fn advance(&self, walk: &mut Walk<'_>) -> Result<Option<Vec<Vec<f32>>>, BackboneError> {
        let Some(layer) = self.layers.get(walk.layer) else { return self.pooled(walk).map(Some) };
        let s = &mut walk.scratch;
        let hidden = self.shape.hidden;
        let window = self.plan.windows[walk.layer];
        // Of the last layer only the wanted rows are finished, and that at once for all chunks.
        let last = walk.layer + 1 == self.layers.len() && matches!(walk.wanted, Wanted::Rows(_));
        let rows = walk.start..walk.positions.len().min(walk.start + walk.chunk);
        if !walk.attended {
            if walk.start == 0 {
                for segment in &mut walk.segments {
                    if let Caches::Passing(cache) = &mut segment.caches {
                        cache.truncate(0);
                    }
                }
            }
            self.turn(s, window.is_some(), walk.positions[rows.clone()].iter().copied());
            self.norm(&s.x[rows.start * hidden..rows.end * hidden], &layer.attn_norm, &mut s.h);
            self.keys_and_values(layer, s, window.is_some());
            if !last {
                self.queries(layer, s, window.is_some());
            }
            let trunk = walk.trunk.as_deref_mut();
            self.attend(walk.layer, &mut walk.segments, trunk, s, rows.clone(), last, window);
            walk.attended = true;
            // Of the last layer nothing follows here.
            if !last {
                return Ok(None);
            }
        } else {
            self.rest_of_layer(layer, s, rows.clone());
        }
        walk.attended = false;
        walk.start = rows.end;
        if walk.start == walk.positions.len() {
            (walk.layer, walk.start) = (walk.layer + 1, 0);
        }
        Ok(None)
    }

    /// What is left of the last layer, where it is done for the wanted rows alone, and the final norm.
    fn pooled(&self, walk: &mut Walk<'_>) -> Result<Vec<Vec<f32>>, BackboneError> {
        let (Some(layer), Some(window)) = (self.layers.last(), self.plan.windows.last().copied()) else {
            return Err(BackboneError::NoTokens);
        };
        let s = &mut walk.scratch;
        let hidden = self.shape.hidden;
        // A walk that has ended has no rows left.
        let wanted = std::mem::replace(&mut walk.wanted, Wanted::Rows(Vec::new()));
        let Wanted::Rows(pooled) = wanted else {
            self.norm(&s.x, &self.output_norm, &mut s.h);
            return s.h.chunks_exact(hidden).map(|vector| finite(vector.to_vec())).collect();
        };
        for (to, from) in pooled.iter().enumerate() {
            s.x.copy_within(from * hidden..(from + 1) * hidden, to * hidden);
        }
        s.x.truncate(pooled.len() * hidden);
        self.turn(s, window.is_some(), pooled.iter().map(|row| walk.positions[*row]));
        self.norm(&s.x, &layer.attn_norm, &mut s.h);
        self.queries(layer, s, window.is_some());
        let width = self.shape.heads * self.shape.head_dim;
        s.attended.resize(s.q.len(), 0.0);
        for (n, segment) in walk.segments.iter_mut().enumerate().take(pooled.len()) {
            let cache = segment.caches.layer(None, self.layers.len() - 1);
            let row = n * width..(n + 1) * width;
            let out = &mut s.attended[row.clone()];
            attention(self.isa, &self.pool, &s.q[row], self.shape.heads, cache, window, out);
        }
        self.rest_of_layer(layer, s, 0..pooled.len());
        self.norm(&s.x, &self.output_norm, &mut s.h);
        s.h.chunks_exact(hidden).map(|vector| finite(vector.to_vec())).collect()
    }

    /// Fills the rotations of rows at these positions.
    fn turn(&self, s: &mut Scratch, sliding: bool, positions: impl Iterator<Item = usize>) {
        if sliding {
            s.sliding.fill(&self.plan.inverse_freq_sliding, 1.0, positions);
        } else {
            s.full.fill(&self.plan.inverse_freq, self.plan.magnitude, positions);
        }
    }

    /// Appends the keys and values of `rows` to their segments' caches and, unless `keys_only`, computes the attention of
    /// their queries. What a branch appends to the trunk is taken off again.
    #[expect(clippy::too_many_arguments, reason = "the parts of a walk, borrowed apart")]
    fn attend(
        &self,
        layer: usize,
        segments: &mut [Segment<'_>],
        mut trunk: Option<&mut Context>,
        s: &mut Scratch,
        rows: core::ops::Range<usize>,
        keys_only: bool,
        window: Option<usize>,
    ) {
        let (kv, width) = (self.shape.kv_heads * self.shape.head_dim, self.shape.heads * self.shape.head_dim);
        if !keys_only {
            s.attended.resize(s.q.len(), 0.0);
        }
        let mut first = 0;
        for segment in segments {
            let end = first + segment.ids.len();
            // The segment's part of the rows, relative to them.
            let part = first.max(rows.start)..end.min(rows.end);
            first = end;
            if part.is_empty() {
                continue;
            }
            let part = part.start - rows.start..part.end - rows.start;
            let known = trunk.as_deref().map(|trunk| trunk.tokens.len());
            let cache = segment.caches.layer(trunk.as_deref_mut(), layer);
            cache.append(&s.k[part.start * kv..part.end * kv], &s.v[part.start * kv..part.end * kv]);
            if !keys_only {
                let part = part.start * width..part.end * width;
                let out = &mut s.attended[part.clone()];
                attention(self.isa, &self.pool, &s.q[part], self.shape.heads, cache, window, out);
            }
            if let Some(known) = known {
                cache.truncate(known);
            }
        }
    }

    /// From what attention gave to the residual stream: `x += o(attended)`, `x += ffn(norm(x))`.
    fn rest_of_layer(&self, layer: &Layer, s: &mut Scratch, rows: core::ops::Range<usize>) {
        let hidden = self.shape.hidden;
        self.project(&mut s.quantized, &s.attended, &layer.o, &mut s.h);
        if let Some(norm) = &layer.post_attn_norm {
            self.norm_in_place(&mut s.h, norm);
        }
        let rows = rows.start * hidden..rows.end * hidden;
        ops::add(&mut s.x[rows.clone()], &s.h);
        self.norm(&s.x[rows.clone()], &layer.ffn_norm, &mut s.h);
        let n = s.h.len() / hidden;
        s.gate.resize(n * self.shape.ffn, 0.0);
        s.up.resize(n * self.shape.ffn, 0.0);
        let products =
            &mut [Product { w: &layer.gate, out: &mut s.gate }, Product { w: &layer.up, out: &mut s.up }];
        self.multiply(&mut s.quantized, &s.h, products);
        ops::gate(self.isa, &self.pool, self.plan.activation, &mut s.gate, &s.up);
        self.project(&mut s.quantized, &s.gate, &layer.down, &mut s.h);
        if let Some(norm) = &layer.post_ffn_norm {
            self.norm_in_place(&mut s.h, norm);
        }
        ops::add(&mut s.x[rows], &s.h);
    }

    /// The embedding rows of `ids`, gathered from the file.
    #[cfg(feature = "gpu")]
    pub(super) fn gather_ids(&self, ids: &[u32], x: &mut Vec<f32>) -> Result<(), BackboneError> {
        let caches = Caches::Passing(self.cache());
        self.gather(&[Segment { caches, ids: ids.into(), start: 0 }], x)
    }

    /// The embedding rows of the segments' tokens, gathered from the file.
    fn gather(&self, segments: &[Segment<'_>], x: &mut Vec<f32>) -> Result<(), BackboneError> {
        let hidden = self.shape.hidden;
        let tokens: usize = segments.iter().map(|s| s.ids.len()).sum();
        x.resize(tokens * hidden, 0.0);
        let ty = self.embedding.block_type()?;
        let row_bytes = self.embedding.row_bytes() as usize;
        let mut owned = Vec::new();
        for (id, x) in segments.iter().flat_map(|s| &*s.ids).zip(x.chunks_exact_mut(hidden)) {
            let offset = self.embedding.offset + u64::from(*id) * row_bytes as u64;
            if let Some(bytes) = self.source.view(offset, row_bytes) {
                dequantize(ty, &bytes, x);
                continue;
            }
            owned.resize(row_bytes, 0);
            self.source.read_at(offset, &mut owned).map_err(|source| crate::gguf::GgufError::Io {
                file: self.source.name().to_owned(),
                offset,
                len: row_bytes as u64,
                source,
            })?;
            dequantize(ty, &owned, x);
        }
        if let Some(factor) = self.plan.embed_scale {
            ops::scale(x, factor);
        }
        Ok(())
    }

    fn norm(&self, x: &[f32], weight: &[f32], out: &mut Vec<f32>) {
        out.resize(x.len(), 0.0);
        ops::rms_norm(self.isa, &self.pool, x, weight, self.shape.eps, out);
    }

    fn norm_in_place(&self, x: &mut [f32], weight: &[f32]) {
        ops::rms_norm_heads(self.isa, &self.pool, x, weight.len(), 1, weight, self.shape.eps);
    }

    /// `s.k` and `s.v` of the rows of `s.h`; keys normalised and rotated.
    fn keys_and_values(&self, layer: &Layer, s: &mut Scratch, sliding: bool) {
        let (n, kv) = (s.h.len() / self.shape.hidden, self.shape.kv_heads * self.shape.head_dim);
        s.k.resize(n * kv, 0.0);
        s.v.resize(n * kv, 0.0);
        let products = &mut [Product { w: &layer.k, out: &mut s.k }, Product { w: &layer.v, out: &mut s.v }];
        self.multiply(&mut s.quantized, &s.h, products);
        let table = if sliding { &s.sliding } else { &s.full };
        self.place(&mut s.k, self.shape.kv_heads, layer.k_norm.as_deref(), table);
    }

    /// `s.q` of the rows of `s.h`; normalised, rotated and scaled.
    fn queries(&self, layer: &Layer, s: &mut Scratch, sliding: bool) {
        self.project(&mut s.quantized, &s.h, &layer.q, &mut s.q);
        let table = if sliding { &s.sliding } else { &s.full };
        self.place(&mut s.q, self.shape.heads, layer.q_norm.as_deref(), table);
        ops::scale(&mut s.q, self.plan.query_scale);
    }

    /// Normalises each head where the model does, and rotates it to its position.
    fn place(&self, x: &mut [f32], heads: usize, norm: Option<&[f32]>, table: &RopeTable) {
        let (d, stride) = (self.shape.head_dim, heads * self.shape.head_dim);
        if let Some(weight) = norm {
            ops::rms_norm_heads(self.isa, &self.pool, x, stride, heads, weight, self.shape.eps);
        }
        ops::rope(&self.pool, x, stride, heads, d, self.plan.pairs, table);
    }

    fn project(&self, quantized: &mut Activations, x: &[f32], w: &Matrix, out: &mut Vec<f32>) {
        out.resize(x.len() / w.cols() * w.rows(), 0.0);
        self.multiply(quantized, x, &mut [Product { w, out }]);
    }

    fn multiply(&self, quantized: &mut Activations, x: &[f32], products: &mut [Product<'_>]) {
        if products.iter().any(|p| p.w.is_quantized()) {
            quantized.quantize(self.isa, &self.pool, x, products[0].w.cols());
        }
        matmul(self.isa, &self.pool, Input { x, q: quantized }, products);
    }
}

/// A vector that holds neither an infinity nor NaN.
pub(super) fn finite(vector: Vec<f32>) -> Result<Vec<f32>, BackboneError> {
    if vector.iter().all(|v| v.is_finite()) { Ok(vector) } else { Err(BackboneError::NotFinite) }
}
