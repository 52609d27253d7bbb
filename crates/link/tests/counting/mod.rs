//! An allocator that counts separately for each thread, because tests run in parallel.

#![allow(unsafe_code, reason = "a counting allocator cannot be written without")]
#![allow(dead_code, reason = "not every test needs all of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// How often this thread has allocated, and how many bytes in all.
    static ALLOCATED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn count(bytes: isize, allocated: Option<usize>) {
    // The counters of a thread that is ending are gone: nothing is counted then.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
    if let Some(size) = allocated {
        let add = |(calls, bytes)| (calls + 1, bytes + size);
        let _ = ALLOCATED.try_with(|all| all.set(add(all.get())));
    }
}

// SAFETY: every call goes on to the system's allocator with the same arguments; the counters are
// thread-local cells without a destructor, which allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, Some(layout.size()));
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize), None);
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize, Some(size));
        // SAFETY: the caller keeps the promises of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that this thread holds.
pub(crate) fn held() -> isize {
    HELD.with(Cell::get)
}

/// How often this thread has allocated, and how many bytes in all; a buffer that grows counts again
/// with all of its size, since it may be copied.
pub(crate) fn allocated() -> (usize, usize) {
    ALLOCATED.with(Cell::get)
}
