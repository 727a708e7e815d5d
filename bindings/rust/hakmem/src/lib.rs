//! hakmem as a program's global allocator, with statistics, tags and profiles of the heap, and with named heaps.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;
//!
//! fn main() {
//!     let held = vec![7_u8; 1 << 20];
//!     assert!(hakmem::stats().live >= held.len() as u64);
//! }
//! ```
//!
//! The library is built from source and linked into the program; that needs a C compiler. Features:
//!
//! - `override`: hakmem also serves `malloc`, `free` and related functions, for all C and C++ code of the program. Without this feature
//!   they remain the system's, and hakmem serves only Rust's allocations.
//! - `secure`: the secure library, which detects overflows of even one byte at the free, delays the reuse of freed blocks and surrounds
//!   large blocks with inaccessible pages. It keeps no profile.
//!
//! A wrong free ends the program with one line that names the pointer and the fault: a second free of a block, a pointer that is not
//! hakmem's, or a layout larger than the block.
//!
//! The crate needs no `std` and never panics. It is for Linux, on x86-64 and aarch64, with glibc or musl, dynamic or static.
#![no_std]

mod block;
mod error;
mod heap;
mod profile;
mod stats;

pub use block::{expand, good_size, usable_size, Hakmem};
pub use error::Error;
pub use hakmem_sys as sys;
pub use heap::{Entered, Heap, HeapUsage};
pub use profile::{count_allocations, tag, write_pprof, write_snapshot, Tag};
pub use stats::{
    class_stats, collect, heap_stats, option, set_option, stats, version, write_stats_json, write_stats_text, ClassStats, HeapStats, Stats,
};
