use core::alloc::{GlobalAlloc, Layout};
use core::ptr;

use hakmem_sys as sys;

use crate::heap::alloc_in;

/// The allocator. It has no state of its own: all values are the one heap of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hakmem;

/// Every block has at least this alignment, even if none is requested.
pub(crate) const NATURAL: usize = 16;

// SAFETY: blocks are as large and as aligned as their layout says, and stay where they are until they are freed. Nothing
// here unwinds or calls back into Rust.
unsafe impl GlobalAlloc for Hakmem {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: a Layout's alignment is always a power of two.
        unsafe {
            if layout.align() <= NATURAL {
                sys::hak_malloc(layout.size()).cast()
            } else {
                sys::hak_aligned_alloc(layout.align(), layout.size()).cast()
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size is allowed.
        unsafe { alloc_zeroed_in(self, layout, |size| sys::hak_calloc(1, size).cast()) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: our caller promises that the block is ours, with this layout.
        unsafe {
            if layout.align() <= NATURAL {
                sys::hak_free_sized(block.cast(), layout.size());
            } else {
                sys::hak_free_aligned_sized(block.cast(), layout.align(), layout.size());
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: our caller promises that the block is ours, and that the new size is valid for a layout.
        unsafe {
            if layout.align() <= NATURAL {
                sys::hak_realloc(block.cast(), size).cast()
            } else {
                realloc_aligned(block, layout, size)
            }
        }
    }
}

/// Blocks above this size begin at a multiple of [`PAGES_ALIGNED`], except in the secure library.
const SMALL_MAX: usize = 65536;
const PAGES_ALIGNED: usize = 65536;

/// Only `calloc` knows which pages are zero already, and need not be written.
#[inline]
pub(crate) unsafe fn alloc_zeroed_in(heap: &impl GlobalAlloc, layout: Layout, calloc: impl FnOnce(usize) -> *mut u8) -> *mut u8 {
    // SAFETY: a block has at least as many bytes as its layout.
    unsafe {
        // Not in the secure library, where each block that is tried and freed takes a place in the quarantine.
        let pages = layout.size() > SMALL_MAX && layout.align() <= PAGES_ALIGNED && !cfg!(feature = "secure");
        if layout.align() <= NATURAL || pages {
            let block = calloc(layout.size());
            if block.is_null() || block as usize % layout.align() == 0 {
                return block;
            }
            sys::hak_free(block.cast());
        }
        let block = heap.alloc(layout);
        if !block.is_null() {
            ptr::write_bytes(block, 0, layout.size());
        }
        block
    }
}

/// Reallocates a block with an alignment above [`NATURAL`], since C has no realloc that keeps an alignment. A block that shrinks
/// moves, so that memory is given back; if there is no room for both, it stays where it is, since shrinking must not fail. A block of
/// a named heap stays in that heap, and any other block in none.
#[cold]
unsafe fn realloc_aligned(block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    // SAFETY: as for realloc.
    unsafe {
        if size >= layout.size() && sys::hak_expand(block.cast(), size) {
            return block;
        }
        let wanted = Layout::from_size_align_unchecked(size, layout.align());
        let heap = sys::hak_heap_of(block.cast());
        let moved = if heap.is_null() { alloc_in_none(wanted) } else { alloc_in(heap, wanted) };
        if moved.is_null() {
            // In the secure library this may fail: there the block must record the size that its free will state.
            return if size <= layout.size() && sys::hak_expand(block.cast(), size) { block } else { moved };
        }
        ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
        Hakmem.dealloc(block, layout);
        moved
    }
}

/// Allocates from the thread's own heap, even while it has entered another one.
unsafe fn alloc_in_none(layout: Layout) -> *mut u8 {
    // SAFETY: the heap that the thread has entered is entered again.
    unsafe {
        let entered = sys::hak_heap_set_default(ptr::null_mut());
        let block = Hakmem.alloc(layout);
        if !entered.is_null() {
            sys::hak_heap_set_default(entered);
        }
        block
    }
}

/// The number of usable bytes in a block: at least the requested size. With the feature `secure` it is exactly the requested size, unless
/// the alignment requires a larger block.
///
/// # Safety
///
/// The block is live and hakmem's. Its layout remains the one that it was allocated with; it may also be freed with the usable size
/// as its size.
#[inline]
pub unsafe fn usable_size(block: *const u8) -> usize {
    // SAFETY: as our caller promises.
    unsafe { sys::hak_malloc_usable_size(block.cast()) }
}

/// The usable size that an allocation of `size` bytes would have; 0 if no such allocation can succeed.
#[inline]
pub fn good_size(size: usize) -> usize {
    // SAFETY: any size is allowed.
    unsafe { sys::hak_malloc_good_size(size) }
}

/// Grows a block in place, so that `size` bytes are usable. Returns false and leaves the block unchanged if it would have to move.
///
/// # Safety
///
/// The block is live and hakmem's. If this returns true, the size of its layout is now `size`.
#[inline]
pub unsafe fn expand(block: *mut u8, size: usize) -> bool {
    // SAFETY: as our caller promises.
    unsafe { sys::hak_expand(block.cast(), size) }
}
