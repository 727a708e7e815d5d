//! Named heaps.

use std::alloc::{GlobalAlloc, Layout};
use std::thread;

use hakmem::{Hakmem, Heap};

#[global_allocator]
static ALLOCATOR: Hakmem = Hakmem;

/// With a quarantine, freed blocks may count as live for a while.
const QUARANTINE: bool = cfg!(feature = "secure");

fn layouts() -> [Layout; 4] {
    [(100, 8), (100, 64), (100_000, 16), (100_000, 4096)].map(|(size, align)| Layout::from_size_align(size, align).unwrap())
}

#[test]
fn what_a_thread_allocates_comes_from_the_heap_that_it_entered() {
    let outer = Heap::new(c"outer").unwrap();
    let inner = Heap::new(c"inner").unwrap();
    // Started before a heap is entered: libc keeps a thread's storage for the next thread.
    let (begin, begun) = std::sync::mpsc::sync_channel::<()>(1);
    let other = thread::spawn(move || {
        begun.recv().unwrap();
        Box::new(4_u64)
    });
    {
        let _outer = outer.enter();
        let first = Box::new(1_u64);
        let second = {
            let _inner = inner.enter();
            Box::new(2_u64)
        };
        let third = Box::new(3_u64);
        begin.send(()).unwrap();
        let elsewhere = other.join().unwrap();
        assert!(outer.contains((&raw const *first).cast()) && outer.contains((&raw const *third).cast()));
        assert!(inner.contains((&raw const *second).cast()) && !outer.contains((&raw const *second).cast()));
        assert!(!outer.contains((&raw const *elsewhere).cast()));
    }
    let after = Box::new(5_u64);
    assert!(!outer.contains((&raw const *after).cast()));
    // SAFETY: all blocks are freed, and both guards dropped.
    unsafe {
        outer.free();
        inner.free();
    }
}

#[test]
fn blocks_are_counted_stay_in_their_heap_and_end_with_it() {
    let heap = Heap::new(c"of blocks").unwrap();
    assert_eq!(heap.name(), c"of_blocks");
    assert_eq!(heap.usage().blocks, 0);
    for layout in layouts() {
        // SAFETY: no size is 0, and each layout is that of the block.
        unsafe {
            let block = heap.alloc_zeroed(layout);
            assert!(std::slice::from_raw_parts(block, layout.size()).iter().all(|byte| *byte == 0));
            block.write(7);
            assert!(if QUARANTINE { heap.usage().blocks >= 1 } else { heap.usage().blocks == 1 });
            assert!(heap.usage().live >= layout.size() as u64);
            let grown = heap.realloc(block, layout, 3 * layout.size());
            assert!(heap.contains(grown) && grown.addr() % layout.align() == 0 && grown.read() == 7, "{layout:?}");
            let larger = Layout::from_size_align(3 * layout.size(), layout.align()).unwrap();
            let shrunk = Hakmem.realloc(grown, larger, layout.size()); // Hakmem and the heap may both do this
            assert!(heap.contains(shrunk) && shrunk.addr() % layout.align() == 0 && shrunk.read() == 7, "{layout:?}");
            Hakmem.dealloc(shrunk, layout);
            let others = [0; 3].map(|_| heap.alloc(layout));
            assert!(others.iter().all(|block| heap.contains(*block) && block.addr() % layout.align() == 0), "{layout:?}");
            let others = others.map(<*mut u8>::expose_provenance);
            thread::scope(|scope| {
                scope.spawn(move || others.map(|block| Hakmem.dealloc(std::ptr::with_exposed_provenance_mut(block), layout)));
            });
        }
        heap.collect();
        assert!(QUARANTINE || heap.usage().blocks == 0, "{:?}", heap.usage());
    }
    let before = hakmem::stats().live;
    // SAFETY: no size is 0, and nobody uses the blocks any more when the heap ends.
    unsafe {
        for _ in 0..64 {
            assert!(!heap.alloc(Layout::from_size_align(64 << 20, 1).unwrap()).is_null());
        }
        assert!(hakmem::stats().live > before + (3 << 30));
        heap.free();
    }
    assert!(hakmem::stats().live < before + (1 << 30));
}

#[test]
fn a_heap_that_is_entered_takes_no_block_of_another() {
    let heap = Heap::new(c"entered").unwrap();
    for layout in layouts() {
        // SAFETY: no size is 0, and each layout is that of the block.
        unsafe {
            let block = Hakmem.alloc(layout);
            block.write(7);
            let (grown, shrunk) = {
                let _here = heap.enter();
                let grown = Hakmem.realloc(block, layout, 3 * layout.size());
                let grown_outside = !heap.contains(grown);
                let larger = Layout::from_size_align(3 * layout.size(), layout.align()).unwrap();
                (grown_outside, Hakmem.realloc(grown, larger, layout.size()))
            };
            assert!(grown && !heap.contains(shrunk) && shrunk.addr() % layout.align() == 0 && shrunk.read() == 7, "{layout:?}");
            Hakmem.dealloc(shrunk, layout);
        }
    }
    // SAFETY: it has no block, and the guards are dropped.
    unsafe { heap.free() };
}

#[cfg(not(feature = "secure"))]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[cfg(not(feature = "secure"))] // in the secure library, a large block may begin anywhere, so aligned ones are written
#[test]
fn large_blocks_of_zeros_are_not_written() {
    const LARGE: usize = 512 << 20;
    let heap = Heap::new(c"zeros").unwrap();
    for align in [16, 64, 4096, 65536] {
        let layout = Layout::from_size_align(LARGE, align).unwrap();
        let before = resident();
        // SAFETY: no size is 0, and each layout is that of the block.
        unsafe {
            let blocks = [Hakmem.alloc_zeroed(layout), heap.alloc_zeroed(layout)];
            assert!(blocks.iter().all(|block| !block.is_null() && block.addr() % align == 0));
            assert!(resident() < before + LARGE / 4, "{align}"); // what else is tested meanwhile needs less
            for block in blocks {
                assert!(block.add(LARGE - 1).read() == 0 && block.add(LARGE / 2).read() == 0);
                Hakmem.dealloc(block, layout);
            }
        }
    }
    // SAFETY: it has no block.
    unsafe { heap.free() };
}

#[cfg(not(feature = "secure"))] // in the secure library, a block may have to move to become smaller
#[test]
fn shrinking_does_not_fail_at_a_limit() {
    let heap = Heap::new(c"at its limit").unwrap();
    heap.set_limit(200 << 10);
    for (align, less) in [8, 64, 4096].into_iter().flat_map(|align| [130 << 10, 70 << 10, 30 << 10, 100].map(|less| (align, less))) {
        // SAFETY: no size is 0, and each layout is that of the block.
        unsafe {
            let [large, small] = [150 << 10, less].map(|size| Layout::from_size_align(size, align).unwrap());
            let block = heap.alloc(large);
            assert!(!block.is_null());
            block.write_bytes(7, less);
            let shrunk = heap.realloc(block, large, less);
            assert!(heap.contains(shrunk) && shrunk.addr() % align == 0, "{less} bytes at {align}");
            assert!(std::slice::from_raw_parts(shrunk, less).iter().all(|byte| *byte == 7));
            Hakmem.dealloc(shrunk, small);
        }
    }
    // SAFETY: it has no block.
    unsafe { heap.free() };
}

#[test]
fn beyond_its_limit_there_is_nothing() {
    let heap = Heap::new(c"limited").unwrap();
    heap.set_limit(1 << 20);
    assert_eq!(heap.usage().limit, 1 << 20);
    let mut held: Vec<u8> = Vec::new();
    {
        let _here = heap.enter();
        held.try_reserve_exact(100_000).unwrap();
        assert!(Vec::<u8>::new().try_reserve_exact(2 << 20).is_err());
    }
    assert!(heap.contains(held.as_ptr()));
    for layout in [(2 << 20, 1), (2 << 20, 4096)].map(|(size, align)| Layout::from_size_align(size, align).unwrap()) {
        // SAFETY: no size is 0.
        unsafe {
            assert!(heap.alloc(layout).is_null());
            assert!(heap.alloc_zeroed(layout).is_null());
        }
    }
    assert!(heap.usage().refused >= 5);
    assert!(Vec::<u8>::new().try_reserve_exact(2 << 20).is_ok());
    drop(held);
    // SAFETY: the one block is freed, and the guard dropped.
    unsafe { heap.free() };
}
