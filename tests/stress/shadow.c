/* shadow.c - random operations on every entry point, checked against a model of what must hold.
 *
 * Checked: no two live blocks overlap (exactly, in a set of ranges); the whole
 * usable size can be written and keeps its content until free or realloc, which
 * must keep the lesser of both usable sizes; alignment; zeroed blocks are zero,
 * also in dirty memory that is used again; the usable size does not change; errno is
 * unchanged by success, and ENOMEM for impossible sizes; no block is lost.
 * blocks.h describes how much of a large block is checked.
 *
 * Sizes are log-uniform: one in --wide over 0..64 MiB, 32 times as many over 0..1 MiB, a quarter over 0..32 KiB, the others
 * over 0..1 KiB. Above 1 MiB, calloc and calls that move a block are 8 times rarer, since each takes
 * milliseconds. When --live bytes are live, sizes fall back to 0..1 KiB.
 *
 * An operation is one call that allocates, frees, resizes or trims; moving a block within the model is not one.
 *
 * Arguments: --ops=20M in all, --threads=0 (2, 8 and 64 one after the other; or one number),
 * --live=1G, --wide=1K, --slots=4096 for each thread, --seed.
 *
 * Threads give blocks to each other through a table of exchange slots, and end
 * four times in a run; the next thread takes over their blocks.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "harness.h"
#include "entries.h"

enum { TIERS = 4, EXCHANGES = 1024, THREADS_MAX = 256, GENERATIONS = 4, BATCH_MAX = 32, HANG_SECONDS = 300, ERRNO_MARK = 4242 };

typedef struct worker {
  unsigned number;
  rng_t rng;
  uint64_t ops, done; /* operations of one generation: wanted, and done so far */
  uint64_t tiers[TIERS]; /* blocks so far, by size */
  block_t **blocks; /* one record for each slot; exchanges swap records */
} worker_t;

static entries_t entries;
static _Atomic(block_t *) exchanges[EXCHANGES];
static atomic_size_t live;
static size_t live_limit;
static uint32_t wide_share;
static size_t slot_count;
static bool alone;

/* The upper limits of the tiers' sizes, as powers of two. */
static const unsigned tier_bits[TIERS] = {10, 15, 20, 26};

/* ---- Choosing ---- */

static const api_t *api_pick(worker_t *worker) { return &entries.apis[rng_below(&worker->rng, entries.count)]; }

static unsigned tier_pick(worker_t *worker) {
  if (rng_one_in(&worker->rng, wide_share)) return 3;
  if (rng_one_in(&worker->rng, wide_share / 32)) return 2;
  return rng_one_in(&worker->rng, 4) ? 1 : 0;
}

static size_t size_pick(worker_t *worker) {
  size_t size = rng_size(&worker->rng, tier_bits[tier_pick(worker)]);
  if (atomic_load_explicit(&live, memory_order_relaxed) + size > live_limit) size = rng_size(&worker->rng, tier_bits[0]);
  return size;
}

static size_t alignment_pick(worker_t *worker) { return (size_t)16 << rng_below(&worker->rng, rng_one_in(&worker->rng, 32) ? 19 : 9); }

/* A random number that no other block of the run has. */
static uint64_t id_pick(worker_t *worker) { return rng_next(&worker->rng); }

static bool is_dear(worker_t *worker, size_t size) { return size > MIB && !rng_one_in(&worker->rng, 8); }

/* ---- Entering and leaving the model ---- */

/* hakmem promises it; another malloc may leave the errno of a failed attempt that it made up for. */
static void errno_check(const char *call) {
  if (errno != ERRNO_MARK && entries.on_hakmem) stress_fail("%s succeeded and set errno to %d", call, errno);
  errno = ERRNO_MARK;
}

static void tier_count(worker_t *worker, size_t size) {
  unsigned tier = 0;
  while (tier < TIERS - 1 && size >> tier_bits[tier] != 0) tier++;
  worker->tiers[tier]++;
}

static void slot_fill(worker_t *worker, block_t *block, void *start, size_t size, size_t alignment, const char *call) {
  if (start == NULL)
    stress_fail("%s of %zu bytes, alignment %zu, failed with errno %d and %zu bytes live", call, size, alignment, errno,
                (size_t)atomic_load(&live));
  errno_check(call);
  block_enter(block, start, size, alignment, id_pick(worker));
  tier_count(worker, size);
  atomic_fetch_add_explicit(&live, block->usable, memory_order_relaxed);
}

/* Checks the block and takes it out of the model; the caller frees block->start. */
static void slot_empty(block_t *block) {
  block_leave(block);
  atomic_fetch_sub_explicit(&live, block->usable, memory_order_relaxed);
}

/* ---- Allocation ---- */

static void allocate_zeroed(worker_t *worker, block_t *block, const api_t *api, size_t size) {
  size_t element = size % 8 == 0 && rng_one_in(&worker->rng, 2) ? 8 : 1;
  unsigned char *start = rng_one_in(&worker->rng, 2) ? api->calloc(size / element, element) : api->calloc(element, size / element);
  if (start != NULL) bytes_check_zero(start, 0, size, "calloc");
  slot_fill(worker, block, start, size, 16, "calloc");
}

static void allocate_aligned(worker_t *worker, block_t *block, const api_t *api, size_t size) {
  size_t alignment = alignment_pick(worker);
  void *start = NULL;
  switch (rng_below(&worker->rng, 5)) {
    case 0: slot_fill(worker, block, api->aligned_alloc(alignment, size), size, alignment, "aligned_alloc"); return;
    case 1: slot_fill(worker, block, api->memalign(alignment, size), size, alignment, "memalign"); return;
    case 2: {
      size_t page = pages_round(1);
      bool whole = rng_one_in(&worker->rng, 4) && api->pvalloc != NULL;
      start = whole ? api->pvalloc(size) : api->valloc(size);
      slot_fill(worker, block, start, whole ? pages_round(size) : size, page, whole ? "pvalloc" : "valloc");
      block->resized = whole; /* free_sized would need to know that pvalloc rounds */
      return;
    }
    default: {
      int error = api->posix_memalign(&start, alignment, size);
      if (error != 0) stress_fail("posix_memalign(%zu, %zu) failed with %d", alignment, size, error);
      slot_fill(worker, block, start, size, alignment, "posix_memalign");
      return;
    }
  }
}

static void allocate_more(worker_t *worker, block_t *block, const api_t *api, size_t size) {
  switch (rng_below(&worker->rng, entries.alloc_at_least != NULL ? 4 : 2)) {
    case 0: slot_fill(worker, block, api->realloc(NULL, size), size, 16, "realloc(NULL)"); return;
    case 1: slot_fill(worker, block, api->reallocarray(NULL, 1, size), size, 16, "reallocarray(NULL)"); return;
    default: {
      hak_sized_t sized = entries.alloc_at_least(size);
      slot_fill(worker, block, sized.ptr, size, 16, "hak_alloc_at_least");
      if (sized.size != block->usable)
        stress_fail("hak_alloc_at_least(%zu) says %zu bytes, malloc_usable_size %zu", size, sized.size, block->usable);
      return;
    }
  }
}

static void op_allocate(worker_t *worker, block_t *block) {
  const api_t *api = api_pick(worker);
  size_t size = size_pick(worker);
  uint32_t kind = rng_below(&worker->rng, 16);
  errno = ERRNO_MARK;
  if (kind < 3 && !is_dear(worker, size)) allocate_zeroed(worker, block, api, size);
  else if (kind < 6) allocate_aligned(worker, block, api, size);
  else if (kind < 8) allocate_more(worker, block, api, size);
  else slot_fill(worker, block, api->malloc(size), size, 16, "malloc");
  if (kind >= 8 && entries.good_size != NULL && entries.good_size(size) > block->usable)
    stress_fail("hak_malloc_good_size(%zu) says %zu bytes, malloc_usable_size %zu", size, entries.good_size(size), block->usable);
}

/* ---- Free ---- */

static int log2_of(size_t alignment) { return __builtin_ctzl(alignment); }

static void op_free(worker_t *worker, block_t *block) {
  const api_t *api = api_pick(worker);
  void *start = block->start;
  slot_empty(block);
  errno = ERRNO_MARK;
  bool sized = !block->resized && api->free_sized != NULL && rng_one_in(&worker->rng, 2);
  if (sized && block->alignment > 16)
    if (api->sdallocx != NULL && rng_one_in(&worker->rng, 2)) api->sdallocx(start, block->size, log2_of(block->alignment));
    else api->free_aligned_sized(start, block->alignment, block->size);
  else if (sized)
    if (api->sdallocx != NULL && rng_one_in(&worker->rng, 2)) api->sdallocx(start, block->size, 0);
    else api->free_sized(start, block->size);
  else if (api->cfree != NULL && rng_one_in(&worker->rng, 8)) api->cfree(start);
  else if (rng_one_in(&worker->rng, 16)) {
    if (api->realloc(start, 0) != NULL) stress_fail("realloc(p, 0) gave a block");
  } else api->free(start);
  errno_check("a free");
  block->start = NULL;
}

/* ---- Realloc and expand ---- */

static void *realloc_call(worker_t *worker, const api_t *api, block_t *block, size_t size) {
  switch (rng_below(&worker->rng, 8)) {
    case 0: return api->reallocarray(block->start, 1, size);
    case 1: return size % 8 == 0 ? api->reallocarray(block->start, size / 8, 8) : api->reallocarray(block->start, size, 1);
    case 2: return api->reallocf != NULL ? api->reallocf(block->start, size) : api->realloc(block->start, size);
    default: return api->realloc(block->start, size);
  }
}

/* recallocarray also promises zeros beyond the old size. */
static void *recalloc_call(const api_t *api, const block_t *block, size_t size) {
  unsigned char *start = api->recallocarray(block->start, block->size, size, 1);
  if (start != NULL && size > block->size) bytes_check_zero(start, block->size, size, "recallocarray");
  return start;
}

static void op_realloc(worker_t *worker, block_t *block) {
  const api_t *api = api_pick(worker);
  size_t size = size_pick(worker);
  if (size == 0 || is_dear(worker, size > block->size ? size : block->size)) size = block->size + rng_below(&worker->rng, 64) + 1;
  block_t old = *block;
  slot_empty(block);
  errno = ERRNO_MARK;
  bool zeroing = api->recallocarray != NULL && !old.resized && rng_one_in(&worker->rng, 8);
  unsigned char *start = zeroing ? recalloc_call(api, block, size) : realloc_call(worker, api, block, size);
  size_t kept = zeroing ? old.size : old.usable; /* recallocarray may clear bytes beyond the requested size */
  if (start != NULL) block_check(&old, start, size < kept ? size : kept, zeroing ? "after recallocarray" : "after realloc");
  slot_fill(worker, block, start, size, 16, "realloc");
}

static void op_expand(worker_t *worker, block_t *block) {
  size_t size = rng_one_in(&worker->rng, 2) ? block->size / 2 + 1 : block->usable + rng_size(&worker->rng, 16) + 1;
  block_t old = *block;
  slot_empty(block);
  errno = ERRNO_MARK;
  if (!entries.expand(old.start, size)) {
    errno_check("hak_expand");
    block_return(&old);
    block_check(&old, old.start, old.usable, "after a refused hak_expand");
    atomic_fetch_add_explicit(&live, old.usable, memory_order_relaxed);
    return;
  }
  block_check(&old, old.start, size < old.usable ? size : old.usable, "after hak_expand");
  slot_fill(worker, block, old.start, size, old.alignment, "hak_expand");
  block->resized = true;
}

/* ---- Several blocks, other threads, and calls that must fail ---- */

static void op_batch(worker_t *worker) {
  void *starts[BATCH_MAX];
  size_t count = 1 + rng_below(&worker->rng, BATCH_MAX);
  size_t size = rng_size(&worker->rng, rng_one_in(&worker->rng, 64) ? 17 : 12);
  errno = ERRNO_MARK;
  if (entries.malloc_batch(size, count, starts) != count)
    stress_fail("hak_malloc_batch of %zu x %zu bytes fell short, errno %d", count, size, errno);
  size_t slot = rng_below(&worker->rng, (uint32_t)slot_count);
  for (size_t i = 0; i < count; i++, slot = (slot + 1) % slot_count) {
    block_t fresh;
    slot_fill(worker, &fresh, starts[i], size, 16, "hak_malloc_batch");
    block_t *block = worker->blocks[slot];
    block_t before = *block;
    *block = fresh;
    if (before.start != NULL) slot_empty(&before);
    starts[i] = before.start;
  }
  entries.free_batch(starts, count);
  errno_check("hak_free_batch");
}

static void op_exchange(worker_t *worker, size_t slot) {
  _Atomic(block_t *) *exchange = &exchanges[rng_below(&worker->rng, EXCHANGES)];
  worker->blocks[slot] = atomic_exchange(exchange, worker->blocks[slot]);
}

static void must_fail(const void *start, const char *call) {
  if (start != NULL || errno != ENOMEM) stress_fail("%s of an impossible size gave %p with errno %d", call, start, errno);
  errno = ERRNO_MARK;
}

/* Returns how many calls it made. */
static unsigned op_impossible(worker_t *worker, const block_t *block) {
  const api_t *api = api_pick(worker);
  volatile size_t huge = SIZE_MAX - rng_below(&worker->rng, 8192);
  errno = ERRNO_MARK;
  api->free(NULL);
  if (malloc_usable_size(NULL) != 0) stress_fail("malloc_usable_size(NULL) is not 0");
  errno_check("free(NULL)");
  must_fail(api->malloc(huge), "malloc");
  must_fail(api->calloc(huge / 2, 3), "calloc");
  must_fail(api->memalign(64, huge), "memalign");
  if (block->start == NULL) return 4;
  must_fail(api->realloc(block->start, huge), "realloc");
  must_fail(api->reallocarray(block->start, huge / 4, 5), "reallocarray");
  block_check(block, block->start, block->usable, "after a failed realloc");
  return 6;
}

static void op_give_back(worker_t *worker) {
  if (entries.collect != NULL && rng_one_in(&worker->rng, 2)) (void)entries.collect(rng_one_in(&worker->rng, 2));
  else (void)stress_trim();
}

static unsigned op_rare(worker_t *worker, uint32_t kind, const block_t *block) {
  if (kind == 0 && rng_one_in(&worker->rng, 64)) return op_impossible(worker, block);
  if (kind == 1 && rng_one_in(&worker->rng, 4096)) {
    op_give_back(worker);
    return 1;
  }
  if (kind == 2 && entries.malloc_batch != NULL && rng_one_in(&worker->rng, 8)) {
    op_batch(worker);
    return 2;
  }
  return 0;
}

static void op_on_block(worker_t *worker, uint32_t kind, block_t *block) {
  if (block->start == NULL) op_allocate(worker, block);
  else if (kind < 16) op_realloc(worker, block);
  else if (kind < 18 && entries.expand != NULL) op_expand(worker, block);
  else op_free(worker, block);
}

/* Returns how many operations it was: a batch is two calls, an exchange is none. */
static unsigned op_one(worker_t *worker) {
  size_t slot = rng_below(&worker->rng, (uint32_t)slot_count);
  block_t *block = worker->blocks[slot];
  uint32_t kind = rng_below(&worker->rng, 32);
  unsigned rare = kind < 3 ? op_rare(worker, kind, block) : 0;
  if (rare != 0) return rare;
  if (kind < 8 && !alone) {
    op_exchange(worker, slot);
    return 0;
  }
  op_on_block(worker, kind, block);
  return 1;
}

/* ---- Threads ---- */

static void *worker_run(void *argument) {
  worker_t *worker = argument;
  for (uint64_t begin = worker->done; worker->done - begin < worker->ops;) worker->done += op_one(worker);
  return NULL;
}

static void worker_prepare(worker_t *worker, unsigned number, uint64_t ops) {
  block_t *records = pages_take(slot_count * sizeof *records);
  worker->number = number;
  worker->ops = ops;
  worker->done = 0;
  memset(worker->tiers, 0, sizeof worker->tiers);
  worker->blocks = pages_take(slot_count * sizeof *worker->blocks);
  for (size_t i = 0; i < slot_count; i++) worker->blocks[i] = &records[i];
}

static void record_free(block_t *block) {
  if (block->start == NULL) return;
  slot_empty(block);
  free(block->start);
  block->start = NULL;
}

/* The main thread frees what all other threads allocated. */
static void blocks_free_all(worker_t *workers, unsigned threads) {
  for (unsigned i = 0; i < threads; i++)
    for (size_t slot = 0; slot < slot_count; slot++) record_free(workers[i].blocks[slot]);
  for (size_t i = 0; i < EXCHANGES; i++) record_free(atomic_load(&exchanges[i]));
  if (atomic_load(&live) != 0) stress_fail("the model itself lost %zu bytes", (size_t)atomic_load(&live));
}

static void phase_say(const worker_t *workers, unsigned threads, double seconds) {
  unsigned long long done = 0, tiers[TIERS] = {0};
  for (unsigned i = 0; i < threads; i++) {
    done += workers[i].done;
    for (unsigned tier = 0; tier < TIERS; tier++) tiers[tier] += workers[i].tiers[tier];
  }
  stress_say("%u threads: %llu operations in %.1f s, resident %zu MiB; blocks below 1 KiB %llu, 32 KiB %llu, 1 MiB %llu, 64 MiB %llu",
             threads, done, seconds, process_resident() / MIB, tiers[0], tiers[1], tiers[2], tiers[3]);
}

static void phase_run(unsigned threads, uint64_t ops) {
  static worker_t workers[THREADS_MAX];
  static block_t spares[EXCHANGES];
  uint64_t begin = clock_ns();
  alone = threads == 1;
  for (size_t i = 0; i < EXCHANGES; i++) atomic_store(&exchanges[i], &spares[i]);
  for (unsigned i = 0; i < threads; i++) worker_prepare(&workers[i], i, ops / threads / GENERATIONS + 1);
  for (unsigned generation = 0; generation < GENERATIONS; generation++) {
    pthread_t handles[THREADS_MAX];
    stress_watch((unsigned)(HANG_SECONDS + ops / 10000), "shadow");
    for (unsigned i = 0; i < threads; i++) {
      workers[i].rng = rng_make(((uint64_t)threads << 32) | (generation << 16) | i);
      if (pthread_create(&handles[i], NULL, worker_run, &workers[i]) != 0) stress_fail("no thread");
    }
    for (unsigned i = 0; i < threads; i++) pthread_join(handles[i], NULL);
  }
  blocks_free_all(workers, threads);
  phase_say(workers, threads, (double)(clock_ns() - begin) / 1e9);
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  uint64_t ops = stress_count("ops", 20000000);
  unsigned threads = (unsigned)stress_option("threads", 0);
  live_limit = stress_option("live", 1024 * MIB);
  slot_count = stress_option("slots", 4096);
  wide_share = (uint32_t)stress_option("wide", KIB);
  if (threads > THREADS_MAX) stress_fail("at most %d threads", THREADS_MAX);
  entries_find(&entries);
  if (threads != 0) {
    phase_run(threads, ops);
    return stress_finish();
  }
  static const unsigned crowds[] = {2, 8, 64};
  for (unsigned i = 0; i < sizeof crowds / sizeof crowds[0]; i++) phase_run(crowds[i], ops / (sizeof crowds / sizeof crowds[0]));
  return stress_finish();
}
