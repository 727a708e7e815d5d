#include "slab/sample.h"

#include "base/thread.h"
#include "base/usdt.h"
#include "kit/random.h"
#include "kit/site.h"
#include "os/os.h"
#include "space/ledger.h"

#define SAMPLE_FIRES 32
/* Records that an owner may open in a tenth of a second.  One takes about a microsecond in all: half a percent of its thread's time. */
#define OPENED_MOST 512
#define THINNED_MOST 8
/* Records that an owner opens in a second before blocks that come and go often become quiet. */
#define SAMPLE_BUDGET 4096
#define FIRED_BITS 8
#define FIRED_MOST (((uint32_t)1 << FIRED_BITS) - 1)
_Static_assert(SAMPLE_FIRES <= TRACK_FIRED_MOST && SAMPLE_FIRES <= FIRED_MOST, "records can count that far");
#define TENTHS 10

/* Blocks have sites once so many units are in use. */
#define SITES_FROM 32

uint64_t sample_rate;
static uint64_t rate_inverse; /* 2^48 / sample_rate */
static _Atomic bool sites_wanted;

/* The blocks that begin in a unit may have nearly so many bytes in all, and their chances may not sum to more than 1. */
#define RATE_LEAST (2 * (uint64_t)HAK_UNIT)
void sample_start(uint64_t bytes, bool sites_at_once) {
  sample_rate = !HAK_SAMPLED || bytes == 0 ? 0 : bytes < RATE_LEAST ? RATE_LEAST : bytes;
  if (sample_rate != 0) rate_inverse = ((uint64_t)1 << 48) / sample_rate;
  store_relaxed(&sites_wanted, sites_at_once);
}

static uint32_t site_wanted(void) {
  if (!load_relaxed(&sites_wanted)) {
    if (ledger_used_units() < SITES_FROM) return SITE_NONE;
    store_relaxed(&sites_wanted, true);
  }
  return site_here();
}

uint32_t sample_clock(void) { return (uint32_t)(os_now_ms() / 100); }

static void state_set(sample_t *sample, sample_state_t state) {
  uint32_t changes = (load_relaxed(&sample->state) >> SAMPLE_STATE_BITS) + 1;
  store_release(&sample->state, changes << SAMPLE_STATE_BITS | (uint32_t)state);
}

/* bytes / sample_rate, in 1/2^32; 0: certain. */
static uint32_t chance_of(uint64_t bytes) { return bytes >= sample_rate ? 0 : (uint32_t)(bytes * rate_inverse >> 16); }

/* Not the owner's random numbers, since its lock may not be held here.  No word that other threads write is written, except once in each
 * thread: a new one mostly has the number of the last one that has ended. */
static uint32_t random_anywhere(void) {
  static _Atomic uint64_t threads;
  static __thread uint64_t state __attribute__((tls_model("initial-exec")));
  if (HAK_UNLIKELY(state == 0)) state = random_mix(atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1);
  state += RANDOM_STEP;
  return (uint32_t)(random_mix(state ^ thread_self() ^ region.base) >> 32);
}

/* For whoever has the block. */
static void track_set(track_t *track, track_state_t state) { store_release(track, track_with(load_relaxed(track), state)); }

/* --- what tracers are told ----------------------------------------------------------------- */

/* How many tracers listen. */
_Atomic uint16_t hak_alloc_listeners USDT_SEMAPHORE;
_Atomic uint16_t hak_free_listeners USDT_SEMAPHORE;

static bool is_listened(void) { return load_relaxed(&hak_alloc_listeners) != 0; }

/* Fires the probe for a record, now live, of a block of so many bytes.  The tracer finds the caller by the stack.  This is a function of
 * its own, so that the probe is in one place. */
static HAK_NOINLINE void tell_alloc(const void *block, uint64_t bytes, uint32_t chance) {
  uint64_t address = (uintptr_t)block, stands_for = chance == 0 ? bytes : (bytes << 32) / chance;
  USDT_PROBE3(otel_memory, alloc, hak_alloc_listeners, address, bytes, stands_for);
}

/* Fires the probe for a record that is no longer live; nobody has the block again yet. */
static HAK_NOINLINE void tell_free(const void *block) {
  uint64_t address = (uintptr_t)block;
  USDT_PROBE1(otel_memory, free, hak_free_listeners, address);
}

/* --- slabs -------------------------------------------------------------------------------- */

/* Chooses one or none of the blocks that begin in the unit, the first of them at `start`.  All have the same chance. */
static bool unit_choose(sampler_t *sampler, uint32_t unit, size_t start, uint32_t size, uint32_t blocks) {
  sample_t *sample = sample_of(unit);
  uint32_t chance = chance_of(size) >> load_relaxed(&sampler->thinned);
  uint64_t all = (uint64_t)blocks * chance;
  if ((random_next(&sampler->random) >> 32) >= all) {
    if (sample_state(sample) != SAMPLE_NONE) state_set(sample, SAMPLE_NONE); /* otherwise its page is left untouched */
    return false;
  }
  store_relaxed(&sample->place, (uint32_t)((start + (size_t)random_below(&sampler->random, blocks) * size) / HAK_GRANULE));
  store_relaxed(&sample->chance, chance);
  store_relaxed(&sample->site, 0);
  store_relaxed(&sample->fired, 0);
  state_set(sample, SAMPLE_FREE);
  return true;
}

void sample_choose(sampler_t *sampler, unit_t *slab) {
  slab->sampled = false;
  if (!HAK_SAMPLED || sample_rate == 0 || load_relaxed(&slab->size_class) == CLASS_ZERO) return;
  track_choose(&sampler->tracks, &sampler->random, slab);
  const class_info_t *info = &class_info[load_relaxed(&slab->size_class)];
  uint32_t block = 0;
  for (uint32_t i = 0; i < info->units; i++) {
    uint32_t end = class_block_at(load_relaxed(&slab->size_class), (size_t)(i + 1) * HAK_UNIT - 1) + 1; /* the block behind those that begin
                                                                                                           before the unit ends */
    if (end > info->blocks) end = info->blocks;
    size_t start = (size_t)block * info->size - (size_t)i * HAK_UNIT;
    if (end > block && unit_choose(sampler, unit_number(slab) + i, start, info->size, end - block)) slab->sampled = true;
    block = end;
  }
}

void sample_forget(sampler_t *sampler, unit_t *slab) {
  if (!HAK_SAMPLED || sample_rate == 0) return;
  uint32_t unit = unit_number(slab), quiet = track_forget(&sampler->tracks, slab);
  for (uint32_t i = 0; slab->sampled && i < load_relaxed(&slab->units); i++) {
    sample_t *sample = sample_of(unit + i);
    quiet += sample_state(sample) == SAMPLE_QUIET;
    if (sample_state(sample) != SAMPLE_NONE) state_set(sample, SAMPLE_NONE);
  }
  if (quiet != 0) add_relaxed(&sampler->quiet, -quiet);
}

/* Ends the quiet time of a block; false in the second that made it quiet. */
static bool quiet_ends(const void *block) {
  sample_t *sample = sample_find(block);
  track_t *track = sample == NULL ? track_find(block) : NULL;
  uint32_t quiet = sample != NULL ? load_relaxed(&sample->fired) >> FIRED_BITS : track_born(load_relaxed(track)) / TENTHS;
  if ((quiet ^ sample_clock() / TENTHS) << FIRED_BITS == 0) return false; /* a record has no more bits of it */
  if (sample != NULL) state_set(sample, SAMPLE_FREE);
  else track_set(track, TRACK_FREE);
  return true;
}

void *sample_wake(sampler_t *sampler, void *block) {
  sample_state_t state = sample_block_state(block);
  if (state == SAMPLE_NONE || (state == SAMPLE_QUIET && !quiet_ends(block))) return block;
  if (state == SAMPLE_QUIET) add_relaxed(&sampler->quiet, (uint32_t)-1);
  return entry_sampled(block);
}

/* The index of the block among entries in descending order; `count` if it is not there. */
static uint32_t entry_of(void **entries, uint32_t count, const void *block) {
  uint32_t from = 0, until = count;
  while (from < until) {
    uint32_t middle = (from + until) / 2;
    if ((uintptr_t)entry_block(owner_load(&entries[middle])) > (uintptr_t)block) from = middle + 1;
    else until = middle;
  }
  return from < count && entry_block(owner_load(&entries[from])) == block ? from : count;
}

void sample_enter(sampler_t *sampler, const unit_t *slab, void **blocks, uint32_t count) {
  if (!HAK_SAMPLED || count == 0) return;
  if (load_relaxed(&slab->tracked) != 0) {
    for (uint32_t i = 0; i < count; i++) owner_store(&blocks[i], sample_wake(sampler, owner_load(&blocks[i])));
    return;
  }
  if (!slab->sampled) return;
  uint32_t unit = unit_number(slab), last = (uint32_t)region_unit(owner_load(&blocks[0]));
  for (uint32_t u = (uint32_t)region_unit(owner_load(&blocks[count - 1])); u <= last && u < unit + load_relaxed(&slab->units); u++) {
    const sample_t *sample = sample_of(u);
    if (sample_state(sample) == SAMPLE_NONE) continue;
    void *block = (char *)region_address(u) + (size_t)load_relaxed(&sample->place) * HAK_GRANULE;
    uint32_t i = entry_of(blocks, count, block);
    if (i < count) owner_store(&blocks[i], sample_wake(sampler, block));
  }
}

/* --- blocks ------------------------------------------------------------------------------- */

static uint32_t sample_asked(size_t bytes) { return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes; }

/* Each store releases the earlier changes of the state: a reader that sees one of the new values finds that the state has changed. */
static void sample_fill(sample_t *sample, size_t asked, uint32_t now, sample_state_t state) {
  store_release(&sample->asked, sample_asked(asked));
  store_release(&sample->born, now);
  store_release(&sample->tag, site_tag);
  if (state == SAMPLE_LIVE) store_release(&sample->site, site_wanted());
  state_set(sample, state);
}

/* How often the record was opened in this second before; 0 while a tracer listens, which is to be told of every time. */
static uint32_t count_fired(sample_t *sample, uint32_t now) {
  if (HAK_UNLIKELY(is_listened())) return 0;
  uint32_t second = now / TENTHS << FIRED_BITS, fired = load_relaxed(&sample->fired);
  if (fired >> FIRED_BITS << FIRED_BITS != second) fired = second;
  if (fired - second < FIRED_MOST) store_relaxed(&sample->fired, fired + 1);
  return fired - second;
}

/* Counts one more opening in this second, in which the block had `fired` before; false if that is too often. */
static bool may_fire(sampler_t *sampler, uint32_t fired, uint32_t second) {
  uint64_t all = load_relaxed(&sampler->fired);
  if (all >> 32 != second) all = (uint64_t)second << 32;
  store_relaxed(&sampler->fired, all + 1);
  if (fired < SAMPLE_FIRES || (uint32_t)all < SAMPLE_BUDGET) return true;
  add_relaxed(&sampler->quiet, 1);
  return false;
}

static bool track_open(sampler_t *sampler, track_t *track, uint32_t now) {
  uint64_t before = load_relaxed(track);
  uint32_t fired = track_born(before) / TENTHS == now / TENTHS ? track_fired(before) : 0;
  bool open = may_fire(sampler, fired, now / TENTHS);
  if (open) store_release(track, track_word(now, site_wanted(), fired < TRACK_FIRED_MOST ? fired + 1 : fired, TRACK_LIVE));
  else track_set(track, TRACK_QUIET);
  return open;
}

/* Counts one more record that is opened.  Each time that OPENED_MOST are opened in one tenth of a second, half of the blocks are given
 * up. */
static void count_open(sampler_t *sampler, uint32_t now) {
  uint32_t thinned = load_relaxed(&sampler->thinned), opened = load_relaxed(&sampler->opened);
  if (load_relaxed(&sampler->tenth) != now) {
    store_relaxed(&sampler->tenth, now);
    if (thinned > 0 && opened < OPENED_MOST / 4) store_relaxed(&sampler->thinned, --thinned);
    opened = 0;
  }
  store_relaxed(&sampler->opened, ++opened);
  if (opened % OPENED_MOST == 0 && thinned < THINNED_MOST) store_relaxed(&sampler->thinned, thinned + 1);
}

/* Whether the block is among those that are left: a coin decides for each halving that its record has not been through. */
static bool is_left(const sampler_t *sampler, sample_t *sample) {
  uint32_t thinned = load_relaxed(&sampler->thinned), coins = 0;
  if (HAK_LIKELY(thinned == 0)) return true;
  const unit_t *slab = unit_head((uint32_t)(sample - sample_of(0)));
  uint32_t wanted = chance_of(class_info[load_relaxed(&slab->size_class)].size) >> thinned, chance = load_relaxed(&sample->chance);
  while (chance >> coins > wanted) coins++;
  if (coins == 0) return true;
  if (chance >> coins == 0) return false; /* 0 is for what is certain */
  store_relaxed(&sample->chance, chance >> coins);
  return random_anywhere() >> (32 - coins) == 0;
}

bool sample_open(sampler_t *sampler, void *block, size_t asked) {
  sample_t *sample = sample_find(block);
  uint32_t now = sample_clock();
  if (sample != NULL && !is_left(sampler, sample)) {
    state_set(sample, SAMPLE_NONE);
    sample = NULL;
  }
  if (sample == NULL) {
    track_t *track = track_find(block);
    return track != NULL && track_open(sampler, track, now);
  }
  count_open(sampler, now);
  bool open = may_fire(sampler, count_fired(sample, now), now / TENTHS);
  if (open) {
    sample_fill(sample, asked, now, SAMPLE_LIVE);
    const unit_t *slab = unit_head((uint32_t)(sample - sample_of(0)));
    tell_alloc(block, class_info[load_relaxed(&slab->size_class)].size, load_relaxed(&sample->chance));
  } else {
    state_set(sample, SAMPLE_QUIET);
  }
  return open;
}

static bool track_close(track_t *track) {
  uint64_t live = load_relaxed(track);
  if (track_state(live) != TRACK_LIVE) return false;
  return atomic_compare_exchange_strong_explicit(track, &live, track_with(live, TRACK_FREE), memory_order_acq_rel, memory_order_relaxed);
}

bool sample_close(const void *block) {
  sample_t *sample = sample_find(block);
  if (sample == NULL) {
    track_t *track = track_find(block);
    return track != NULL && track_close(track);
  }
  uint32_t live = load_relaxed(&sample->state);
  if ((live & (((uint32_t)1 << SAMPLE_STATE_BITS) - 1)) != SAMPLE_LIVE) return false;
  uint32_t free = ((live >> SAMPLE_STATE_BITS) + 1) << SAMPLE_STATE_BITS | SAMPLE_FREE;
  if (!atomic_compare_exchange_strong_explicit(&sample->state, &live, free, memory_order_acq_rel, memory_order_relaxed)) return false;
  tell_free(block);
  return true;
}

void sample_resize(const void *block, size_t asked) {
  sample_t *sample = sample_find(block);
  if (sample != NULL) store_relaxed(&sample->asked, (uint32_t)asked);
}

/* --- large blocks ------------------------------------------------------------------------- */

/* A block that grows in place and is sampled for certain already keeps its first site; tracers are told of a free and a new block. */
void sample_resize_large(uint32_t unit, size_t bytes, size_t asked) {
  if (!HAK_SAMPLED || sample_rate == 0) return;
  sample_t *sample = sample_of(unit);
  sample_state_t state = sample_state(sample);
  bool known = state == SAMPLE_LIVE || (state == SAMPLE_QUIET && !is_listened());
  if (!known || load_relaxed(&sample->chance) != 0 || chance_of(bytes) != 0) {
    sample_open_large(unit, bytes, asked);
    return;
  }
  store_relaxed(&sample->asked, sample_asked(asked));
  if (state != SAMPLE_LIVE) return;
  tell_free(region_address(unit));
  tell_alloc(region_address(unit), bytes, 0);
}

void sample_open_large(uint32_t unit, size_t bytes, size_t asked) {
  if (!HAK_SAMPLED || sample_rate == 0) return;
  sample_t *sample = sample_of(unit);
  uint32_t chance = chance_of(bytes);
  sample_close_large(unit);
  if (chance != 0 && random_anywhere() >= chance) return;
  uint32_t now = sample_clock();
  store_release(&sample->place, 0);
  store_release(&sample->chance, chance);
  sample_state_t state = count_fired(sample, now) < SAMPLE_FIRES ? SAMPLE_LIVE : SAMPLE_QUIET;
  sample_fill(sample, asked, now, state);
  if (state == SAMPLE_LIVE) tell_alloc(region_address(unit), bytes, chance);
}

void sample_ask_large(uint32_t unit, size_t asked) {
  if (!HAK_SAMPLED || sample_rate == 0 || load_relaxed(&unit_at(unit)->kind) != UNIT_LARGE) return;
  store_relaxed(&sample_of(unit)->asked, sample_asked(asked));
}

void sample_close_large(uint32_t unit) {
  if (!HAK_SAMPLED || sample_rate == 0) return;
  sample_state_t state = sample_state(sample_of(unit));
  if (state == SAMPLE_NONE) return;
  state_set(sample_of(unit), SAMPLE_NONE);
  if (state == SAMPLE_LIVE) tell_free(region_address(unit));
}
