//! The forward pass on a GPU: a prompt's prefill as [`Backbone::embed`] runs it, with the kernels of [`zen_edge_kernels::gpu`].
//!
//! Weights go to the device once, a part at a time; embedding rows stay in the file and are gathered on the host. Nothing comes
//! back but the vector. Activations stay in f32: the vector is that of [`Arithmetic::Float`](super::Arithmetic::Float) up to the
//! order of float sums, and differs from the CPU's own by what its int8 activations cost. [`GpuBackbone::open`] believes no device before it has proved itself, and [`GpuRuntime`] gives a request that a device drops to the next one, or to the CPU.

mod notes;

use super::forward::finite;
use super::weights::Layer;
use super::{Backbone, BackboneError, Interrupt};
use notes::Key;
use std::sync::{Arc, Mutex, PoisonError};
use zen_edge_kernels::format::BlockType;
use zen_edge_kernels::gemm::Matrix;

#[cfg(not(target_family = "wasm"))]
pub use notes::NotesFile;
pub use notes::{GpuNotes, Kept, NotesKeeper};
pub use zen_edge_kernels::gpu::{
    Faults, Gpu, GpuError, GpuInfo, GpuLimits, GpuOptions, Kernel, Line, Now, Pause, Roofline, Share, measure,
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
/// Both sides compute in f32: what differs is then the order of sums, and the test is one of the device. Against the CPU's
/// int8 activations it would be one of the model: Gemma 3 270M, SmolLM2-135M and a random 0.6B carry a rounding that
/// fell the other way so far (cosine .9969 to .9989, length .987) that sound devices were refused.
const PROOF: [usize; 3] = [11, 24, 70];

/// Which of them a device that was proved before is asked.
const ASKED: usize = 1;

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
    /// Each kernel; none where an earlier start had proved them.
    pub kernels: Vec<Line>,
    /// Whole passes; one where an earlier start had proved the others.
    pub prompts: Vec<PromptProof>,
    /// Whether an earlier start had proved it, with the same driver, build and model.
    pub remembered: bool,
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

/// Every kernel that the backbone runs, against its twin.
async fn prove_kernels(gpu: &Gpu, backbone: &Backbone) -> Result<Vec<Line>, GpuError> {
    let mut formats: Vec<BlockType> =
        backbone.layers.iter().flat_map(Layer::matrices).map(Matrix::block_type).collect();
    formats.sort_unstable();
    formats.dedup();
    prove(gpu, &formats, backbone.shape().head_dim).await
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
    /// against `backbone` on the CPU, both in f32.
    ///
    /// # Errors
    /// [`GpuError`] says what is missing or what came out wrong.
    pub async fn open(backbone: Arc<Backbone>, options: &GpuOptions) -> Result<Self, GpuFailure> {
        Self::open_with(backbone, options, &mut GpuNotes::default()).await
    }

    /// [`open`](Self::open) with what is remembered of devices. One that was proved before must come near the CPU's answer of then, and
    /// no more is asked of it; one that was refused is refused. What is found now is noted.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`GpuError::Refused`].
    pub async fn open_with(
        backbone: Arc<Backbone>,
        options: &GpuOptions,
        notes: &mut GpuNotes,
    ) -> Result<Self, GpuFailure> {
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
        let key = Key::new(gpu.info(), &backbone);
        if let Some(refused) = notes.refused(&key) {
            return Err(refused.into());
        }
        let opened = Self::load(backbone, gpu, notes.answer(&key), options).await;
        match &opened {
            Ok((opened, answer)) if !opened.proof.remembered => notes.prove(key, answer.clone()),
            Err(GpuFailure::Gpu(error)) => notes.refuse(key, error),
            _ => {}
        }
        opened.map(|(opened, _)| opened)
    }

    /// Puts the weights on a device and has it prove itself; with the right answer to the prompt that it will be asked at
    /// later starts.
    async fn load(
        backbone: Arc<Backbone>,
        gpu: Gpu,
        known: Option<Vec<f32>>,
        options: &GpuOptions,
    ) -> Result<(Self, Vec<f32>), GpuFailure> {
        let mut kernels = Vec::new();
        if known.is_none() {
            kernels = prove_kernels(&gpu, &backbone).await?;
        }
        let mut layers = Vec::with_capacity(backbone.layers.len());
        for layer in &backbone.layers {
            layers.push(GpuLayer::upload(&gpu, layer).await?);
        }
        let output_norm = gpu.buffer_of(&backbone.output_norm).await?;
        let mut opened = Self {
            gpu,
            layers,
            output_norm,
            proof: Proof { kernels, prompts: Vec::new(), remembered: false },
            scratch: Mutex::new(None),
            tables: Mutex::new(None),
            backbone,
        };
        let vocab = opened.backbone.shape.vocab;
        let prompts =
            PROOF.map(|tokens| (0..tokens).map(|i| ((i * 7919 + 17) % vocab) as u32).collect::<Vec<_>>());
        if let Some(known) = known {
            let found = opened.embed(&prompts[ASKED], None).await?;
            let proof = PromptProof::new(PROOF[ASKED], &found, &known);
            if known.len() == found.len() && proof.passed() {
                opened.proof.prompts.push(proof);
                opened.proof.remembered = true;
                return Ok((opened, known));
            }
            // Either may be at fault, the device or what was kept: the whole proof tells.
            opened.proof.kernels = prove_kernels(&opened.gpu, &opened.backbone).await?;
        }
        let mut pass = opened.backbone.begin_float(&prompts.each_ref().map(Vec::as_slice))?;
        let mut expected = loop {
            if let Some(vectors) = opened.backbone.step_float(&mut pass)? {
                break vectors;
            }
            options.pause().await;
        };
        for (ids, expected) in prompts.iter().zip(&expected) {
            let tokens = ids.len();
            let found = opened.embed(ids, None).await?;
            let proof = PromptProof::new(tokens, &found, expected);
            opened.proof.prompts.push(proof);
            if !proof.passed() {
                let why = format!(
                    "{tokens} tokens: cosine {:.6} with the CPU's vector, length {:.4} of it",
                    proof.cosine, proof.length
                );
                return Err(GpuError::Wrong { kernel: "prompt".to_owned(), why }.into());
            }
        }
        Ok((opened, expected.swap_remove(ASKED)))
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
                walk.input(&mut pass, Rows::from(&s.last, 0), &layer.attn_norm, 1);
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
    /// `h`: the normalised rows of `x`.
    fn input(&self, pass: &mut Pass<'_>, x: Rows<'_>, norm: &GpuBuffer, rows: usize) {
        let shape = &self.backbone.shape;
        pass.norm(x, norm, shape.eps, Rows::from(&self.s.h, 0), [rows, shape.hidden], false);
    }

    /// A product of `h`.
    fn product(&self, pass: &mut Pass<'_>, w: &GpuMatrix, out: Rows<'_>, rows: usize) {
        pass.matmul(w, Rows::from(&self.s.h, 0), out, rows, false);
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

    /// The keys and values of rows `start..start + rows` of the prompt; `h` is their input afterwards.
    fn keys_and_values(&self, pass: &mut Pass<'_>, start: usize, rows: usize) {
        self.input(pass, Rows::from(&self.s.x, start), &self.layer.attn_norm, rows);
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
        self.add(pass, &layer.o, &s.attended, layer.post_attn_norm.as_ref(), x, rows);
        self.input(pass, x, &layer.ffn_norm, rows);
        self.product(pass, &layer.gate, Rows::from(&s.gate, 0), rows);
        self.product(pass, &layer.up, Rows::from(&s.up, 0), rows);
        pass.gate(self.backbone.plan.activation, &s.gate, &s.up, &s.act, rows * shape.ffn);
        self.add(pass, &layer.down, &s.act, layer.post_ffn_norm.as_ref(), x, rows);
    }

    /// `x += w · input`, or its norm where the model has one.
    fn add(
        &self,
        pass: &mut Pass<'_>,
        w: &GpuMatrix,
        input: &GpuBuffer,
        norm: Option<&GpuBuffer>,
        x: Rows<'_>,
        rows: usize,
    ) {
        let from = Rows::from(input, 0);
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
    notes: Mutex<GpuNotes>,
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
    /// As [`GpuBackbone::open_with`].
    ///
    /// # Errors
    /// As [`GpuBackbone::open_with`].
    pub async fn open(
        backbone: Arc<Backbone>,
        options: GpuOptions,
        notes: &mut GpuNotes,
    ) -> Result<Self, GpuFailure> {
        let ready = Some(Arc::new(GpuBackbone::open_with(backbone.clone(), &options, notes).await?));
        let state = Mutex::new(State { ready, rebuilt: false, failed: None });
        Ok(Self { backbone, options, notes: Mutex::new(notes.clone()), state })
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
            let mut rebuilding = Rebuilding { state: &self.state, lost: Some(error.clone()) };
            // The old weights go before the new ones come.
            drop(ready);
            let mut notes = lock(&self.notes).clone();
            let opened = GpuBackbone::open_with(self.backbone.clone(), &self.options, &mut notes).await;
            rebuilding.lost = None;
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

/// A rebuild that is under way. Whoever waits for it may go, by a deadline or a dropped job, and takes it along: the device stays lost
/// then, and says so.
struct Rebuilding<'a> {
    state: &'a Mutex<State>,
    lost: Option<GpuError>,
}

impl Drop for Rebuilding<'_> {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            lock(self.state).failed = Some(lost);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
