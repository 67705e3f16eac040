//! The roofline: what the device can do at most, measured, and the share of it that the products reach.

use super::device::{Gpu, Now};
use super::error::GpuError;
use super::pass::Rows;
use crate::format::BlockType;
use crate::gemm::Matrix;
use crate::testing::Random;

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// Operations a second of multiply-adds in registers (two operations each).
    pub peak: f64,
    /// Bytes a second that a copy moves, read and written.
    pub bandwidth: f64,
    /// The products.
    pub products: Vec<Share>,
}

/// A product's speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The weights' format.
    pub ty: BlockType,
    /// Tokens, outputs, inputs.
    pub shape: [usize; 3],
    /// Operations a second.
    pub speed: f64,
    /// Of the peak.
    pub share: f64,
}

/// Times each measurement is taken; the best counts.
const TRIES: usize = 3;

/// Measures a device by `now`: multiply-adds, a copy, and products of `formats`.
///
/// # Errors
/// What befell the device.
pub async fn measure(gpu: &Gpu, now: &Now, formats: &[BlockType]) -> Result<Roofline, GpuError> {
    let values = 4 << 20;
    let (from, to) = (gpu.buffer(values).await?, gpu.buffer(values).await?);
    // From little work to enough: a slow device is not kept busy for seconds.
    let mut peak = 0.0f64;
    let mut rounds = 64;
    loop {
        let took = best(gpu, now, &mut |gpu| {
            let mut pass = gpu.pass();
            pass.peak(&to, 1024, rounds);
            pass
        })
        .await?;
        peak = peak.max(f64::from(rounds) * 64.0 * 256.0 * 1024.0 / took);
        if took > 0.02 || rounds >= 1 << 16 {
            break;
        }
        rounds *= 4;
    }
    let took = best(gpu, now, &mut |gpu| {
        let mut pass = gpu.pass();
        pass.move_values(&from, &to, values);
        pass
    })
    .await?;
    let bandwidth = 8.0 * values as f64 / took;
    let mut random = Random::new(9);
    let mut products = Vec::new();
    let [_, n, k] = [0, 1024, 1024];
    for ty in formats {
        let bytes: Vec<u8> = (0..n * k / ty.block_len()).flat_map(|_| random.block(*ty)).collect();
        let matrix = Matrix::new(*ty, n, k, bytes.into())
            .map_err(|e| GpuError::Unsupported { what: e.to_string() })?;
        let matrix = gpu.upload(&matrix).await?;
        for m in [16, 64, 512] {
            let took = best(gpu, now, &mut |gpu| {
                let mut pass = gpu.pass();
                pass.matmul(&matrix, Rows::from(&from, 0), Rows::from(&to, 0), m, false);
                pass
            })
            .await?;
            let speed = 2.0 * (m * n * k) as f64 / took;
            products.push(Share { ty: *ty, shape: [m, n, k], speed, share: speed / peak });
        }
    }
    Ok(Roofline { peak, bandwidth, products })
}

/// Seconds of the fastest of some passes; the first, which may compile, does not count.
async fn best<'a>(
    gpu: &'a Gpu,
    now: &Now,
    make: &mut dyn FnMut(&'a Gpu) -> super::pass::Pass<'a>,
) -> Result<f64, GpuError> {
    let mut best = f64::INFINITY;
    for n in 0..=TRIES {
        gpu.settle().await?;
        // Putting it together counts: a long product is submitted in pieces meanwhile.
        let start = now();
        let mut pass = make(gpu);
        pass.submit();
        gpu.settle().await?;
        if n > 0 {
            best = best.min(now().saturating_sub(start).as_secs_f64());
        }
    }
    Ok(best.max(1e-9))
}
