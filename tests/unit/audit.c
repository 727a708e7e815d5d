/* audit.c - breaks each invariant that the audits check: the process must end with the line that names it.
 *
 * The allocator is compiled into this file, so that all of its data can be written.  Also compiled for the secure library. */
/* Sanitizers start threads of their own, which the allocator must not notice. */
#define __libc_single_threaded audit_single_threaded
char audit_single_threaded = 1;

#include "allocator.c"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_os.h"
#include "unit.h"

/* --- a heap with something of each ---------------------------------------------------------- */

enum { SMALL = 64, WIDE = 20000, BLOCKS = 300, LARGE_UNITS = 3 };

static heap_t *heap;             /* this thread's */
static slab_owner_t *owner;
static unsigned c, wide_class;
static bin_t *bin;
static void **entries;           /* of the bin, starting with its first */
static unit_t *slab, *wide, *large, *spare; /* of SMALL, of WIDE, a large block, a free unit */
static void *block;              /* a live block of `slab` */
static uint32_t unit;            /* of `slab` */

static uint32_t free_unit(void) {
  uint32_t at = load_relaxed(&region.units);
  while (at-- > 0) {
    if ((load_relaxed(&region.superslabs[at / 32].free) >> at % 32 & 1) != 0) return at;
  }
  return 0;
}

static void prepare(void) {
  void *blocks[BLOCKS];
  CHECK(option_set(OPTION_decay_ms, -1) && option_set(OPTION_region_mb, 1024));
  boot_finish();
  for (int i = 0; i < BLOCKS; i++) REQUIRE((blocks[i] = block_alloc(SMALL)) != NULL);
  for (int i = 1; i < BLOCKS; i += 2) block_free(blocks[i], 0, "free");
  void *wide_block = block_alloc(WIDE), *large_block = block_alloc(LARGE_UNITS * HAK_UNIT - 100);
  REQUIRE(wide_block != NULL && large_block != NULL);
  heap = thread_heap;
  owner = &heap->owner;
  block = blocks[0];
  slab = unit_head((uint32_t)region_unit(block));
  wide = unit_head((uint32_t)region_unit(wide_block));
  large = unit_head((uint32_t)region_unit(large_block));
  spare = unit_at(free_unit());
  c = load_relaxed(&slab->size_class);
  wide_class = load_relaxed(&wide->size_class);
  bin = heap_bin(heap, c);
  entries = bin_entries(bin) - bin->capacity;
  unit = unit_number(slab);
  REQUIRE(bin_count(bin) > 2 && load_relaxed(&slab->free) > 0 && load_relaxed(&wide->units) > 1);
  (void)region_seal(false);
}

/* --- helpers for the breaches -------------------------------------------------------------------- */

#define UNIT_WORD(u) (&region.superslabs[(u) / 32])
#define UNIT_BIT(u) ((uint32_t)1 << (u) % 32)
#define ADD(word, n) store_relaxed(&(word), load_relaxed(&(word)) + (n))
#define SET_BIT(zone, index) atomic_fetch_or(region_bits((zone), unit, (index) / 64), (uint64_t)1 << (index) % 64)

static uint32_t index_of(const void *at) { return class_block_at(c, (size_t)((const char *)at - (const char *)region_address(unit))); }

/* The first free block of `slab`. */
static uint32_t free_index(void) {
  for (uint32_t i = 0; i < class_info[c].blocks; i++) {
    if ((load_relaxed(region_bits(region.free_bits, unit, i / 64)) >> i % 64 & 1) != 0) return i;
  }
  return 0;
}

static void unmap_spare(void) {
  uint32_t u = unit_number(spare);
  atomic_fetch_and(&UNIT_WORD(u)->mapped, ~UNIT_BIT(u));
  atomic_fetch_and(&UNIT_WORD(u)->free, ~UNIT_BIT(u));
  atomic_fetch_and(&UNIT_WORD(u)->dirty, ~UNIT_BIT(u));
}

static void queue(unit_t *which) {
  store_relaxed(&remote_of(unit_number(which))->state, REMOTE_QUEUED);
  store_relaxed(&remote_of(unit_number(which))->next, 0);
}

static void give_behind(void *at) { /* keeping the counts correct */
  SET_BIT(region.free_bits, index_of(at));
  slab->first_word = 0;
  slab_add_free(owner, slab, 1);
}

static uint32_t span_of_kind(unit_kind_t kind) {
  bool zero;
  uint32_t u = span_alloc(1, 1, SPAN_SLAB, &zero);
  units_enter(u, 1, kind, CLASS_NONE);
  return u;
}

/* Makes another heap, and makes sure that there is a bare heap: where pages are small, it is made along with the first. */
static heap_t *other(void) {
  heap_t *made = heap_create(0x7777);
  if (bare_heaps == NULL) heaps_give(heap_create(0x8888), HEAP_BARE);
  return made;
}

/* A live guarded block. */
static char *guarded(void) {
  CHECK(option_set(OPTION_guard_slots, 16));
  trace_prepare();
  char *at = slot_alloc(100);
  CHECK(at != NULL);
  return at;
}

/* --- the table ---------------------------------------------------------------------------------- */

typedef enum where { ALL, MINE, LISTS } where_t; /* what is audited: everything, the thread's heap, the lists of heaps */
typedef struct breach {
  where_t where;
  const char *line; /* the line that the audit must print */
  void (*breaks)(void);
  struct breach *next;
} breach_t;
static breach_t *breaches;

#define JOIN(a, b) a##b
#define NAMED(name, number, where, line, ...)                                      \
  static void JOIN(name, number)(void) { __VA_ARGS__; }                            \
  static breach_t JOIN(breach_, number) = {where, line, JOIN(name, number), NULL}; \
  __attribute__((constructor)) static void JOIN(add_, number)(void) {              \
    JOIN(breach_, number).next = breaches;                                         \
    breaches = &JOIN(breach_, number);                                             \
  }
#define BREACH_AT(number, where, line, ...) NAMED(break_, number, where, line, __VA_ARGS__)
#define BREACH(where, line, ...) BREACH_AT(__COUNTER__, where, line, __VA_ARGS__)

/* locks */
BREACH(ALL, "held at the end of a slow path", lock_acquire(&lists_lock))
BREACH(ALL, "waited for in the wrong order", lock_acquire(&lists_lock); lock_acquire(&grow_lock))
BREACH(ALL, "waited for in the wrong order", lock_acquire(&grow_lock); heap_lock(heap))
BREACH(ALL, "waited for in the wrong order", heap_lock(heap); lock_acquire(&lists_lock))
BREACH(ALL, "taken while one is held under which none may be", lock_acquire(&grow_lock); (void)!lock_try(&owner->lock))
BREACH(ALL, "released by a thread that does not hold it", lock_release(&grow_lock))

/* the region and superslabs */
BREACH(ALL, "free units that are not usable", atomic_fetch_and(&UNIT_WORD(unit_number(spare))->mapped, ~UNIT_BIT(unit_number(spare))))
BREACH(ALL, "dirty units that are not usable", unmap_spare();
       atomic_fetch_or(&UNIT_WORD(unit_number(spare))->dirty, UNIT_BIT(unit_number(spare))))
BREACH(ALL, "cold units that are not usable", unmap_spare();
       atomic_fetch_or(&UNIT_WORD(unit_number(spare))->cold, UNIT_BIT(unit_number(spare))))
BREACH(ALL, "a flag of a superslab is neither 0 nor 1", store_relaxed(&UNIT_WORD(unit)->huge, 2))
BREACH(ALL, "a flag of a superslab is neither 0 nor 1", store_relaxed(&UNIT_WORD(unit)->moved, 2))
BREACH(ALL, "a huge page or move of a part", unmap_spare(); store_relaxed(&UNIT_WORD(unit_number(spare))->huge, 1))
BREACH(ALL, "a free unit lies in a span", atomic_fetch_or(&UNIT_WORD(unit)->free, UNIT_BIT(unit)))
BREACH(ALL, "a unit is neither free nor in a span", atomic_fetch_and(&UNIT_WORD(unit_number(spare))->free, ~UNIT_BIT(unit_number(spare))))
BREACH(ALL, "units in use were not counted", ADD(ledger.units, (uint64_t)1 << 32))
BREACH(ALL, "idle units were not counted", ADD(ledger.units, 1))
BREACH(ALL, "units without zones", layout.zones_ready = 0)
BREACH(ALL, "the limit is not where the zones end", racy_store(&region.limit, region.limit + 1))
BREACH(ALL, "the gate has another limit", racy_store(&region.gated_limit, 1))
BREACH(ALL, "units beyond what is mapped", store_relaxed(&layout.blocks.end, region.base))
BREACH(ALL, "a zone ends before its last record", store_relaxed(&layout.zone[ZONE_UNITS].end, layout.zone[ZONE_UNITS].start))
BREACH(ALL, "a usable unit beyond the frontier", ADD(region.units, (uint32_t)-1))

/* units and spans */
BREACH(ALL, "a large block has not the bytes of its units", ADD(large->bytes, HAK_UNIT))
BREACH(ALL, "a large block has not the bytes of its units", ADD(large->bytes, -HAK_GRANULE))
BREACH(ALL, "a large block has more left over than a page", large->left = 1 << 20)
BREACH(ALL, "a large block is in the list of no owner", store_relaxed(&large->owned, true);
       store_relaxed(&remote_of(unit_number(large))->owner, NULL))
BREACH(ALL, "what a thread caches is no span of that kind",
       store_relaxed(&owner->large_cache.cached_spans[0], (uint64_t)1 << 32 | (unit + 1)))
BREACH(ALL, "a large block is not live", (void)region_clear_live(region_address(unit_number(large))))
BREACH(ALL, "a span ends beyond the frontier", store_relaxed(&large->units, 1 << 20))
BREACH(ALL, "a span's last unit is not in it", large[LARGE_UNITS - 1].head--)
BREACH(ALL, "a span has not its kind's class", store_relaxed(&large->size_class, 3))
BREACH(ALL, "a span has not its kind's class", store_relaxed(&slab->size_class, (uint8_t)wide_class))
BREACH(ALL, "a slab has no owner", store_relaxed(&remote_of(unit_number(slab))->owner, NULL))
BREACH(ALL, "a guard is none that the kernel makes", unit_at(span_of_kind(UNIT_GUARD))->guard = 7)
BREACH(ALL, "a span of guard slots has none", (void)span_of_kind(UNIT_SLOTS))
BREACH(ALL, "a unit is of no kind", store_relaxed(&large[1].kind, 9))
BREACH(ALL, "a further unit is in no span", large[1].head = unit)
BREACH(ALL, "a unit has a bin and no slab, or a slab and no bin", racy_store(region_bin(region.live, unit_number(spare)), &bin->shared))
BREACH(ALL, "a unit has a bin and no slab, or a slab and no bin", racy_store(region_bin(region.live, unit), &region_no_bin))

/* slabs */
BREACH(MINE, "a listed slab is not the owner's", store_relaxed(&remote_of(unit_number(slab))->owner, &heap_none.owner))
BREACH(MINE, "a slab has no bin, or not its class's units", racy_store(region_bin(region.live, unit), &region_no_bin))
BREACH(MINE, "a slab has no bin, or not its class's units", store_relaxed(&slab->units, 2))
BREACH(MINE, "a slab's unit does not lead to it", wide[1].head = unit)
BREACH(MINE, "a slab's unit does not lead to it", racy_store(region_bin(region.live, unit_number(wide) + 1), &bin->shared))
BREACH(MINE, "a slab's neighbours in its list do not know it", slab->prev = unit_number(wide))
BREACH(MINE, "a slab is in the list of the others", store_relaxed(&slab->free, 0))
BREACH(MINE, "a slab takes no remote frees", store_relaxed(&remote_of(unit)->state, REMOTE_CLOSED))
BREACH(MINE, "a slab has bits beyond its blocks",
       atomic_fetch_or(region_bits(region.free_bits, unit_number(wide), 0), (uint64_t)1 << class_info[wide_class].blocks))
BREACH(MINE, "a free block was freed remotely", SET_BIT(region.remote_bits, free_index()))
BREACH(MINE, "a block is free below the first word", slab->first_word = 64)
BREACH(MINE, "a free block is live", region_set_live((char *)region_address(unit) + (size_t)free_index() * class_info[c].size))
BREACH(MINE, "a slab's free blocks were not counted", ADD(slab->free, 1))
BREACH(MINE, "a purged page holds a block that is out", slab->holes = 1)

/* owners */
BREACH(MINE, "a list has more slabs than were counted", store_relaxed(&owner->slab_count[c], 0))
BREACH(MINE, "slabs that were counted are in no list", ADD(owner->slab_count[c], 1))
BREACH(MINE, "a slab is in another's list", slab->listed_full = true)
BREACH(MINE, "free bytes were not counted", ADD(owner->free_bytes, 1))
BREACH(MINE, "bytes of slabs were not counted", ADD(owner->slab_bytes, 1))
BREACH(MINE, "an owner's large blocks were not counted", ADD(owner->large_blocks, 1))
BREACH(MINE, "an owner's large blocks were not counted", large_own(owner, large); ADD(owner->large_bytes, 1))
BREACH(MINE, "a large block in an owner's list is not its", large_own(owner, large); store_relaxed(&large->owned, false))
BREACH(MINE, "a large block in an owner's list is not its", large_own(owner, large); large->prev = unit)
BREACH(MINE, "a pending slab is not the owner's", store_relaxed(&owner->pending[c], unit_number(wide) + 1))
BREACH(MINE, "a pending slab is not queued", store_relaxed(&owner->pending[c], unit + 1))
BREACH(MINE, "a slab is pending twice", queue(slab); store_relaxed(&remote_of(unit)->next, unit + 1); owner->deferred[c] = unit + 1)
BREACH(MINE, "a slab is pending and deferred", queue(slab); owner->deferred[c] = unit + 1; store_relaxed(&owner->pending[c], unit + 1))
BREACH(MINE, "a queued slab is not pending", queue(slab))
BREACH(MINE, "a pending class has no bit", queue(slab); store_relaxed(&owner->pending[c], unit + 1))
BREACH(MINE, "what is held is in no slab of the owner", owner->held = (slab_held_t){unit_number(large), 0, 0, 1, 0})
BREACH(MINE, "what is held is in no slab of the owner", owner->held = (slab_held_t){unit, 0, 100000, 1, 0})
BREACH(MINE, "what is held is in no slab of the owner", owner->held = (slab_held_t){unit, 0, 0, 2, 0})

/* heaps and bins */
BREACH(MINE, "a bin has what is no block", entries[1] = &breaches)
BREACH(MINE, "a bin has what is no block", entries[1] = (char *)entries[1] + 16)
BREACH(MINE, "a bin has a block of another's slab", entries[1] = region_address(unit_number(large)))
BREACH(MINE, "a block is in a bin and in its slab", give_behind(entries[1]))
BREACH(MINE, "a block in a bin was freed remotely", SET_BIT(region.remote_bits, index_of(entries[1])))
BREACH(MINE, "a block in a bin is live", region_set_live(entries[1]))
BREACH(MINE, "a block is in a bin twice", entries[1] = entries[0])
BREACH(MINE, "a bin is not what frees take it for", bin->shared.thread++)
BREACH(MINE, "a bin is not what frees take it for", bin->shared.block_size++)
BREACH(MINE, "a bin has more entries than room", bin->capacity = bin_reserve(c) + 1)
BREACH(MINE, "a bin's top is not between its ends", bin->top = 0)
BREACH(MINE, "a bin's first entry has no end below it", entries[-1] = block)
BREACH(MINE, "a sampled block's entry and record disagree", entries[1] = entry_sampled(entries[1]))
BREACH(MINE, "a heap's table leads to another class's bin", heap->bin_at[class_info[c].size / HAK_GRANULE] = 0)
BREACH(MINE, "the bin of no blocks is not empty", heap->none_entry = block)
BREACH(MINE, "out + free + remote are not the blocks of a class", bin->top--)
BREACH(MINE, "out + free + remote are not the blocks of a class", (void)region_clear_live(block))
BREACH(MINE, "a heap has slabs of a class and no bin", store_relaxed(&heap->has_bin[c], false); heap_set_table(heap, c))
BREACH(ALL, "a thread's heap is not attached to it", heap->thread++)
BREACH(ALL, "a thread's heap has another owner", owner->orphan = true)
BREACH(ALL, "a thread is on a slow path and does not show it", store_relaxed(&heap->inside, 0))

/* the lists of heaps */
BREACH(LISTS, "a heap is in the list of another state", (void)other(); orphans = bare_heaps)
BREACH(LISTS, "a heap that no thread has has an owner", (void)other(); store_relaxed(&bare_heaps->owner.thread, 5))
BREACH(LISTS, "a bare heap has bins or slabs", (void)other(); store_relaxed(&bare_heaps->has_bin[3], true))
BREACH(LISTS, "a heap is in no state", store_relaxed(&other()->state, 9))
BREACH(LISTS, "a heap that all share has an owner", (void)other(); heap = bare_heaps; store_relaxed(&heap->state, HEAP_SHARED);
       owner = &heap->owner; store_relaxed(&owner->thread, 5))
BREACH(LISTS, "a thread cannot find its heap", heap->thread++)
BREACH(LISTS, "attached heaps were not counted", ADD(attached_count, 1))
BREACH(LISTS, "orphans were not counted", ADD(orphan_count, 1))
BREACH(LISTS, "a bare heap is in no list", (void)other(); bare_heaps = bare_heaps->link)

#if HAK_SECURE
static void **waiting(void) { return &heap->quarantine->blocks[c][0]; }
BREACH(ALL, "a large block that waits is no guard", store_relaxed(&freed_units[3], unit_number(wide)))
BREACH(MINE, "a quarantine's place is not in it", heap->quarantine->rings[c].at = 255)
BREACH(MINE, "what waits in quarantine is no block, or live", *waiting() = block)
BREACH(MINE, "a block is in quarantine and in its slab", REQUIRE(*waiting() != NULL); give_behind(*waiting()))
#else
BREACH(ALL, "a guard slot is left in a change", (void)guarded(); store_relaxed(&load_relaxed(&pool.slots)[0].state, SLOT_CHANGING))
BREACH(ALL, "a guarded block leaves its page", (void)guarded(); load_relaxed(&pool.slots)[0].place = (uint32_t)pool.page)
BREACH(ALL, "a guard slot is live and its block is not, or the reverse", (void)region_clear_live(guarded()))
#endif

/* --- the runs ----------------------------------------------------------------------------------- */

static void audit_where(where_t where) {
  if (where == ALL) {
    audit_all(thread_heap);
  } else if (where == LISTS) {
    heaps_audit();
  } else {
    heap_lock(heap);
    audit_heap(heap, true, is_alone());
    heap_unlock(heap);
  }
}

/* Runs in a process of its own, with `end` of a pipe as its standard error. */
static _Noreturn void run_broken(const breach_t *breach, int end) {
  (void)signal(SIGALRM, SIG_DFL);
  alarm(60);
  dup2(end, 2);
  if (breach->breaks != NULL) breach->breaks();
  audit_where(breach->where);
  _exit(0);
}

/* Stores what the process wrote; returns how it ended. */
static int run_breach(const breach_t *breach, char *text, size_t size) {
  int ends[2], status = -1;
  size_t length = 0;
  text[0] = 0;
  if (pipe(ends) != 0) return -1;
  pid_t child = fork();
  if (child == 0) run_broken(breach, ends[1]);
  close(ends[1]);
  for (ssize_t n = 1; n > 0 && length + 1 < size; length += n > 0 ? (size_t)n : 0) n = read(ends[0], text + length, size - 1 - length);
  text[length] = 0;
  close(ends[0]);
  return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

TEST(a_sound_heap_passes_every_audit) {
  prepare();
  thread_enter();
  CHECK(is_alone());
  for (where_t where = ALL; where <= LISTS; where++) audit_where(where);
  void *at = HAK_SECURE ? NULL : guarded();
  (void)other();
  audit_where(ALL);
  thread_leave();
  CHECK(at != NULL || HAK_SECURE);
}

#if HAK_SECURE
static uint32_t guards_gone, slabs_before_them;
static void look_before(void *guard) {
  guards_gone++;
  slabs_before_them += load_relaxed(&unit_at((uint32_t)region_unit(guard) - 1)->kind) == UNIT_SLAB;
}

/* A fork's child that finds the slab ends it, and with it the guard, which may be another's by then. */
TEST(a_slab_ends_before_its_guard) {
  fake_os_during(FAKE_GUARD, look_before);
  prepare();
  for (unsigned i = 0; i < 20; i++) block_free(block_alloc(1000 + 500 * i), 0, "free");
  thread_enter();
  (void)heap_collect(thread_heap, true);
  thread_leave();
  fake_os_during(FAKE_GUARD, NULL);
  CHECK(guards_gone > 0);
  CHECK_EQ(slabs_before_them, 0);
}
#endif

TEST(each_broken_invariant_is_named) {
  char text[1024];
  CHECK(option_set(OPTION_insight, 0)); /* the blocks that are broken have live bits, not records */
  prepare();
  thread_enter();
  for (const breach_t *breach = breaches; breach != NULL; breach = breach->next) {
    int status = run_breach(breach, text, sizeof text);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, breach->line) != NULL) continue;
    check_fail(__FILE__, __LINE__, "\"%s\" ends with status %x and says \"%s\"", breach->line, (unsigned)status, text);
  }
}
