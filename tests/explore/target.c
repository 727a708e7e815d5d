/* target.c - the allocator in one translation unit, compiled with explore_target.h before it. */
#include "allocator.c"
#include "target.h"

/* For functions that belong to the explorer: their accesses are not reported. */
#define NO_RACE_CHECK __attribute__((no_sanitize_thread))

/* --- threads ----------------------------------------------------------------------------- */

typedef struct thread_vars {
  heap_t *heap, *own_heap;
  uint32_t inside;
  uint8_t large_frees, exits;
} thread_vars_t;

static thread_vars_t vars[TARGET_IDENTITIES];
static bool vars_ready;
static unsigned running;
uintptr_t explore_self;
char explore_single_threaded; /* never */

NO_RACE_CHECK uintptr_t target_self_of(unsigned identity) { return ((uintptr_t)identity + 1) * 0x1000; }

NO_RACE_CHECK void target_run_again(void) {
  thread_fast_heap = vars[running].heap;
  thread_heap = vars[running].own_heap;
  thread_inside = vars[running].inside;
  thread_large_frees = vars[running].large_frees;
  thread_exits = vars[running].exits;
  explore_self = target_self_of(running);
}

NO_RACE_CHECK void target_run_as(unsigned identity) {
  if (!vars_ready) {
    for (unsigned i = 0; i < TARGET_IDENTITIES; i++) vars[i].heap = &heap_none;
    vars_ready = true;
  } else {
    vars[running] = (thread_vars_t){thread_fast_heap, thread_heap, thread_inside, thread_large_frees, thread_exits};
  }
  running = identity;
  target_run_again();
}

NO_RACE_CHECK heap_t *target_heap_of(unsigned identity) { return identity == running ? thread_heap : vars[identity].own_heap; }

void *target_take(size_t size) {
  char *block = block_alloc(size);
  if (block != NULL) block[0] = block[size - 1] = 1;
  return block;
}

void target_free(void *block) { block_free(block, 0, "free"); }

void target_write(void *at) { *(char *)at = 2; }

void target_give(void *block) {
  target_write(block);
  target_free(block);
}

/* Repeats, as libc does: it calls a destructor again if the thread has set a value again. */
void target_end_thread(void) {
  while (thread_heap != NULL) thread_exit(thread_heap);
}

void target_many_orphans(void) { store_relaxed(&orphan_count, ORPHANS_KEPT); }

void target_trim(void) {
  thread_enter();
  if (thread_heap != NULL) heap_trim(thread_heap);
  thread_leave();
}

void target_trim_others(void) {
  thread_enter();
  (void)drain_bins(thread_heap);
  heap_trim_others();
  thread_leave();
}

void target_age_large_caches(void) {
  thread_enter();
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    for (int i = 0; i < 2; i++) (void)large_cache_age(&heap->owner.large_cache);
  }
  thread_leave();
}

void target_age_parked(void) {
  thread_enter();
  for (unsigned i = 0; i < PARKED_MOST; i++) handover_look(i, false);
  thread_leave();
}

bool target_parked_counted(void) {
  int64_t bytes = 0;
  for (unsigned i = 0; i < PARKED_MOST; i++) {
    if (load_relaxed(&parked_heaps[i].heap) != NULL) bytes += load_relaxed(&parked_heaps[i].bytes);
  }
  return load_relaxed(&parked_bytes) == bytes;
}

void target_bar_above(size_t size) {
  bin_t *bin = heap_bin_for(thread_heap, size);
  intptr_t top = racy_load(&bin->top);
  bin->barred = true;
  bin->bar = (int16_t)top;
  bin->seen = INT16_MIN;
  racy_store(&bin_entries(bin)[top], entry_barred(racy_load(&bin_entries(bin)[top])));
}

void target_take_barred(void) {
  thread_enter();
  (void)take_barred(NULL, false);
  thread_leave();
}

void target_purge_holes(void) {
  uint32_t aging = 0;
  thread_enter();
  (void)hole_step(true, &aging);
  thread_leave();
}

NO_RACE_CHECK void target_fork(void) {
  explore_alone();
  for (unsigned i = 0; i < TARGET_IDENTITIES; i++) {
    if (i != running) vars[i] = (thread_vars_t){.heap = &heap_none};
  }
  os_fork_note();
}

void target_left_behind(unsigned identity) {
  heap_t *heap = target_heap_of(identity);
  target_run_as(OUTSIDER);
  vars[identity] = (thread_vars_t){.heap = &heap_none};
  store_relaxed(&heap->inside, true);
  store_relaxed(&heap->owner.lock.holder, target_self_of(identity));
  for (unsigned c = 0; c < CLASS_COUNT; c++) heap->owner.partial[c].first = heap->owner.full[c].first = UNIT_NONE;
  os_fork_note();
}

void target_forget_thread(void) {
  thread_fast_heap = &heap_none;
  thread_heap = NULL;
  thread_inside = 0;
}

/* --- what is private to files ------------------------------------------------------------ */

NO_RACE_CHECK uint32_t target_remote_state(uint32_t unit) { return load_relaxed(&remote_of(unit)->state); }
NO_RACE_CHECK uint32_t target_remote_next(uint32_t unit) { return load_relaxed(&remote_of(unit)->next); }
void target_marked_by(uint32_t slab, unsigned identity) {
  store_relaxed(&unit_at(slab)->remote, true);
  store_relaxed(&remote_of(slab)->freers, target_self_of(identity));
}
void target_nearly_idle(slab_owner_t *owner, uint32_t more) { store_relaxed(&owner->pending_count, REMOTE_HELP_AT - (int32_t)more); }
bool target_grow_locked(void) { return load_relaxed(&grow_lock.holder) != 0; }

void target_free_missed(void *block) { free_miss(block, 0, "free"); }

static heap_t *named;

void target_named_new(void) {
  if (!boot()) return;
  thread_enter();
  named = named_new("named");
  thread_leave();
}

void *target_named_take(size_t size) {
  char *block = alloc_from(named, size, 1, SPAN_PLAIN, "hak_heap_malloc");
  if (block != NULL) block[0] = block[size - 1] = 1;
  return block;
}

void target_named_end(void) {
  thread_enter();
  named_end(named, "hak_heap_free");
  thread_leave();
}

void target_free_if_live(void *block) {
  uint32_t unit = (uint32_t)region_unit(block);
  if (!region_clear_live(block)) return;
  if (load_relaxed(&unit_at(unit)->kind) == UNIT_LARGE) {
    thread_enter();
    if (load_relaxed(&unit_at(unit)->owned)) named_let_go(unit_at(unit));
    large_free(unit_at(unit));
    thread_leave();
    return;
  }
  unit_t *unannounced = remote_mark(racy_load(region_bin(region.live, unit)), unit, block);
  if (unannounced != NULL) free_announce(unannounced);
}

void target_look(void) {
  hak_stats_t stats;
  hak_class_stats_t classes[CLASS_COUNT];
  hak_heap_stats_t heap_stats;
  census_take(&stats, classes);
  (void)census_heap(0, &heap_stats);
}

void target_guard_slots(int64_t count) {
  if (!option_set(OPTION_guard_slots, count)) explore_fail("%lld guard slots cannot be", (long long)count);
  store_release(&ready, true); /* of traces: skips trace_prepare, which is not explored */
}

void *target_guarded(size_t size) { return slot_alloc(size); }

void target_ignore_figures(void) {
  explore_ignore(&ledger.units);
  explore_ignore(&ledger.fresh_units);
  for (unsigned i = 0; i < HEAPLESS_LINES; i++) explore_ignore(&heapless[i].heapless_inside);
  explore_ignore(&attached_count);
  explore_ignore(&orphan_count);
  explore_ignore(&cache_walks);
}
