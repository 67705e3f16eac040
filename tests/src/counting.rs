//! An allocator that counts, for tests of memory: each makes it its own by `#[global_allocator]`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that are allocated.
pub static NOW: AtomicUsize = AtomicUsize::new(0);
/// The most that ever were, since it was last set.
pub static MOST: AtomicUsize = AtomicUsize::new(0);

/// Keeps the bytes that are allocated, and the most that ever were.
pub struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counts touch no allocation.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
