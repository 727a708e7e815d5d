use core::alloc::{GlobalAlloc, Layout};
use core::ffi::CStr;
use core::marker::PhantomData;
use core::mem::size_of;
use core::ptr::NonNull;

use hakmem_sys as sys;

use crate::block::{alloc_zeroed_in, Hakmem, NATURAL};

/// What a named heap holds; each field's documentation names its unit.
pub type HeapUsage = sys::hak_heap_usage_t;

/// A named heap: memory that is counted, limited and freed as a whole, for example that of a cache, a tenant or a request.
///
/// It is an allocator, and its blocks are like any others: [`Hakmem`] frees them, in any thread. Dropping a value does not free its
/// heap, since blocks may be in use; [`Heap::free`] does.
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

// SAFETY: the library accepts calls from any thread.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// Makes a heap without a limit; returns `None` if memory is out. The first 31 characters of the name are kept, with `_` for
    /// blanks, quotes, backslashes and whatever is not ASCII. Names need not be unique.
    pub fn new(name: &CStr) -> Option<Self> {
        // SAFETY: the name ends with a zero.
        NonNull::new(unsafe { sys::hak_heap_new(name.as_ptr()) }).map(|raw| Self { raw })
    }

    /// Frees the heap and all its blocks.
    ///
    /// # Safety
    ///
    /// No block of the heap is used or freed any more, not even by libc or the standard library, which keep blocks of an entered heap
    /// (see [`enter`](Self::enter): a panic's backtrace is enough). No thread has entered the heap.
    pub unsafe fn free(self) {
        // SAFETY: as our caller promises.
        unsafe { sys::hak_heap_free(self.raw.as_ptr()) };
    }

    /// Makes this thread allocate from this heap until the returned guard is dropped.
    ///
    /// As with [`tag`](crate::tag()), guards must be dropped in the reverse order of their creation. Beyond a limit, an allocation that
    /// cannot fail, such as `Box::new`, ends the program, as it does when memory is out; `try_reserve` returns an error.
    ///
    /// Memory that libc and the standard library allocate meanwhile and keep comes from this heap too: the storage of threads that are
    /// started, which libc uses again for later threads, buffers, thread-local values. So start threads before, or never
    /// [`free`](Self::free) the heap.
    ///
    /// A panic that prints its backtrace (`RUST_BACKTRACE`) while a heap is entered leaves the standard library's symbol table in the
    /// heap: some 34 MiB, which that library uses until the program ends. Under a limit such a panic deadlocks: the failed allocation is
    /// reported under the lock that printing the backtrace holds. A panic hook that prints no backtrace avoids both.
    pub fn enter(&self) -> Entered<'_> {
        // SAFETY: the heap lives as long as the guard.
        Entered { before: unsafe { sys::hak_heap_set_default(self.raw.as_ptr()) }, of_this_thread: PhantomData }
    }

    /// Sets how many bytes the heap's live blocks may take, with rounding; 0 is no limit. Blocks that are already live stay.
    pub fn set_limit(&self, bytes: usize) {
        // SAFETY: the heap is live.
        unsafe { sys::hak_heap_set_limit(self.raw.as_ptr(), bytes) };
    }

    /// What the heap holds, as exact figures.
    pub fn usage(&self) -> HeapUsage {
        let mut usage = HeapUsage { struct_size: size_of::<HeapUsage>() as u64, ..HeapUsage::default() };
        // SAFETY: the heap is live, and the structure says how large it is.
        let filled = unsafe { sys::hak_heap_usage_get(self.raw.as_ptr(), &mut usage) };
        debug_assert!(filled);
        usage
    }

    /// The heap's name, as it was kept.
    pub fn name(&self) -> &CStr {
        // SAFETY: the name ends with a zero and lives as long as the heap.
        unsafe { CStr::from_ptr(sys::hak_heap_name(self.raw.as_ptr())) }
    }

    /// Returns whether a live block of this heap begins at this address.
    pub fn contains(&self, block: *const u8) -> bool {
        // SAFETY: any pointer is allowed.
        unsafe { sys::hak_heap_of(block.cast()) == self.raw.as_ptr() }
    }

    /// Gives the heap's free slabs back, for other heaps to use; returns their size in bytes.
    pub fn collect(&self) -> usize {
        // SAFETY: the heap is live.
        unsafe { sys::hak_heap_collect(self.raw.as_ptr()) }
    }
}

// SAFETY: as for Hakmem. A block stays until it is freed: whoever frees the heap promises that none of its blocks is in use.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the heap is live.
        unsafe { alloc_in(self.raw.as_ptr(), layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the heap is live.
        unsafe { alloc_zeroed_in(self, layout, |size| sys::hak_heap_calloc(self.raw.as_ptr(), 1, size).cast()) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: our caller promises that the block is live, with this layout.
        unsafe { Hakmem.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for dealloc. The block stays in its heap, moved or not.
        unsafe { Hakmem.realloc(block, layout, size) }
    }
}

/// Allocates a block from the heap; returns null if memory is out or the heap's limit is reached.
pub(crate) unsafe fn alloc_in(heap: *mut sys::hak_heap_t, layout: Layout) -> *mut u8 {
    // SAFETY: our caller promises that the heap is live; a layout's alignment is always a power of two.
    unsafe {
        if layout.align() <= NATURAL {
            sys::hak_heap_malloc(heap, layout.size()).cast()
        } else {
            sys::hak_heap_aligned_alloc(heap, layout.align(), layout.size()).cast()
        }
    }
}

/// A guard: while it lives, this thread allocates from a named heap.
#[must_use = "the heap is left when this is dropped"]
#[derive(Debug)]
pub struct Entered<'heap> {
    before: *mut sys::hak_heap_t,
    /// The guard belongs to its thread (the pointer makes it neither Send nor Sync), and lives no longer than the heap.
    of_this_thread: PhantomData<&'heap Heap>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: the previous heap was entered by a guard that lives longer, or there is none.
        unsafe { sys::hak_heap_set_default(self.before) };
    }
}
