#!/usr/bin/env python3
"""Seeds one fault at a time into the sources, and expects the explorer to find each.

  faults.py --source SRC --work DIR --objects A.o,B.o... [--jobs N] [--only NAME] [--check] -- COMPILER FLAGS...

A fault replaces a text that occurs once in a file.  Exit status 0 if every entry fits the sources and every fault is found.
"""
import collections
import sys

import seeded
from seeded import seeding

# (name, file, text, replacement, pattern of scenarios: one of them must fail; `-T` before the pattern: all slabs are tracked)
FAULTS = [
    ("take_before_open", "slab/remote.c",
     """    atomic_exchange(&remote_of(unit)->state, (uint32_t)REMOTE_OPEN);
    (void)remote_take(owner, unit_at(unit));
""",
     """    (void)remote_take(owner, unit_at(unit));
    atomic_exchange(&remote_of(unit)->state, (uint32_t)REMOTE_OPEN);
""", "narrow.*.free.others"),
    ("take_in_two_steps", "slab/remote.c",
     "bits |= atomic_exchange(others, 0);",
     "{ bits |= atomic_load(others); atomic_store(others, 0); }", "narrow.busy.free.others"),
    ("marks_not_noted", "slab/remote.c",
     "  if (bits != 0) store_relaxed(seen, marks);\n", "", "narrow.busy.free.one"),
    ("mark_set_and_not_toggled", "slab/remote.h",
     "store_release(marks, load_relaxed(marks) ^ bit);", "store_release(marks, load_relaxed(marks) | bit);", "freed_again"),
    ("two_markers", "slab/remote.h",
     "if (HAK_LIKELY((freers & ~REMOTE_OTHERS) == self)) {", "if (HAK_LIKELY((freers & ~REMOTE_OTHERS) != 0)) {", "narrow.busy.free.two"),
    ("marker_in_two_steps", "slab/remote.c",
     "  if (atomic_compare_exchange_strong_explicit(freers, &none, self, memory_order_relaxed, memory_order_relaxed)) return self;\n",
     "  if (load_relaxed(freers) == none) {\n    store_relaxed(freers, self);\n    return self;\n  }\n", "narrow.gone.free.two"),
    ("no_look_at_a_trim", "slab/remote.c",
     "    (void)remote_look(owner, slab);\n", "    (void)owner, (void)slab;\n", "narrow.busy.free.one"),
    ("no_look_at_a_slab", "slab/hole.c",
     "there = there && remote_look(owner, slab) && ", "there = there && ", "narrow.exiting.free.*"),
    ("queue_in_two_steps", "slab/remote.c",
     "  if (!atomic_compare_exchange_strong(&remote_of(unit_number(slab))->state, &open, (uint32_t)REMOTE_QUEUED)) return;\n",
     "  (void)open; atomic_store(&remote_of(unit_number(slab))->state, (uint32_t)REMOTE_QUEUED);\n", "narrow.busy.free.two"),
    ("announce_before_bit", "slab/remote.h",
     """    (void)atomic_fetch_or(region_bits(region.remote_bits, unit, index / 64), bit);
  }
  return atomic_load(&remote_of(unit)->state) == REMOTE_OPEN ? unit_at(unit) : NULL;
""",
     """    bool open = atomic_load(&remote_of(unit)->state) == REMOTE_OPEN;
    (void)atomic_fetch_or(region_bits(region.remote_bits, unit, index / 64), bit);
    return open ? unit_at(unit) : NULL;
  }
  return atomic_load(&remote_of(unit)->state) == REMOTE_OPEN ? unit_at(unit) : NULL;
""", "narrow.busy.free.others"),
    ("others_said_after_bit", "slab/remote.h",
     """ && (freers & REMOTE_OTHERS) == 0)) freers = remote_enter_freer(unit);
""",
     """ && freers == 0)) freers = remote_enter_freer(unit);
  if ((freers & ~REMOTE_OTHERS) != self) {
    (void)atomic_fetch_or(region_bits(region.remote_bits, unit, index / 64), bit);
    if (atomic_load(&remote_of(unit)->state) == REMOTE_OPEN) return (void)remote_enter_freer(unit), unit_at(unit);
    (void)remote_enter_freer(unit);
    return NULL;
  }
""", "narrow.busy.free.two"),
    ("others_looked_for_before_opening", "slab/remote.c",
     """    atomic_exchange(&remote_of(unit)->state, (uint32_t)REMOTE_OPEN);
    (void)remote_take(owner, unit_at(unit));
""",
     """    uintptr_t before = atomic_load(&remote_of(unit)->freers);
    atomic_exchange(&remote_of(unit)->state, (uint32_t)REMOTE_OPEN);
    if ((before & REMOTE_OTHERS) == 0) (void)atomic_fetch_and(&remote_of(unit)->freers, ~REMOTE_OTHERS);
    (void)remote_take(owner, unit_at(unit));
""", "narrow.busy.free.two"),
    ("announce_before_mark", "slab/remote.h",
     "    store_release(marks, load_relaxed(marks) ^ bit);\n",
     "    bool open = atomic_load(&remote_of(unit)->state) == REMOTE_OPEN;\n    store_release(marks, load_relaxed(marks) ^ bit);\n"
     "    return open ? unit_at(unit) : NULL;\n", "narrow.busy.free.one"),
    ("link_after_push", "slab/remote.c",
     """  do {
    store_relaxed(&remote_of(unit)->next, first);
  } while (!atomic_compare_exchange_weak_explicit(pending, &first, unit + 1, memory_order_seq_cst, memory_order_relaxed));
""",
     """  while (!atomic_compare_exchange_weak(pending, &first, unit + 1)) {}
  store_relaxed(&remote_of(unit)->next, first);
""", "*.*.free.two"),
    ("pop_in_two_steps", "slab/remote.c",
     "owner->deferred[c] = atomic_exchange_explicit(&owner->pending[c], 0, memory_order_acquire);",
     "owner->deferred[c] = load_relaxed(&owner->pending[c]); store_relaxed(&owner->pending[c], 0);", "*.*.free.two"),
    ("close_though_queued", "slab/unit.h",
     """  uint32_t open = REMOTE_OPEN;
  return atomic_compare_exchange_strong(&remote_of(unit)->state, &open, (uint32_t)REMOTE_CLOSED);
""",
     """  atomic_store(&remote_of(unit)->state, (uint32_t)REMOTE_CLOSED);
  return true;
""", "narrow.exiting.free.two"),
    ("no_second_look", "slab/remote.c",
     "if (atomic_load(&owner->pending_classes) == 0 || !lock_try(&owner->lock)) return;",
     "return;", "narrow.exiting.free.one"),
    ("second_look_before_release", "slab/remote.c",
     """    lock_release_fully(&owner->lock);
    if (atomic_load(&owner->pending_classes) == 0 || !lock_try(&owner->lock)) return;
""",
     """    bool none = atomic_load(&owner->pending_classes) == 0;
    lock_release_fully(&owner->lock);
    if (none || !lock_try(&owner->lock)) return;
""", "narrow.exiting.free.one"),
    ("class_before_push", "slab/remote.c",
     """  do {
    store_relaxed(&remote_of(unit)->next, first);
  } while (!atomic_compare_exchange_weak_explicit(pending, &first, unit + 1, memory_order_seq_cst, memory_order_relaxed));
  /* A collection that has cleared the bit since then finds the slab.  Afterwards remote_help looks at the lock. */
  if ((atomic_load(&owner->pending_classes) >> c & 1) == 0) (void)atomic_fetch_or(&owner->pending_classes, (uint64_t)1 << c);
""",
     """  (void)atomic_fetch_or(&owner->pending_classes, (uint64_t)1 << c);
  do {
    store_relaxed(&remote_of(unit)->next, first);
  } while (!atomic_compare_exchange_weak_explicit(pending, &first, unit + 1, memory_order_seq_cst, memory_order_relaxed));
""", "narrow.exiting.free.*"),
    ("class_looked_at_before_push", "slab/remote.c",
     """  do {
    store_relaxed(&remote_of(unit)->next, first);
  } while (!atomic_compare_exchange_weak_explicit(pending, &first, unit + 1, memory_order_seq_cst, memory_order_relaxed));
  /* A collection that has cleared the bit since then finds the slab.  Afterwards remote_help looks at the lock. */
  if ((atomic_load(&owner->pending_classes) >> c & 1) == 0) (""",
     """  bool known = (atomic_load(&owner->pending_classes) >> c & 1) != 0;
  do {
    store_relaxed(&remote_of(unit)->next, first);
  } while (!atomic_compare_exchange_weak_explicit(pending, &first, unit + 1, memory_order_seq_cst, memory_order_relaxed));
  if (!known) (""", "narrow.exiting.free.*"),
    ("help_before_push", "slab/remote.c",
     "  remote_help(owner, remote_push(owner, slab));\n",
     "  remote_help(owner, 0);\n  (void)remote_push(owner, slab);\n", "narrow.exiting.free.*"),
    ("help_without_lock", "slab/remote.c",
     "  if (lock_try(&owner->lock)) help_locked(owner);\n}\n\nbool",
     "  (void)lock_try(&owner->lock), help_locked(owner);\n}\n\nbool", "narrow.idle.*"),
    ("live_not_cleared_again", "slab/remote.c",
     "if (HAK_CHECKS) blocks_clear_live(start + (size_t)word * 64 * info->size, info->size, bits, own);",
     "(void)blocks_clear_live; (void)start; (void)own;", "live_map"),
    ("live_cleared_in_two_steps", "space/region.h",
     "  return (__atomic_fetch_and(region_live_word(p), ~region_live_bit(p), __ATOMIC_RELAXED) & region_live_bit(p)) != 0;",
     "  uint64_t was = racy_load(region_live_word(p)); racy_store(region_live_word(p), was & ~region_live_bit(p));"
     " return (was & region_live_bit(p)) != 0;",
     "double_free"),
    ("gone_after_unlock", "front/supply.c",
     """  heap_set_thread(heap, 0);
  (void)remote_collect(&heap->owner);
  slab_release_empty(&heap->owner); /* from here on slabs end as they become free */
  if (!handover_park(heap)) drain_empty(heap);
  bool has_slabs = owner_has_slabs(&heap->owner);
  owner_unlock(&heap->owner);
""",
     """  (void)remote_collect(&heap->owner);
  slab_release_empty(&heap->owner);
  if (!handover_park(heap)) drain_empty(heap);
  bool has_slabs = owner_has_slabs(&heap->owner);
  owner_unlock(&heap->owner);
  heap_set_thread(heap, 0);
""", "narrow.exiting.free.*"),
    ("orphan_too_soon", "front/supply.c",
     """void heap_detach(heap_t *heap) {
""",
     """void heap_detach(heap_t *heap) {
  heap_unlock(heap);
  store_relaxed(&heap->owner.thread, 0);
  heaps_give(heap, HEAP_ORPHAN);
  heap_lock(heap);
""", "narrow.exiting.same.*"),
    ("ends_before_its_lock", "front/thread.c",
     "  heap_lock(heap);\n  thread_fast_heap = &heap_none;\n  thread_heap_set(NULL);\n",
     "  thread_fast_heap = &heap_none;\n  thread_heap_set(NULL);\n  heap_lock(heap);\n", "interrupted_exit"),
    ("bins_retired_under_a_handler", "front/supply.c",
     "  bool ended = load_relaxed(&heap->owner.thread) == 0;\n", "  bool ended = true;\n", "interrupted_retire"),
    ("two_heaps_for_one_thread", "front/thread.c",
     "  if (HAK_UNLIKELY(thread_heap != NULL)) return keep_one(thread_heap, heap);\n", "", "interrupted_first"),
    ("start_waits_for_itself", "front/boot.c",
     "  if (state == self) return false; /* a preloaded mmap or open that allocates, or a signal handler */\n", "", "interrupted_first"),
    ("cached_and_given_back", "slab/large_cache.c",
     "  uint32_t bound = cache->bound += units; /* first: a signal handler may take the span as soon as it is there */\n",
     "  uint32_t bound = cache->bound + units;\n", "interrupted_large"),
    ("adopted_and_left", "front/heaps.c",
     "  if (heap != NULL) *list = heap->link;\n  return heap;",
     "  return heap;", "two_adopters"),
    ("lock_not_released", "front/supply.c",
     """  drain_note(heap);
  heap_unlock(heap);
  memset""",
     """  drain_note(heap);
  memset""", "first_use"),
    ("refilled_without_lock", "front/supply.c",
     """  heap_lock(heap);
  if (!load_relaxed(&heap->has_bin[size_class])) heap_add_bin(heap, size_class);
  void *block = bin_refill(heap_bin(heap, size_class), &heap->owner, &heap->budget);
  heap_unlock(heap);
""",
     """  if (!load_relaxed(&heap->has_bin[size_class])) heap_add_bin(heap, size_class);
  void *block = bin_refill(heap_bin(heap, size_class), &heap->owner, &heap->budget);
""", "narrow.idle.*"),
    ("enlisted_without_lock", "front/heaps.c",
     "state, uintptr_t thread) {\n  lock_acquire(&lists_lock);\n",
     "state, uintptr_t thread) {\n  (void)lock_try(&lists_lock);\n", "first_use"),
    ("record_closed_in_two_steps", "slab/sample.c",
     "  if (!atomic_compare_exchange_strong_explicit(&sample->state, &live, free, memory_order_acq_rel, memory_order_relaxed)) return false;\n",
     "  store_release(&sample->state, free);\n", "sampled_double"),
    ("lock_in_two_steps", "os/lock.c",
     "  if (!atomic_compare_exchange_strong(&lock->holder, &none, thread_self())) return false;",
     "  if (atomic_load(&lock->holder) != none) return false;\n  atomic_store(&lock->holder, thread_self());", "narrow.idle.*"),
    ("boot_in_two_steps", "front/boot.c",
     "  if (atomic_compare_exchange_strong_explicit(&boot_state, &state, self, memory_order_acquire, memory_order_relaxed)) {",
     "  if (atomic_load(&boot_state) == state) {\n    atomic_store(&boot_state, self);", "first_use"),
    ("boot_not_waited_for", "front/boot.c",
     "  while (load_relaxed(&boot_state) > BOOT_DONE && !os_forked()) os_yield();\n",
     "", "first_use"),
    ("units_claimed_in_two_steps", "space/span.c",
     "if (atomic_compare_exchange_weak_explicit(free, &seen, seen & ~mask, memory_order_acquire, memory_order_relaxed)) return true;",
     "store_relaxed(free, seen & ~mask); return true;", "spans"),
    ("claim_not_given_back", "space/span.c",
     "    if (claimed > 0) units_release(start, claimed);\n",
     "    (void)claimed;\n", "spans"),
    ("units_published_in_two_steps", "space/ledger.c",
     "  room_note(region.rooms, superslab, atomic_fetch_or(&region.superslabs[superslab].free, mask) | mask);\n",
     "  uint32_t free = load_relaxed(&region.superslabs[superslab].free) | mask;\n  store_relaxed(&region.superslabs[superslab].free, free);\n  room_note(region.rooms, superslab, free);\n", "spans"),
    ("cached_span_changed_in_two_steps", "slab/large_cache.c",
     "  return atomic_compare_exchange_strong_explicit(at, &from, to, memory_order_acq_rel, memory_order_relaxed);\n",
     "  if (atomic_load(at) != from) return false;\n  atomic_store(at, to);\n  return true;\n", "cached_*"),
    ("lock_held_in_child", "front/repair.c",
     "    lock_abandon(&owner->lock, inside);\n",
     "", "forked*"),
    ("announced_in_child", "slab/slab.c",
     "store_relaxed(&owner->pending[c], 0), owner->deferred[c] = 0;",
     "owner->deferred[c] = 0;", "forked*"),
    ("inside_not_shown", "front/thread.h",
     "  else add_relaxed(&heapless_of(thread_self())->heapless_inside, inside ? 1 : (uint32_t)-1);\n",
     "", "forked*"),
    ("bits_left_in_child", "front/repair.c",
     "      remote_recover(owner, slab);\n",
     "      remote_open(unit);\n", "forked*"),
    ("hole_without_look", "slab/hole.c",
     "    blocks_hold(owner, slab, hole.first, hole.last);\n    owner_unlock(owner);\n",
     "    owner_unlock(owner);\n    blocks_hold(owner, slab, hole.first, hole.last);\n", "holes"),
    ("end_frees_what_is_claimed", "front/named.c",
     "    if (HAK_CHECKS && !region_clear_live(block)) continue; /* another thread is about to free it */\n",
     "    (void)region_clear_live(block);\n", "named_end"),
    ("let_go_twice", "front/named.c",
     "  if (load_relaxed(&first->owned)) large_disown(&heap->owner, first); /* else its heap has ended meanwhile */\n",
     "  large_disown(&heap->owner, first);\n", "named_end"),
    ("blocks_claimed_in_two_steps", "front/named.c",
     "    live = __atomic_exchange_n(&words[i], 0, __ATOMIC_RELAXED);\n",
     "    racy_store(&words[i], 0);\n", "named_end"),
    ("tracked_freed_in_two_steps", "slab/sample.c",
     "  return atomic_compare_exchange_strong_explicit(track, &live, track_with(live, TRACK_FREE), memory_order_acq_rel, memory_order_relaxed);\n",
     "  store_release(track, track_with(live, TRACK_FREE));\n  return true;\n", "-T double_free*"),
    ("drained_before_bars_are_seen", "front/drain.c", "  if (!os_barrier()) return 0;\n", "", "drained_two"),
    ("drained_before_the_last_push", "front/drain.c", "return os_barrier() ? ", "return true ? ", "drained_late_and_left"),
    ("refill_writes_beyond_what_it_brings", "slab/batch.c", "  uint32_t taken = 0, slabs = 0;\n",
     "  uint32_t taken = 0, slabs = 0;\n  for (uint32_t i = 0; i < count; i++) owner_store(&blocks[i], blocks[0]);\n", "interrupted_hits"),
    ("drained_under_a_hit", "front/bin.c", "bin->seen < at + 1 + BIN_REACH", "bin->seen < at + 1", "drained_to_the_end"),
    ("drained_where_the_thread_was", "front/bin.c", "if (at == 0 || bin->seen < at + 1 + BIN_REACH || ", "if (at == 0 || ", "drained*"),
    ("drained_where_the_bar_was", "front/bin.c", " || !(HAK_SECURE || entry_is_barred(racy_load(&entries[at])))) {", ") {", "drained_late"),
    ("popped_below_a_bar", "front/bin.h", "  if (entry_is_barred(entry)) return NULL;\n", "  if (entry == BIN_END) return NULL;\n", "drained"),
    ("handed_over_unseen", "front/handover.c", "bool same = load_relaxed(&parked_heaps[i].heap) == heap;", "bool same = true;", "handed_over"),
    ("handed_over_without_lock", "front/handover.c", "if (heap == NULL || !lock_try_if_free(&heap->owner.lock)) return;",
     "if (heap == NULL) return;", "handed_over"),
    ("idle_noted_by_an_old_word", "space/ledger.c",
     "uint64_t seen = atomic_load(&ledger.idle_range), wider;", "uint64_t seen = load_relaxed(&ledger.idle_range), wider;", "purged_at_once_beside"),
    ("idle_taken_in_two_steps", "space/ledger.c",
     "range = atomic_exchange(&ledger.idle_range, IDLE_NOWHERE);", "atomic_store(&ledger.idle_range, IDLE_NOWHERE);", "purged_at_once"),
    ("left_counted_as_before_a_fork", "front/repair.c", "  handover_after_fork();\n", "", "handed_over_forked"),
    ("repair_left_unfinished", "front/repair.c", " && !begun && !unfinished) return;", " && !begun) return;", "forked_again"),
    ("lists_left_unfinished", "front/repair.c", "(!mine && (unfinished || load_relaxed", "(!mine && ((unfinished && false) || load_relaxed", "forked_again"),
    ("unfinished_noted_late", "front/repair.c",
     """  store_relaxed(&repairing, true);
  atomic_signal_fence(memory_order_seq_cst);
  if (region.base != 0) heap_repair(mine, unfinished);
""", """  if (region.base != 0) heap_repair(mine, unfinished);
  store_relaxed(&repairing, true);
""", "forked_again"),
    ("refilled_with_what_is_gone", "front/bin.c", "  if (HAK_UNLIKELY(bin->barred)) bin_settle_barred(bin);\n", "  (void)bin;\n", "drained_to_the_end"),
]

Fault = collections.namedtuple("Fault", "name file text instead pattern")


def attempt(fault, place, settings):
    """The first scenario that fails, and how; None if none does."""
    program = seeded.build(place, fault.file, seeding.changed(fault, settings.source), settings)
    found = seeded.failure(program, ["-t", "60", *fault.pattern.split()])
    return found and ": ".join(found)


if __name__ == "__main__":
    sys.exit(seeding.main(__doc__, [Fault(*row) for row in FAULTS], attempt))
