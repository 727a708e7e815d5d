//! Wrong frees end the program with one line. Each fault runs in a process of its own, which is this program again, limited to one test.

use std::alloc::{GlobalAlloc, Layout};
use std::process::Command;

use hakmem::Hakmem;

#[global_allocator]
static ALLOCATOR: Hakmem = Hakmem;

const MARK: &str = "FAULT_IN_THIS_PROCESS";

/// Runs the test of this name in a new process, which then does `fault`, and checks for its message.
fn ends_with(message: &str, test: &str, fault: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        fault();
        return;
    }
    let again = Command::new(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]).env(MARK, "1").output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    let line = said.lines().find(|line| line.starts_with("hakmem: ")).unwrap_or_else(|| panic!("no message: {said}"));
    assert!(!again.status.success() && line.contains(message), "{line}");
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

#[test]
fn a_double_free() {
    ends_with("double free: free_sized(", "a_double_free", || unsafe {
        let block = Hakmem.alloc(layout(100));
        Hakmem.dealloc(block, layout(100));
        Hakmem.dealloc(block, layout(100));
    });
}

#[test]
fn a_layout_that_is_larger_than_the_block() {
    ends_with("size mismatch: free_sized(", "a_layout_that_is_larger_than_the_block", || unsafe {
        let block = Hakmem.alloc(layout(100));
        Hakmem.dealloc(block, layout(1000));
    });
}

#[test]
fn an_aligned_layout_that_is_larger_than_the_block() {
    ends_with("size mismatch: free_aligned_sized(", "an_aligned_layout_that_is_larger_than_the_block", || unsafe {
        let block = Hakmem.alloc(Layout::from_size_align(100, 64).unwrap());
        Hakmem.dealloc(block, Layout::from_size_align(1000, 64).unwrap());
    });
}

#[test]
fn a_pointer_into_a_block() {
    ends_with("interior pointer: free_sized(", "a_pointer_into_a_block", || unsafe {
        let block = Hakmem.alloc(layout(100));
        Hakmem.dealloc(block.add(16), layout(1));
    });
}

#[test]
fn what_the_system_allocated() {
    ends_with("foreign pointer: free_sized(", "what_the_system_allocated", || unsafe {
        let mut place = [0_u64; 8];
        Hakmem.dealloc(place.as_mut_ptr().cast(), layout(64));
    });
}

#[cfg(feature = "secure")]
#[test]
fn an_overflow_by_one_byte() {
    ends_with("overflow: free_sized(", "an_overflow_by_one_byte", || unsafe {
        let block = Hakmem.alloc(layout(100));
        let behind = block.add(100); // a mark derived from the canary, which is random
        behind.write(!behind.read());
        Hakmem.dealloc(block, layout(100));
    });
}
