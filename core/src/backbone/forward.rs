//! The forward pass: chunks of one or several prompts through the layers.

use super::weights::Layer;
use super::{Backbone, BackboneError};
use std::sync::atomic::{AtomicBool, Ordering};
use zen_edge_kernels::attention::{KvCache, attention};
use zen_edge_kernels::format::dequantize;
use zen_edge_kernels::gemm::{Activations, Input, Matrix, Product, matmul};
use zen_edge_kernels::ops::{self, RopeTable};

/// Stops a forward pass from another thread: it ends between two layers of a chunk.
#[derive(Debug, Default)]
pub struct Cancel(AtomicBool);

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

    /// Bytes of memory that it keeps.
    pub fn memory(&self) -> usize {
        4 * self.tokens.capacity() + self.layers.iter().map(KvCache::memory).sum::<usize>()
    }
}

/// Tokens that go through the layers together with others.
struct Segment<'a> {
    context: &'a mut Context,
    ids: &'a [u32],
    /// Whether the last token's hidden state is asked for.
    pooled: bool,
}

/// Memory of a forward pass, reused from chunk to chunk.
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

impl Backbone {
    /// A context that holds no tokens.
    pub fn context(&self) -> Context {
        let layer = || KvCache::new(self.shape.kv_heads, self.shape.head_dim);
        Context { tokens: Vec::new(), layers: (0..self.shape.layers).map(|_| layer()).collect() }
    }

    /// The hidden state of the last of `ids` after the final norm, not normalised: `hidden_size` values.
    ///
    /// # Errors
    /// No tokens, an id that is not in the vocabulary, a hidden state that is not finite, a file that cannot be read.
    pub fn embed(&self, ids: &[u32]) -> Result<Vec<f32>, BackboneError> {
        self.embed_chunked(ids, self.chunk)
    }

    /// [`embed`](Self::embed) with `chunk` tokens at a time. The result does not depend on it.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub fn embed_chunked(&self, ids: &[u32], chunk: usize) -> Result<Vec<f32>, BackboneError> {
        self.run(&mut self.context(), ids, chunk, None)
    }

    /// The hidden state of the last of `ids`, with the tokens that `context` shares with their start reused and the rest
    /// appended to it.
    ///
    /// # Errors
    /// As [`embed`](Self::embed), and [`BackboneError::Cancelled`]. The context then holds what was done.
    pub fn embed_in(
        &self,
        context: &mut Context,
        ids: &[u32],
        cancel: Option<&Cancel>,
    ) -> Result<Vec<f32>, BackboneError> {
        self.run(context, ids, self.chunk, cancel)
    }

    fn run(
        &self,
        context: &mut Context,
        ids: &[u32],
        chunk: usize,
        cancel: Option<&Cancel>,
    ) -> Result<Vec<f32>, BackboneError> {
        self.check(ids)?;
        // The last token is computed anew even where all are known: its hidden state is not kept.
        let shared = context.tokens.iter().zip(ids).take_while(|(a, b)| a == b).count().min(ids.len() - 1);
        context.truncate(shared);
        let mut scratch = Scratch::default();
        let rest = &ids[shared..];
        let chunk = chunk.max(1);
        for (i, ids) in rest.chunks(chunk).enumerate() {
            let pooled = (i + 1) * chunk >= rest.len();
            let mut segments = [Segment { context: &mut *context, ids, pooled }];
            if let Some(vector) = self.forward(&mut scratch, &mut segments, cancel)?.pop() {
                return finite(vector);
            }
        }
        Err(BackboneError::NoTokens)
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
        let mut scratch = Scratch::default();
        let mut out = Vec::with_capacity(prompts.len());
        let mut rest = prompts;
        while let Some(first) = rest.first() {
            if first.len() > self.chunk {
                out.push(self.embed(first)?);
                rest = &rest[1..];
                continue;
            }
            let mut tokens = 0;
            let together = rest
                .iter()
                .take_while(|ids| {
                    tokens += ids.len();
                    tokens <= self.chunk
                })
                .count();
            let (batch, after) = rest.split_at(together);
            let mut contexts: Vec<Context> = batch.iter().map(|_| self.context()).collect();
            let mut segments: Vec<Segment<'_>> = contexts
                .iter_mut()
                .zip(batch)
                .map(|(context, ids)| Segment { context, ids, pooled: true })
                .collect();
            for vector in self.forward(&mut scratch, &mut segments, None)? {
                out.push(finite(vector)?);
            }
            rest = after;
        }
        Ok(out)
    }

    fn check(&self, ids: &[u32]) -> Result<(), BackboneError> {
        if ids.is_empty() {
            return Err(BackboneError::NoTokens);
        }
        match ids.iter().find(|id| **id as usize >= self.shape.vocab) {
            Some(id) => Err(BackboneError::Token { id: *id, vocab: self.shape.vocab }),
            None => Ok(()),
        }
    }

    /// The segments' tokens through every layer; the pooled vectors of those that ask for one, in order.
    fn forward(
        &self,
        s: &mut Scratch,
        segments: &mut [Segment<'_>],
        cancel: Option<&Cancel>,
    ) -> Result<Vec<Vec<f32>>, BackboneError> {
        let hidden = self.shape.hidden;
        self.gather(segments, &mut s.x)?;
        let positions = || {
            segments.iter().flat_map(|s| {
                let start = s.context.tokens.len();
                start..start + s.ids.len()
            })
        };
        s.full.fill(&self.plan.inverse_freq, positions());
        if !self.plan.inverse_freq_sliding.is_empty() {
            s.sliding.fill(&self.plan.inverse_freq_sliding, positions());
        }
        // Rows whose hidden state is asked for, and their positions.
        let mut pooled_rows = Vec::new();
        let mut pooled_positions = Vec::new();
        let mut row = 0;
        for segment in segments.iter() {
            row += segment.ids.len();
            if segment.pooled {
                pooled_rows.push(row - 1);
                pooled_positions.push(segment.context.tokens.len() + segment.ids.len() - 1);
            }
        }

        let result = (|| {
            for (i, layer) in self.layers.iter().enumerate() {
                if cancel.is_some_and(Cancel::is_cancelled) {
                    return Err(BackboneError::Cancelled);
                }
                let window = self.plan.windows[i];
                let last = i + 1 == self.layers.len();
                self.norm(&s.x, &layer.attn_norm, &mut s.h);
                self.keys_and_values(layer, s, window.is_some());
                let kv = self.shape.kv_heads * self.shape.head_dim;
                let mut row = 0;
                for segment in segments.iter_mut() {
                    let rows = row * kv..(row + segment.ids.len()) * kv;
                    segment.context.layers[i].append(&s.k[rows.clone()], &s.v[rows]);
                    row += segment.ids.len();
                }
                if last {
                    if pooled_rows.is_empty() {
                        break;
                    }
                    // From here on only the pooled rows matter.
                    for x in [&mut s.x, &mut s.h] {
                        for (to, from) in pooled_rows.iter().enumerate() {
                            x.copy_within(from * hidden..(from + 1) * hidden, to * hidden);
                        }
                        x.truncate(pooled_rows.len() * hidden);
                    }
                    s.full.fill(&self.plan.inverse_freq, pooled_positions.iter().copied());
                    if !self.plan.inverse_freq_sliding.is_empty() {
                        s.sliding.fill(&self.plan.inverse_freq_sliding, pooled_positions.iter().copied());
                    }
                }
                self.queries(layer, s, window.is_some());
                let width = self.shape.heads * self.shape.head_dim;
                s.attended.resize(s.q.len(), 0.0);
                let mut row = 0;
                for segment in segments.iter() {
                    let tokens = match (last, segment.pooled) {
                        (false, _) => segment.ids.len(),
                        (true, pooled) => usize::from(pooled),
                    };
                    let rows = row * width..(row + tokens) * width;
                    if tokens > 0 {
                        let cache = &segment.context.layers[i];
                        let out = &mut s.attended[rows.clone()];
                        attention(self.isa, &self.pool, &s.q[rows], self.shape.heads, cache, window, out);
                    }
                    row += tokens;
                }
                self.project(&mut s.quantized, &s.attended, &layer.o, &mut s.h);
                if let Some(norm) = &layer.post_attn_norm {
                    self.norm_in_place(&mut s.h, norm);
                }
                ops::add(&mut s.x, &s.h);
                self.feed_forward(layer, s);
            }
            Ok(())
        })();
        if let Err(error) = result {
            // Some layers have the chunk, some do not: forget it in all.
            for segment in segments.iter_mut() {
                let len = segment.context.tokens.len();
                segment.context.truncate(len);
            }
            return Err(error);
        }
        for segment in segments.iter_mut() {
            segment.context.tokens.extend_from_slice(segment.ids);
        }
        if pooled_rows.is_empty() {
            return Ok(Vec::new());
        }
        self.norm(&s.x, &self.output_norm, &mut s.h);
        Ok(s.h.chunks_exact(hidden).map(<[f32]>::to_vec).collect())
    }

    /// The embedding rows of the segments' tokens, gathered from the file.
    fn gather(&self, segments: &[Segment<'_>], x: &mut Vec<f32>) -> Result<(), BackboneError> {
        let hidden = self.shape.hidden;
        let tokens: usize = segments.iter().map(|s| s.ids.len()).sum();
        x.resize(tokens * hidden, 0.0);
        let ty = self.embedding.block_type()?;
        let row_bytes = self.embedding.row_bytes() as usize;
        let mut owned = Vec::new();
        for (id, x) in segments.iter().flat_map(|s| s.ids).zip(x.chunks_exact_mut(hidden)) {
            let offset = self.embedding.offset + u64::from(*id) * row_bytes as u64;
            if let Some(bytes) = self.source.view(offset, row_bytes) {
                dequantize(ty, &bytes, x);
                continue;
            }
            owned.resize(row_bytes, 0);
            self.source.read_at(offset, &mut owned).map_err(|source| {
                crate::gguf::GgufError::Io { file: self.source.name().to_owned(), offset, len: row_bytes as u64, source }
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

    /// `x += ffn(norm(x))`
    fn feed_forward(&self, layer: &Layer, s: &mut Scratch) {
        self.norm(&s.x, &layer.ffn_norm, &mut s.h);
        let n = s.h.len() / self.shape.hidden;
        s.gate.resize(n * self.shape.ffn, 0.0);
        s.up.resize(n * self.shape.ffn, 0.0);
        let products = &mut [Product { w: &layer.gate, out: &mut s.gate }, Product { w: &layer.up, out: &mut s.up }];
        self.multiply(&mut s.quantized, &s.h, products);
        ops::gate(self.isa, &self.pool, self.plan.activation, &mut s.gate, &s.up);
        self.project(&mut s.quantized, &s.gate, &layer.down, &mut s.h);
        if let Some(norm) = &layer.post_ffn_norm {
            self.norm_in_place(&mut s.h, norm);
        }
        ops::add(&mut s.x, &s.h);
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

fn finite(vector: Vec<f32>) -> Result<Vec<f32>, BackboneError> {
    if vector.iter().all(|v| v.is_finite()) { Ok(vector) } else { Err(BackboneError::NotFinite) }
}
