//! What outlives a router's weights.

use super::speed::SpeedMeter;
use super::stats::Counter;
use super::{CONVERSATIONS, Router};
use crate::bandit::Bandit;
use crate::decision::session::Conversation;
use lru::LruCache;
use std::sync::{Arc, Mutex};

/// What a router learned, counted and holds conversations by, without its weights: a few kilobytes. A router that is loaded
/// with it ([`Router::load_watched`]) goes on where the earlier one stopped; while both live they share it.
#[derive(Clone)]
pub struct Kept {
    pub(super) speed: Arc<SpeedMeter>,
    pub(super) counts: Arc<Counter>,
    pub(super) conversations: Arc<Mutex<LruCache<String, Conversation>>>,
    pub(super) bandit: Arc<Mutex<Bandit>>,
}

impl Kept {
    pub(super) fn new(bandit: Bandit) -> Self {
        Self {
            speed: Arc::default(),
            counts: Arc::default(),
            conversations: Arc::new(Mutex::new(LruCache::new(CONVERSATIONS))),
            bandit: Arc::new(Mutex::new(bandit)),
        }
    }
}

impl Router {
    /// What a later router over the same pack goes on from.
    #[must_use]
    pub fn kept(&self) -> Kept {
        Kept {
            speed: self.speed.clone(),
            counts: self.counts.clone(),
            conversations: self.conversations.clone(),
            bandit: self.bandit.clone(),
        }
    }
}

/// What loading is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading config, heads, catalog and policy.
    Heads,
    /// Checking the backbone; its weights are mapped, or read where the source cannot map them.
    Weights,
    /// Building the tokenizer.
    Tokenizer,
    /// Comparing the backbone's SHA-256 with the one that the temperatures were fitted to: a pass over the whole file.
    Hash {
        /// Bytes read.
        done: u64,
        /// Of so many.
        of: u64,
    },
}
