//! Work for a device: kernels put one after the other, submitted in pieces that a display can stand.

use super::device::{Gpu, GpuBuffer, SLOT, SLOTS};
use super::error::GpuError;
use super::shader::{Kernel, Permutation};
use super::weights::GpuMatrix;
use crate::ops::{Activation, RopePairs};
use std::time::Duration;

/// The longest head that attention's registers hold.
pub const MAX_HEAD: usize = 256;

/// Rows of queries that a workgroup of attention takes.
const QUERIES: usize = 32;

/// A window that sees everything: `position + window` stays a u32.
const NO_WINDOW: u32 = 0x7fff_ffff;

enum Step {
    Dispatch { pipeline: wgpu::ComputePipeline, bindings: wgpu::BindGroup, groups: [u32; 2] },
    Copy { from: wgpu::Buffer, from_at: u64, to: wgpu::Buffer, to_at: u64, size: u64 },
}

/// Rows of a buffer: `[row][cols]`, from a row on.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The buffer.
    pub buffer: &'a GpuBuffer,
    /// The first row.
    pub first: usize,
}

impl<'a> Rows<'a> {
    /// Rows from `first` on.
    pub const fn from(buffer: &'a GpuBuffer, first: usize) -> Self {
        Self { buffer, first }
    }
}

/// How heads are placed: [`Pass::heads`].
#[derive(Clone, Copy)]
pub struct Placement<'a> {
    /// Heads of a row.
    pub heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// The norm of each head, where the model has one.
    pub norm: Option<&'a GpuBuffer>,
    /// What the norm adds to the mean square.
    pub eps: f32,
    /// Cosines and sines, `[position][pair][2]`.
    pub table: &'a GpuBuffer,
    /// Pairs of a head.
    pub pairs: usize,
    /// Which values make a pair.
    pub order: RopePairs,
    /// Position of the first row.
    pub position: usize,
    /// What the head is multiplied by afterwards.
    pub scale: f32,
}

/// The shape of an attention: [`Pass::attention`].
#[derive(Clone, Copy)]
pub struct Heads {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Positions that a token sees, its own among them.
    pub window: Option<usize>,
}

/// Kernels in order. What is not yet submitted when it is dropped is forgotten.
pub struct Pass<'a> {
    gpu: &'a Gpu,
    steps: Vec<Step>,
    params: Vec<u8>,
    slots: usize,
    cost: f64,
    total: f64,
    submissions: usize,
    start: Option<Duration>,
}

/// A word of parameters.
trait Word {
    fn word(self) -> u32;
}

impl Word for usize {
    #[allow(clippy::cast_possible_truncation)]
    fn word(self) -> u32 {
        // Every count is of elements of a buffer, and a binding has fewer than 2^30 of them.
        self as u32
    }
}

impl Word for f32 {
    fn word(self) -> u32 {
        self.to_bits()
    }
}

impl Gpu {
    /// Begins to put kernels together.
    pub fn pass(&self) -> Pass<'_> {
        Pass {
            gpu: self,
            steps: Vec::new(),
            params: Vec::new(),
            slots: 0,
            cost: 0.0,
            total: 0.0,
            submissions: 0,
            start: self.now.as_ref().map(|now| now()),
        }
    }
}

/// Workgroups for `n`, in two dimensions where one would not do.
fn grid(n: usize) -> [u32; 2] {
    let x = n.clamp(1, 65_535);
    [x.word(), n.div_ceil(x).max(1).word()]
}

impl Pass<'_> {
    fn dispatch(
        &mut self,
        permutation: &Permutation,
        params: &[u32],
        buffers: &[&wgpu::Buffer],
        groups: [u32; 2],
        cost: f64,
    ) {
        if self.slots == SLOTS || (self.slots > 0 && self.cost + cost > self.gpu.budget()) {
            self.submit();
        }
        let pipeline = self.gpu.pipeline(permutation);
        let offset = self.slots * SLOT;
        self.params.resize(offset + SLOT, 0);
        self.params[offset..offset + 4 * params.len()].copy_from_slice(bytemuck::cast_slice(params));
        self.slots += 1;
        let uniform = wgpu::BufferBinding {
            buffer: &self.gpu.arena,
            offset: offset as u64,
            // A uniform's size is a multiple of 16 in no shader larger than this.
            size: wgpu::BufferSize::new(64),
        };
        let mut entries =
            vec![wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(uniform) }];
        for (binding, buffer) in (1..).zip(buffers) {
            entries.push(wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() });
        }
        let bindings = self.gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(permutation.kernel.name()),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        self.steps.push(Step::Dispatch { pipeline, bindings, groups });
        self.cost += cost;
    }

    /// Copies `len` values.
    pub fn copy(&mut self, from: &GpuBuffer, from_at: usize, to: &GpuBuffer, to_at: usize, len: usize) {
        self.steps.push(Step::Copy {
            from: from.0.clone(),
            from_at: 4 * from_at as u64,
            to: to.0.clone(),
            to_at: 4 * to_at as u64,
            size: 4 * len as u64,
        });
    }

    /// Copies words through a kernel, bit for bit.
    pub fn echo(&mut self, from: &GpuBuffer, to: &GpuBuffer, words: usize) {
        let groups = [words.div_ceil(256).word(), 1];
        self.dispatch(
            &Permutation::of_u32(Kernel::Echo, &[]),
            &[words.word()],
            &[&from.0, &to.0],
            groups,
            words as f64,
        );
    }

    /// `out = norm(x) · weight`, or added to `out`: so many rows of so many values, as many as `weight` has.
    pub fn norm(
        &mut self,
        x: Rows<'_>,
        weight: &GpuBuffer,
        eps: f32,
        out: Rows<'_>,
        [rows, cols]: [usize; 2],
        add: bool,
    ) {
        let params = [cols.word(), x.first.word(), out.first.word(), eps.word()];
        self.dispatch(
            &Permutation::of_u32(Kernel::Norm, &[("ADD", add.into())]),
            &params,
            &[&x.buffer.0, &weight.0, &out.buffer.0],
            [rows.word(), 1],
            8.0 * (rows * cols) as f64,
        );
    }

    /// `out = w · x`, or added to `out`, for `tokens` rows.
    pub fn matmul(&mut self, w: &GpuMatrix, x: Rows<'_>, out: Rows<'_>, tokens: usize, add: bool) {
        let tile = match tokens {
            0..=16 => 1,
            17..=32 => 2,
            _ => 4,
        };
        let permutation = Permutation::gemm(w.ty, tile, add);
        let tall = tokens.div_ceil(16 * tile as usize);
        // Operations of a column of tiles.
        let column = 2.0 * (tall * 16 * tile as usize * 64 * w.cols()) as f64;
        for part in &w.parts {
            let tiles = part.rows.div_ceil(64);
            let mut first = 0;
            while first < tiles {
                let room = (self.gpu.budget() / column).max(1.0);
                let count = if room >= (tiles - first) as f64 { tiles - first } else { room as usize };
                let l = &part.layout;
                let params = [
                    tokens.word(),
                    part.rows.word(),
                    w.cols().word(),
                    l.n_pad.word(),
                    x.first.word(),
                    out.first.word(),
                    w.rows().word(),
                    part.first.word(),
                    l.ints.word(),
                    l.d.word(),
                    l.dmin.word(),
                    first.word(),
                ];
                self.dispatch(
                    &permutation,
                    &params,
                    &[&part.buffer, &x.buffer.0, &out.buffer.0],
                    [count.word(), tall.word()],
                    column * count as f64,
                );
                first += count;
            }
        }
    }

    /// Heads of `rows` rows, in place: normalised, rotated, scaled.
    pub fn heads(&mut self, x: Rows<'_>, rows: usize, how: &Placement<'_>) {
        let d = how.head_dim;
        let constants = [
            ("D", d.word()),
            ("NORM", how.norm.is_some().into()),
            ("PAIRS", (how.order == RopePairs::Neighbours).into()),
        ];
        let params = [
            x.first.word(),
            (how.heads * d).word(),
            how.pairs.word(),
            how.position.word(),
            how.eps.word(),
            how.scale.word(),
        ];
        self.dispatch(
            &Permutation::of_u32(Kernel::Heads, &constants),
            &params,
            &[&how.norm.unwrap_or(how.table).0, &how.table.0, &x.buffer.0],
            [how.heads.word(), rows.word()],
            20.0 * (rows * how.heads * d) as f64,
        );
    }

    /// Attention of the queries of `tokens` tokens from `position` on over the keys and values of positions `0..`.
    ///
    /// # Errors
    /// Heads longer than [`MAX_HEAD`].
    pub fn attention(
        &mut self,
        q: Rows<'_>,
        (keys, values): (&GpuBuffer, &GpuBuffer),
        out: Rows<'_>,
        tokens: usize,
        position: usize,
        shape: &Heads,
    ) -> Result<(), GpuError> {
        let (d, group) = (shape.head_dim, shape.heads / shape.kv_heads);
        if d > MAX_HEAD || !d.is_multiple_of(16) {
            return Err(GpuError::Unsupported { what: format!("heads of {d} values") });
        }
        let permutation = Permutation::of_u32(Kernel::Attention, &[("D", d.word())]);
        let rows = tokens * group;
        let tiles = rows.div_ceil(QUERIES);
        let seen = shape.window.map_or(position + tokens, |window| window.min(position + tokens));
        let tile_cost = 4.0 * (QUERIES * seen * d * shape.kv_heads) as f64;
        let window = shape.window.map_or(NO_WINDOW, |window| window.min(NO_WINDOW as usize).word());
        let mut first = 0;
        while first < tiles {
            let room = (self.gpu.budget() / tile_cost).max(1.0);
            let count = if room >= (tiles - first) as f64 { tiles - first } else { room as usize };
            let params = [
                rows.word(),
                group.word(),
                shape.heads.word(),
                shape.kv_heads.word(),
                position.word(),
                window,
                q.first.word(),
                out.first.word(),
                first.word(),
            ];
            self.dispatch(
                &permutation,
                &params,
                &[&q.buffer.0, &keys.0, &values.0, &out.buffer.0],
                [count.word(), shape.kv_heads.word()],
                tile_cost * count as f64,
            );
            first += count;
        }
        Ok(())
    }

    /// `out = f(gate) · up`, `len` values, a multiple of four.
    pub fn gate(&mut self, f: Activation, gate: &GpuBuffer, up: &GpuBuffer, out: &GpuBuffer, len: usize) {
        let f = u32::from(f == Activation::Gelu);
        self.dispatch(
            &Permutation::of_u32(Kernel::Gate, &[("ACTIVATION", f)]),
            &[(len / 4).word()],
            &[&gate.0, &up.0, &out.0],
            grid((len / 4).div_ceil(256)),
            20.0 * len as f64,
        );
    }

    /// The roofline's multiply-adds: `groups` workgroups, each 256 · 64 · `rounds` operations.
    pub(super) fn peak(&mut self, out: &GpuBuffer, groups: usize, rounds: u32) {
        let permutation = Permutation::of_u32(Kernel::Peak, &[("ROUNDS", rounds)]);
        self.dispatch(&permutation, &[0.5f32.word()], &[&out.0], [groups.word(), 1], 0.0);
    }

    /// The roofline's copy of `len` values.
    pub(super) fn move_values(&mut self, from: &GpuBuffer, to: &GpuBuffer, len: usize) {
        let permutation = Permutation::of_u32(Kernel::Copy, &[]);
        self.dispatch(
            &permutation,
            &[(len / 4).word()],
            &[&from.0, &to.0],
            grid((len / 4).div_ceil(256)),
            0.0,
        );
    }

    /// Hands over what was put together so far.
    pub fn submit(&mut self) {
        if self.steps.is_empty() {
            return;
        }
        let submitting = super::device::lock(&self.gpu.submitting);
        self.gpu.queue.write_buffer(&self.gpu.arena, 0, &self.params);
        let mut encoder = self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut steps = self.steps.drain(..).peekable();
        while let Some(step) = steps.next() {
            match step {
                Step::Copy { from, from_at, to, to_at, size } => {
                    encoder.copy_buffer_to_buffer(&from, from_at, &to, to_at, size);
                }
                Step::Dispatch { pipeline, bindings, groups } => {
                    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
                    let mut run =
                        |pipeline: wgpu::ComputePipeline, bindings: wgpu::BindGroup, groups: [u32; 2]| {
                            pass.set_pipeline(&pipeline);
                            pass.set_bind_group(0, &bindings, &[]);
                            pass.dispatch_workgroups(groups[0], groups[1], 1);
                        };
                    run(pipeline, bindings, groups);
                    while let Some(Step::Dispatch { pipeline, bindings, groups }) =
                        steps.next_if(|step| matches!(step, Step::Dispatch { .. }))
                    {
                        run(pipeline, bindings, groups);
                    }
                }
            }
        }
        drop(steps);
        self.gpu.submit(encoder.finish());
        drop(submitting);
        self.submissions += 1;
        self.total += self.cost;
        self.cost = 0.0;
        self.slots = 0;
        self.params.clear();
    }

    /// Submits the rest and reads `len` values of `buffer` from `at` on.
    ///
    /// # Errors
    /// What befell the device.
    pub async fn read(mut self, buffer: &GpuBuffer, at: usize, len: usize) -> Result<Vec<f32>, GpuError> {
        self.submit();
        let values = self.gpu.read(buffer, at, len).await?;
        if let (Some(now), Some(start)) = (&self.gpu.now, self.start) {
            self.gpu.measured(self.total, now().saturating_sub(start));
        }
        Ok(values)
    }

    /// Submissions so far.
    pub const fn submissions(&self) -> usize {
        self.submissions
    }
}

/// Cosines and sines of positions `0..positions`, as [`Pass::heads`] reads them: `[position][pair][2]`, the values of
/// [`crate::ops::RopeTable`].
pub fn rope_table(inverse_freq: &[f32], magnitude: f32, positions: usize) -> Vec<f32> {
    let turn = |position: usize, freq: f32| {
        let (sin, cos) = crate::math::sin_cos(f64::from(position as f32 * freq));
        [cos as f32 * magnitude, sin as f32 * magnitude]
    };
    (0..positions)
        .flat_map(|position| inverse_freq.iter().flat_map(move |freq| turn(position, *freq)))
        .collect()
}
