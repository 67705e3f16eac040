//! Threads that share a loop.

use std::ops::Range;
#[cfg(any(feature = "threads", test))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A set of threads over which a loop is spread. Cheap to clone; clones share the threads.
///
/// The caller is one of the threads. Iterations are handed out one by one, so that a slow core takes fewer of them.
/// Threads sleep while there is nothing to do. Which thread runs an iteration never changes a result.
#[derive(Clone, Default)]
pub struct Pool {
    #[cfg(feature = "threads")]
    threads: Option<std::sync::Arc<Threads>>,
}

/// What the clones of a pool share.
#[cfg(feature = "threads")]
struct Threads {
    pool: rayon::ThreadPool,
    /// Threads that may run a loop at once, the caller's counted.
    limit: AtomicUsize,
}

#[cfg(feature = "threads")]
impl From<rayon::ThreadPool> for Threads {
    fn from(pool: rayon::ThreadPool) -> Self {
        Self { pool, limit: AtomicUsize::new(usize::MAX) }
    }
}

impl Pool {
    /// Everything runs on the caller's thread.
    pub const fn single() -> Self {
        Self {
            #[cfg(feature = "threads")]
            threads: None,
        }
    }

    /// `threads` threads, the caller's counted. Where they cannot be had (no thread support, a system limit) the
    /// caller's runs alone: [`threads`](Self::threads) tells.
    pub fn new(threads: usize) -> Self {
        #[cfg(feature = "threads")]
        if threads > 1 {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads - 1)
                .thread_name(|i| format!("zen-edge-{}", i + 1))
                .build();
            return Self { threads: pool.ok().map(|pool| std::sync::Arc::new(pool.into())) };
        }
        let _ = threads;
        Self::single()
    }

    /// As many threads as the process may use at once (its affinity and control group respected).
    pub fn default_threads() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// How many threads run a loop.
    pub fn threads(&self) -> usize {
        #[cfg(feature = "threads")]
        if let Some(threads) = &self.threads {
            let limit = threads.limit.load(Ordering::Relaxed);
            return (threads.pool.current_num_threads() + 1).min(limit).max(1);
        }
        1
    }

    /// Lets at most `threads` threads run a loop from now on, of this pool and of its clones; the others sleep. A hot device
    /// wants fewer, and the same again when it has cooled. Results stay the same.
    pub fn limit(&self, threads: usize) {
        #[cfg(feature = "threads")]
        if let Some(shared) = &self.threads {
            shared.limit.store(threads.max(1), Ordering::Relaxed);
        }
        let _ = threads;
    }

    /// Calls `body(i)` for every `i` in `0..n`, each once, in no given order.
    ///
    /// # Panics
    /// Where `body` panics.
    pub fn run(&self, n: usize, body: &(dyn Fn(usize) + Sync)) {
        #[cfg(feature = "threads")]
        if let Some(threads) = &self.threads
            && n > 1
            && self.threads() > 1
        {
            let helpers = self.threads() - 1;
            let next = AtomicUsize::new(0);
            let worker = || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= n {
                        break;
                    }
                    body(i);
                }
            };
            threads.pool.in_place_scope(|scope| {
                for _ in 0..helpers.min(n - 1) {
                    scope.spawn(|_| worker());
                }
                worker();
            });
            return;
        }
        for i in 0..n {
            body(i);
        }
    }
}

/// The threads of a rayon pool beside the caller's: for a platform whose threads only it can start, as a browser's workers.
#[cfg(feature = "threads")]
impl From<rayon::ThreadPool> for Pool {
    fn from(threads: rayon::ThreadPool) -> Self {
        Self { threads: Some(std::sync::Arc::new(threads.into())) }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

/// A slice of which the threads of a loop write disjoint parts.
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    slice: core::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it only hands out parts through `slice`, whose caller answers for their being disjoint.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: core::marker::PhantomData }
    }

    /// The part `range`.
    ///
    /// # Safety
    /// No two parts that are alive at once may overlap.
    ///
    /// # Panics
    /// Where `range` leaves the slice.
    #[allow(unsafe_code, clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part leaves its slice");
        // SAFETY: inside the slice, which is borrowed for 'a; the caller keeps parts disjoint.
        unsafe { core::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// The first element, for strided writes.
    pub(crate) fn as_mut_ptr(&self) -> *mut T {
        self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_iteration_runs_once() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), if cfg!(feature = "threads") { threads } else { 1 });
            for n in [0, 1, 2, 100] {
                let counts: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                pool.run(n, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    counts.iter().all(|c| c.load(Ordering::Relaxed) == 1),
                    "{threads} threads, {n} iterations"
                );
            }
        }
    }

    #[cfg(feature = "threads")]
    #[test]
    fn a_limit_holds_for_clones_and_can_be_lifted() {
        let pool = Pool::new(4);
        let clone = pool.clone();
        for (limit, expected) in [(2, 2), (0, 1), (9, 4), (1, 1), (4, 4)] {
            pool.limit(limit);
            assert_eq!(clone.threads(), expected);
            let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            clone.run(200, &|_| {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                at_once.fetch_sub(1, Ordering::SeqCst);
            });
            assert!(most.into_inner() <= expected);
        }
    }

    #[cfg(panic = "unwind")]
    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(8, &|i| assert!(i != 3, "three"));
        }));
        assert!(result.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(4, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 6);
    }

    /// Callers that share a pool, loops in loops, limits that change and bodies that panic, all at once: each iteration
    /// runs once, a panic is its caller's own, and none waits for ever. Bounded in work, not in time.
    ///
    /// Not by loom: the threads and their queues are rayon's, which cannot be built on loom's. What is ours is one counter.
    #[cfg(panic = "unwind")]
    #[test]
    fn callers_of_every_kind_share_a_pool() {
        let rounds = if cfg!(miri) { 4 } else { 200 };
        let pool = Pool::new(4);
        std::thread::scope(|scope| {
            for caller in 0..8_usize {
                let pool = pool.clone();
                scope.spawn(move || {
                    for round in 0..rounds {
                        let n = (caller * 5 + round * 3) % 23;
                        let counts: Vec<AtomicUsize> = (0..n * 3).map(|_| AtomicUsize::new(0)).collect();
                        let once = |i: usize| {
                            counts[i].fetch_add(1, Ordering::Relaxed);
                        };
                        match caller % 4 {
                            0 => pool.run(n * 3, &once),
                            1 => pool.run(n, &|i| pool.run(3, &|j| once(i * 3 + j))),
                            2 => {
                                pool.limit(1 + round % 4);
                                pool.run(n * 3, &once);
                            }
                            _ => {
                                let breaks = std::panic::AssertUnwindSafe(|| {
                                    pool.run(n * 3, &|i| {
                                        once(i);
                                        // Without the hook's message, of which there would be hundreds.
                                        if i == 4 {
                                            std::panic::resume_unwind(Box::new(caller));
                                        }
                                    });
                                });
                                let ended = std::panic::catch_unwind(breaks);
                                match ended {
                                    Ok(()) => assert!(n * 3 <= 4),
                                    Err(panic) => assert_eq!(panic.downcast_ref(), Some(&caller)),
                                }
                                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) <= 1));
                                continue;
                            }
                        }
                        assert!(
                            counts.iter().all(|c| c.load(Ordering::Relaxed) == 1),
                            "caller {caller}, {n}"
                        );
                    }
                });
            }
        });
    }
}
