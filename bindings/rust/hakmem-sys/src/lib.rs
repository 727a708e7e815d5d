//! The hakmem memory allocator, built from its C sources, and its C interface.
//!
//! The functions have their C names; `hakmem.h`, `heap.h`, `pressure.h` and `profile.h`, in `c/include/hakmem` of this package, describe
//! them, their errors and their units. All are thread-safe. The crate `hakmem` has a global allocator, and safe wrappers for most of them.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_void};

/// The fields of glibc's `mallinfo2`; in bytes, except for counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_mallinfo_t {
    /// All block memory.
    pub arena: usize,
    /// Slabs in use, a count.
    pub ordblks: usize,
    /// 0.
    pub smblks: usize,
    /// Live large blocks, a count.
    pub hblks: usize,
    /// 0: large blocks are part of arena.
    pub hblkhd: usize,
    /// 0.
    pub usmblks: usize,
    /// Bytes cached in bins.
    pub fsmblks: usize,
    /// Bytes of live blocks.
    pub uordblks: usize,
    /// Arena less uordblks.
    pub fordblks: usize,
    /// Bytes that malloc_trim could give back immediately.
    pub keepcost: usize,
}

/// Statistics, in bytes unless the name says otherwise.
///
/// The figures are read without stopping other threads. Each is exact for its source, but concurrent operations may skew the set as a
/// whole. Sources: `census` walks slab records and bins, `counter` is an atomic counter kept on slow paths, `os` asks the kernel,
/// `clock` measures.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_stats_t {
    /// Set by the caller to the size of the structure; afterwards, how many bytes are filled.
    pub struct_size: u32,
    /// Number of size classes; the last class is that of malloc(0).
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
    /// Blocks that these refills brought, a count.
    pub refill_blocks: u64,
    /// Bins that gave blocks back, a count (counter).
    pub flushes: u64,
    /// Blocks that these flushes gave back, a count.
    pub flush_blocks: u64,
    /// Estimate: allocations served from bins without a refill, a count.
    pub bin_hits: u64,
    /// Blocks freed by a thread that does not own them, counted once their owner has them back (counter).
    pub remote_frees: u64,
    /// Large blocks allocated so far, a count (counter).
    pub large_allocs: u64,
    /// Large blocks freed so far, a count (counter).
    pub large_frees: u64,
    /// Bins made larger because of their use, a count (counter).
    pub bins_grown: u64,
    /// Bins made smaller after disuse, a count (counter).
    pub bins_shrunk: u64,
    /// Bytes of free spans given back to the kernel so far (counter).
    pub purged: u64,
    /// Bytes of free pages in partly used slabs given back so far (counter).
    pub holes_purged: u64,
    /// Bytes of slabs populated by one call instead of a page fault for each page, so far (counter).
    pub populated: u64,
    /// Slabs taken ahead so that remote frees are collected less often (`HAKMEM_LEAD`), so far, a count (counter).
    pub lead_slabs: u64,
    /// Superslabs whose pages were moved to another address instead of being copied or faulted in, a count (counter).
    pub superslabs_moved: u64,
    /// Superslabs that may be huge pages now, a count (counter).
    pub superslabs_huge: u64,
    /// Inaccessible units left out because mappings are limited, so far, a count (counter).
    pub guards_left_out: u64,
    /// How often the keeper, which gives memory back while the program rests, was started (counter).
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
    /// Huge pages that were timed while faulted in, where the system gives them on request, so far, a count (counter).
    pub huge_trials: u64,
    /// Those of them so slow that no more were requested for a while (HAKMEM_HUGE), a count (counter).
    pub huge_losses: u64,
    /// Nanoseconds of processor time to fault in 2 MiB as a huge page, as last measured; 0: never measured (clock).
    pub huge_price_ns: u64,
    /// The same for 2 MiB of small pages.
    pub small_price_ns: u64,
    /// The nearest limit, a container's or HAKMEM_LIMIT_SOFT; 0: none known (os).
    pub limit: u64,
    /// How much counted against that limit at the last check (os).
    pub limit_use: u64,
    /// How near the limit is: 0 far, 1 near, 2 nearer, 3 reached.
    pub limit_level: u64,
    /// The highest use at which memory was given back for the limit, in percent of the limit.
    pub limit_percent: u64,
    /// Bytes given back while a limit was near, so far (counter).
    pub limit_given: u64,
    /// How often the kernel was asked for limits, so far, a count (counter).
    pub limit_looks: u64,
    /// How often HAKMEM_LIMIT_HARD has refused memory, so far, a count (counter).
    pub limit_refused: u64,
    /// Bytes given back because the heap grew, but soon needed again (`HAKMEM_IDLE_PERCENT`), so far (counter).
    pub purged_again: u64,
}

/// Statistics of one size class.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_class_stats_t {
    /// Bytes of a block; 0 for blocks of malloc(0).
    pub block_size: u64,
    /// Bytes of a slab.
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
    /// Slabs that the heap owns, a count.
    pub slabs: u64,
    /// Bytes of these slabs.
    pub slab_bytes: u64,
    /// Bytes in its bins.
    pub cached: u64,
    /// Bins refilled from slabs, a count.
    pub refills: u64,
    /// Blocks that these refills brought, a count.
    pub refill_blocks: u64,
    /// Bins that gave blocks back, a count.
    pub flushes: u64,
    /// Blocks that these flushes gave back, a count.
    pub flush_blocks: u64,
    /// Its blocks that other threads freed and that were collected, a count.
    pub remote_frees: u64,
}

/// What a named heap holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_heap_usage_t {
    /// Set by the caller to the size of the structure; afterwards, how many bytes are filled.
    pub struct_size: u64,
    /// Bytes that its live blocks may take; 0 is no limit.
    pub limit: u64,
    /// Rounded bytes of live blocks, as the limit counts them; in the secure library, those in quarantine too (lock).
    pub live: u64,
    /// The number of these blocks (lock).
    pub blocks: u64,
    /// The highest value of `live`, including blocks that were freed but not yet brought in (counter).
    pub peak: u64,
    /// Bytes of its slabs (lock).
    pub slab_bytes: u64,
    /// The part of `live` in large blocks (lock).
    pub large_bytes: u64,
    /// The number of large blocks in `blocks` (lock).
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

/// A block and its usable size.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct hak_sized_t {
    /// Null, with size 0, on failure.
    pub ptr: *mut c_void,
    /// Usable bytes, at least the requested size.
    pub size: usize,
}

/// A flag of [`hak_nallocx`] and [`hak_sdallocx`]; the binary logarithm of the alignment is added to the flags.
pub const HAK_ZERO: c_int = 0x40;

#[allow(missing_docs)] // the headers document these
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

    /// `address` may be any address.
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

/// Returns how many bytes it has freed, exactly or as an estimate.
pub type hak_pressure_callback_t = unsafe extern "C" fn(pressure: *const hak_pressure_t, argument: *mut c_void) -> usize;

/// What a program is told when memory becomes scarce.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_pressure_t {
    /// How many bytes of this structure are filled.
    pub struct_size: u32,
    /// HAK_PRESSURE_*.
    pub level: u32,
    /// Bytes that count against the limit, as last seen.
    pub used: u64,
    /// The limit in bytes; 0: none is known.
    pub limit: u64,
    /// Bytes of the allocation that is about to fail; else 0.
    pub wanted: u64,
}
