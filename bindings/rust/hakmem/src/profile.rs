use core::ffi::c_int;
use core::marker::PhantomData;

use hakmem_sys as sys;

use crate::Error;

/// Writes a snapshot of the heap to a file descriptor, for `hakmem profile` and `hakmem diff`.
///
/// It allocates nothing and stops no thread.
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

/// Writes a profile of the live heap to a file descriptor, as `go tool pprof` reads it: what a server answers for
/// `/debug/pprof/heap`.
///
/// It allocates nothing, stops no thread, and takes 24 KiB of stack. The file is not compressed, and functions have no names in
/// it: the build ids of their files lead to them.
///
/// # Errors
///
/// [`Error::Write`].
pub fn write_pprof(descriptor: c_int) -> Result<(), Error> {
    // SAFETY: a wrong descriptor is an error.
    Error::Write.unless(unsafe { sys::hak_profile_pprof(descriptor) })
}

/// Counts what is allocated from now on, by where, also of what is freed soon, for so many seconds; 0 ends that.
///
/// The counts are in snapshots. False under Valgrind's memcheck.
pub fn count_allocations(seconds: u32) -> bool {
    // SAFETY: any number is allowed.
    unsafe { sys::hak_profile_arm(seconds) }
}

/// While it lives, what this thread allocates has a number in profiles: a tenant's, a request's, a subsystem's.
///
/// ```
/// {
///     let _tag = hakmem::tag(42);
///     // What is allocated here has the tag 42: `hakmem profile --by tag`.
/// }
/// // And here the one before again: none.
/// ```
#[must_use = "the tag ends when this is dropped"]
#[derive(Debug)]
pub struct Tag {
    before: u32,
    /// It belongs to its thread: neither Send nor Sync.
    of_this_thread: PhantomData<*const ()>,
}

/// Gives what the calling thread allocates this number, until the result is dropped; 0 is none.
///
/// Guards end in the opposite order of their making, as scopes do. One that is held over an `.await` labels what the thread does
/// meanwhile for other tasks too.
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
