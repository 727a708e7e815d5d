use core::ffi::{c_int, CStr};
use core::mem::size_of;

use hakmem_sys as sys;

use crate::Error;

/// The allocator's figures; each field's documentation names its unit.
pub type Stats = sys::hak_stats_t;
/// The figures of a size class.
pub type ClassStats = sys::hak_class_stats_t;
/// The figures of a thread's heap.
pub type HeapStats = sys::hak_heap_stats_t;

/// The figures of the process. This allocates nothing and stops no thread.
pub fn stats() -> Stats {
    let mut stats = Stats { struct_size: size_of::<Stats>() as u32, ..Stats::default() };
    // SAFETY: the structure says how large it is.
    let filled = unsafe { sys::hak_stats_get(&mut stats) };
    debug_assert!(filled);
    stats
}

/// The figures of each size class, smallest blocks first; the last class is that of blocks of 0 bytes.
pub fn class_stats() -> impl Iterator<Item = ClassStats> {
    (0..).map_while(|size_class| {
        let mut stats = ClassStats::default();
        // SAFETY: for a class that does not exist the call returns false.
        unsafe { sys::hak_stats_class(size_class, &mut stats) }.then_some(stats)
    })
}

/// The figures of each thread's heap, newest first; the heaps of threads that have ended are `orphaned`.
pub fn heap_stats() -> impl Iterator<Item = HeapStats> {
    (0..).map_while(|heap| {
        let mut stats = HeapStats::default();
        // SAFETY: for a heap that does not exist the call returns false.
        unsafe { sys::hak_stats_heap(heap, &mut stats) }.then_some(stats)
    })
}

/// Writes a report to a file descriptor, without allocating.
///
/// # Errors
///
/// [`Error::Write`].
pub fn write_stats_text(descriptor: c_int) -> Result<(), Error> {
    // SAFETY: a wrong descriptor is an error.
    Error::Write.unless(unsafe { sys::hak_stats_text(descriptor) })
}

/// Writes the report as JSON, for `hakmem stats`, without allocating.
///
/// # Errors
///
/// [`Error::Write`].
pub fn write_stats_json(descriptor: c_int) -> Result<(), Error> {
    // SAFETY: a wrong descriptor is an error.
    Error::Write.unless(unsafe { sys::hak_stats_json(descriptor) })
}

/// Gives memory back to the system: the calling thread's cached blocks, most of other threads', blocks that other threads have freed,
/// and every free page. Without `force`, other running threads keep theirs, and only pages that were free for the decay time go back.
/// Returns how many bytes were given back.
pub fn collect(force: bool) -> usize {
    // SAFETY: this may be called at any time.
    unsafe { sys::hak_collect(force) }
}

/// The current value of an option, by its name without `HAKMEM_`.
///
/// ```
/// assert!(hakmem::option(c"sample_kb").is_ok_and(|kib| kib > 0));
/// ```
///
/// # Errors
///
/// [`Error::Option`].
pub fn option(name: &CStr) -> Result<i64, Error> {
    let mut value = 0;
    // SAFETY: the name ends with a zero.
    Error::Option.unless(unsafe { sys::hak_option_get(name.as_ptr(), &mut value) })?;
    Ok(value)
}

/// Sets an option while the program runs. With the feature `secure` no option can be set.
///
/// # Errors
///
/// [`Error::Option`].
pub fn set_option(name: &CStr, value: i64) -> Result<(), Error> {
    // SAFETY: the name ends with a zero.
    Error::Option.unless(unsafe { sys::hak_option_set(name.as_ptr(), value) })
}

/// The library's version.
pub fn version() -> &'static str {
    // SAFETY: a static string of figures and dots.
    unsafe { CStr::from_ptr(sys::hak_version()) }.to_str().unwrap_or_default()
}
