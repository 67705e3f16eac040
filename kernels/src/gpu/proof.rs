//! Known answers: each kernel on this device against its twin on the CPU, on small shapes.
//!
//! The twins are the CPU's own operations ([`crate::ops`], [`crate::attention`](mod@crate::attention)) in their
//! scalar definition, and for products the weights as [`dequantize`] gives them, summed in f64. An error is the largest difference
//! in units of what the sum is made of: for a product Σ |x·w|, else the largest magnitude of the expected values.

use super::device::{Gpu, GpuBuffer};
use super::error::GpuError;
use super::pass::{Heads, Placement, Rows, rope_table};
use super::shader::Kernel;
use super::weights::PART_BYTES;
use crate::attention::{KvCache, attention};
use crate::format::{BlockType, dequantize};
use crate::gemm::Matrix;
use crate::isa::Isa;
use crate::ops::{self, Activation, RopePairs, RopeTable};
use crate::pool::Pool;
use crate::testing::Random;

/// What a kernel's test found.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The kernel.
    pub kernel: Kernel,
    /// On what: a format, a shape.
    pub what: String,
    /// The largest error found.
    pub error: f64,
    /// The largest that is allowed.
    pub tolerance: f64,
}

impl Line {
    fn judge(kernel: Kernel, what: String, error: f64, tolerance: f64) -> Self {
        Self { kernel, what, error, tolerance }
    }

    /// Whether the kernel passed. What is not a number did not.
    pub fn passed(&self) -> bool {
        self.error <= self.tolerance
    }

    fn into_result(self) -> Result<Self, GpuError> {
        if self.passed() {
            return Ok(self);
        }
        Err(GpuError::Wrong {
            kernel: self.kernel.name().to_owned(),
            why: format!(
                "{}: an error of {:.2e}, and at most {:.0e} is allowed",
                self.what, self.error, self.tolerance
            ),
        })
    }
}

/// What sums of f32 in another order may differ by, relative to what they are made of.
const SUM: f64 = 4e-6;

/// Holds every kernel that a model of these `formats` and heads of `head_dim` values runs against its twin.
///
/// # Errors
/// [`GpuError::Wrong`] for the first that does not pass; what befell the device.
pub async fn prove(gpu: &Gpu, formats: &[BlockType], head_dim: usize) -> Result<Vec<Line>, GpuError> {
    let mut lines = vec![echo(gpu).await?.into_result()?];
    for add in [false, true] {
        lines.push(norm(gpu, 5, 1000, add).await?.into_result()?);
    }
    for ty in formats {
        for (m, n, add) in [(1, 65, false), (17, 65, true), (67, 129, false)] {
            lines.push(gemm(gpu, *ty, m, n, 512, add).await?.into_result()?);
        }
    }
    for order in [RopePairs::Halves, RopePairs::Neighbours] {
        for normed in [false, true] {
            lines.push(heads(gpu, 3, 5, head_dim, order, normed).await?.into_result()?);
        }
    }
    for window in [None, Some(24)] {
        let shape = Heads { heads: 6, kv_heads: 2, head_dim, window };
        lines.push(attend(gpu, 40, 45, &shape).await?.into_result()?);
    }
    for f in [Activation::Silu, Activation::Gelu] {
        lines.push(gate(gpu, f, 1000).await?.into_result()?);
    }
    Ok(lines)
}

/// The largest difference, in units of the largest expected magnitude; infinite where the lengths or a NaN differ.
fn difference(found: &[f32], expected: &[f32]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let most = expected.iter().fold(1e-30f64, |most, x| most.max(f64::from(x.abs())));
    let far = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    // `max` would swallow a NaN.
    far.fold(0.0, |most, x| if x <= most { most } else { x }) / most
}

/// Bit patterns that a device might change: subnormals, infinities, NaNs, alternating bits.
async fn echo(gpu: &Gpu) -> Result<Line, GpuError> {
    let mut random = Random::new(1);
    let mut words =
        vec![0, 1, 0x8000_0000, 0x007f_ffff, 0x7f80_0000, 0xff80_0000, 0x7fc0_0001, 0xaaaa_aaaa, 0x5555_5555];
    words.extend((0..503).map(|_| random.next() as u32));
    let values: Vec<f32> = words.iter().map(|word| f32::from_bits(*word)).collect();
    let (from, to) = (gpu.buffer_of(&values).await?, gpu.buffer(values.len()).await?);
    let mut pass = gpu.pass();
    pass.echo(&from, &to, words.len());
    let back = pass.read(&to, 0, words.len()).await?;
    let changed = back.iter().zip(&words).filter(|(value, word)| value.to_bits() != **word).count();
    Ok(Line::judge(Kernel::Echo, format!("{} words", words.len()), changed as f64, 0.0))
}

async fn norm(gpu: &Gpu, rows: usize, cols: usize, add: bool) -> Result<Line, GpuError> {
    let mut random = Random::new(2);
    let (x, w, before) =
        (random.activations((rows + 1) * cols), random.activations(cols), random.activations(rows * cols));
    let mut expected = vec![0.0; rows * cols];
    ops::rms_norm(Isa::Scalar, &Pool::single(), &x[cols..], &w, 1e-6, &mut expected);
    if add {
        ops::add(&mut expected, &before);
    }
    let (x, w, out) = (gpu.buffer_of(&x).await?, gpu.buffer_of(&w).await?, gpu.buffer_of(&before).await?);
    let mut pass = gpu.pass();
    pass.norm(Rows::from(&x, 1), &w, 1e-6, Rows::from(&out, 0), [rows, cols], add);
    let found = pass.read(&out, 0, rows * cols).await?;
    let what = format!("{rows} x {cols}{}", if add { ", added" } else { "" });
    Ok(Line::judge(Kernel::Norm, what, difference(&found, &expected), SUM))
}

pub(super) async fn gemm(
    gpu: &Gpu,
    ty: BlockType,
    m: usize,
    n: usize,
    k: usize,
    add: bool,
) -> Result<Line, GpuError> {
    gemm_in(gpu, ty, m, n, k, add, PART_BYTES).await
}

/// A product, its weights in parts of at most `part` bytes.
pub(super) async fn gemm_in(
    gpu: &Gpu,
    ty: BlockType,
    m: usize,
    n: usize,
    k: usize,
    add: bool,
    part: usize,
) -> Result<Line, GpuError> {
    let mut random = Random::new(4 + ty.ggml_id() as u64);
    let bytes: Vec<u8> = (0..n * k / ty.block_len()).flat_map(|_| random.block(ty)).collect();
    let mut w = vec![0.0; n * k];
    dequantize(ty, &bytes, &mut w);
    // A row before and one after: neither may be touched.
    let (x, before) = (random.activations((m + 1) * k), random.activations((m + 2) * n));
    let mut expected = before.iter().map(|x| (f64::from(*x), 1.0)).collect::<Vec<_>>();
    for t in 0..m {
        for r in 0..n {
            let (mut sum, mut size) = (0.0, 0.0);
            for (x, w) in x[(t + 1) * k..(t + 2) * k].iter().zip(&w[r * k..(r + 1) * k]) {
                let product = f64::from(*x) * f64::from(*w);
                sum += product;
                size += product.abs();
            }
            let at = (t + 1) * n + r;
            let start = if add { f64::from(before[at]) } else { 0.0 };
            expected[at] = (sum + start, size + start.abs());
        }
    }
    let matrix =
        Matrix::new(ty, n, k, bytes.into()).map_err(|e| GpuError::Unsupported { what: e.to_string() })?;
    let matrix = gpu.upload_parts(&matrix, part).await?;
    let (x, out) = (gpu.buffer_of(&x).await?, gpu.buffer_of(&before).await?);
    let mut pass = gpu.pass();
    pass.matmul(&matrix, Rows::from(&x, 1), Rows::from(&out, 1), m, add);
    let found = pass.read(&out, 0, (m + 2) * n).await?;
    let far = found.iter().zip(&expected).map(|(a, (b, size))| (f64::from(*a) - b).abs() / size.max(1e-30));
    let error = far.fold(0.0f64, |most, x| if x <= most { most } else { x });
    let what = format!("{ty}, {m} x {n} x {k}{}", if add { ", added" } else { "" });
    Ok(Line::judge(Kernel::Gemm, what, error, SUM))
}

pub(super) async fn heads(
    gpu: &Gpu,
    rows: usize,
    count: usize,
    d: usize,
    order: RopePairs,
    normed: bool,
) -> Result<Line, GpuError> {
    let mut random = Random::new(6);
    let (x, w) = (random.activations((rows + 1) * count * d), random.activations(d));
    // Not every value of a head turns.
    let pairs = if normed { d / 2 } else { d / 4 };
    let freq: Vec<f32> = (0..pairs).map(|i| 1.0 / (1.0 + i as f32)).collect();
    let table = rope_table(&freq, 1.0, 9 + rows);
    let mut expected = x.clone();
    let after = &mut expected[count * d..];
    let pool = Pool::single();
    if normed {
        ops::rms_norm_heads(Isa::Scalar, &pool, after, count * d, count, &w, 1e-6);
    }
    let mut rope = RopeTable::default();
    rope.fill(&freq, 1.0, 9..9 + rows);
    ops::rope(&pool, after, count * d, count, d, order, &rope);
    ops::scale(after, 0.25);
    let (buffer, w, table) =
        (gpu.buffer_of(&x).await?, gpu.buffer_of(&w).await?, gpu.buffer_of(&table).await?);
    let mut pass = gpu.pass();
    let how = Placement {
        heads: count,
        head_dim: d,
        norm: normed.then_some(&w),
        eps: 1e-6,
        table: &table,
        pairs,
        order,
        position: 9,
        scale: 0.25,
    };
    pass.heads(Rows::from(&buffer, 1), rows, &how);
    let found = pass.read(&buffer, 0, x.len()).await?;
    let what = format!("{rows} x {count} x {d}, {order:?}{}", if normed { ", normed" } else { "" });
    Ok(Line::judge(Kernel::Heads, what, difference(&found, &expected), SUM))
}

pub(super) async fn attend(
    gpu: &Gpu,
    tokens: usize,
    position: usize,
    shape: &Heads,
) -> Result<Line, GpuError> {
    let Heads { heads, kv_heads, head_dim: d, window } = *shape;
    let mut random = Random::new(7);
    let mut unit = |n: usize| (0..n).map(|_| random.unit()).collect::<Vec<f32>>();
    let seen = position + tokens;
    let (q, k, v) = (unit(tokens * heads * d), unit(seen * kv_heads * d), unit(seen * kv_heads * d));
    let mut cache = KvCache::new(kv_heads, d);
    cache.append(&k, &v);
    let mut expected = vec![0.0; q.len()];
    attention(Isa::Scalar, &Pool::single(), &q, heads, &cache, window, &mut expected);
    let (q, k, v) = (gpu.buffer_of(&q).await?, gpu.buffer_of(&k).await?, gpu.buffer_of(&v).await?);
    let out: GpuBuffer = gpu.buffer(expected.len()).await?;
    let mut pass = gpu.pass();
    pass.attention(Rows::from(&q, 0), (&k, &v), Rows::from(&out, 0), tokens, position, shape)?;
    let found = pass.read(&out, 0, expected.len()).await?;
    let what = format!("{tokens} after {position}, {heads} on {kv_heads} heads of {d}, window {window:?}");
    // The device's own exp is looser than the CPU's.
    Ok(Line::judge(Kernel::Attention, what, difference(&found, &expected), 2e-5))
}

async fn gate(gpu: &Gpu, f: Activation, len: usize) -> Result<Line, GpuError> {
    let mut random = Random::new(8);
    let (x, up) = (random.activations(len), random.activations(len));
    let mut expected = x.clone();
    ops::gate(Isa::Scalar, &Pool::single(), f, &mut expected, &up);
    let (x, up, out) = (gpu.buffer_of(&x).await?, gpu.buffer_of(&up).await?, gpu.buffer(len).await?);
    let mut pass = gpu.pass();
    pass.gate(f, &x, &up, &out, len);
    let found = pass.read(&out, 0, len).await?;
    Ok(Line::judge(Kernel::Gate, format!("{f:?}, {len}"), difference(&found, &expected), 1e-5))
}
