//! How many requests are computed at once, and how many may wait for that.

use super::refusal::Refusal;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for those that run and those that wait.
pub struct Gate {
    running: Arc<Semaphore>,
    inside: Arc<Semaphore>,
    most_running: usize,
    most_waiting: usize,
}

/// A place. It is free again when this is dropped.
pub struct Place {
    _inside: OwnedSemaphorePermit,
    _running: OwnedSemaphorePermit,
}

impl Gate {
    /// A gate for so many that run and so many that wait.
    pub fn new(running: usize, waiting: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(running)),
            inside: Arc::new(Semaphore::new(running + waiting)),
            most_running: running,
            most_waiting: waiting,
        }
    }

    /// Waits for its turn, first come first served.
    ///
    /// # Errors
    /// [`Refusal::Busy`] at once where all places are taken.
    pub async fn enter(&self) -> Result<Place, Refusal> {
        let busy = || Refusal::Busy { running: self.most_running, waiting: self.most_waiting };
        let inside = self.inside.clone().try_acquire_owned().map_err(|_| busy())?;
        // The semaphores are never closed.
        let running = self.running.clone().acquire_owned().await.map_err(|_| busy())?;
        Ok(Place { _inside: inside, _running: running })
    }

    /// How many run now.
    pub fn running(&self) -> usize {
        self.most_running - self.running.available_permits()
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        let inside = self.most_running + self.most_waiting - self.inside.available_permits();
        inside.saturating_sub(self.running())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn those_beyond_the_limit_are_refused_and_the_others_wait_their_turn() {
        let gate = Gate::new(1, 1);
        let first = gate.enter().now_or_never().unwrap().unwrap();
        let mut second = Box::pin(gate.enter());
        assert!(second.as_mut().now_or_never().is_none(), "it waits");
        assert_eq!((gate.running(), gate.waiting()), (1, 1));
        let busy = Refusal::Busy { running: 1, waiting: 1 };
        assert_eq!(gate.enter().now_or_never().unwrap().err(), Some(busy));
        drop(first);
        let second = second.now_or_never().unwrap().unwrap();
        assert_eq!((gate.running(), gate.waiting()), (1, 0));
        drop(second);
        assert_eq!((gate.running(), gate.waiting()), (0, 0));
        // One that gives up while it waits leaves its place.
        let first = gate.enter().now_or_never().unwrap().unwrap();
        assert!(gate.enter().now_or_never().is_none());
        assert_eq!((gate.running(), gate.waiting()), (1, 0));
        drop(first);
    }
}
