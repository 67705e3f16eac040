//! A prompt that is being typed.

use super::{Manner, Outcome, Place, Request, Router, lock};
use crate::backbone::{BackboneError, Cancel, Context};
use std::sync::{Arc, Mutex};

/// Answers a text while it is typed: each update pays for what is new since the last one, and ends the work on older ones.
///
/// Its answers are drafts: they have no id to be rewarded by, and a conversation that the request names is shown what it
/// would get without being moved. When the text is sent, call [`Router::route`]: the vector of the last update is known.
///
/// Where a text's keys and values would take more than [`super::RouterOptions::prefix_bytes`] it is read anew each time.
pub struct Session {
    pub(super) router: Arc<Router>,
    pub(super) latest: Mutex<Arc<Cancel>>,
    pub(super) context: Mutex<Context>,
}

impl Session {
    /// A session without text.
    #[must_use]
    pub fn new(router: Arc<Router>) -> Self {
        let context = Mutex::new(router.backbone().context());
        Self { router, latest: Mutex::default(), context }
    }

    /// Whether it answers by this very router.
    pub fn belongs_to(&self, router: &Arc<Router>) -> bool {
        Arc::ptr_eq(&self.router, router)
    }

    /// The text as it is now. An update that is still at work on another thread ends between two layers, with
    /// [`BackboneError::Cancelled`]; so does this one when a newer comes.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn update(&self, text: &str, request: &Request<'_>) -> Result<Outcome, BackboneError> {
        let stale = self.supersede();
        let mut context = lock(&self.context);
        // Those who waited here while a newer text came have nothing to do.
        if stale.is_cancelled() {
            return Err(BackboneError::Cancelled);
        }
        let place = Place::Own(&mut context);
        self.router.answer(text, request, Manner { place, stale: Some(&stale), draft: true })
    }

    /// Ends the work on the last update, and forgets the text.
    pub fn clear(&self) {
        lock(&self.latest).cancel();
        *lock(&self.context) = self.router.backbone().context();
    }
}
