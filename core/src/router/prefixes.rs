//! Contexts of prompts that were read before, so that one that begins alike pays for its new tokens alone.

use crate::backbone::{Backbone, Context, KvType};
use std::sync::Mutex;

/// What the contexts may hold where nothing else is asked for: at 0.6B some 140 tokens, with the default pack thousands.
pub const DEFAULT_BYTES: usize = 32 << 20;

/// A start of fewer tokens is not worth its copy.
const LEAST: usize = 8;

/// The contexts used last, bounded in bytes. Shared between threads: one is taken out while it is worked on.
pub(super) struct Prefixes {
    limit: usize,
    /// The one used last stands last.
    held: Mutex<Vec<Context>>,
}

impl Prefixes {
    pub fn new(limit: usize) -> Self {
        Self { limit, held: Mutex::new(Vec::new()) }
    }

    /// The bytes that may be held.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// A context that begins as `ids` as far as one is known. `None` where the prompt's own would be over the bound:
    /// then nothing is to be kept of it.
    pub fn take(&self, backbone: &Backbone, ids: &[u32]) -> Option<Context> {
        if backbone.context_bytes(KvType::F32, ids.len()) > self.limit {
            return None;
        }
        let mut held = self.lock();
        let best = held.iter().enumerate().map(|(at, context)| (context.shared(ids), at)).max();
        let Some((shared, at)) = best.filter(|(shared, _)| *shared >= LEAST) else {
            drop(held);
            return Some(backbone.context());
        };
        // What goes on from a context takes it over; what shares only its start leaves it to those that go on from it.
        let rest = held[at].tokens().len() - shared;
        if rest <= LEAST { Some(held.remove(at)) } else { Some(held[at].prefix(shared)) }
    }

    /// Keeps a context, and forgets those that were used longest ago until the bound holds.
    pub fn put(&self, context: Context) {
        if context.tokens().len() < LEAST {
            return;
        }
        let mut held = self.lock();
        // What is a start of it, it holds itself.
        held.retain(|other| context.shared(other.tokens()) < other.tokens().len());
        held.push(context);
        let mut bytes: usize = held.iter().map(Context::memory).sum();
        while bytes > self.limit && !held.is_empty() {
            bytes -= held.remove(0).memory();
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Contexts that it holds, and their bytes.
    pub fn len(&self) -> (usize, usize) {
        let held = self.lock();
        (held.len(), held.iter().map(Context::memory).sum())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Context>> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
