//! The quants, integer scales and f16 scales of a group with little squared error.
//!
//! 1. Each sub-block alone, as if it had a float scale of its own: a row of candidate scales, for each the nearest quants, for
//!    those the best scale (and min) by least squares; the candidate with the least error, refitted until it stays.
//! 2. The group: f16 scales from the largest of these, then in turn (a) each sub-block's integer scale among the neighbours of
//!    what it wants, with the min and the quants that go with it, (b) the group's scales by least squares over all quants,
//!    rounded to f16. It stops when the error no longer falls; every error is that of the rounded parts, so the best is kept.
//!
//! Values are divided by a power of two first, which changes no bit of them and keeps squares within f32.

use super::super::decode::Group;
use half::f16;

/// Below this a block is zero: no scale that f16 holds would do for it.
const TINY: f32 = 1e-30;
/// The least that a weight counts beside the heaviest of its block.
const LIGHTEST: f32 = 1e-6;
/// How often the group's scales are fitted again, at most.
const ROUNDS: usize = 6;
const LANES: usize = 8;

/// A group's values and weights, brought to a size at which sums of squares are safe.
struct Scaled<const SUB: usize, const SUBS: usize> {
    x: [[f32; SUB]; SUBS],
    w: [[f32; SUB]; SUBS],
    /// A value is `unit` times what stands in `x`.
    unit: f32,
}

impl<const SUB: usize, const SUBS: usize> Scaled<SUB, SUBS> {
    /// `None` where the block is zero.
    #[inline(always)]
    fn new(values: &[f32], weights: &[f32]) -> Option<Self> {
        let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        if largest < TINY {
            return None;
        }
        // The power of two at or below the largest.
        let unit = f32::from_bits(largest.to_bits() & 0x7f80_0000);
        let heaviest = weights.iter().fold(0.0f32, |most, weight| most.max(*weight));
        let mut scaled = Self { x: [[0.0; SUB]; SUBS], w: [[1.0; SUB]; SUBS], unit };
        for (x, value) in scaled.x.as_flattened_mut().iter_mut().zip(values) {
            *x = value / unit;
        }
        if heaviest >= TINY {
            for (w, weight) in scaled.w.as_flattened_mut().iter_mut().zip(weights) {
                // A column that was never used still wants to be near what it was.
                *w = (weight / heaviest).max(LIGHTEST);
            }
        }
        Some(scaled)
    }

    /// The nearest f16 to a scale, in the group's unit; `None` where f16 does not reach it.
    fn rounded(&self, scale: f32) -> Option<f32> {
        let half = f16::from_f32(scale * self.unit);
        half.is_finite().then(|| half.to_f32() / self.unit)
    }
}

/// To the nearest integer, for magnitudes below 2^22: two additions, which every vector unit has.
#[inline(always)]
fn round(value: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0; // 1.5 · 2^23
    (value + SHIFT) - SHIFT
}

/// `1 / value`, or zero where that is not a number that can be multiplied with.
#[inline(always)]
fn inverse(value: f32) -> f32 {
    let inverse = 1.0 / value;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// `q = (x + shift) · factor`, rounded and held within `lo..=hi`.
#[inline(always)]
fn quantize<const N: usize>(x: &[f32; N], shift: f32, factor: f32, lo: f32, hi: f32, q: &mut [f32; N]) {
    for i in 0..N {
        let value = (x[i] + shift) * factor;
        let value = if value < lo { lo } else { value };
        let value = if value > hi { hi } else { value };
        q[i] = round(value);
    }
}

/// `Σ w · (x − scale · q + min)²`
#[inline(always)]
fn error<const N: usize>(x: &[f32; N], w: &[f32; N], q: &[f32; N], scale: f32, min: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for i in (0..N).step_by(LANES) {
        for l in 0..LANES {
            let off = x[i + l] - scale * q[i + l] + min;
            lanes[l] += w[i + l] * (off * off);
        }
    }
    sum(lanes)
}

/// `Σ w·q, Σ w·q², Σ w·x·q`
#[inline(always)]
fn moments<const N: usize>(x: &[f32; N], w: &[f32; N], q: &[f32; N]) -> [f32; 3] {
    let (mut a, mut b, mut c) = ([0.0f32; LANES], [0.0f32; LANES], [0.0f32; LANES]);
    for i in (0..N).step_by(LANES) {
        for l in 0..LANES {
            let wq = w[i + l] * q[i + l];
            a[l] += wq;
            b[l] += wq * q[i + l];
            c[l] += wq * x[i + l];
        }
    }
    [sum(a), sum(b), sum(c)]
}

/// `Σ w, Σ w·x`
#[inline(always)]
fn first_moments<const N: usize>(x: &[f32; N], w: &[f32; N]) -> [f32; 2] {
    let (mut a, mut b) = ([0.0f32; LANES], [0.0f32; LANES]);
    for i in (0..N).step_by(LANES) {
        for l in 0..LANES {
            a[l] += w[i + l];
            b[l] += w[i + l] * x[i + l];
        }
    }
    [sum(a), sum(b)]
}

#[inline(always)]
fn sum(lanes: [f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// The best float scale of a sub-block that has no min: `x ≈ scale · q`, `q` in `lo..=hi` with `-lo > hi`.
#[inline(always)]
fn lone_scale<const N: usize>(x: &[f32; N], w: &[f32; N], lo: f32, hi: f32) -> f32 {
    let extreme = x.iter().fold(0.0f32, |most, x| if x.abs() > most.abs() { *x } else { most });
    if extreme.abs() < TINY {
        return 0.0;
    }
    let mut q = [0.0; N];
    let (mut best, mut least) = (0.0, f32::INFINITY);
    for attempt in 0..36 {
        // The extreme at the longer end, a little short of it or beyond it (it is cut off then); at the shorter end; and
        // twice what fits the best quants so far.
        let factor = match attempt {
            0..21 => (lo + 0.125 * (attempt - 12) as f32) / extreme,
            21..34 => (hi + 0.125 * (attempt - 27) as f32) / extreme,
            _ => inverse(best),
        };
        quantize(x, 0.0, factor, lo, hi, &mut q);
        let [_, qq, xq] = moments(x, w, &q);
        let scale = if qq > 0.0 { xq / qq } else { 0.0 };
        let error = error(x, w, &q, scale, 0.0);
        if error < least {
            (best, least) = (scale, error);
        }
    }
    best
}

/// The best float scale and min of a sub-block: `x ≈ scale · q − min`, `q` in `0..=hi`; `min` not negative unless `free`.
#[inline(always)]
fn lone_scale_and_min<const N: usize>(x: &[f32; N], w: &[f32; N], hi: f32, free: bool) -> (f32, f32) {
    let (mut bottom, mut top) = (x[0], x[0]);
    for x in x {
        bottom = if *x < bottom { *x } else { bottom };
        top = if *x > top { *x } else { top };
    }
    if !free && bottom > 0.0 {
        bottom = 0.0;
    }
    if top - bottom < TINY {
        return (0.0, -bottom);
    }
    let [weight, wx] = first_moments(x, w);
    let (middle, range) = (0.5 * (top + bottom), top - bottom);
    let mut q = [0.0; N];
    let (mut best, mut least) = ((0.0, 0.0), f32::INFINITY);
    for attempt in 0..25 {
        // The range from bottom to top, a little wider or narrower about its middle; and four times what fits the best
        // quants so far.
        let (factor, shift) = if attempt < 21 {
            let narrowed = range * hi / (hi + 0.125 * (attempt - 6) as f32);
            let low = if free { middle - 0.5 * narrowed } else { bottom * (narrowed / range).min(1.0) };
            (hi / narrowed, -low)
        } else {
            (inverse(best.0), best.1)
        };
        quantize(x, shift, factor, 0.0, hi, &mut q);
        let [wq, qq, xq] = moments(x, w, &q);
        let det = weight * qq - wq * wq;
        let (mut scale, mut min) = (0.0, -wx / weight);
        if det > 1e-6 * weight * qq {
            scale = (weight * xq - wx * wq) / det;
            min = (wq * xq - qq * wx) / det;
        }
        if !free && min < 0.0 {
            min = 0.0;
            scale = if qq > 0.0 { xq / qq } else { 0.0 };
        }
        let error = error(x, w, &q, scale, min);
        if scale >= 0.0 && error < least {
            (best, least) = ((scale, min), error);
        }
    }
    best
}

/// The parts of a group while they are chosen; quants are integers held in floats.
struct Parts<const SUB: usize, const SUBS: usize> {
    q: [[f32; SUB]; SUBS],
    scale: [f32; SUBS],
    min: [f32; SUBS],
    d: f32,
    dmin: f32,
    error: f32,
}

impl<const SUB: usize, const SUBS: usize> Parts<SUB, SUBS> {
    const fn new() -> Self {
        Self {
            q: [[0.0; SUB]; SUBS],
            scale: [0.0; SUBS],
            min: [0.0; SUBS],
            d: 0.0,
            dmin: 0.0,
            error: f32::INFINITY,
        }
    }

    /// All zero, which is what a block becomes whose scales are too small for f16.
    #[inline(always)]
    fn zero(scaled: &Scaled<SUB, SUBS>) -> Self {
        let mut parts = Self::new();
        if SUBS == 1 {
            (parts.scale[0], parts.min[0]) = (1.0, 1.0);
        }
        parts.error = 0.0;
        for s in 0..SUBS {
            parts.error += error(&scaled.x[s], &scaled.w[s], &parts.q[s], 0.0, 0.0);
        }
        parts
    }

    /// To the group, `lo` being what a stored quant of zero stands for.
    fn store(&self, unit: f32, lo: f32, group: &mut Group) {
        for (stored, q) in group.q.iter_mut().zip(self.q.as_flattened()) {
            *stored = (q - lo) as i32 as u8;
        }
        for s in 0..SUBS {
            group.scale[s] = self.scale[s] as i8;
            group.min[s] = self.min[s] as u8;
        }
        // Exact: an f16 value was divided by a power of two.
        (group.d, group.dmin) = (self.d * unit, self.dmin * unit);
    }
}

/// How far from the first guess a group's scale is begun anew. With few steps of the sub-blocks' scales the fit ends in the
/// nearest of many valleys.
const BEGINNINGS: [f32; 5] = [1.0, 0.93, 1.07, 0.86, 1.15];

/// A way to fill a group.
pub(super) trait Search {
    /// Fills `group` from a block's values and their weights; `false` where a scale is beyond f16.
    fn search(&self, values: &[f32], weights: &[f32], group: &mut Group) -> bool;
}

/// The search for formats without mins: quants in `lo..=hi`, integer scales in `scale_lo..=scale_hi`.
pub(super) struct Symmetric<const SUB: usize, const SUBS: usize> {
    lo: f32,
    hi: f32,
    scale_lo: f32,
    scale_hi: f32,
    /// What a stored quant of zero stands for.
    stored_lo: f32,
}

impl<const SUB: usize, const SUBS: usize> Symmetric<SUB, SUBS> {
    pub(super) fn new(lo: i32, hi: i32, scale_lo: i32, scale_hi: i32) -> Self {
        // Signed bytes are stored as they are.
        let stored_lo = if lo < -64 { 0.0 } else { lo as f32 };
        Self { lo: lo as f32, hi: hi as f32, scale_lo: scale_lo as f32, scale_hi: scale_hi as f32, stored_lo }
    }
}

impl<const SUB: usize, const SUBS: usize> Search for Symmetric<SUB, SUBS> {
    #[inline(always)]
    fn search(&self, values: &[f32], weights: &[f32], group: &mut Group) -> bool {
        let Self { lo, hi, scale_lo, scale_hi, stored_lo } = *self;
        let Some(scaled) = Scaled::<SUB, SUBS>::new(values, weights) else {
            zero::<SUB, SUBS>(stored_lo, group);
            return true;
        };
        let mut wanted = [0.0f32; SUBS];
        for s in 0..SUBS {
            wanted[s] = lone_scale(&scaled.x[s], &scaled.w[s], lo, hi);
        }
        let largest = wanted.iter().fold(0.0f32, |most, s| if s.abs() > most.abs() { *s } else { most });
        // The largest at the longer end of the integers.
        let first = if SUBS == 1 { largest } else { largest / scale_lo };
        let (mut best, mut fits) = (Parts::zero(&scaled), false);
        let beginnings = if SUBS > 1 && scale_hi < 64.0 { BEGINNINGS.len() } else { 1 };
        for beginning in &BEGINNINGS[..beginnings] {
            let mut d = first * beginning;
            let mut least = f32::INFINITY;
            for _ in 0..ROUNDS {
                let Some(rounded) = scaled.rounded(d) else { break };
                fits = true;
                let mut parts = Parts::<SUB, SUBS>::new();
                (parts.d, parts.error) = (rounded, 0.0);
                let (mut aa, mut xa) = (0.0f64, 0.0f64);
                for s in 0..SUBS {
                    let (x, w) = (&scaled.x[s], &scaled.w[s]);
                    let centre = round((wanted[s] * inverse(rounded)).clamp(scale_lo, scale_hi));
                    let mut least = f32::INFINITY;
                    let mut q = [0.0; SUB];
                    for step in [0.0, -1.0, 1.0] {
                        let scale = centre + step;
                        if scale < scale_lo || scale > scale_hi {
                            continue;
                        }
                        quantize(x, 0.0, inverse(rounded * scale), lo, hi, &mut q);
                        let error = error(x, w, &q, rounded * scale, 0.0);
                        if error < least {
                            least = error;
                            (parts.scale[s], parts.q[s]) = (scale, q);
                        }
                    }
                    parts.error += least;
                    let [_, qq, xq] = moments(x, w, &parts.q[s]);
                    let scale = f64::from(parts.scale[s]);
                    aa += scale * scale * f64::from(qq);
                    xa += scale * f64::from(xq);
                }
                let fell = parts.error < least;
                least = least.min(parts.error);
                if parts.error < best.error {
                    best = parts;
                }
                if !fell || aa <= 0.0 {
                    break;
                }
                d = (xa / aa) as f32;
            }
        }
        best.store(scaled.unit, stored_lo, group);
        fits
    }
}

/// The search for formats with mins: quants in `0..=hi`, integer scales and mins in `0..=most`. With one sub-block both are 1
/// and the min may have either sign.
pub(super) struct Affine<const SUB: usize, const SUBS: usize> {
    hi: f32,
    most: f32,
}

impl<const SUB: usize, const SUBS: usize> Affine<SUB, SUBS> {
    pub(super) fn new(hi: i32, most: i32) -> Self {
        Self { hi: hi as f32, most: most as f32 }
    }
}

impl<const SUB: usize, const SUBS: usize> Search for Affine<SUB, SUBS> {
    #[inline(always)]
    fn search(&self, values: &[f32], weights: &[f32], group: &mut Group) -> bool {
        let Self { hi, most } = *self;
        let lone = SUBS == 1;
        let fewest = if lone { 1.0 } else { 0.0 };
        let Some(scaled) = Scaled::<SUB, SUBS>::new(values, weights) else {
            zero::<SUB, SUBS>(0.0, group);
            return true;
        };
        let mut wanted = [(0.0f32, 0.0f32); SUBS];
        let (mut largest, mut lowest) = (0.0f32, 0.0f32);
        for s in 0..SUBS {
            wanted[s] = lone_scale_and_min(&scaled.x[s], &scaled.w[s], hi, lone);
            largest = largest.max(wanted[s].0);
            lowest = if lone { wanted[s].1 } else { lowest.max(wanted[s].1) };
        }
        let (mut best, mut fits) = (Parts::zero(&scaled), false);
        let beginnings = if !lone && most < 32.0 { BEGINNINGS.len() } else { 1 };
        for beginning in &BEGINNINGS[..beginnings] {
            let (mut d, mut dmin) = (largest / most * beginning, lowest / most);
            let mut least = f32::INFINITY;
            for _ in 0..ROUNDS {
                let (Some(scale_unit), Some(min_unit)) = (scaled.rounded(d), scaled.rounded(dmin)) else {
                    break;
                };
                fits = true;
                let mut parts = Parts::<SUB, SUBS>::new();
                (parts.d, parts.dmin, parts.error) = (scale_unit, min_unit, 0.0);
                // Sums over a = scale · q and b = min.
                let (mut aa, mut ab, mut bb, mut xa, mut xb) = (0.0f64, 0.0f64, 0.0f64, 0.0f64, 0.0f64);
                for s in 0..SUBS {
                    let (x, w) = (&scaled.x[s], &scaled.w[s]);
                    let [weight, wx] = first_moments(x, w);
                    let nearest_min = |min: f32| round((min * inverse(min_unit)).clamp(fewest, most));
                    let centre = round((wanted[s].0 * inverse(scale_unit)).clamp(fewest, most));
                    let mut least = f32::INFINITY;
                    let mut q = [0.0; SUB];
                    for step in [0.0, -1.0, 1.0] {
                        let scale = centre + step;
                        if scale < fewest || scale > most {
                            continue;
                        }
                        let factor = scale_unit * scale;
                        let mut min = nearest_min(wanted[s].1);
                        for again in 0..3 {
                            quantize(x, min * min_unit, inverse(factor), 0.0, hi, &mut q);
                            let error = error(x, w, &q, factor, min * min_unit);
                            if error < least {
                                least = error;
                                (parts.scale[s], parts.min[s], parts.q[s]) = (scale, min, q);
                            }
                            if again == 2 {
                                break;
                            }
                            let [wq, ..] = moments(x, w, &q);
                            let better = nearest_min((factor * wq - wx) / weight);
                            if better == min {
                                break;
                            }
                            min = better;
                        }
                    }
                    parts.error += least;
                    let [wq, qq, xq] = moments(x, w, &parts.q[s]).map(f64::from);
                    let (scale, min) = (f64::from(parts.scale[s]), f64::from(parts.min[s]));
                    aa += scale * scale * qq;
                    ab += scale * min * wq;
                    bb += min * min * f64::from(weight);
                    xa += scale * xq;
                    xb += min * f64::from(wx);
                }
                let fell = parts.error < least;
                least = least.min(parts.error);
                if parts.error < best.error {
                    best = parts;
                }
                if !fell {
                    break;
                }
                // x ≈ d · a − dmin · b
                let det = ab * ab - aa * bb;
                if det.abs() > 1e-9 * aa * bb {
                    d = ((ab * xb - bb * xa) / det) as f32;
                    dmin = ((aa * xb - ab * xa) / det) as f32;
                } else if aa > 0.0 {
                    (d, dmin) = ((xa / aa) as f32, 0.0);
                }
                if !lone && dmin < 0.0 {
                    (d, dmin) = ((xa / aa) as f32, 0.0);
                }
                if !(d.is_finite() && dmin.is_finite()) {
                    break;
                }
            }
        }
        best.store(scaled.unit, 0.0, group);
        fits
    }
}

/// A group of zeros: as large a block as any, with scales of zero.
fn zero<const SUB: usize, const SUBS: usize>(lo: f32, group: &mut Group) {
    let mut parts = Parts::<SUB, SUBS>::new();
    if SUBS == 1 {
        (parts.scale[0], parts.min[0]) = (1.0, 1.0);
    }
    parts.store(1.0, lo, group);
}
