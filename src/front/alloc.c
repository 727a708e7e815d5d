#include "front/alloc.h"

#include <errno.h>
#include <string.h>

#include "base/counted.h"
#include "front/boot.h"
#include "front/drain.h"
#include "front/handover.h"
#include "front/inspect.h"
#include "front/memcheck.h"
#include "front/limits.h"
#include "front/named.h"
#include "front/notifier.h"
#include "front/secure.h"
#include "front/supply.h"
#include "front/thread.h"
#include "front/watch.h"
#include "kit/options.h"
#include "kit/site.h"
#include "os/os.h"
#include "slab/large.h"
#include "slab/sample.h"
#include "slab/slots.h"

void *out_of_memory(void) {
  errno = ENOMEM;
  return NULL;
}

/* Other threads' heaps are trimmed no more often than this. */
#define TRIM_OTHERS_MS 10

bool trim_all(void) {
  static _Atomic uint64_t others_ms;
  heap_t *heap = thread_heap;
  bool own = heap != NULL && heap_may_trim(heap), parked = handover_parked_bytes() > 0;
  if (own) heap_trim_briefly(heap);
  if (parked) handover_release();
  uint64_t now = os_now_ms();
  bool others = now - load_relaxed(&others_ms) >= TRIM_OTHERS_MS;
  if (others) {
    store_relaxed(&others_ms, now);
    (void)drain_bins(heap);
    heap_trim_others_briefly();
  }
  bool waited = large_trim(), room = limits_make_room(heap); /* last: gives back what the steps before have left empty */
  return waited || own || parked || others || room;
}

/* An allocation that has failed is tried again at most this often, each time after the program has freed something. */
#define RECLAIMS_MOST 16

/* --- small ------------------------------------------------------------------------------- */

/* Makes the block of an entry live, once the entry has left bins and slabs: by its live bit, or by its record if it is sampled. */
static void *entry_take(void *entry, size_t size) {
  void *block = entry_block(entry);
  bool recorded = entry_is_sampled(entry) && sample_open(&slab_owner(unit_head((uint32_t)region_unit(block)))->sampler, block, size);
  if (HAK_CHECKS && !recorded) region_set_live(block);
  return block;
}

/* Takes one block of the class, through its bin; NULL when out of memory. */
static void *take_small(heap_t *heap, unsigned size_class, size_t size) {
  if (HAK_SECURE) return secure_alloc(heap, size_class, size);
  void *entry = load_relaxed(&heap->has_bin[size_class]) ? bin_pop_entry(heap_bin(heap, size_class)) : NULL;
  if (entry == NULL) entry = memcheck_on() ? heap_take_one(heap, size_class) : heap_refill(heap, size_class);
  return entry != NULL ? entry_take(entry, size) : NULL;
}

/* Pops from a bin of the heap, as malloc's fast path does where allocations are not watched. NULL if the bin has nothing ready. */
HAK_INLINE void *alloc_hit(heap_t *heap, size_t size) {
  unsigned c = class_of_request(size);
  if (!load_relaxed(&heap->has_bin[c])) return NULL;
  if (HAK_SECURE) return size > 0 ? secure_pop(heap, heap_bin(heap, c), size) : NULL;
  return bin_pop(heap_bin(heap, c));
}

/* For an allocation that is due for a guard slot; NULL if no slot is free. */
static HAK_NOINLINE void *alloc_guarded(heap_t *heap, size_t size) {
  heap->until_guarded = heap_guard_interval(heap);
  if (HAK_SECURE || option_get(OPTION_guard) == 0) return NULL;
  thread_enter();
  void *block = slot_alloc(size);
  thread_leave_with_upkeep();
  return block;
}

/* While allocations are watched, all of them come here: each is counted, and now and then one gets a guard slot. NULL if the heap has
 * nothing ready. */
static void *alloc_watched(heap_t *heap, size_t size) {
  if (HAK_UNLIKELY(!watch_wanted())) {
    if (thread_inside == 0) { /* else a signal handler may have interrupted the holder of the heap's lock */
      thread_enter();
      watch_heap(heap);
      thread_leave();
    }
    return alloc_hit(heap, size);
  }
  owner_add(&heap->counted_allocs, 1);
  void *block = HAK_UNLIKELY(heap->until_guarded-- == 0) ? alloc_guarded(heap, size) : NULL;
  return HAK_UNLIKELY(block != NULL) ? block : alloc_hit(heap, size);
}

static void *alloc_refill(size_t size) {
  if (!boot()) return NULL;
  bool first = thread_heap == NULL;
  unsigned c = class_of_request(size);
  void *block = thread_take_shared(c);
  if (block != NULL) return entry_take(block, size);
  heap_t *heap = thread_attach();
  if (HAK_UNLIKELY(heap == NULL) && trim_all()) heap = thread_attach();
  if (heap == NULL) return NULL;
  if (first && load_relaxed(&heap->watched)) block = alloc_watched(heap, size); /* the first one counts too */
  if (block == NULL) block = take_small(heap, c, size);
  if (HAK_UNLIKELY(block == NULL) && trim_all()) block = take_small(heap, c, size);
  return block;
}

/* For a request that has failed: tries again each time that the program, when asked, has freed something. */
static HAK_COLD void *small_again(size_t size) {
  void *block = NULL;
  for (unsigned reclaims = 0; block == NULL && reclaims < RECLAIMS_MOST && notifier_reclaim(size); reclaims++) {
    thread_enter();
    block = alloc_refill(size);
    (void)thread_leave_with_upkeep();
  }
  return block != NULL ? block : out_of_memory();
}

/* The thread's bin for the size has nothing ready, or the thread has no heap, or allocations are watched. */
static HAK_NOINLINE void *alloc_small(size_t size) {
  heap_t *heap = thread_heap;
  void *block = heap != NULL && load_relaxed(&heap->watched) ? alloc_watched(heap, size) : NULL;
  if (block != NULL) return block;
  thread_enter();
  block = alloc_refill(size);
  if (HAK_UNLIKELY(thread_leave_with_upkeep())) notifier_report();
  return block != NULL ? block : small_again(size);
}

/* --- large ------------------------------------------------------------------------------- */

/* A new large block, not one from the thread's cache. */
static void *large_fresh(size_t size, size_t align, span_use_t use) {
  if (use < SPAN_GROWN) return large_alloc(size, align, use);
  return large_alloc_to_grow(size, use, thread_heap != NULL ? thread_heap->number : 0);
}

static HAK_COLD void *large_again(size_t size, size_t align, span_use_t use) {
  void *block = NULL;
  for (unsigned reclaims = 0; block == NULL && reclaims < RECLAIMS_MOST && notifier_reclaim(size); reclaims++) {
    thread_enter();
    block = large_fresh(size, align, use);
    if (block == NULL && trim_all()) block = large_fresh(size, align, use);
    (void)thread_leave_with_upkeep();
  }
  return block != NULL ? block : out_of_memory();
}

static void *alloc_large(size_t size, size_t align, span_use_t use) {
  if (size > PTRDIFF_MAX || !boot()) return out_of_memory();
  thread_enter();
  void *block = align <= HAK_UNIT ? heap_take_large(thread_heap, size, use) : NULL;
  if (block != NULL) {
    if (HAK_UNLIKELY(thread_leave_unchanged())) notifier_report();
    return block;
  }
  block = large_fresh(size, align, use);
  bool may_fit = block != NULL || large_may_fit(size, align); /* else it fails, whatever is freed */
  if (HAK_UNLIKELY(block == NULL) && may_fit && trim_all()) block = large_fresh(size, align, use);
  if (HAK_UNLIKELY(thread_leave_with_upkeep())) notifier_report();
  if (HAK_LIKELY(block != NULL)) return block;
  return may_fit ? large_again(size, align, use) : out_of_memory();
}

/* --- while the process is armed ---------------------------------------------------------- */

/* Whether this process is armed. A fork's child stays armed only if it was armed permanently; its repair decides that. */
static HAK_NOINLINE bool armed_here(void) {
  if (HAK_LIKELY(!os_forked())) return true;
  if (thread_inside != 0) return false;
  thread_enter();
  thread_leave();
  return event_armed();
}

/* Counts a block of `size` bytes that the calling thread has got: a small one from its own heap, or a large one. */
static HAK_NOINLINE void alloc_count(size_t size, bool small) {
  heap_t *heap = thread_heap;
  if (!armed_here()) return;
  if (!small) watch_other(watch_group_of_large(size), size);
  else if (heap != NULL && load_relaxed(&heap->watched)) watch_small(heap, size);
}

/* counted_take, off the fast path. */
static void alloc_counted(const void *block) {
  if (HAK_COUNTED && block != NULL) counted_take_slow(block_inspect(block).size);
}

/* --- from a named heap ------------------------------------------------------------------- */

/* Profiles attribute the block to the heap, by the heap's tag. */
static void *named_block(heap_t *heap, unsigned size_class, size_t size, size_t align, span_use_t use, const char *function,
                         bool *refused) {
  uint32_t tag = site_tag;
  site_tag = load_relaxed(&heap->named.tag);
  void *block;
  if (size_class == CLASS_NONE) {
    block = named_take_large(heap, large_request(size), align, use, function, refused);
    if (block != NULL) large_note_size(block, size);
  } else {
    block = named_take(heap, size_class, function, refused);
    if (block != NULL) block = HAK_SECURE ? secure_open(block, size_class, size) : entry_take(block, size);
  }
  site_tag = tag;
  return block;
}

/* A request to a named heap. */
typedef struct named_request {
  heap_t *heap;
  size_t size, align;
  span_use_t use;
  unsigned size_class;
  const char *function;
} named_request_t;

/* NULL with *refused set: the heap is at its own limit, so that no memory freed elsewhere helps. */
static void *named_try(const named_request_t *r, bool *refused) {
  thread_enter();
  void *block = named_block(r->heap, r->size_class, r->size, r->align, r->use, r->function, refused);
  bool may_fit = r->size_class != CLASS_NONE || large_may_fit(large_request(r->size), r->align);
  bool again = block == NULL && !*refused && may_fit && trim_all();
  if (HAK_UNLIKELY(again)) block = named_block(r->heap, r->size_class, r->size, r->align, r->use, r->function, refused);
  if (HAK_UNLIKELY(thread_leave_with_upkeep())) notifier_report();
  return block;
}

HAK_NOINLINE void *alloc_from(heap_t *heap, size_t size, size_t align, span_use_t use, const char *function) {
  size_t room = memcheck_on() ? memcheck_room(size, align) : size;
  if (room > PTRDIFF_MAX) return out_of_memory();
  unsigned c = class_of_request_aligned(room, align);
  named_request_t request = {heap, room, align, use, c, function};
  bool refused;
  void *block = named_try(&request, &refused);
  bool fits = c != CLASS_NONE || (block == NULL && large_may_fit(large_request(room), align));
  for (unsigned reclaims = 0; block == NULL && !refused && fits && reclaims < RECLAIMS_MOST && notifier_reclaim(size); reclaims++) {
    block = named_try(&request, &refused);
  }
  if (block == NULL) return out_of_memory();
  alloc_counted(block);
  if (HAK_UNLIKELY(event_armed()) && armed_here()) watch_other(c != CLASS_NONE ? c : watch_group_of_large(size), size);
  if (memcheck_on()) memcheck_alloc(block, size, room, use == SPAN_ZEROED && c == CLASS_NONE);
  if (use == SPAN_ZEROED && c != CLASS_NONE && !HAK_SECURE) memset(block, 0, size);
  return block;
}

/* --- any request ------------------------------------------------------------------------- */

void *alloc_own(size_t size, size_t align, span_use_t use) {
  size_t room = memcheck_on() ? memcheck_room(size, align) : size;
  bool small = room < LARGE_REQUEST_MIN || (room <= SMALL_REQUEST_MAX && use == SPAN_PLAIN);
  void *block = small ? alloc_small(room) : alloc_large(room, align, use);
  alloc_counted(block);
  if (HAK_UNLIKELY(event_armed()) && block != NULL) alloc_count(size, small);
  if (memcheck_on() && block != NULL) memcheck_alloc(block, size, room, use == SPAN_ZEROED);
  return block;
}

void *alloc_any(size_t size, size_t align, span_use_t use) {
  heap_t *heap = thread_heap;
  if (HAK_UNLIKELY(heap != NULL && heap->default_heap != NULL)) return alloc_from(heap->default_heap, size, align, use, "malloc");
  return alloc_own(size, align, use);
}

HAK_NOINLINE void *alloc_miss(size_t size) { return alloc_any(size, 1, SPAN_PLAIN); }
HAK_NOINLINE void *alloc_miss_own(size_t size) { return alloc_own(size, 1, SPAN_PLAIN); }

/* Bypasses the bin. Where bins have rules of their own, or the thread has none to take from, this is alloc_any. */
HAK_COLD void *alloc_uncached(size_t size) {
  heap_t *heap = thread_heap;
  bool usual = HAK_SECURE || memcheck_on() || heap == NULL || heap->default_heap != NULL || load_relaxed(&heap->watched);
  if (usual || size == 0 || size > SMALL_REQUEST_MAX) return alloc_any(size, 1, SPAN_PLAIN);
  thread_enter();
  void *entry = heap_take_one(heap, class_of_request(size));
  void *block = entry != NULL ? entry_take(entry, size) : NULL;
  thread_leave_with_upkeep();
  if (block == NULL) return alloc_any(size, 1, SPAN_PLAIN);
  alloc_counted(block);
  return block;
}
