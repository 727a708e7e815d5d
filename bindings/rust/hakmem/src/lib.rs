//! hakmem as a program's global allocator, with what it tells of the heap: statistics, tags, profiles; and named heaps.
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
//! - `override`: `malloc`, `free` and their kin are hakmem's too, for all C and C++ code of the program. Without it they stay
//!   the system's, and hakmem serves what Rust allocates.
//! - `secure`: the secure library, which finds overflows by one byte at the free, keeps freed blocks back and surrounds large ones
//!   with inaccessible pages. It keeps no profile.
//!
//! A wrong free ends the program with one line that names the pointer and the fault: a block that is freed twice or that is not
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
