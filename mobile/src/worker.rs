//! The thread that an engine's work runs on.

use crate::error::ZenEdgeError;
use futures_channel::oneshot;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use zen_edge_core::backbone::Cancel;

type Work = Box<dyn FnOnce() + Send>;

/// Most pieces of work that wait or run. Who asks faster than the engine answers is told so, before the prompts take the memory.
const MOST: usize = 4096;

/// Runs one piece of work after the other, so that many callers do not take more cores than one does.
pub struct Worker {
    /// `None` after [`Self::close`].
    queue: Mutex<Option<Sender<Work>>>,
    /// What ends the work that is queued or under way.
    cancels: Mutex<Vec<Weak<Cancel>>>,
    /// Pieces of work that wait or run.
    count: Arc<AtomicUsize>,
}

/// One piece of work among [`MOST`].
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn one_more(count: &Arc<AtomicUsize>) -> Result<Self, ZenEdgeError> {
        let counted = Self(count.clone());
        if count.fetch_add(1, Ordering::Relaxed) < MOST { Ok(counted) } else { Err(ZenEdgeError::busy(MOST)) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Cancels the work of a future that was dropped before it was done.
struct Dropped(Option<Arc<Cancel>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

impl Worker {
    pub fn new() -> Result<Self, ZenEdgeError> {
        let (queue, works) = channel::<Work>();
        std::thread::Builder::new()
            .name("zen-edge".into())
            .spawn(move || works.into_iter().for_each(|work| work()))
            .map_err(|error| ZenEdgeError::Internal {
                detail: format!("no thread can be started: {error}"),
            })?;
        Ok(Self { queue: Mutex::new(Some(queue)), cancels: Mutex::default(), count: Arc::default() })
    }

    /// Queues `work` and waits for it. Where the future is dropped, `cancel` is cancelled. A panic is an error.
    pub async fn run<T: Send + 'static>(
        &self,
        cancel: Arc<Cancel>,
        work: impl FnOnce(&Cancel) -> Result<T, ZenEdgeError> + Send + 'static,
    ) -> Result<T, ZenEdgeError> {
        self.run_always(cancel, |cancel| {
            if cancel.is_cancelled() { Err(ZenEdgeError::cancelled()) } else { work(cancel) }
        })
        .await
    }

    /// [`Self::run`], also where `cancel` is cancelled already: what is cancelled has an answer too.
    pub async fn run_always<T: Send + 'static>(
        &self,
        cancel: Arc<Cancel>,
        work: impl FnOnce(&Cancel) -> Result<T, ZenEdgeError> + Send + 'static,
    ) -> Result<T, ZenEdgeError> {
        let (give, get) = oneshot::channel();
        let mut dropped = Dropped(Some(cancel.clone()));
        {
            let queue = lock(&self.queue);
            let queue = queue.as_ref().ok_or_else(ZenEdgeError::closed)?;
            let counted = Counted::one_more(&self.count)?;
            let mut cancels = lock(&self.cancels);
            cancels.retain(|cancel| cancel.strong_count() > 0);
            cancels.push(Arc::downgrade(&cancel));
            let work: Work = Box::new(move || {
                let _counted = counted;
                // Where nobody waits any more, the answer is dropped.
                let _ = give.send(guarded(&cancel, work));
            });
            // The thread lives as long as the queue does.
            queue.send(work).map_err(|_| ZenEdgeError::closed())?;
        }
        let done = get.await;
        dropped.0 = None;
        match done {
            // What a close cancelled was not cancelled by its caller.
            Ok(Err(ZenEdgeError::Cancelled { .. })) if lock(&self.queue).is_none() => {
                Err(ZenEdgeError::closed())
            }
            Ok(done) => done,
            Err(_) => Err(ZenEdgeError::closed()),
        }
    }

    /// Ends what is queued and under way, and takes nothing more.
    pub fn close(&self) {
        drop(lock(&self.queue).take());
        for cancel in lock(&self.cancels).drain(..).filter_map(|cancel| cancel.upgrade()) {
            cancel.cancel();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.close();
    }
}

/// Calls `work`; a panic is an error, and the thread lives on. What the engine shares between calls is whole at each moment.
fn guarded<T>(
    cancel: &Cancel,
    work: impl FnOnce(&Cancel) -> Result<T, ZenEdgeError>,
) -> Result<T, ZenEdgeError> {
    catch_unwind(AssertUnwindSafe(|| work(cancel))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(ZenEdgeError::Internal { detail: format!("a fault of the engine, please report it: {said}") })
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollster::block_on;

    #[test]
    fn a_panic_is_an_error_and_the_thread_lives_on() {
        let worker = Worker::new().unwrap();
        let run = |work: fn(&Cancel) -> Result<u8, ZenEdgeError>| block_on(worker.run(Arc::default(), work));
        let Err(ZenEdgeError::Internal { detail }) = run(|_| panic!("seven")) else { panic!("no error") };
        assert!(detail.contains("seven"), "{detail}");
        assert_eq!(run(|_| Ok(7)).unwrap(), 7);
    }

    #[test]
    fn what_is_queued_is_skipped_when_it_is_cancelled_and_closed_when_the_worker_is() {
        let worker = Worker::new().unwrap();
        let cancel = Arc::new(Cancel::new());
        cancel.cancel();
        let work = worker.run(cancel, |_| -> Result<(), _> { panic!("it ran") });
        assert!(matches!(block_on(work), Err(ZenEdgeError::Cancelled { .. })));
        worker.close();
        worker.close();
        let work = worker.run(Arc::default(), |_| Ok(()));
        assert!(matches!(block_on(work), Err(ZenEdgeError::Closed { .. })));
    }

    #[test]
    fn the_queue_has_an_end_and_is_free_again_when_its_work_is_done() {
        let worker = Worker::new().unwrap();
        let (go, waits) = channel::<()>();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut first = Box::pin(worker.run(Arc::default(), move |_| Ok(waits.recv().is_ok())));
        assert!(first.as_mut().poll(&mut context).is_pending());
        let mut more: Vec<_> = (1..MOST).map(|_| Box::pin(worker.run(Arc::default(), |_| Ok(())))).collect();
        assert!(more.iter_mut().all(|work| work.as_mut().poll(&mut context).is_pending()));
        let refused = block_on(worker.run(Arc::default(), |_| Ok(())));
        assert!(matches!(refused, Err(ZenEdgeError::Busy { .. })), "{refused:?}");
        go.send(()).unwrap();
        assert!(block_on(first).unwrap());
        assert!(more.into_iter().all(|work| block_on(work).is_ok()));
        block_on(worker.run(Arc::default(), |_| Ok(()))).unwrap();
    }

    #[test]
    fn a_dropped_future_and_a_close_end_the_work_under_way() {
        let worker = Arc::new(Worker::new().unwrap());
        let (told, tells) = channel();
        let until_cancelled = move |cancel: &Cancel| -> Result<(), _> {
            told.send(()).unwrap();
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            Err(ZenEdgeError::cancelled())
        };
        let mut work = Box::pin(worker.run(Arc::default(), until_cancelled.clone()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(work.as_mut().poll(&mut context).is_pending());
        tells.recv().unwrap();
        drop(work);
        // The thread is free again: what comes next runs.
        block_on(worker.run(Arc::default(), |_| Ok(()))).unwrap();
        let closer = worker.clone();
        let closing = std::thread::spawn(move || {
            tells.recv().unwrap();
            closer.close();
        });
        let ended = block_on(worker.run(Arc::default(), until_cancelled));
        assert!(matches!(ended, Err(ZenEdgeError::Closed { .. })));
        closing.join().unwrap();
    }
}
