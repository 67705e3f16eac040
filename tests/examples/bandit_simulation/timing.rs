//! What an estimate and an observation take, on one thread, and what a user weighs.

use super::replay::Random;
use std::time::Instant;
use zen_edge_core::bandit::{Arms, Bandit, BanditOptions};

pub const ROWS: usize = 28;
pub const FEATURES: usize = 256;

pub struct Timing {
    pub estimate_us: f64,
    pub observe_us: f64,
    pub user_bytes: usize,
    pub file_bytes: usize,
}

impl Timing {
    pub fn line(&self) -> String {
        format!(
            "{ROWS} models, {FEATURES} features, one thread, medians: estimate {:.1} µs, observe {:.1} µs; a user who tried all models: {} bytes in memory, {} in the file",
            self.estimate_us, self.observe_us, self.user_bytes, self.file_bytes
        )
    }
}

/// Medians over a user who has tried every model.
pub fn measure() -> Timing {
    let ids = (0..ROWS).map(|i| format!("model-{i}")).collect();
    let arms = Arms { heads_sha256: "0".repeat(64), ids, features: FEATURES };
    let mut bandit = Bandit::new(arms, BanditOptions::default());
    let empty = bandit.to_bytes().len();
    let mut random = Random(1);
    let prior = [1.0 / ROWS as f64; ROWS];
    let (mut estimates, mut observations) = (Vec::new(), Vec::new());
    for i in 0..20_000 {
        let features: Vec<f32> = (0..FEATURES).map(|_| random.unit() as f32 - 0.5).collect();
        let start = Instant::now();
        let estimate = bandit.estimate("user", &features, &prior).expect("an estimate");
        estimates.push(start.elapsed().as_secs_f64() * 1e6);
        let id = bandit.record("user", i % ROWS, &estimate);
        let start = Instant::now();
        bandit.observe(id, random.unit()).expect("an observation");
        observations.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Timing {
        estimate_us: median(estimates),
        observe_us: median(observations),
        user_bytes: bandit.user("user").expect("the user").bytes,
        file_bytes: bandit.to_bytes().len() - empty,
    }
}
