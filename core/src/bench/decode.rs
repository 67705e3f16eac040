//! Generation, token by token.

use super::BenchError;
use crate::router::Clock;
use std::sync::Arc;

/// Bytes of a value in the cache of keys and values: f32.
pub(super) const KV_BYTES: f64 = 4.0;

/// What generates.
pub(super) enum Generator {}

/// Tokens on their way.
pub(super) enum Decoding {}

impl Decoding {
    pub(super) fn new(generator: Arc<Generator>, _tokens: usize) -> Result<Self, BenchError> {
        match *generator {}
    }

    pub(super) fn step(&mut self, _clock: &dyn Clock) -> Result<bool, BenchError> {
        match *self {}
    }

    pub(super) fn seconds(&self) -> f64 {
        match *self {}
    }
}
