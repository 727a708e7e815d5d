//! The allocator as a program's global allocator: statistics, threads, alignments, reports.

use std::alloc::{GlobalAlloc, Layout};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread;

use hakmem::{Error, Hakmem};

#[global_allocator]
static ALLOCATOR: Hakmem = Hakmem;

const MIB: usize = 1 << 20;

/// Opens a temporary file and removes its name.
fn file() -> File {
    let path = std::env::temp_dir().join(format!("hakmem.{}.{:?}", std::process::id(), thread::current().id()));
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

fn contents(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn the_heap_counts_what_rust_holds() {
    let before = hakmem::stats();
    let held = vec![1_u8; 64 * MIB];
    let stats = hakmem::stats();
    assert!(stats.live >= before.live.max(held.len() as u64));
    assert!(stats.large_allocs > before.large_allocs);
    let classes: Vec<_> = hakmem::class_stats().collect();
    assert_eq!(classes.len(), stats.classes as usize);
    assert!(classes.iter().map(|class| class.live_blocks).sum::<u64>() > 0);
    assert!(hakmem::heap_stats().count() >= 1);
    drop(held);
    assert!(hakmem::stats().large_frees > before.large_frees);
}

#[test]
fn free_memory_goes_back() {
    for _ in 0..100 {
        // other tests' threads may reuse the memory first
        drop(vec![1_u8; 32 * MIB]);
        if hakmem::collect(true) >= MIB {
            return;
        }
    }
    panic!("nothing went back");
}

#[test]
fn threads_free_each_other_s_blocks() {
    let (send, receive) = mpsc::channel::<Box<[u64]>>();
    let senders: Vec<_> = (0..4_u64)
        .map(|thread| {
            let send = send.clone();
            thread::spawn(move || {
                for number in 0..5000 {
                    send.send(vec![thread * 5000 + number; 1 + number as usize % 300].into()).unwrap();
                }
            })
        })
        .collect();
    drop(send);
    let mut sum = 0;
    for block in receive {
        assert!(block.iter().all(|number| *number == block[0]));
        sum += block[0];
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert_eq!(sum, (0..20_000).sum::<u64>());
}

#[test]
fn every_alignment_is_kept_when_a_block_grows_and_shrinks() {
    for bits in 0..=22 {
        for size in [1, 100, 5000, 3 * MIB] {
            let layout = Layout::from_size_align(size, 1 << bits).unwrap();
            // SAFETY: the size is not 0, and each layout is that of the block.
            unsafe {
                let block = Hakmem.alloc_zeroed(layout);
                assert!(!block.is_null() && block.addr() % layout.align() == 0);
                assert!(std::slice::from_raw_parts(block, size).iter().all(|byte| *byte == 0));
                block.add(size - 1).write(9);
                let grown = Hakmem.realloc(block, layout, 2 * size + 1);
                assert!(grown.addr() % layout.align() == 0 && grown.add(size - 1).read() == 9);
                grown.write(8);
                let larger = Layout::from_size_align(2 * size + 1, layout.align()).unwrap();
                let shrunk = Hakmem.realloc(grown, larger, 1);
                assert!(shrunk.addr() % layout.align() == 0 && shrunk.read() == 8);
                Hakmem.dealloc(shrunk, Layout::from_size_align(1, layout.align()).unwrap());
            }
        }
    }
}

#[test]
fn an_aligned_block_grows_in_place_where_it_has_room_and_is_freed_where_it_moves() {
    const LARGE: usize = 4 * MIB;
    let small = Layout::from_size_align(1000, 64).unwrap();
    let before = hakmem::stats().live;
    for _ in 0..1000 {
        // SAFETY: no size is 0, and each layout is that of the block.
        unsafe {
            let block = Hakmem.alloc(small);
            let room = hakmem::usable_size(block);
            let grown = Hakmem.realloc(block, small, room);
            assert_eq!(grown, block);
            let large = Hakmem.realloc(grown, Layout::from_size_align(room, 64).unwrap(), LARGE);
            let shrunk = Hakmem.realloc(large, Layout::from_size_align(LARGE, 64).unwrap(), small.size());
            assert!(hakmem::usable_size(shrunk) < LARGE);
            Hakmem.dealloc(shrunk, small);
        }
    }
    // Other tests hold less than this margin meanwhile.
    assert!(hakmem::stats().live < before + (1 << 30));
}

#[test]
fn what_cannot_be_had_is_null() {
    for align in [1, 4096] {
        let layout = Layout::from_size_align(isize::MAX as usize & !4095, align).unwrap();
        let small = Layout::from_size_align(100, align).unwrap();
        // SAFETY: no size is 0, and the block has the layout `small`.
        unsafe {
            assert!(Hakmem.alloc(layout).is_null());
            assert!(Hakmem.alloc_zeroed(layout).is_null());
            let block = Hakmem.alloc(small);
            block.write(7);
            assert!(Hakmem.realloc(block, small, layout.size()).is_null());
            assert_eq!(block.read(), 7);
            Hakmem.dealloc(block, small);
        }
    }
    assert!(Vec::<u8>::new().try_reserve_exact(isize::MAX as usize).is_err());
}

#[test]
fn values_without_bytes_need_no_block() {
    #[derive(Clone, PartialEq, Debug)]
    struct Nothing;
    let mut values = Vec::new();
    values.resize(1000, Nothing);
    values.shrink_to_fit();
    assert_eq!(values.pop().map(Box::new), Some(Box::new(Nothing)));
    let empty: Box<[u64]> = Vec::new().into();
    assert_eq!(*empty, []);
}

#[test]
fn sizes_are_rounded_as_told() {
    for size in [1, 24, 1000, 40_000, 5 * MIB] {
        let layout = Layout::from_size_align(size, 1).unwrap();
        // SAFETY: the size is not 0.
        unsafe {
            let block = Hakmem.alloc(layout);
            assert_eq!(hakmem::usable_size(block), hakmem::good_size(size));
            Hakmem.dealloc(block, layout);
        }
    }
    assert_eq!(hakmem::good_size(usize::MAX), 0);
}

#[test]
fn reports_are_written_or_say_why_not() {
    for write in [hakmem::write_stats_text, hakmem::write_stats_json, hakmem::write_snapshot, hakmem::write_pprof] {
        let mut file = file();
        write(file.as_raw_fd()).unwrap();
        assert!(contents(&mut file).len() > 100);
        assert_eq!(write(-1), Err(Error::Write));
    }
    let mut json = file();
    hakmem::write_stats_json(json.as_raw_fd()).unwrap();
    let text = String::from_utf8(contents(&mut json)).unwrap();
    assert!(text.trim_start().starts_with('{') && text.trim_end().ends_with('}'));
}

#[test]
fn options_are_read_and_set() {
    let decay = hakmem::option(c"decay_ms").unwrap();
    let sealed = cfg!(feature = "secure");
    assert_eq!(hakmem::set_option(c"decay_ms", decay + 1), if sealed { Err(Error::Option) } else { Ok(()) });
    assert_eq!(hakmem::option(c"DECAY_MS"), Ok(if sealed { decay } else { decay + 1 }));
    assert_eq!(hakmem::option(c"no_such_option"), Err(Error::Option));
    assert_eq!(hakmem::set_option(c"decay_ms", -100), Err(Error::Option));
    assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
}

/// The thread's current tag, which only a change returns.
fn current_tag() -> u32 {
    // SAFETY: any number is allowed.
    unsafe {
        let tag = hakmem::sys::hak_tag_set(0);
        hakmem::sys::hak_tag_set(tag);
        tag
    }
}

#[test]
fn tags_end_with_their_scope() {
    assert_eq!(current_tag(), 0);
    let outer = hakmem::tag(7);
    {
        let _inner = hakmem::tag(8);
        assert_eq!(current_tag(), 8);
        assert_eq!(thread::spawn(current_tag).join().unwrap(), 0);
    }
    assert_eq!(current_tag(), 7);
    let unwound = std::panic::catch_unwind(|| {
        let _inner = hakmem::tag(9);
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(unwound.is_err());
    assert_eq!(current_tag(), 7);
    drop(outer);
    assert_eq!(current_tag(), 0);
}

#[cfg(not(feature = "secure"))] // the secure library keeps no samples
#[test]
fn snapshots_have_the_tag_of_what_is_held() {
    let tag = hakmem::tag(4_004_004);
    let held: Vec<Vec<u8>> = (0..64).map(|_| vec![1; MIB]).collect(); // large enough that each is sampled
    drop(tag);
    let mut file = file();
    hakmem::write_snapshot(file.as_raw_fd()).unwrap();
    let text = String::from_utf8_lossy(&contents(&mut file)).into_owned();
    assert!(text.contains("4004004"), "{text}");
    assert_eq!(held.len(), 64);
}

#[test]
fn allocations_are_counted_on_request() {
    assert!(hakmem::count_allocations(60));
    for _ in 0..100_000 {
        std::hint::black_box(vec![0_u8; 1000]);
    }
    assert!(hakmem::count_allocations(0));
    let mut file = file();
    hakmem::write_snapshot(file.as_raw_fd()).unwrap();
    let text = String::from_utf8_lossy(&contents(&mut file)).into_owned();
    assert!(text.contains("event"), "{text}");
}
