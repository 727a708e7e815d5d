//! The hakmem memory allocator, built from its C sources, and its interface.
//!
//! The functions have their C names; `hakmem.h`, `heap.h` and `profile.h`, in `c/include/hakmem` of this package, say what each does,
//! its errors and its units. All are thread-safe. The crate `hakmem` has a global allocator and safe functions for most.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_void};

/// glibc's `mallinfo2`, field by field; bytes but for the counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_mallinfo_t {
    /// Block memory in all.
    pub arena: usize,
    /// Slabs in use, a count.
    pub ordblks: usize,
    /// 0.
    pub smblks: usize,
    /// Large blocks live, a count.
    pub hblks: usize,
    /// 0: large blocks are part of arena.
    pub hblkhd: usize,
    /// 0.
    pub usmblks: usize,
    /// Cached in bins.
    pub fsmblks: usize,
    /// Live blocks.
    pub uordblks: usize,
    /// Arena less uordblks.
    pub fordblks: usize,
    /// What malloc_trim could give back at once.
    pub keepcost: usize,
}

/// Statistics, in bytes unless the name says otherwise.
///
/// Read without stopping other threads: each figure is exact for its source, the set may be skewed by operations
/// under way. Sources: census walks slab records and bins, counter is an atomic counter kept on slow paths, os asks
/// the kernel, clock measures.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_stats_t {
    /// Set by the caller to the size of the structure; afterwards, how many bytes are filled.
    pub struct_size: u32,
    /// Number of size classes; the last is that of malloc(0).
    pub classes: u32,
    /// Estimate: live bytes less an estimate of rounding (census).
    pub requested: u64,
    /// In blocks held by the program (census).
    pub live: u64,
    /// In blocks in thread bins, ready for reuse (census).
    pub cached: u64,
    /// In blocks freed by other threads, not yet collected (census).
    pub remote: u64,
    /// Free blocks inside slabs in use, and their tails (census).
    pub slab_free: u64,
    /// Free units of committed superslabs (census).
    pub span_free: u64,
    /// The part of span_free that has been touched and not yet given back (census).
    pub purge_pending: u64,
    /// Records, maps, bitmaps and heaps, touched or not (counter).
    pub metadata: u64,
    /// Readable and writable block memory: live + cached + remote + slab_free + span_free.
    pub committed: u64,
    /// Address space mapped, for blocks and metadata (counter).
    pub reserved: u64,
    /// Resident set of the whole process (os).
    pub resident: u64,
    /// Superslabs with any committed unit, a count (counter).
    pub superslabs: u64,
    /// Slabs in use, a count (census).
    pub slabs: u64,
    /// Live large blocks, a count (census).
    pub large_blocks: u64,
    /// Mappings of the whole process, a count (os).
    pub mappings: u64,
    /// Per-thread heaps, used and orphaned, a count (counter).
    pub heaps: u64,
    /// Heaps whose thread has exited, a count (counter).
    pub heaps_orphaned: u64,
    /// Bins refilled from slabs, a count (counter).
    pub refills: u64,
    /// Blocks those brought, a count.
    pub refill_blocks: u64,
    /// Bins that gave blocks back, a count (counter).
    pub flushes: u64,
    /// Blocks those gave, a count.
    pub flush_blocks: u64,
    /// Estimate: allocations served from bins without a refill, a count.
    pub bin_hits: u64,
    /// Blocks freed by a thread that does not own them, a count (counter).
    pub remote_frees: u64,
    /// Large blocks allocated so far, a count (counter).
    pub large_allocs: u64,
    /// Large blocks freed so far, a count (counter).
    pub large_frees: u64,
    /// Bins made larger, as their use asked for, a count (counter).
    pub bins_grown: u64,
    /// Bins made smaller after disuse, a count (counter).
    pub bins_shrunk: u64,
    /// Bytes of free spans given back to the kernel so far (counter).
    pub purged: u64,
    /// Bytes of free pages in partly used slabs given back so far (counter).
    pub holes_purged: u64,
    /// Bytes of slabs brought in by one call instead of a fault a page, so far (counter).
    pub populated: u64,
    /// Slabs taken so that fewer collections of remote frees are needed (`HAKMEM_LEAD`), so far, a count (counter).
    pub lead_slabs: u64,
    /// Superslabs whose pages changed their address instead of being copied or faulted in, a count (counter).
    pub superslabs_moved: u64,
    /// Superslabs that may be huge pages now, a count (counter).
    pub superslabs_huge: u64,
    /// Inaccessible units not made, since mappings are limited, so far, a count (counter).
    pub guards_left_out: u64,
    /// Times that the keeper, which gives memory back while the program rests, was started (counter).
    pub keeper_starts: u64,
    /// Calls of mmap so far, a count (counter).
    pub sys_mmap: u64,
    /// Calls of munmap so far, a count (counter).
    pub sys_munmap: u64,
    /// Calls of mprotect so far, a count (counter).
    pub sys_mprotect: u64,
    /// Calls of madvise so far, a count (counter).
    pub sys_madvise: u64,
    /// Calls of mremap so far, a count (counter).
    pub sys_mremap: u64,
    /// Other system calls so far, a count (counter).
    pub sys_other: u64,
    /// Huge pages timed as they were brought in, where the system gives them on request, so far, a count (counter).
    pub huge_trials: u64,
    /// Of these, those so slow that no more were asked for, for a while (HAKMEM_HUGE), a count (counter).
    pub huge_losses: u64,
    /// Nanoseconds of processor time to bring in 2 MiB as a huge page, as last measured; 0: never (clock).
    pub huge_price_ns: u64,
    /// The same for 2 MiB of small pages.
    pub small_price_ns: u64,
    /// The limit that is met first, a container's or HAKMEM_LIMIT_SOFT; 0: none known (os).
    pub limit: u64,
    /// What counted against it when last looked at (os).
    pub limit_use: u64,
    /// How near that is: 0 far, 1 near, 2 nearer, 3 at it.
    pub limit_level: u64,
    /// Of the limit, the most that was in use as something was given back for it, in percent.
    pub limit_percent: u64,
    /// Given back while a limit was near, so far (counter).
    pub limit_given: u64,
    /// Times that the kernel was asked for limits, so far, a count (counter).
    pub limit_looks: u64,
    /// Times that HAKMEM_LIMIT_HARD has held back memory, so far, a count (counter).
    pub limit_refused: u64,
    /// Bytes given back because the heap grew, and soon needed again: `HAKMEM_IDLE_PERCENT`, so far (counter).
    pub purged_again: u64,
}

/// Statistics of one size class.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_class_stats_t {
    /// Bytes a block; 0 for those of malloc(0).
    pub block_size: u64,
    /// Bytes a slab.
    pub slab_size: u64,
    /// Slabs in use, a count.
    pub slabs: u64,
    /// Blocks held by the program, a count.
    pub live_blocks: u64,
    /// Blocks in thread bins, a count.
    pub cached_blocks: u64,
    /// Free blocks inside slabs, a count.
    pub free_blocks: u64,
    /// Blocks freed by other threads, not yet collected, a count.
    pub remote_blocks: u64,
    /// Bins refilled from slabs, a count.
    pub refills: u64,
    /// Bins that gave blocks back, a count.
    pub flushes: u64,
}

/// Statistics of one thread's heap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_heap_stats_t {
    /// 1 if its thread has exited.
    pub orphaned: u64,
    /// Slabs it owns, a count.
    pub slabs: u64,
    /// The memory of those.
    pub slab_bytes: u64,
    /// Bytes in its bins.
    pub cached: u64,
    /// Bins refilled from slabs, a count.
    pub refills: u64,
    /// Blocks those brought, a count.
    pub refill_blocks: u64,
    /// Bins that gave blocks back, a count.
    pub flushes: u64,
    /// Blocks those gave, a count.
    pub flush_blocks: u64,
    /// Its blocks freed by other threads and collected.
    pub remote_frees: u64,
}

/// What a named heap holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_heap_usage_t {
    /// Set by the caller to the size of the structure; afterwards, how many bytes are filled.
    pub struct_size: u64,
    /// What its live blocks may take; 0 is no limit.
    pub limit: u64,
    /// Bytes of blocks, rounded, as the limit counts them; in the secure library also in quarantine (lock).
    pub live: u64,
    /// Of those, a count (lock).
    pub blocks: u64,
    /// The most that `live` was, with what had been freed and was not yet brought in (counter).
    pub peak: u64,
    /// The memory of its slabs (lock).
    pub slab_bytes: u64,
    /// Of `live`, in large blocks (lock).
    pub large_bytes: u64,
    /// Of `blocks` (lock).
    pub large_blocks: u64,
    /// Blocks allocated so far, a count (counter).
    pub allocs: u64,
    /// Blocks freed so far: `allocs` less `blocks`.
    pub frees: u64,
    /// Allocations that the limit has refused, a count (counter).
    pub refused: u64,
}

/// A named heap.
#[repr(C)]
pub struct hak_heap_t {
    _private: [u8; 0],
}

/// A block and how many of its bytes may be used.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct hak_sized_t {
    /// Null, with size 0, on failure.
    pub ptr: *mut c_void,
    /// Bytes usable, at least those asked for.
    pub size: usize,
}

/// For the flags of [`hak_nallocx`] and [`hak_sdallocx`], to which the logarithm of the alignment is added.
pub const HAK_ZERO: c_int = 0x40;

#[allow(missing_docs)] // the headers have them
extern "C" {
    // hakmem.h: the C allocation functions
    pub fn hak_version() -> *const c_char;
    pub fn hak_malloc(size: usize) -> *mut c_void;
    pub fn hak_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn hak_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn hak_reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    pub fn hak_recallocarray(block: *mut c_void, old_count: usize, count: usize, size: usize) -> *mut c_void;
    pub fn hak_reallocf(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn hak_free(block: *mut c_void);
    pub fn hak_cfree(block: *mut c_void);
    pub fn hak_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    pub fn hak_memalign(alignment: usize, size: usize) -> *mut c_void;
    pub fn hak_posix_memalign(result: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    pub fn hak_valloc(size: usize) -> *mut c_void;
    pub fn hak_pvalloc(size: usize) -> *mut c_void;
    pub fn hak_free_sized(block: *mut c_void, size: usize);
    pub fn hak_free_aligned_sized(block: *mut c_void, alignment: usize, size: usize);
    pub fn hak_malloc_usable_size(block: *const c_void) -> usize;
    pub fn hak_malloc_good_size(size: usize) -> usize;
    pub fn hak_nallocx(size: usize, flags: c_int) -> usize;
    pub fn hak_sdallocx(block: *mut c_void, size: usize, flags: c_int);

    // Beyond the C library
    pub fn hak_alloc_at_least(size: usize) -> hak_sized_t;
    pub fn hak_expand(block: *mut c_void, size: usize) -> bool;
    pub fn hak_malloc_batch(size: usize, count: usize, blocks: *mut *mut c_void) -> usize;
    pub fn hak_free_batch(blocks: *mut *mut c_void, count: usize);
    pub fn hak_collect(force: bool) -> usize;

    // The libc statistics names
    pub fn hak_malloc_trim(pad: usize) -> c_int;
    pub fn hak_mallopt(parameter: c_int, value: c_int) -> c_int;
    pub fn hak_malloc_stats();
    /// `stream` is a `FILE *`.
    pub fn hak_malloc_info(options: c_int, stream: *mut c_void) -> c_int;
    pub fn hak_mallinfo2() -> hak_mallinfo_t;

    /// `address` may be any.
    pub fn hak_is_live(address: *const c_void) -> bool;

    // Statistics and options
    pub fn hak_stats_get(stats: *mut hak_stats_t) -> bool;
    pub fn hak_stats_class(size_class: u32, stats: *mut hak_class_stats_t) -> bool;
    pub fn hak_stats_heap(heap: u32, stats: *mut hak_heap_stats_t) -> bool;
    pub fn hak_stats_text(fd: c_int) -> bool;
    pub fn hak_stats_json(fd: c_int) -> bool;
    pub fn hak_option_get(name: *const c_char, value: *mut i64) -> bool;
    pub fn hak_option_set(name: *const c_char, value: i64) -> bool;
    pub fn hak_options_json(fd: c_int) -> bool;

    // heap.h
    pub fn hak_heap_new(name: *const c_char) -> *mut hak_heap_t;
    pub fn hak_heap_free(heap: *mut hak_heap_t);
    pub fn hak_heap_malloc(heap: *mut hak_heap_t, size: usize) -> *mut c_void;
    pub fn hak_heap_calloc(heap: *mut hak_heap_t, count: usize, size: usize) -> *mut c_void;
    pub fn hak_heap_aligned_alloc(heap: *mut hak_heap_t, alignment: usize, size: usize) -> *mut c_void;
    pub fn hak_heap_strdup(heap: *mut hak_heap_t, text: *const c_char) -> *mut c_char;
    pub fn hak_heap_realloc(heap: *mut hak_heap_t, block: *mut c_void, size: usize) -> *mut c_void;
    pub fn hak_heap_set_limit(heap: *mut hak_heap_t, bytes: usize);
    pub fn hak_heap_set_default(heap: *mut hak_heap_t) -> *mut hak_heap_t;
    pub fn hak_heap_of(block: *const c_void) -> *mut hak_heap_t;
    pub fn hak_heap_name(heap: *const hak_heap_t) -> *const c_char;
    pub fn hak_heap_collect(heap: *mut hak_heap_t) -> usize;
    pub fn hak_heap_usage_get(heap: *mut hak_heap_t, usage: *mut hak_heap_usage_t) -> bool;

    // profile.h
    pub fn hak_profile_write(fd: c_int) -> bool;
    pub fn hak_profile_pprof(fd: c_int) -> bool;
    pub fn hak_profile_arm(seconds: u32) -> bool;
    pub fn hak_tag_set(tag: u32) -> u32;

    // pressure.h
    pub fn hak_on_pressure(callback: Option<hak_pressure_callback_t>, argument: *mut c_void);
}

/// Returns how many bytes it has freed, or about so many.
pub type hak_pressure_callback_t = unsafe extern "C" fn(pressure: *const hak_pressure_t, argument: *mut c_void) -> usize;

/// What a program is told when memory becomes scarce.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_pressure_t {
    /// Bytes of it that are filled.
    pub struct_size: u32,
    /// HAK_PRESSURE_*.
    pub level: u32,
    /// Bytes that count against the limit, as last seen.
    pub used: u64,
    /// Bytes; 0: none is known.
    pub limit: u64,
    /// Bytes of the allocation that is about to fail; else 0.
    pub wanted: u64,
}
