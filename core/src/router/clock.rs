//! Time, as a value that is handed in.

use std::sync::Arc;
use std::time::Duration;

/// A clock that only goes forward. A browser has no `Instant`: it hands in its own.
pub trait Clock: Send + Sync {
    /// The time since any fixed moment.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock.
#[cfg(not(target_family = "wasm"))]
#[derive(Debug)]
pub struct SystemClock(std::time::Instant);

#[cfg(not(target_family = "wasm"))]
impl Default for SystemClock {
    fn default() -> Self {
        Self(std::time::Instant::now())
    }
}

#[cfg(not(target_family = "wasm"))]
impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock that stands still: every timing is zero, no speed is ever measured, and so no deadline is promised.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

#[cfg(not(target_family = "wasm"))]
pub(super) fn default_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}

#[cfg(target_family = "wasm")]
pub(super) fn default_clock() -> Arc<dyn Clock> {
    Arc::new(NoClock)
}
