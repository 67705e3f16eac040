//! The features' common scale: where their middle lies and how far they spread.

use super::learner::{DIMENSIONS, Z};

/// Features that are used: the leading ones. Those of this project's heads stand in the order of what they carry
/// (principal axes); of heads whose features were never trained any rows are as good a random projection as others.
pub(super) const RAW: usize = DIMENSIONS - 1;

/// Prompts after which the scale stands still: a coordinate system that moves would spoil what was learned in it.
pub(super) const SETTLED: u32 = 512;

/// Prompts before which the scale says too little: until then only the intercept is used.
const ENOUGH: u32 = 8;

/// The longest `z` without its intercept; typical ones have length 1. One odd prompt must not outweigh many.
const LONGEST: f64 = 2.0;

/// Running mean and spread of the leading features, over all users.
///
/// One factor serves all axes, so the features keep their proportions: those of this project's heads are softly
/// whitened, and to stretch the weak ones to full size gives noise the same say as signal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scale {
    pub(super) count: u32,
    pub(super) mean: [f64; RAW],
    /// The sum of the squared distances from the mean, over all axes.
    pub(super) spread: f64,
}

/// The leading features of a prompt; axes that the heads do not have are 0.
pub(super) fn leading(features: &[f32]) -> [f32; RAW] {
    let mut raw = [0.0; RAW];
    for (to, from) in raw.iter_mut().zip(features) {
        *to = *from;
    }
    raw
}

impl Scale {
    /// Takes one more prompt in (Welford's update), until it has settled.
    pub(super) fn learn(&mut self, raw: &[f32; RAW]) {
        if self.count >= SETTLED {
            return;
        }
        self.count += 1;
        let n = f64::from(self.count);
        for (mean, &x) in self.mean.iter_mut().zip(raw) {
            let before = f64::from(x) - *mean;
            *mean += before / n;
            self.spread += before * (f64::from(x) - *mean);
        }
    }

    /// An intercept, then the features: centred, of length 1 in the mean.
    pub(super) fn apply(&self, raw: &[f32; RAW]) -> Z {
        let mut z = [0.0; DIMENSIONS];
        z[0] = 1.0;
        let typical = (self.spread / f64::from(self.count.max(1))).sqrt();
        if self.count < ENOUGH || typical == 0.0 {
            return z;
        }
        let mut length = 0.0;
        for ((z, &x), mean) in z[1..].iter_mut().zip(raw).zip(&self.mean) {
            *z = (f64::from(x) - mean) / typical;
            length += *z * *z;
        }
        let length = length.sqrt();
        if length > LONGEST {
            for z in &mut z[1..] {
                *z *= LONGEST / length;
            }
        }
        z
    }
}
