//! Many measurements in few figures.

use serde::{Deserialize, Serialize};

/// Speeds of several repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of a sample (divided by n − 1); 0 for a single repetition.
    pub sd: f64,
    /// The middle one; of an even number the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Figures {
    /// The figures of `values`; `None` where there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values)?;
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            mean,
            sd: if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 },
            median: f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
            min: sorted[0],
            max: sorted[n - 1],
        })
    }
}

/// Milliseconds of many decisions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of the decisions took no longer.
    pub p50: f64,
    /// Nine of ten took no longer.
    pub p90: f64,
    /// Of a hundred all but one took no longer.
    pub p99: f64,
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; `None` where there are none.
    ///
    /// A percentile is a value that was measured, that of the nearest rank: the smallest that is no less than the share's
    /// part of all. With fewer than a hundred values p99 is therefore the longest.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values)?;
        let n = sorted.len();
        let rank = |percent: usize| sorted[(n * percent).div_ceil(100).clamp(1, n) - 1];
        Some(Self {
            mean: sorted.iter().sum::<f64>() / n as f64,
            p50: rank(50),
            p90: rank(90),
            p99: rank(99),
            min: sorted[0],
            max: sorted[n - 1],
        })
    }
}

fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then_some(sorted)
}
