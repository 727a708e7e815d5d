#include "slab/sample.h"

#include "kit/random.h"
#include "kit/site.h"
#include "os/os.h"

#define SAMPLE_FIRES 32
#define FIRED_BITS 8
#define TENTHS 10

uint64_t sample_rate;

/* The blocks that begin in a unit may be as many bytes, and one and a half units for one block of the largest size. */
#define RATE_LEAST (2 * (uint64_t)HAK_UNIT)
void sample_start(uint64_t bytes) { sample_rate = !HAK_SAMPLED || bytes == 0 ? 0 : bytes < RATE_LEAST ? RATE_LEAST : bytes; }

uint32_t sample_clock(void) { return (uint32_t)(os_now_ms() / 100); }

static void state_set(sample_t *sample, sample_state_t state) {
  uint32_t changes = (load_relaxed(&sample->state) >> SAMPLE_STATE_BITS) + 1;
  store_release(&sample->state, changes << SAMPLE_STATE_BITS | (uint32_t)state);
}

/* bytes / sample_rate, in 1/2^32; 0: certain. */
static uint32_t chance_of(uint64_t bytes) { return bytes >= sample_rate ? 0 : (uint32_t)((bytes << 32) / sample_rate); }

/* --- slabs -------------------------------------------------------------------------------- */

/* Of the blocks that begin in the unit, from `first` on, one or none.  All have the same chance. */
static bool unit_choose(sampler_t *sampler, uint32_t unit, size_t start, uint32_t size, uint32_t blocks) {
  sample_t *sample = sample_of(unit);
  uint64_t all = (uint64_t)blocks * chance_of(size);
  if ((random_next(&sampler->random) >> 32) >= all) {
    if (sample_state(sample) != SAMPLE_NONE) state_set(sample, SAMPLE_NONE); /* else its page is left alone */
    return false;
  }
  store_relaxed(&sample->place, (uint32_t)((start + (size_t)random_below(&sampler->random, blocks) * size) / HAK_GRANULE));
  store_relaxed(&sample->chance, chance_of(size));
  store_relaxed(&sample->site, 0);
  store_relaxed(&sample->fired, 0);
  state_set(sample, SAMPLE_FREE);
  return true;
}

void sample_choose(sampler_t *sampler, unit_t *slab) {
  slab->sampled = false;
  if (!HAK_SAMPLED || sample_rate == 0 || load_relaxed(&slab->size_class) == CLASS_ZERO) return;
  const class_info_t *info = &class_info[load_relaxed(&slab->size_class)];
  uint32_t block = 0;
  for (uint32_t i = 0; i < info->units; i++) {
    uint32_t end = (uint32_t)(((size_t)(i + 1) * HAK_UNIT + info->size - 1) / info->size); /* that begin before the unit's end */
    if (end > info->blocks) end = info->blocks;
    size_t start = (size_t)block * info->size - (size_t)i * HAK_UNIT;
    if (end > block && unit_choose(sampler, unit_number(slab) + i, start, info->size, end - block)) slab->sampled = true;
    block = end;
  }
}

void sample_forget(unit_t *slab) {
  if (!HAK_SAMPLED || !slab->sampled) return;
  uint32_t unit = unit_number(slab);
  for (uint32_t i = 0; i < load_relaxed(&slab->units); i++) {
    if (sample_state(sample_of(unit + i)) != SAMPLE_NONE) state_set(sample_of(unit + i), SAMPLE_NONE);
  }
}

/* A block that was quiet is looked at again from now on. */
void *sample_wake(sampler_t *sampler, void *block) {
  sample_t *sample = sample_find(block);
  if (sample == NULL) return block;
  if (sample_state(sample) == SAMPLE_QUIET) {
    state_set(sample, SAMPLE_FREE);
    add_relaxed(&sampler->quiet, (uint32_t)-1);
  }
  return entry_sampled(block);
}

void sample_enter(sampler_t *sampler, const unit_t *slab, void **blocks, uint32_t count) {
  if (!HAK_SAMPLED || !slab->sampled || count == 0) return;
  uint32_t unit = unit_number(slab), last = (uint32_t)region_unit(owner_load(&blocks[count - 1]));
  for (uint32_t u = (uint32_t)region_unit(owner_load(&blocks[0])); u <= last && u < unit + load_relaxed(&slab->units); u++) {
    const sample_t *sample = sample_of(u);
    if (sample_state(sample) == SAMPLE_NONE) continue;
    void *block = (char *)region_address(u) + (size_t)load_relaxed(&sample->place) * HAK_GRANULE;
    for (uint32_t i = 0; i < count; i++) {
      if (owner_load(&blocks[i]) == block) owner_store(&blocks[i], sample_wake(sampler, block));
    }
  }
}

/* --- blocks ------------------------------------------------------------------------------- */

/* The stores release what the state was before: who reads one of them finds the state changed. */
static void sample_fill(sample_t *sample, size_t asked, uint32_t now) {
  store_release(&sample->asked, asked > UINT32_MAX ? UINT32_MAX : (uint32_t)asked);
  store_release(&sample->born, now);
  store_release(&sample->tag, site_tag);
  store_release(&sample->site, site_here());
  state_set(sample, SAMPLE_LIVE);
}

/* Once more in this second; false if that is too often. */
static bool may_fire(sample_t *sample, uint32_t now) {
  uint32_t second = now / TENTHS << FIRED_BITS, fired = load_relaxed(&sample->fired);
  if (fired >> FIRED_BITS << FIRED_BITS != second) fired = second;
  store_relaxed(&sample->fired, fired + 1);
  return fired - second < SAMPLE_FIRES;
}

bool sample_open(sampler_t *sampler, void *block, size_t asked) {
  sample_t *sample = sample_find(block);
  uint32_t now = sample_clock();
  if (sample == NULL) return false;
  if (!may_fire(sample, now)) {
    state_set(sample, SAMPLE_QUIET);
    add_relaxed(&sampler->quiet, 1);
    return false;
  }
  sample_fill(sample, asked, now);
  return true;
}

bool sample_close(const void *block) {
  sample_t *sample = sample_find(block);
  if (sample == NULL) return false;
  uint32_t live = load_relaxed(&sample->state);
  if ((live & (((uint32_t)1 << SAMPLE_STATE_BITS) - 1)) != SAMPLE_LIVE) return false;
  uint32_t free = ((live >> SAMPLE_STATE_BITS) + 1) << SAMPLE_STATE_BITS | SAMPLE_FREE;
  return atomic_compare_exchange_strong_explicit(&sample->state, &live, free, memory_order_acq_rel, memory_order_relaxed);
}

void sample_resize(const void *block, size_t asked) {
  sample_t *sample = sample_find(block);
  if (sample != NULL) store_relaxed(&sample->asked, (uint32_t)asked);
}

/* --- large blocks ------------------------------------------------------------------------- */

/* One that grows in place, and is known already for certain, stays what it is. */
void sample_resize_large(uint32_t unit, size_t bytes) {
  if (!HAK_SAMPLED || sample_rate == 0) return;
  const sample_t *sample = sample_of(unit);
  if (sample_state(sample) != SAMPLE_LIVE || load_relaxed(&sample->chance) != 0 || chance_of(bytes) != 0) sample_open_large(unit, bytes);
}

void sample_open_large(uint32_t unit, size_t bytes) {
  static _Atomic uint64_t turn;
  if (!HAK_SAMPLED || sample_rate == 0) return;
  uint32_t chance = chance_of(bytes);
  uint64_t random = random_mix(atomic_fetch_add_explicit(&turn, UINT64_C(0x9e3779b97f4a7c15), memory_order_relaxed) ^ region.base);
  if (chance != 0 && random >> 32 >= chance) return sample_close_large(unit);
  sample_close_large(unit);
  sample_t *sample = sample_of(unit);
  store_release(&sample->place, 0);
  store_release(&sample->chance, chance);
  sample_fill(sample, bytes, sample_clock());
}

void sample_close_large(uint32_t unit) {
  if (HAK_SAMPLED && sample_rate != 0 && sample_state(sample_of(unit)) != SAMPLE_NONE) state_set(sample_of(unit), SAMPLE_NONE);
}
