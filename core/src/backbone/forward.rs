//! The forward pass: chunks of one or several prompts through the layers.

use super::pooling::{Pooled, Pooling};
use super::weights::Layer;
use super::{Backbone, BackboneError};
use crate::gguf::GgufError;
use crate::room::NoMemory;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use zen_edge_kernels::attention::{KvCache, KvType, attention};
use zen_edge_kernels::gemm::{Activations, Input, Matrix, Product, matmul};
use zen_edge_kernels::ops::{self, RopeTable};

/// What may end a forward pass early. It is asked between two steps: some five in a layer of a chunk.
pub trait Interrupt: Sync {
    /// Whether to stop now.
    fn stops(&self) -> bool;
}

/// Is shown what the matrices of a backbone are multiplied with, to learn which of their columns matter.
pub trait Observer: Send + Sync {
    /// `inputs` are rows of `columns` values, one a token, that go into the tensor `blk.LAYER.PART.weight`. Of the last layer
    /// only the tokens that a vector is read at go into all but `attn_k` and `attn_v`.
    fn product(&self, layer: usize, part: &'static str, inputs: &[f32], columns: usize);
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
    /// What each mean of the vector is taken of, `[mean][token][hidden]`.
    states: Vec<Vec<f32>>,
    hidden: usize,
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
        for states in &mut self.states {
            states.truncate(len * self.hidden);
        }
    }

    /// How many of `ids` it has from their start on.
    pub fn shared(&self, ids: &[u32]) -> usize {
        self.tokens.iter().zip(ids).take_while(|(a, b)| a == b).count()
    }

    /// A context of the first `len` tokens, with no more memory than they take.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        let len = len.min(self.tokens.len());
        Self {
            tokens: self.tokens[..len].to_vec(),
            layers: self.layers.iter().map(|layer| layer.prefix(len)).collect(),
            states: self.states.iter().map(|states| states[..len * self.hidden].to_vec()).collect(),
            hidden: self.hidden,
        }
    }

    /// Bytes of memory that it keeps.
    pub fn memory(&self) -> usize {
        let states = self.states.iter().map(|states| 4 * states.capacity()).sum::<usize>();
        4 * self.tokens.capacity() + self.layers.iter().map(KvCache::memory).sum::<usize>() + states
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
    vector: Pooled,
}

impl Caches<'_> {
    /// The states that means are taken of, where they are kept.
    fn states(&mut self) -> Option<&mut Vec<Vec<f32>>> {
        match self {
            Self::Kept(context) => Some(&mut context.states),
            Self::Owned(context) => Some(&mut context.states),
            Self::Passing(_) | Self::Branch => None,
        }
    }

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

/// What a walk ends with.
enum Wanted {
    /// The segments' vectors, for which of the last layer these rows are needed: each segment's last token.
    Rows(Vec<usize>),
    /// The segments' vectors, for which the last layer is needed for every token.
    Means,
    /// Every token's hidden state.
    All,
    /// Nothing more: it has ended.
    Nothing,
}

/// Where a value stood.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The layer, from 1.
    pub layer: usize,
    /// What of it.
    pub part: &'static str,
    /// Whether it is the residual stream after the whole layer.
    pub whole: bool,
}

/// The parts of a layer, each of which is a step: about as long as one of its products takes.
#[derive(Clone, Copy)]
enum Stage {
    /// Norm, queries, keys and values.
    Project,
    /// The keys into the caches, and attention.
    Attend,
    /// `x += o(attended)`.
    Output,
    /// `silu(gate(norm(x))) * up(norm(x))`.
    Widen,
    /// `x += down(…)`.
    Narrow,
}

/// Where several segments are on their way through the layers.
struct Walk<'a> {
    segments: Vec<Segment<'a>>,
    /// The context that branches go on from.
    trunk: Option<&'a mut Context>,
    chunk: usize,
    /// Whether a chunk is never cut further: a branch's keys are gone after its turn, and a row must be a token.
    uncut: bool,
    scratch: Scratch,
    positions: Vec<usize>,
    wanted: Wanted,
    pooling: Pooling,
    /// The layers that the pooling needs.
    depth: usize,
    layer: usize,
    /// The first row of the chunk.
    start: usize,
    /// What comes next for the chunk.
    stage: Stage,
}

/// Queries × keys of a step of attention, about: at 0.6B, of 16 heads, some 50 ms on one thread.
const ATTENTION: usize = 400_000;
/// Tokens of a chunk in f32, several times slower: so a step takes about as long as one of int8.
const FLOAT_CHUNK: usize = 32;
/// Tokens that a chunk has at least, where there are so many: fewer would unpack the weights too often.
const LEAST: usize = 128;

impl Walk<'_> {
    /// The layer whose weights come next: the last one where all are done, for of that some rows may be left to finish.
    fn current(&self) -> usize {
        self.layer.min(self.depth.saturating_sub(1))
    }

    /// Tokens of the chunk that comes next: the later in a prompt, the fewer, for each has more keys to look at. So no step
    /// takes much longer than the others, and a cancel is heard soon.
    fn rows(&self) -> usize {
        if self.uncut {
            return self.chunk;
        }
        let keys = self.positions[self.start] + self.chunk;
        self.chunk.min((ATTENTION / keys).max(LEAST))
    }
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

/// Prompts on their way through the layers in f32, whatever the backbone's own arithmetic is: [`Backbone::begin_float`].
pub struct FloatPass {
    walk: Walk<'static>,
    /// The weights of one layer, and which.
    layer: Option<(usize, Layer)>,
}

impl Backbone {
    /// Begins a pass over several prompts in the arithmetic of [`Arithmetic::Float`](super::Arithmetic::Float), to the bit
    /// what a backbone that was loaded so gives, with one layer of f32 weights in memory at a time. Slow: it is what another
    /// implementation is judged by, not what users run.
    ///
    /// # Errors
    /// As [`embed`](Self::embed), for the first prompt that has the fault.
    pub fn begin_float(&self, prompts: &[&[u32]]) -> Result<FloatPass, BackboneError> {
        for ids in prompts {
            self.check(ids)?;
        }
        let segments = prompts.iter().map(|ids| Segment {
            caches: Caches::Passing(self.cache()),
            ids: ids.to_vec().into(),
            start: 0,
            vector: Pooled::new(&self.pooling, ids.len()),
        });
        let chunk = self.chunk.min(FLOAT_CHUNK);
        Ok(FloatPass { walk: self.walk(segments.collect(), chunk, &self.pooling)?, layer: None })
    }

    /// Makes one step of such a pass: the prompts' vectors after the last one, else `None`.
    ///
    /// # Errors
    /// As [`embed`](Self::embed); a pass that has ended has no tokens left.
    pub fn step_float(&self, pass: &mut FloatPass) -> Result<Option<Vec<Vec<f32>>>, BackboneError> {
        let current = pass.walk.current();
        // The old one goes before the new one comes.
        let kept = pass.layer.take().filter(|(index, _)| *index == current);
        let (_, layer) = pass.layer.insert(match kept {
            Some(kept) => kept,
            None => {
                let float = self.layers[current].to_float().map_err(|NoMemory(bytes)| {
                    let (file, what) = (self.source.name().to_owned(), format!("layer {current} in f32"));
                    BackboneError::from(GgufError::OutOfMemory { file, what, bytes })
                })?;
                (current, float)
            }
        });
        self.advance_in(&mut pass.walk, layer)
    }

    /// Begins a pass over `ids` that is made in steps. With a context, the tokens that it shares with their start are
    /// reused and the rest is appended to it.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub fn begin(&self, ids: &[u32], context: Option<Context>) -> Result<Pass, BackboneError> {
        self.begin_as(ids, context, &self.pooling)
    }

    /// [`begin`](Self::begin) of a pass that ends with what `pooling` says.
    pub(crate) fn begin_as(
        &self,
        ids: &[u32],
        context: Option<Context>,
        pooling: &Pooling,
    ) -> Result<Pass, BackboneError> {
        self.check(ids)?;
        let (shared, caches) = match context {
            Some(mut context) => (self.reuse(&mut context, ids, pooling), Caches::Owned(context)),
            None => (0, Caches::Passing(self.cache())),
        };
        let vector = Pooled::new(pooling, ids.len());
        let segment = Segment { caches, ids: ids[shared..].to_vec().into(), start: shared, vector };
        Ok(Pass { walk: self.walk(vec![segment], self.chunk, pooling)?, shared, finished: false })
    }

    /// Leaves of a context what `ids` begin with, where it has all that the pooling asks for; how many tokens.
    fn reuse(&self, context: &mut Context, ids: &[u32], pooling: &Pooling) -> usize {
        // The last token is computed anew even where all are known: its hidden state is not kept.
        let mut shared = context.shared(ids).min(ids.len() - 1);
        let known = context.tokens.len();
        let depth = pooling.depth(self.shape.layers);
        // Of a context that was filled for another vector, layers or states may be missing.
        let whole = context.states.len() == pooling.means()
            && context.states.iter().all(|states| states.len() == known * self.shape.hidden)
            && context.layers.iter().take(depth).all(|cache| cache.len() == known);
        if !whole {
            shared = 0;
        }
        context.truncate(shared);
        context.states.resize_with(pooling.means(), Vec::new);
        shared
    }

    /// Makes one step of a pass, a part of a layer for a chunk, about as long as one product takes: the vector after the last one, else `None`. The bits are
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
        Context {
            tokens: Vec::new(),
            layers: (0..self.shape.layers).map(|_| cache()).collect(),
            states: Vec::new(),
            hidden: self.shape.hidden,
        }
    }

    /// Bytes that a context of `tokens` tokens takes.
    pub fn context_bytes(&self, kind: KvType, tokens: usize) -> usize {
        let cache = KvCache::bytes(kind, self.shape.kv_heads, self.shape.head_dim, tokens);
        let rest = 4 * (1 + self.pooling.means() * self.shape.hidden);
        cache.saturating_mul(self.depth()).saturating_add(tokens.saturating_mul(rest))
    }

    fn cache(&self) -> KvCache {
        KvCache::new(self.shape.kv_heads, self.shape.head_dim)
    }

    /// The vector of `ids`, not normalised: [`vector_size`](Self::vector_size) values, as the [`Pooling`] says; by default
    /// the hidden state of the last of them after the final norm.
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
        let mut vectors = self.forward(vec![self.alone(ids)], chunk, interrupt)?;
        vectors.pop().ok_or(BackboneError::NoTokens)
    }

    /// A prompt that nothing follows.
    fn alone<'a>(&self, ids: &'a [u32]) -> Segment<'a> {
        let vector = Pooled::new(&self.pooling, ids.len());
        Segment { caches: Caches::Passing(self.cache()), ids: ids.into(), start: 0, vector }
    }

    /// The vector of `ids`, with the tokens that `context` shares with their start reused and the rest appended to it.
    ///
    /// # Errors
    /// As [`embed`](Self::embed), and [`BackboneError::Cancelled`]: the context then holds the shared tokens alone.
    pub fn embed_in(
        &self,
        context: &mut Context,
        ids: &[u32],
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<f32>, BackboneError> {
        self.embed_as(context, ids, interrupt, &self.pooling)
    }

    /// [`embed_in`](Self::embed_in) with the vector that `pooling` says.
    pub(crate) fn embed_as(
        &self,
        context: &mut Context,
        ids: &[u32],
        interrupt: Option<&dyn Interrupt>,
        pooling: &Pooling,
    ) -> Result<Vec<f32>, BackboneError> {
        self.check(ids)?;
        let shared = self.reuse(context, ids, pooling);
        let vector = Pooled::new(pooling, ids.len());
        let segment =
            Segment { caches: Caches::Kept(context), ids: ids[shared..].into(), start: shared, vector };
        let result = self.run(&mut self.walk(vec![segment], self.chunk, pooling)?, interrupt);
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
        let all = Pooling::default();
        let mut out = Vec::with_capacity(continuations.len());
        for batch in self.batches(continuations) {
            let segments: Vec<_> = batch
                .iter()
                .map(|ids| {
                    let vector = Pooled::new(&all, ids.len());
                    Segment { caches: Caches::Branch, ids: (*ids).into(), start, vector }
                })
                .collect();
            // A branch must not be cut by a chunk: its keys are gone after its turn in a layer.
            let tokens = batch.iter().map(|ids| ids.len()).sum();
            let mut walk = self.walk(segments, tokens, &all)?;
            walk.wanted = Wanted::All;
            walk.uncut = true;
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

    /// The vectors of several prompts: each is exactly the vector that the prompt gets alone.
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
            let segments = batch.iter().map(|ids| self.alone(ids)).collect();
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

    /// The segments' tokens through the layers; the vector of each, in order.
    fn forward(
        &self,
        segments: Vec<Segment<'_>>,
        chunk: usize,
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<Vec<f32>>, BackboneError> {
        self.run(&mut self.walk(segments, chunk, &self.pooling)?, interrupt)
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

    fn walk<'a>(
        &self,
        segments: Vec<Segment<'a>>,
        chunk: usize,
        pooling: &Pooling,
    ) -> Result<Walk<'a>, BackboneError> {
        let mut scratch = Scratch::default();
        let ids: Vec<u32> = segments.iter().flat_map(|s| s.ids.iter().copied()).collect();
        self.gather(&ids, &mut scratch.x)?;
        let positions = segments.iter().flat_map(|s| s.start..s.start + s.ids.len()).collect();
        let last_rows = segments.iter().scan(0, |rows, s| {
            *rows += s.ids.len();
            Some(*rows - 1)
        });
        let depth = pooling.depth(self.shape.layers);
        let wanted = if pooling.means_after(depth, self.shape.layers) {
            Wanted::Means
        } else {
            Wanted::Rows(last_rows.collect())
        };
        Ok(Walk {
            segments,
            trunk: None,
            chunk: chunk.max(1),
            uncut: false,
            scratch,
            positions,
            wanted,
            pooling: pooling.clone(),
            depth,
            layer: 0,
            start: 0,
            stage: Stage::Project,
        })
    }

    /// A part of a layer for a chunk, or what comes after the last layer: then the vectors.
    ///
    /// Layer after layer, `chunk` tokens at a time: beside the residual stream, memory does not grow with the prompt.
    fn advance(&self, walk: &mut Walk<'_>) -> Result<Option<Vec<Vec<f32>>>, BackboneError> {
        self.advance_in(walk, &self.layers[walk.current()])
    }

    /// [`advance`](Self::advance) with the weights of [`Walk::current`] given.
    fn advance_in(&self, walk: &mut Walk<'_>, layer: &Layer) -> Result<Option<Vec<Vec<f32>>>, BackboneError> {
        if walk.layer == walk.depth {
            return self.ended(walk, layer).map(Some);
        }
        let rows = walk.start..walk.positions.len().min(walk.start + walk.rows());
        let s = &mut walk.scratch;
        let hidden = self.shape.hidden;
        let window = self.plan.windows[walk.layer];
        // Of the last layer only the wanted rows are finished, and that at once for all chunks.
        let last = walk.layer + 1 == walk.depth && matches!(walk.wanted, Wanted::Rows(_));
        match walk.stage {
            Stage::Project => {
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
                walk.stage = Stage::Attend;
            }
            Stage::Attend => {
                let trunk = walk.trunk.as_deref_mut();
                self.attend(walk.layer, &mut walk.segments, trunk, s, rows.clone(), last, window);
                walk.stage = Stage::Output;
                // Of the last layer nothing follows here.
                if last {
                    self.next_chunk(walk, rows.end);
                }
            }
            Stage::Output => {
                self.output(layer, s, rows);
                walk.stage = Stage::Widen;
            }
            Stage::Widen => {
                self.widen(layer, s, rows);
                walk.stage = Stage::Narrow;
            }
            Stage::Narrow => {
                self.narrow(layer, s, rows.clone());
                self.next_chunk(walk, rows.end);
            }
        }
        Ok(None)
    }

    /// Runs a prompt through every layer for every token, and shows what each step left, `[token][…]`.
    pub(super) fn watch(&self, ids: &[u32], see: &mut dyn FnMut(Place, &[f32])) -> Result<(), BackboneError> {
        self.check(ids)?;
        let all = Pooling::default();
        // One chunk: a row is a token.
        let mut walk = self.walk(vec![self.alone(ids)], ids.len(), &all)?;
        walk.wanted = Wanted::All;
        walk.uncut = true;
        let place = |layer, part, whole| Place { layer, part, whole };
        see(place(0, "embedding", true), &walk.scratch.x);
        while walk.layer < walk.depth {
            let (layer, stage) = (walk.layer + 1, walk.stage);
            self.advance(&mut walk)?;
            let s = &walk.scratch;
            match stage {
                Stage::Project => {
                    see(place(layer, "queries", false), &s.q);
                    see(place(layer, "keys", false), &s.k);
                    see(place(layer, "values", false), &s.v);
                }
                Stage::Attend => see(place(layer, "attention", false), &s.attended),
                Stage::Output => see(place(layer, "attention output", false), &s.x),
                Stage::Widen => see(place(layer, "gate", false), &s.gate),
                Stage::Narrow => see(place(layer, "ffn output", true), &s.x),
            }
        }
        // What is not finite is what is looked for.
        let last = walk.current();
        let _ = self.ended(&mut walk, &self.layers[last]);
        see(place(walk.depth + 1, "final norm", false), &walk.scratch.h);
        Ok(())
    }

    /// Goes on to the next chunk, or to the next layer where there is none.
    fn next_chunk(&self, walk: &mut Walk<'_>, done: usize) {
        (walk.stage, walk.start) = (Stage::Project, done);
        if done < walk.positions.len() {
            return;
        }
        (walk.layer, walk.start) = (walk.layer + 1, 0);
        // What is read of the last layer is read at the end.
        if walk.layer < walk.depth && walk.pooling.reads_after(walk.layer) {
            let s = &mut walk.scratch;
            self.unit(&s.x, &mut s.h);
            let (layer, hidden) = (Some(walk.layer), self.shape.hidden);
            pool(&mut walk.segments, &walk.pooling, layer, &s.h, hidden, |segment| segment.ids.len());
        }
    }

    /// What is left of the last layer, where it is done for the wanted rows alone, and the final norm.
    fn ended(&self, walk: &mut Walk<'_>, layer: &Layer) -> Result<Vec<Vec<f32>>, BackboneError> {
        let hidden = self.shape.hidden;
        let wanted = std::mem::replace(&mut walk.wanted, Wanted::Nothing);
        if let Wanted::Rows(rows) = &wanted {
            self.finish_rows(walk, rows, layer);
        }
        let s = &mut walk.scratch;
        let read = if walk.depth == self.shape.layers {
            self.norm(&s.x, &self.output_norm, &mut s.h);
            None
        } else {
            self.unit(&s.x, &mut s.h);
            Some(walk.depth)
        };
        let (segments, pooling) = (&mut walk.segments, &walk.pooling);
        match wanted {
            Wanted::Nothing => return Err(BackboneError::NoTokens),
            Wanted::All => return s.h.chunks_exact(hidden).map(|vector| finite(vector.to_vec())).collect(),
            Wanted::Means => pool(segments, pooling, read, &s.h, hidden, |segment| segment.ids.len()),
            Wanted::Rows(_) => pool(segments, pooling, read, &s.h, hidden, |_| 1),
        }
        segments.iter_mut().map(|segment| std::mem::take(&mut segment.vector).finish()).collect()
    }

    /// The last layer for these rows of the residual stream, of which nothing but they is left.
    fn finish_rows(&self, walk: &mut Walk<'_>, rows: &[usize], layer: &Layer) {
        let (hidden, index) = (self.shape.hidden, walk.depth - 1);
        let window = self.plan.windows[index];
        let s = &mut walk.scratch;
        for (to, from) in rows.iter().enumerate() {
            s.x.copy_within(from * hidden..(from + 1) * hidden, to * hidden);
        }
        s.x.truncate(rows.len() * hidden);
        self.turn(s, window.is_some(), rows.iter().map(|row| walk.positions[*row]));
        self.norm(&s.x, &layer.attn_norm, &mut s.h);
        self.queries(layer, s, window.is_some());
        let width = self.shape.heads * self.shape.head_dim;
        s.attended.resize(s.q.len(), 0.0);
        for (n, segment) in walk.segments.iter_mut().enumerate().take(rows.len()) {
            let cache = segment.caches.layer(None, index);
            let row = n * width..(n + 1) * width;
            let out = &mut s.attended[row.clone()];
            attention(self.isa, &self.pool, &s.q[row], self.shape.heads, cache, window, out);
        }
        for part in [Self::output, Self::widen, Self::narrow] {
            part(self, layer, s, 0..rows.len());
        }
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
        rows: Range<usize>,
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

    /// From what attention gave to the residual stream: `x += o(attended)`.
    fn output(&self, layer: &Layer, s: &mut Scratch, rows: Range<usize>) {
        let hidden = self.shape.hidden;
        self.project(&mut s.quantized, &s.attended, &layer.o, &mut s.h);
        if let Some(norm) = &layer.post_attn_norm {
            self.norm_in_place(&mut s.h, norm);
        }
        ops::add(&mut s.x[rows.start * hidden..rows.end * hidden], &s.h);
    }

    /// The wide part of the feed-forward network, into `s.gate`.
    fn widen(&self, layer: &Layer, s: &mut Scratch, rows: Range<usize>) {
        let hidden = self.shape.hidden;
        self.norm(&s.x[rows.start * hidden..rows.end * hidden], &layer.ffn_norm, &mut s.h);
        s.gate.resize(rows.len() * self.shape.ffn, 0.0);
        s.up.resize(rows.len() * self.shape.ffn, 0.0);
        let products =
            &mut [Product { w: &layer.gate, out: &mut s.gate }, Product { w: &layer.up, out: &mut s.up }];
        self.multiply(&mut s.quantized, &s.h, products);
        ops::gate(self.isa, &self.pool, self.plan.activation, &mut s.gate, &s.up);
    }

    /// `x += down(gate)`.
    fn narrow(&self, layer: &Layer, s: &mut Scratch, rows: Range<usize>) {
        let hidden = self.shape.hidden;
        self.project(&mut s.quantized, &s.gate, &layer.down, &mut s.h);
        if let Some(norm) = &layer.post_ffn_norm {
            self.norm_in_place(&mut s.h, norm);
        }
        ops::add(&mut s.x[rows.start * hidden..rows.end * hidden], &s.h);
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
        if let Some(observer) = &self.observer {
            for product in &*products {
                let place = |layer: &Layer| layer.matrices().iter().position(|w| std::ptr::eq(*w, product.w));
                let found = self.layers.iter().enumerate().find_map(|(i, layer)| Some((i, place(layer)?)));
                if let Some((layer, at)) = found {
                    observer.product(layer, Layer::MATRICES[at], x, product.w.cols());
                }
            }
        }
        if products.iter().any(|p| p.w.is_quantized()) {
            quantized.quantize(self.isa, &self.pool, x, products[0].w.cols());
        }
        matmul(self.isa, &self.pool, Input { x, q: quantized }, products);
    }
}

/// Lets each segment take what the pooling reads after `layer` layers from its `rows` of the states, which lie one
/// segment after the other.
fn pool(
    segments: &mut [Segment<'_>],
    pooling: &Pooling,
    layer: Option<usize>,
    mut states: &[f32],
    hidden: usize,
    rows: impl Fn(&Segment<'_>) -> usize,
) {
    for segment in segments {
        let (own, rest) = states.split_at(rows(segment) * hidden);
        states = rest;
        segment.vector.take(pooling, layer, own, hidden, segment.caches.states());
    }
}

/// A vector that holds neither an infinity nor NaN.
pub(super) fn finite(vector: Vec<f32>) -> Result<Vec<f32>, BackboneError> {
    if vector.iter().all(|v| v.is_finite()) { Ok(vector) } else { Err(BackboneError::NotFinite) }
}
