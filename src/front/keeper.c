#include "front/keeper.h"

#include "kit/options.h"
#include "os/os.h"
#include "slab/hole.h"
#include "space/purge.h"

/* Less idle memory than this waits for the program's next slow path, or for malloc_trim. */
#define KEEPER_BYTES ((uint64_t)4 << 20)
#define PERIOD_MIN_MS 10

static os_thread_t keeper;
static _Atomic uint32_t starts;
static _Atomic uint32_t working; /* 1 while it may hold locks or units: for a fork's child */

/* Nothing here may use errno or any other thread-local variable. */
static void keeper_run(void) {
  for (unsigned in_vain = 0; in_vain < 2;) {
    uint64_t step = purge_last_step();
    int64_t decay = option_get(OPTION_decay_ms);
    if (decay < 0) break;
    int64_t period = decay / 2 < PERIOD_MIN_MS ? PERIOD_MIN_MS : decay / 2;
    os_sleep_ms((uint64_t)period);
    atomic_set(&working, 1);
    bool purged = purge_step(step);
    uint32_t calming = 0;
    bool holes = hole_step(false, &calming) > 0;
    atomic_set(&working, 0);
    in_vain = purged || holes || calming > 0 ? 0 : in_vain + 1;
  }
}

static bool has_work(const heap_t *heap) {
  if (purge_idle_units() >= KEEPER_BYTES >> HAK_UNIT_SHIFT) return true;
  return heap != NULL && hole_unsettled(&heap->owner) > HOLE_WORTH;
}

void keeper_call(const heap_t *heap) {
  if (HAK_LIKELY(!has_work(heap)) || os_thread_exists(&keeper)) return;
  if (option_get(OPTION_keeper) == 0 || option_get(OPTION_decay_ms) < 0) return;
  if (os_thread_start(&keeper, keeper_run)) atomic_count(&starts, 1);
}

uint32_t keeper_starts(void) { return atomic_seen(&starts); }

bool keeper_after_fork(void) {
  os_thread_forget(&keeper);
  bool worked = atomic_seen(&working) != 0;
  if (worked) atomic_set(&working, 0);
  return worked;
}
