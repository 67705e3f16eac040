//! How fast the backbone reads on this device, from the passes that it made.

use crate::decision::Speed;
use std::sync::Mutex;
use std::time::Duration;

/// What a pass costs beside its tokens, in tokens: above all unpacking the weights, which is done once for a pass. The
/// ratio belongs to the kernels and not to the model: 107 ms at 0.6B, as much as 12 tokens (benches/records).
const FIXED_TOKENS: f64 = 12.0;
/// What a pass still counts after the next one: a device grows hot and a laptop is unplugged.
const KEPT: f64 = 0.8;

/// Milliseconds for a token, as a mean in which the last passes count most.
#[derive(Debug, Default)]
pub(super) struct SpeedMeter(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    tokens: f64,
    ms: f64,
}

impl SpeedMeter {
    /// Counts a pass over `tokens` tokens. One that took no time was not measured.
    pub fn add(&self, tokens: usize, took: Duration) {
        if tokens == 0 || took.is_zero() {
            return;
        }
        let mut sums = self.lock();
        sums.tokens = KEPT * sums.tokens + tokens as f64 + FIXED_TOKENS;
        sums.ms = KEPT * sums.ms + took.as_secs_f64() * 1e3;
    }

    /// The speed; `None` before the first pass.
    pub fn get(&self) -> Option<Speed> {
        let sums = self.lock();
        let ms = sums.ms / sums.tokens;
        (sums.tokens > 0.0).then_some(Speed { tokens_per_second: 1e3 / ms, overhead_ms: FIXED_TOKENS * ms })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_of_any_length_tell_one_speed_and_the_last_ones_count_most() {
        let meter = SpeedMeter::default();
        assert_eq!(meter.get(), None);
        meter.add(5, Duration::ZERO);
        meter.add(0, Duration::from_millis(5));
        assert_eq!(meter.get(), None, "nothing was measured");
        meter.add(8, Duration::from_millis(20));
        assert_eq!(meter.get().unwrap().estimate_ms(8).map(f64::round), Some(20.0));
        assert_eq!(meter.get().unwrap().estimate_ms(88).map(f64::round), Some(100.0));
        for _ in 0..30 {
            meter.add(8, Duration::from_millis(60));
        }
        assert_eq!(meter.get().unwrap().estimate_ms(8).map(f64::round), Some(60.0));
    }
}
