use core::ffi::c_int;
use core::marker::PhantomData;

use hakmem_sys as sys;

use crate::Error;

/// Writes a snapshot of the heap to a file descriptor, for `hakmem profile` and `hakmem diff`.
///
/// This allocates nothing and stops no thread.
///
/// ```
/// use std::os::fd::AsRawFd;
///
/// # fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("snapshot.{}", std::process::id()));
/// let file = std::fs::File::create(&path)?;
/// hakmem::write_snapshot(file.as_raw_fd()).map_err(std::io::Error::other)?;
/// # std::fs::remove_file(path)
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Write`].
pub fn write_snapshot(descriptor: c_int) -> Result<(), Error> {
    // SAFETY: a wrong descriptor is an error.
    Error::Write.unless(unsafe { sys::hak_profile_write(descriptor) })
}

/// Writes a profile of the live heap to a file descriptor, in the format of `go tool pprof`. A server can send it as its answer to
/// `/debug/pprof/heap`.
///
/// This allocates nothing, stops no thread, and takes 24 KiB of stack. The file is not compressed and contains no function names;
/// readers find the names through the build ids of the binaries.
///
/// # Errors
///
/// [`Error::Write`].
pub fn write_pprof(descriptor: c_int) -> Result<(), Error> {
    // SAFETY: a wrong descriptor is an error.
    Error::Write.unless(unsafe { sys::hak_profile_pprof(descriptor) })
}

/// Counts allocations by stack for that many seconds from now, including blocks that are freed soon; 0 stops counting.
///
/// The counts are in snapshots. Returns false under Valgrind's memcheck.
pub fn count_allocations(seconds: u32) -> bool {
    // SAFETY: any number is allowed.
    unsafe { sys::hak_profile_arm(seconds) }
}

/// A guard: while it lives, profiles label this thread's allocations with a number, such as that of a tenant, a request or a subsystem.
///
/// ```
/// {
///     let _tag = hakmem::tag(42);
///     // What is allocated here has the tag 42: `hakmem profile --by tag`.
/// }
/// // Here the previous tag applies again: none.
/// ```
#[must_use = "the tag ends when this is dropped"]
#[derive(Debug)]
pub struct Tag {
    before: u32,
    /// The guard belongs to its thread: neither Send nor Sync.
    of_this_thread: PhantomData<*const ()>,
}

/// Labels the calling thread's allocations with this number until the returned guard is dropped; 0 is no label.
///
/// Guards must be dropped in the reverse order of their creation, as scopes do. A guard that is held across an `.await` also labels what
/// the thread allocates for other tasks meanwhile.
pub fn tag(number: u32) -> Tag {
    // SAFETY: any number is allowed.
    Tag { before: unsafe { sys::hak_tag_set(number) }, of_this_thread: PhantomData }
}

impl Drop for Tag {
    fn drop(&mut self) {
        // SAFETY: any number is allowed.
        unsafe { sys::hak_tag_set(self.before) };
    }
}
