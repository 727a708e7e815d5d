use core::alloc::{GlobalAlloc, Layout};
use core::ffi::CStr;
use core::marker::PhantomData;
use core::mem::size_of;
use core::ptr::{self, NonNull};

use hakmem_sys as sys;

use crate::block::{Hakmem, NATURAL};

/// What a named heap holds; each field tells its unit.
pub type HeapUsage = sys::hak_heap_usage_t;

/// A named heap: memory that is counted, limited and freed as one: a cache's, a tenant's, a request's.
///
/// It is an allocator, and its blocks are like any others: [`Hakmem`] frees them, in any thread. A value that is dropped leaves its heap
/// as it is, since blocks may be in use; [`Heap::free`] ends it.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;
/// let cache = hakmem::Heap::new(c"cache").unwrap();
/// let entries = {
///     let _here = cache.enter();
///     vec![7_u64; 1000] // from the cache
/// };
/// assert!(cache.contains(entries.as_ptr().cast()));
/// assert!(cache.usage().live >= 8000);
/// drop(entries);
/// // SAFETY: nothing of it is in use.
/// unsafe { cache.free() };
/// ```
#[derive(Debug)]
pub struct Heap {
    raw: NonNull<sys::hak_heap_t>,
}

// SAFETY: the library takes calls of any thread.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// A new heap, without a limit; none where memory is out. Of the name 31 characters are kept, with `_` for blanks and what is
    /// not ASCII. Names need not differ.
    pub fn new(name: &CStr) -> Option<Self> {
        // SAFETY: the name ends with a zero.
        NonNull::new(unsafe { sys::hak_heap_new(name.as_ptr()) }).map(|raw| Self { raw })
    }

    /// Frees all its blocks, and the heap.
    ///
    /// # Safety
    ///
    /// No block of it is used or freed any more, not by libc or the standard library either (see [`enter`](Self::enter): a panic's
    /// backtrace is enough), and no thread has entered it.
    pub unsafe fn free(self) {
        // SAFETY: as our caller promises.
        unsafe { sys::hak_heap_free(self.raw.as_ptr()) };
    }

    /// What this thread allocates comes from this heap, until the result is dropped.
    ///
    /// As with [`tag`](crate::tag()), guards end in the opposite order of their making. Beyond a limit, what cannot fail, such as
    /// `Box::new`, ends the program, as it does where memory is out; `try_reserve` fails.
    ///
    /// What libc and the standard library allocate meanwhile and keep is from it too: the storage of threads that are started, which
    /// libc uses again for others, buffers, thread-local values. So start threads before, or do not [`free`](Self::free) the heap.
    ///
    /// A panic whose backtrace is printed (`RUST_BACKTRACE`) while a heap is entered leaves the standard library's table of symbols in it:
    /// some 34 MiB, which that library uses until the program ends. Under a limit such a panic deadlocks: the failed allocation is reported
    /// under the lock that printing the backtrace holds. A panic hook that prints no backtrace avoids both.
    pub fn enter(&self) -> Entered<'_> {
        // SAFETY: the heap lives as long as the guard.
        Entered { before: unsafe { sys::hak_heap_set_default(self.raw.as_ptr()) }, of_this_thread: PhantomData }
    }

    /// What its live blocks may take, in bytes, with what rounding adds; 0 is no limit. What is live already stays.
    pub fn set_limit(&self, bytes: usize) {
        // SAFETY: the heap is live.
        unsafe { sys::hak_heap_set_limit(self.raw.as_ptr(), bytes) };
    }

    /// What it holds, exactly.
    pub fn usage(&self) -> HeapUsage {
        let mut usage = HeapUsage { struct_size: size_of::<HeapUsage>() as u64, ..HeapUsage::default() };
        // SAFETY: the heap is live, and the structure says how large it is.
        let filled = unsafe { sys::hak_heap_usage_get(self.raw.as_ptr(), &mut usage) };
        debug_assert!(filled);
        usage
    }

    /// Its name as it was kept.
    pub fn name(&self) -> &CStr {
        // SAFETY: it ends with a zero and lives as long as the heap.
        unsafe { CStr::from_ptr(sys::hak_heap_name(self.raw.as_ptr())) }
    }

    /// Whether a live block begins here that is this heap's.
    pub fn contains(&self, block: *const u8) -> bool {
        // SAFETY: any pointer is allowed.
        unsafe { sys::hak_heap_of(block.cast()) == self.raw.as_ptr() }
    }

    /// Gives its free slabs back, for others to use; returns their bytes.
    pub fn collect(&self) -> usize {
        // SAFETY: the heap is live.
        unsafe { sys::hak_heap_collect(self.raw.as_ptr()) }
    }
}

// SAFETY: as for Hakmem. A block stays until it is freed: who ends the heap promises that none is in use.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the heap is live.
        unsafe { alloc_in(self.raw.as_ptr(), layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the heap is live; a block has as many bytes as its layout.
        unsafe {
            if layout.align() <= NATURAL {
                return sys::hak_heap_calloc(self.raw.as_ptr(), 1, layout.size()).cast();
            }
            let block = self.alloc(layout);
            if !block.is_null() {
                ptr::write_bytes(block, 0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: our caller promises that the block is live, with this layout.
        unsafe { Hakmem.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for dealloc. Where the block is, it stays in its heap.
        unsafe { Hakmem.realloc(block, layout, size) }
    }
}

/// A block of the heap; null where memory is out or its limit reached.
pub(crate) unsafe fn alloc_in(heap: *mut sys::hak_heap_t, layout: Layout) -> *mut u8 {
    // SAFETY: our caller promises that the heap is live; layouts have powers of two alone.
    unsafe {
        if layout.align() <= NATURAL {
            sys::hak_heap_malloc(heap, layout.size()).cast()
        } else {
            sys::hak_heap_aligned_alloc(heap, layout.align(), layout.size()).cast()
        }
    }
}

/// While it lives, what this thread allocates comes from a named heap.
#[must_use = "the heap is left when this is dropped"]
#[derive(Debug)]
pub struct Entered<'heap> {
    before: *mut sys::hak_heap_t,
    /// It belongs to its thread, as the pointer makes it, and lives no longer than the heap.
    of_this_thread: PhantomData<&'heap Heap>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: the heap before is entered by a guard that lives longer, or none.
        unsafe { sys::hak_heap_set_default(self.before) };
    }
}
