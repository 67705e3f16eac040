//! The forward pass on a GPU: a prompt's prefill as [`Backbone::embed`] runs it, with the kernels of [`zen_edge_kernels::gpu`].
//!
//! Weights go to the device once, a part at a time; embedding rows stay in the file and are gathered on the host. Nothing comes
//! back but the vector. It is the CPU's up to the order of float sums: activations are rounded alike. [`GpuBackbone::open`] believes no
//! device before it has proved itself, and [`GpuRuntime`] gives a request that a device drops to the next one, or to the CPU.

use super::forward::finite;
use super::weights::Layer;
use super::{Backbone, BackboneError, Interrupt};
use std::sync::{Arc, Mutex, PoisonError};
use zen_edge_kernels::format::BlockType;
use zen_edge_kernels::gemm::Matrix;
pub use zen_edge_kernels::gpu::{
    Faults, Gpu, GpuError, GpuInfo, GpuLimits, GpuOptions, Kernel, Line, Now, Roofline, Share, measure,
};
use zen_edge_kernels::gpu::{
    GpuBuffer, GpuMatrix, Heads, MAX_HEAD, Pass, Placement, Rows, prove, rope_table,
};

#[cfg(not(target_family = "wasm"))]
pub use zen_edge_kernels::gpu::block_on;

/// Tokens that go through a layer together.
const CHUNK: usize = 512;

/// Submissions that are on their way before they are waited for: so long does it take at most to hear a cancel.
const AHEAD: usize = 4;

/// The cosine with the CPU's vector below which a device is not believed.
pub const CLOSE: f64 = 0.999;

/// By how much its length may differ.
pub const LENGTH: f64 = 0.01;

/// Tokens of the prompts that a device is proved with: one tile and less, several tiles. All must be close.
///
/// That refuses more than broken devices: where two roundings of a block are equally good, the last bit of a sum chooses, and
/// some models carry such a difference far. SmolLM2-135M, 11 tokens at random: cosine .99949, length .987, with every
/// kernel proved; the CPU runs it then. A proof in float on both sides would tell the two apart.
const PROOF: [usize; 3] = [11, 24, 70];

/// Why there is no vector from the GPU.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuFailure {
    /// The prompt or the file, which fail on the CPU too; or the caller cancelled.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// The device, or what it cannot do. The CPU can.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

/// How a whole pass on the device compared with the CPU's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromptProof {
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Cosine of the two vectors.
    pub cosine: f64,
    /// The GPU's length divided by the CPU's.
    pub length: f64,
}

impl PromptProof {
    /// Compares vectors.
    pub fn new(tokens: usize, gpu: &[f32], cpu: &[f32]) -> Self {
        let dot =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let (g, c) = (dot(gpu, gpu).sqrt(), dot(cpu, cpu).sqrt());
        Self { tokens, cosine: dot(gpu, cpu) / (g * c), length: g / c }
    }

    /// Whether the vectors are the same, as far as roundings go. What is not a number is not.
    pub fn passed(&self) -> bool {
        self.cosine >= CLOSE && (self.length - 1.0).abs() <= LENGTH
    }
}

/// What a device was believed for.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// Each kernel.
    pub kernels: Vec<Line>,
    /// Whole passes.
    pub prompts: Vec<PromptProof>,
}

struct GpuLayer {
    attn_norm: GpuBuffer,
    q: GpuMatrix,
    k: GpuMatrix,
    v: GpuMatrix,
    o: GpuMatrix,
    q_norm: Option<GpuBuffer>,
    k_norm: Option<GpuBuffer>,
    post_attn_norm: Option<GpuBuffer>,
    post_ffn_norm: Option<GpuBuffer>,
    ffn_norm: GpuBuffer,
    gate: GpuMatrix,
    up: GpuMatrix,
    down: GpuMatrix,
}

impl GpuLayer {
    async fn upload(gpu: &Gpu, layer: &Layer) -> Result<Self, GpuError> {
        async fn optional(gpu: &Gpu, norm: Option<&Vec<f32>>) -> Result<Option<GpuBuffer>, GpuError> {
            match norm {
                Some(norm) => gpu.buffer_of(norm).await.map(Some),
                None => Ok(None),
            }
        }
        Ok(Self {
            attn_norm: gpu.buffer_of(&layer.attn_norm).await?,
            q: gpu.upload(&layer.q).await?,
            k: gpu.upload(&layer.k).await?,
            v: gpu.upload(&layer.v).await?,
            o: gpu.upload(&layer.o).await?,
            q_norm: optional(gpu, layer.q_norm.as_ref()).await?,
            k_norm: optional(gpu, layer.k_norm.as_ref()).await?,
            post_attn_norm: optional(gpu, layer.post_attn_norm.as_ref()).await?,
            post_ffn_norm: optional(gpu, layer.post_ffn_norm.as_ref()).await?,
            ffn_norm: gpu.buffer_of(&layer.ffn_norm).await?,
            gate: gpu.upload(&layer.gate).await?,
            up: gpu.upload(&layer.up).await?,
            down: gpu.upload(&layer.down).await?,
        })
    }

    fn bytes(&self) -> u64 {
        [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down].iter().map(|m| m.bytes()).sum()
    }
}

/// Buffers of a pass.
struct Scratch {
    tokens: usize,
    /// `[token][…]`, as long as the prompt: the residual stream, keys, values.
    x: GpuBuffer,
    k: GpuBuffer,
    v: GpuBuffer,
    /// The last token's residual stream.
    last: GpuBuffer,
    /// `[token of the chunk][…]`.
    h: GpuBuffer,
    rounded: GpuBuffer,
    q: GpuBuffer,
    attended: GpuBuffer,
    gate: GpuBuffer,
    up: GpuBuffer,
    act: GpuBuffer,
}

/// Rotations of the positions so far.
#[derive(Clone)]
struct Tables {
    positions: usize,
    full: GpuBuffer,
    sliding: Option<GpuBuffer>,
}

/// A backbone on a device that has proved itself. Shared by reference between threads.
pub struct GpuBackbone {
    backbone: Arc<Backbone>,
    gpu: Gpu,
    layers: Vec<GpuLayer>,
    output_norm: GpuBuffer,
    proof: Proof,
    /// One set of buffers is kept; whoever finds none makes one.
    scratch: Mutex<Option<Scratch>>,
    tables: Mutex<Option<Tables>>,
}

impl GpuBackbone {
    /// Opens a device, puts the weights on it and has it prove itself: every kernel against its twin, then short prompts
    /// against `backbone`, which runs on the CPU.
    ///
    /// # Errors
    /// [`GpuError`] says what is missing or what came out wrong.
    pub async fn open(backbone: Arc<Backbone>, options: &GpuOptions) -> Result<Self, GpuFailure> {
        let shape = backbone.shape();
        if shape.head_dim > MAX_HEAD {
            return Err(GpuError::Unsupported { what: format!("heads of {} values", shape.head_dim) }.into());
        }
        if !backbone.pooling().is_last() {
            let what =
                format!("the pooling `{}`: they give the last token's hidden state", backbone.pooling());
            return Err(GpuError::Unsupported { what }.into());
        }
        let gpu = Gpu::open(options).await?;
        let mut formats: Vec<BlockType> =
            backbone.layers.iter().flat_map(Layer::matrices).map(Matrix::block_type).collect();
        formats.sort_unstable();
        formats.dedup();
        let kernels = prove(&gpu, &formats, shape.head_dim).await?;
        let mut layers = Vec::with_capacity(backbone.layers.len());
        for layer in &backbone.layers {
            layers.push(GpuLayer::upload(&gpu, layer).await?);
        }
        let output_norm = gpu.buffer_of(&backbone.output_norm).await?;
        let mut opened = Self {
            gpu,
            layers,
            output_norm,
            proof: Proof { kernels, prompts: Vec::new() },
            scratch: Mutex::new(None),
            tables: Mutex::new(None),
            backbone,
        };
        for tokens in PROOF {
            let vocab = opened.backbone.shape.vocab;
            let ids: Vec<u32> = (0..tokens).map(|i| ((i * 7919 + 17) % vocab) as u32).collect();
            let expected = opened.backbone.embed(&ids)?;
            let found = opened.embed(&ids, None).await?;
            let proof = PromptProof::new(tokens, &found, &expected);
            opened.proof.prompts.push(proof);
            if !proof.passed() {
                let why = format!(
                    "{tokens} tokens: cosine {:.6} with the CPU's vector, length {:.4} of it",
                    proof.cosine, proof.length
                );
                return Err(GpuError::Wrong { kernel: "prompt".to_owned(), why }.into());
            }
        }
        Ok(opened)
    }

    /// The device.
    pub const fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// What it was believed for.
    pub const fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Bytes of the weights on the device.
    pub fn weight_bytes(&self) -> u64 {
        self.layers.iter().map(GpuLayer::bytes).sum()
    }

    /// The hidden state of the last of `ids` after the final norm: that of [`Backbone::embed`] up to the order of float sums.
    ///
    /// # Errors
    /// Those of [`Backbone::embed`]; what befell the device, or a prompt too long for its bindings.
    pub async fn embed(
        &self,
        ids: &[u32],
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<f32>, GpuFailure> {
        self.backbone.check(ids)?;
        let kept = lock(&self.scratch).take().filter(|scratch| scratch.tokens >= ids.len());
        let scratch = match kept {
            Some(scratch) => scratch,
            None => self.scratch(ids.len()).await?,
        };
        let vector = self.run(ids, &scratch, interrupt).await;
        *lock(&self.scratch) = Some(scratch);
        let vector = vector?;
        // A device that broke during the pass may have answered with anything.
        self.gpu.check()?;
        Ok(finite(vector)?)
    }

    async fn scratch(&self, tokens: usize) -> Result<Scratch, GpuError> {
        let shape = &self.backbone.shape;
        // Prompts of like lengths share buffers.
        let tokens = tokens.max(64).next_power_of_two();
        let chunk = tokens.min(CHUNK);
        let (kv, queries) = (shape.kv_heads * shape.head_dim, shape.heads * shape.head_dim);
        let buffer = |rows: usize, cols: usize| self.gpu.buffer(rows * cols);
        Ok(Scratch {
            tokens,
            x: buffer(tokens, shape.hidden).await?,
            k: buffer(tokens, kv).await?,
            v: buffer(tokens, kv).await?,
            last: buffer(1, shape.hidden).await?,
            h: buffer(chunk, shape.hidden).await?,
            rounded: buffer(chunk, shape.hidden).await?,
            q: buffer(chunk, queries).await?,
            attended: buffer(chunk, queries).await?,
            gate: buffer(chunk, shape.ffn).await?,
            up: buffer(chunk, shape.ffn).await?,
            act: buffer(chunk, shape.ffn).await?,
        })
    }

    async fn tables(&self, tokens: usize) -> Result<Tables, GpuError> {
        if let Some(tables) = &*lock(&self.tables)
            && tables.positions >= tokens
        {
            return Ok(tables.clone());
        }
        let positions = tokens.max(CHUNK).next_power_of_two();
        let plan = &self.backbone.plan;
        let full = rope_table(&plan.inverse_freq, plan.magnitude, positions);
        let sliding = match plan.windows.iter().any(Option::is_some) {
            true => Some(self.gpu.buffer_of(&rope_table(&plan.inverse_freq_sliding, 1.0, positions)).await?),
            false => None,
        };
        let tables = Tables { positions, full: self.gpu.buffer_of(&full).await?, sliding };
        *lock(&self.tables) = Some(tables.clone());
        Ok(tables)
    }

    async fn run(
        &self,
        ids: &[u32],
        s: &Scratch,
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<f32>, GpuFailure> {
        let shape = &self.backbone.shape;
        let tables = self.tables(ids.len()).await?;
        let mut x = Vec::new();
        self.backbone.gather(ids, &mut x)?;
        self.gpu.write(&s.x, 0, &x);
        drop(x);
        let mut pass = self.gpu.pass();
        let mut waited = 0;
        for (index, layer) in self.layers.iter().enumerate() {
            let walk = self.layer(layer, index, &tables, s);
            let last = index + 1 == self.layers.len();
            for start in (0..ids.len()).step_by(CHUNK) {
                if interrupt.is_some_and(Interrupt::stops) {
                    return Err(BackboneError::Cancelled.into());
                }
                let rows = CHUNK.min(ids.len() - start);
                walk.keys_and_values(&mut pass, start, rows);
                if !last {
                    walk.queries(&mut pass, start, rows);
                    walk.attend(&mut pass, start, rows)?;
                    walk.rest(&mut pass, Rows::from(&s.x, start), rows);
                }
                if pass.submissions() - waited >= AHEAD {
                    waited = pass.submissions();
                    self.gpu.settle().await?;
                }
            }
            if last {
                // Of the last layer only the last token is finished.
                let token = ids.len() - 1;
                pass.copy(&s.x, token * shape.hidden, &s.last, 0, shape.hidden);
                walk.input(&mut pass, Rows::from(&s.last, 0), 1);
                walk.queries(&mut pass, token, 1);
                walk.attend(&mut pass, token, 1)?;
                walk.rest(&mut pass, Rows::from(&s.last, 0), 1);
            }
        }
        let (from, to) = (Rows::from(&s.last, 0), Rows::from(&s.h, 0));
        pass.norm(from, &self.output_norm, shape.eps, to, [1, shape.hidden], false);
        Ok(pass.read(&s.h, 0, shape.hidden).await?)
    }

    fn layer<'a>(
        &'a self,
        layer: &'a GpuLayer,
        index: usize,
        tables: &'a Tables,
        s: &'a Scratch,
    ) -> Walk<'a> {
        let plan = &self.backbone.plan;
        let window = plan.windows[index];
        let (table, pairs) = match (&tables.sliding, window) {
            (Some(sliding), Some(_)) => (sliding, plan.inverse_freq_sliding.len()),
            _ => (&tables.full, plan.inverse_freq.len()),
        };
        Walk { backbone: &self.backbone, layer, s, table, pairs, window }
    }
}

/// A layer with what its kernels read and write.
struct Walk<'a> {
    backbone: &'a Backbone,
    layer: &'a GpuLayer,
    s: &'a Scratch,
    table: &'a GpuBuffer,
    pairs: usize,
    window: Option<usize>,
}

impl Walk<'_> {
    /// `h` and, rounded, `rounded`: the normalised rows of `x`.
    fn input(&self, pass: &mut Pass<'_>, x: Rows<'_>, rows: usize) {
        let layer = self.layer;
        self.normed(pass, x, &layer.attn_norm, rows, [&layer.q, &layer.k, &layer.v]);
    }

    fn normed<const N: usize>(
        &self,
        pass: &mut Pass<'_>,
        x: Rows<'_>,
        norm: &GpuBuffer,
        rows: usize,
        readers: [&GpuMatrix; N],
    ) {
        let shape = &self.backbone.shape;
        pass.norm(x, norm, shape.eps, Rows::from(&self.s.h, 0), [rows, shape.hidden], false);
        if readers.iter().any(|matrix| matrix.is_quantized()) {
            pass.quantize(Rows::from(&self.s.h, 0), &self.s.rounded, rows, shape.hidden);
        }
    }

    /// A product of what [`Self::normed`] gave.
    fn product(&self, pass: &mut Pass<'_>, w: &GpuMatrix, out: Rows<'_>, rows: usize) {
        let x = if w.is_quantized() { &self.s.rounded } else { &self.s.h };
        pass.matmul(w, Rows::from(x, 0), out, rows, false);
    }

    fn placement<'b>(
        &'b self,
        heads: usize,
        norm: Option<&'b GpuBuffer>,
        position: usize,
        scale: f32,
    ) -> Placement<'b> {
        let shape = &self.backbone.shape;
        Placement {
            heads,
            head_dim: shape.head_dim,
            norm,
            eps: shape.eps,
            table: self.table,
            pairs: self.pairs,
            order: self.backbone.plan.pairs,
            position,
            scale,
        }
    }

    /// The keys and values of rows `start..start + rows` of the prompt; `h` and `rounded` are their input afterwards.
    fn keys_and_values(&self, pass: &mut Pass<'_>, start: usize, rows: usize) {
        self.input(pass, Rows::from(&self.s.x, start), rows);
        let (k, v) = (Rows::from(&self.s.k, start), Rows::from(&self.s.v, start));
        self.product(pass, &self.layer.k, k, rows);
        self.product(pass, &self.layer.v, v, rows);
        let norm = self.layer.k_norm.as_ref();
        pass.heads(k, rows, &self.placement(self.backbone.shape.kv_heads, norm, start, 1.0));
    }

    fn queries(&self, pass: &mut Pass<'_>, position: usize, rows: usize) {
        let q = Rows::from(&self.s.q, 0);
        self.product(pass, &self.layer.q, q, rows);
        let (norm, scale) = (self.layer.q_norm.as_ref(), self.backbone.plan.query_scale);
        pass.heads(q, rows, &self.placement(self.backbone.shape.heads, norm, position, scale));
    }

    fn attend(&self, pass: &mut Pass<'_>, position: usize, rows: usize) -> Result<(), GpuError> {
        let (shape, s) = (&self.backbone.shape, self.s);
        let heads = Heads {
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            window: self.window,
        };
        pass.attention(Rows::from(&s.q, 0), (&s.k, &s.v), Rows::from(&s.attended, 0), rows, position, &heads)
    }

    /// From what attention gave to the residual stream: `x += o(attended)`, `x += ffn(norm(x))`.
    fn rest(&self, pass: &mut Pass<'_>, x: Rows<'_>, rows: usize) {
        let (shape, s, layer) = (&self.backbone.shape, self.s, self.layer);
        // Queries are done with: their buffer takes the rounded heads.
        let width = shape.heads * shape.head_dim;
        self.add(pass, &layer.o, (&s.attended, &s.q), width, layer.post_attn_norm.as_ref(), x, rows);
        self.normed(pass, x, &layer.ffn_norm, rows, [&layer.gate, &layer.up]);
        self.product(pass, &layer.gate, Rows::from(&s.gate, 0), rows);
        self.product(pass, &layer.up, Rows::from(&s.up, 0), rows);
        pass.gate(self.backbone.plan.activation, &s.gate, &s.up, &s.act, rows * shape.ffn);
        self.add(pass, &layer.down, (&s.act, &s.gate), shape.ffn, layer.post_ffn_norm.as_ref(), x, rows);
    }

    /// `x += w · input`, or its norm where the model has one; `input` is rounded into the second buffer first.
    #[expect(clippy::too_many_arguments, reason = "a product with its buffers")]
    fn add(
        &self,
        pass: &mut Pass<'_>,
        w: &GpuMatrix,
        (input, rounded): (&GpuBuffer, &GpuBuffer),
        cols: usize,
        norm: Option<&GpuBuffer>,
        x: Rows<'_>,
        rows: usize,
    ) {
        let mut from = Rows::from(input, 0);
        if w.is_quantized() {
            pass.quantize(from, rounded, rows, cols);
            from = Rows::from(rounded, 0);
        }
        match norm {
            None => pass.matmul(w, from, x, rows, true),
            Some(norm) => {
                let (shape, h) = (&self.backbone.shape, Rows::from(&self.s.h, 0));
                pass.matmul(w, from, h, rows, false);
                pass.norm(h, norm, shape.eps, x, [rows, shape.hidden], true);
            }
        }
    }
}

/// A GPU that may fail: it is rebuilt once, then it is given up.
pub struct GpuRuntime {
    backbone: Arc<Backbone>,
    options: GpuOptions,
    state: Mutex<State>,
}

struct State {
    ready: Option<Arc<GpuBackbone>>,
    /// Whether it was rebuilt already.
    rebuilt: bool,
    /// Why it was given up.
    failed: Option<GpuError>,
}

impl GpuRuntime {
    /// As [`GpuBackbone::open`].
    ///
    /// # Errors
    /// As [`GpuBackbone::open`].
    pub async fn open(backbone: Arc<Backbone>, options: GpuOptions) -> Result<Self, GpuFailure> {
        let ready = Some(Arc::new(GpuBackbone::open(backbone.clone(), &options).await?));
        Ok(Self { backbone, options, state: Mutex::new(State { ready, rebuilt: false, failed: None }) })
    }

    /// The backbone that runs, unless it was given up.
    pub fn ready(&self) -> Option<Arc<GpuBackbone>> {
        lock(&self.state).ready.clone()
    }

    /// Why it was given up, where it was.
    pub fn failed(&self) -> Option<GpuError> {
        lock(&self.state).failed.clone()
    }

    /// Whether a device was lost, and another took over.
    pub fn rebuilt(&self) -> bool {
        let state = lock(&self.state);
        state.rebuilt && state.failed.is_none()
    }

    /// [`GpuBackbone::embed`]. Where the device breaks, one more is opened and proved, and the prompt is read there.
    ///
    /// # Errors
    /// [`GpuFailure::Gpu`] where the CPU has to do it: this time for a prompt that is too long, from now on for a device that
    /// broke again.
    pub async fn embed(
        &self,
        ids: &[u32],
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<f32>, GpuFailure> {
        loop {
            let (ready, failed) = {
                let state = lock(&self.state);
                (state.ready.clone(), state.failed.clone())
            };
            let Some(ready) = ready else {
                return Err(failed
                    .unwrap_or_else(|| GpuError::Lost("it is being rebuilt".to_owned()))
                    .into());
            };
            let error = match ready.embed(ids, interrupt).await {
                Err(GpuFailure::Gpu(error)) => error,
                done => return done,
            };
            // What it cannot do it cannot do after a rebuild either.
            if matches!(error, GpuError::Unsupported { .. } | GpuError::Limit { .. }) {
                return Err(error.into());
            }
            {
                let mut state = lock(&self.state);
                match &state.ready {
                    // Another thread saw to it.
                    Some(now) if !Arc::ptr_eq(now, &ready) => continue,
                    None => return Err(state.failed.clone().unwrap_or(error).into()),
                    Some(_) => {}
                }
                state.ready = None;
                if state.rebuilt {
                    state.failed = Some(error.clone());
                    return Err(error.into());
                }
                state.rebuilt = true;
            }
            // The old weights go before the new ones come.
            drop(ready);
            let opened = GpuBackbone::open(self.backbone.clone(), &self.options).await;
            let mut state = lock(&self.state);
            match opened {
                Ok(opened) => state.ready = Some(Arc::new(opened)),
                Err(GpuFailure::Gpu(error)) => {
                    state.failed = Some(error.clone());
                    return Err(error.into());
                }
                Err(other) => {
                    state.failed = Some(error);
                    return Err(other);
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
