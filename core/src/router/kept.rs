//! What outlives a router's weights.

use super::speed::SpeedMeter;
use super::stats::Counter;
use super::{CONVERSATIONS, Held, Router, RouterStats, lock};
use crate::bandit::{Bandit, UserStats};
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

impl Kept {
    /// What was done, where no weights are loaded and so no earlier prompt is held.
    #[must_use]
    pub fn stats(&self) -> RouterStats {
        self.stats_with((0, 0).into(), (0, 0).into())
    }

    pub(super) fn stats_with(&self, cache: Held, prefixes: Held) -> RouterStats {
        let counts = self.counts.get();
        RouterStats {
            fallback_rate: counts.fallback_rate(),
            counts,
            cache,
            prefixes,
            conversations: lock(&self.conversations).len(),
            speed: self.speed.get(),
            bandit: lock(&self.bandit).stats(),
        }
    }

    /// [`Router::user`].
    #[must_use]
    pub fn user(&self, user: &str) -> Option<UserStats> {
        lock(&self.bandit).user(user)
    }

    /// [`Router::forget_user`].
    pub fn forget_user(&self, user: &str) -> bool {
        lock(&self.bandit).forget(user)
    }

    /// [`Router::forget_conversation`].
    pub fn forget_conversation(&self, conversation: &str) -> bool {
        lock(&self.conversations).pop(conversation).is_some()
    }

    /// [`Router::learning`].
    #[must_use]
    pub fn learning(&self) -> Vec<u8> {
        lock(&self.bandit).to_bytes()
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
