//! The name of an outcome that waits for its reward.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::BuildHasher;
use std::str::FromStr;
use thiserror::Error;

/// Names one recorded outcome: sixteen hexadecimal digits, as a string also in JSON (its numbers lose bits above 2^53).
///
/// The high half is the epoch of the run that gave it, the low half counts: a reward that comes after a restart meets
/// its own outcome or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutcomeId(u64);

impl OutcomeId {
    pub(super) fn new(epoch: u32, sequence: u32) -> Self {
        Self(u64::from(epoch) << 32 | u64::from(sequence))
    }

    pub(super) fn to_bits(self) -> u64 {
        self.0
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Display for OutcomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A text that names no outcome.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no outcome id: those are sixteen hexadecimal digits, as `record` gave them")]
pub struct ParseOutcomeIdError(String);

impl FromStr for OutcomeId {
    type Err = ParseOutcomeIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // `from_str_radix` alone would take a sign and any length.
        let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let bits = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        bits.map(Self).ok_or_else(|| ParseOutcomeIdError(text.chars().take(40).collect()))
    }
}

impl Serialize for OutcomeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OutcomeId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A number that differs from start to start, from the keys of the standard hasher.
pub(super) fn random_epoch() -> u32 {
    std::hash::RandomState::new().hash_one("epoch") as u32
}
