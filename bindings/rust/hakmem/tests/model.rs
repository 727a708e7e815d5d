//! Random allocations, reallocations and frees against a model of what each block must hold.

use std::alloc::{GlobalAlloc, Layout};

use hakmem::Hakmem;
use proptest::prelude::*;

#[global_allocator]
static ALLOCATOR: Hakmem = Hakmem;

/// Blocks above this size are whole pages.
const SMALL_MOST: usize = 32 << 10;

#[derive(Clone, Debug)]
enum Step {
    Allocate { size: usize, align: usize, zeroed: bool },
    Resize { slot: usize, size: usize },
    Expand { slot: usize, size: usize },
    Free { slot: usize },
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 1..300_usize, 3 => 1..40_000_usize, 1 => 1..3_000_000_usize]
}

fn steps() -> impl Strategy<Value = Step> {
    let aligns = prop_oneof![3 => 0..=4_u32, 2 => 5..=17_u32].prop_map(|bits| 1_usize << bits);
    prop_oneof![
        3 => (sizes(), aligns, any::<bool>()).prop_map(|(size, align, zeroed)| Step::Allocate { size, align, zeroed }),
        2 => (any::<usize>(), sizes()).prop_map(|(slot, size)| Step::Resize { slot, size }),
        1 => (any::<usize>(), sizes()).prop_map(|(slot, size)| Step::Expand { slot, size }),
        2 => any::<usize>().prop_map(|slot| Step::Free { slot }),
    ]
}

/// A block filled with one byte value.
struct Block {
    start: *mut u8,
    layout: Layout,
    byte: u8,
}

impl Block {
    fn new(size: usize, align: usize, zeroed: bool, byte: u8) -> Self {
        let layout = Layout::from_size_align(size, align).unwrap();
        // SAFETY: no layout here is of size 0.
        let start = unsafe {
            if zeroed {
                Hakmem.alloc_zeroed(layout)
            } else {
                Hakmem.alloc(layout)
            }
        };
        let mut block = Self { start, layout, byte };
        if zeroed {
            assert!(block.bytes().iter().all(|byte| *byte == 0));
        }
        block.check_place();
        block.fill();
        block
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the block is live, has that size, and is used by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }

    fn fill(&mut self) {
        let byte = self.byte;
        self.bytes().fill(byte);
    }

    fn check_place(&self) {
        assert!(!self.start.is_null() && self.start.addr() % self.layout.align() == 0, "{:?}", self.layout);
        // SAFETY: the block is live.
        let usable = unsafe { hakmem::usable_size(self.start) };
        assert!(usable >= self.layout.size());
        if cfg!(feature = "secure") && self.layout.align() <= 16 && usable <= SMALL_MOST {
            assert_eq!(usable, self.layout.size());
        }
    }

    fn check(&mut self, bytes: usize) {
        let byte = self.byte;
        assert!(self.bytes()[..bytes].iter().all(|found| *found == byte), "{:?}", self.layout);
    }

    fn resize(&mut self, size: usize) {
        let old = self.layout;
        // SAFETY: the block is live and has this layout.
        self.start = unsafe { Hakmem.realloc(self.start, old, size) };
        self.resized(old.size().min(size), size);
    }

    fn expand(&mut self, size: usize) {
        let old = self.layout.size();
        // SAFETY: the block is live.
        if size > old && unsafe { hakmem::expand(self.start, size) } {
            self.resized(old, size);
        }
    }

    fn resized(&mut self, kept: usize, size: usize) {
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        self.check_place();
        self.check(kept);
        self.fill();
    }

    fn free(mut self) {
        self.check(self.layout.size());
        // SAFETY: the block is live and has this layout.
        unsafe { Hakmem.dealloc(self.start, self.layout) };
    }
}

fn run(steps: Vec<Step>) {
    let mut blocks: Vec<Block> = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        let count = blocks.len();
        match step {
            Step::Allocate { size, align, zeroed } => blocks.push(Block::new(size, align, zeroed, number as u8)),
            _ if count == 0 => {}
            Step::Resize { slot, size } => blocks[slot % count].resize(size),
            Step::Expand { slot, size } => blocks[slot % count].expand(size),
            Step::Free { slot } => blocks.swap_remove(slot % count).free(),
        }
    }
    blocks.into_iter().for_each(Block::free);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_hold_what_was_written(steps in prop::collection::vec(steps(), 1..200)) {
        run(steps);
    }

    /// Tests layouts of several element types, with Vec's own growth.
    #[test]
    fn vectors_grow_and_shrink(mut model in prop::collection::vec(any::<u64>(), 0..5000), keep in any::<prop::sample::Index>()) {
        #[repr(align(64))]
        #[derive(Clone, Copy, PartialEq, Debug)]
        struct Line(u64);
        let mut lines: Vec<Line> = Vec::new();
        for number in &model {
            lines.push(Line(*number));
        }
        let keep = keep.index(model.len() + 1);
        model.truncate(keep);
        lines.truncate(keep);
        lines.shrink_to_fit();
        prop_assert!(lines.as_ptr().addr() % 64 == 0);
        prop_assert!(lines.iter().map(|line| line.0).eq(model));
    }
}
