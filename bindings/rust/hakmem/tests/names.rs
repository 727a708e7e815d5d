//! Tests which library serves malloc.

#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

/// C's blocks, including those that libc allocates itself, are hakmem's only with the feature `override`.
#[cfg(any(feature = "override", not(feature = "secure")))] // the secure library ends the process if a block is not its own
#[test]
fn malloc_is_hakmem_s_on_request() {
    use std::ffi::{c_char, c_void};

    extern "C" {
        fn malloc(size: usize) -> *mut c_void;
        fn free(block: *mut c_void);
        fn strdup(text: *const c_char) -> *mut c_char;
    }

    // SAFETY: both blocks are freed by the library that they come from.
    unsafe {
        for block in [malloc(1000), strdup(c"a string that is copied".as_ptr()).cast()] {
            assert_eq!(hakmem::usable_size(block.cast()) > 0, cfg!(feature = "override"));
            free(block);
        }
    }
}

#[test]
fn rust_s_blocks_are_hakmem_s() {
    let held = Box::new([1_u64; 100]);
    // SAFETY: the block is live.
    assert!(unsafe { hakmem::usable_size((&raw const *held).cast()) } >= 800);
}
