//! Threads: workers that share this module's memory and run a pool's loops.
//!
//! JavaScript starts the workers; each instantiates the module over the shared memory and calls [`pool_thread`], which
//! returns when the pool is gone. That is what wasm-bindgen-rayon does; here nothing is handed through a raw pointer, the
//! pool is the kernels' own rather than rayon's global one, and the worker's script is the package's one worker script.

use crate::error::{Code, fail};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use wasm_bindgen::prelude::*;
use zen_edge_kernels::pool::Pool;

/// Threads that wait for a worker.
static WAITING: Mutex<VecDeque<rayon::ThreadBuilder>> = Mutex::new(VecDeque::new());
/// The pool that the next engine takes.
static READY: Mutex<Option<Pool>> = Mutex::new(None);

/// Prepares a pool of `workers` threads beside the caller's. So many calls of [`pool_thread`] must follow.
#[wasm_bindgen]
pub fn prepare_pool(workers: usize) -> Result<(), JsValue> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(workers)
        .spawn_handler(|thread| {
            WAITING.lock().unwrap_or_else(PoisonError::into_inner).push_back(thread);
            Ok(())
        })
        .build()
        .map_err(|error| fail(Code::OutOfMemory, &error.to_string()))?;
    *READY.lock().unwrap_or_else(PoisonError::into_inner) = Some(Pool::from(pool));
    Ok(())
}

/// Runs one of the pool's threads on the calling worker, until the pool is gone.
#[wasm_bindgen]
pub fn pool_thread() {
    let thread = WAITING.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    if let Some(thread) = thread {
        thread.run();
    }
}

/// The prepared pool.
pub fn take() -> Option<Pool> {
    READY.lock().unwrap_or_else(PoisonError::into_inner).take()
}
