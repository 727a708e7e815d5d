#include "space/region.h"

#include "os/lock.h"
#include "os/memcheck.h"
#include "os/os.h"

region_t region HAK_ALIGNED(HAK_CACHE_LINE);
/* The fast paths look at it as the beginning of a bin. */
region_bin_t region_no_bin HAK_ALIGNED(HAK_CACHE_LINE);

/* The zones, in bytes for each superslab; the first has a fixed place below the second. */
typedef enum zone {
  ZONE_BIN,
  ZONE_LIVE,
  ZONE_FREE_BITS,
  ZONE_REMOTE_BITS,
  ZONE_SLABS,
  ZONE_REMOTES,
  ZONE_SUPERSLABS,
  ZONE_COUNT
} zone_t;
static const size_t zone_bytes[ZONE_COUNT] = {256, 16384, 16384, 16384, 2048, 512, sizeof(superslab_t)};

/* How much the blocks grow at a time: a share of what there is, within bounds. */
#define GROW_SHARE 4
#define GROW_MAX_UNITS (((uint32_t)256 << 20) >> HAK_UNIT_SHIFT)
#define GROW_MIN_UNITS HAK_UNITS_PER_SUPERSLAB
#define ZONES_AHEAD 8 /* superslabs */
#define GROW_MIN_UNITS_LIMITED 4u /* when address space is scarce */

/* Written under `grow_lock`, but for `reserved`, which census reads. */
static struct {
  uintptr_t zone[ZONE_COUNT];        /* where each starts */
  _Atomic uintptr_t zone_end[ZONE_COUNT]; /* how far each is readable and writable */
  uint32_t capacity;                 /* superslabs that have a place */
  uint32_t zones_ready;              /* superslabs whose zones are usable */
  uintptr_t start, end;              /* all of it */
  _Atomic bool reserved;             /* addresses are held as PROT_NONE */
  _Atomic bool releasing;            /* region_release_reserve is under way */
  uint32_t kept;                     /* bit z: the kernel would not release what follows zone z; ZONE_COUNT: the blocks */
  uintptr_t undo_start, undo_end;    /* mapped without a reserve, and not yet entered */
} layout;
static lock_t grow_lock;

/* Makes [start, end) usable, which is reserved or nobody's; `range` is the zone, or ZONE_COUNT for blocks. */
static os_map_t region_back(unsigned range, uintptr_t start, uintptr_t end) {
  if (start >= end) return OS_MAPPED;
  bool reserved = atomic_seen(&layout.reserved) || (layout.kept >> range & 1) != 0;
  if (reserved) return os_commit((void *)start, end - start) ? OS_MAPPED : OS_NOMEM;
  os_map_t result = os_map_at((void *)start, end - start);
  if (result == OS_MAPPED) {
    layout.undo_start = start;
    atomic_signal_fence(memory_order_seq_cst);
    layout.undo_end = end;
  }
  return result;
}

/* What region_back has mapped is entered now. */
static void region_backed(void) {
  atomic_signal_fence(memory_order_seq_cst);
  layout.undo_end = 0;
  atomic_signal_fence(memory_order_seq_cst);
  layout.undo_start = 0; /* nothing else leads into blocks: see hide_base in front/boot.c */
}

/* Extends every zone to cover `superslabs` superslabs. */
static bool zones_extend(uint32_t superslabs) {
  const size_t page = os_page_size();
  if (superslabs <= layout.zones_ready) return true;
  for (unsigned z = 0; z < ZONE_COUNT; z++) {
    uintptr_t end = bits_round_up(layout.zone[z] + superslabs * zone_bytes[z], page);
    uintptr_t from = atomic_seen(&layout.zone_end[z]);
    if (region_back(z, from, end) != OS_MAPPED) return false;
    if (end > from) atomic_set(&layout.zone_end[z], end);
    region_backed();
  }
  for (size_t unit = (size_t)layout.zones_ready * HAK_UNITS_PER_SUPERSLAB; unit < (size_t)superslabs * HAK_UNITS_PER_SUPERSLAB; unit++) {
    hot_poke(region_bin(region.live, unit), &region_no_bin);
  }
  layout.zones_ready = superslabs;
  if (memcheck_on()) return true; /* without a limit no free takes the fast path */
  __atomic_store_n(&region.limit, (uintptr_t)superslabs << (HAK_SUPERSLAB_SHIFT - REGION_LIMIT_SHIFT), __ATOMIC_RELEASE);
  return true;
}

/* Covers the superslabs up to `needed`, and more at once while addresses are plenty. */
static bool zones_cover(uint32_t needed) {
  if (needed <= layout.zones_ready) return true;
  if (atomic_seen(&layout.reserved)) {
    uint32_t ahead = layout.zones_ready + layout.zones_ready / 2 + ZONES_AHEAD;
    if (ahead > layout.capacity) ahead = layout.capacity;
    if (ahead > needed && zones_extend(ahead)) return true;
  }
  return zones_extend(needed);
}

/* Enters the units as usable and free. */
static void units_publish(uint32_t start, uint32_t end) {
  while (start < end) {
    superslab_t *superslab = &region.superslabs[start / HAK_UNITS_PER_SUPERSLAB];
    uint32_t first = start % HAK_UNITS_PER_SUPERSLAB;
    uint32_t n = HAK_UNITS_PER_SUPERSLAB - first;
    if (n > end - start) n = end - start;
    uint32_t mask = bits_mask32(first, n);
    atomic_fetch_or_explicit(&superslab->mapped, mask, memory_order_relaxed);
    atomic_fetch_or_explicit(&superslab->free, mask, memory_order_release);
    start += n;
  }
}

/* Maps units [start, start + n). OS_TAKEN: something else lies there. */
static os_map_t units_map(uint32_t start, uint32_t n) {
  uint32_t end = start + n;
  uint32_t superslabs = (end + HAK_UNITS_PER_SUPERSLAB - 1) / HAK_UNITS_PER_SUPERSLAB;
  if (!zones_cover(superslabs)) return OS_NOMEM;
  os_map_t result = region_back(ZONE_COUNT, (uintptr_t)region_address(start), (uintptr_t)region_address(end));
  if (result == OS_MAPPED) {
    atomic_publish(&region.units, end);
    region_backed();
    units_publish(start, end);
  }
  return result;
}

/* The free units just below the frontier, which a span that needs more can use. */
static uint32_t units_free_at_end(uint32_t frontier, uint32_t most) {
  uint32_t n = 0;
  while (n < most && n < frontier) {
    uint32_t unit = frontier - 1 - n;
    uint32_t word = atomic_seen(&region.superslabs[unit / HAK_UNITS_PER_SUPERSLAB].free);
    if ((word >> unit % HAK_UNITS_PER_SUPERSLAB & 1) == 0) break;
    n++;
  }
  return n;
}

static uint32_t grow_step(uint32_t frontier) {
  uint32_t step = frontier / GROW_SHARE;
  uint32_t least = atomic_seen(&layout.reserved) ? GROW_MIN_UNITS : GROW_MIN_UNITS_LIMITED;
  if (step < least) step = least;
  return step < GROW_MAX_UNITS ? step : GROW_MAX_UNITS;
}

/* Steps over a foreign mapping at the frontier, further each time. */
static bool frontier_skip(uint32_t frontier, uint32_t units) {
  uint32_t next = frontier + units;
  if (next >= layout.capacity * HAK_UNITS_PER_SUPERSLAB || next < frontier) return false;
  if (!zones_cover(next / HAK_UNITS_PER_SUPERSLAB + 1)) return false;
  atomic_publish(&region.units, next);
  return true;
}

static bool grow_locked(uint32_t units) {
  for (uint32_t skip = 1;; skip += skip / 2 + 1) {
    uint32_t frontier = atomic_seen(&region.units);
    uint32_t room = layout.capacity * HAK_UNITS_PER_SUPERSLAB - frontier;
    uint32_t at_end = units_free_at_end(frontier, units);
    uint32_t need = units > at_end ? units - at_end : 1;
    uint32_t step = grow_step(frontier);
    if (need > room) return false;
    if (step > room) step = room;
    os_map_t result = OS_NOMEM;
    if (step > need) result = units_map(frontier, step);
    if (result != OS_MAPPED) result = units_map(frontier, need);
    if (result == OS_MAPPED) return true;
    if (result == OS_NOMEM || !frontier_skip(frontier, skip)) return false;
  }
}

/* Nothing but growth, with the lock, writes to `region` after the start. */
static bool region_seal(bool sealed) { return !HAK_SECURE || os_seal(&region, sizeof region, sealed); }

bool region_grow(uint32_t units) {
  lock_acquire(&grow_lock);
  bool grown = region_seal(false) && grow_locked(units);
  (void)region_seal(true);
  lock_release(&grow_lock);
  return grown;
}

/* Lays the zones and the blocks out from `start`; returns the bytes in all. */
static uint64_t layout_plan(uintptr_t start, uint32_t capacity) {
  uintptr_t live = start + (uintptr_t)REGION_BIN_OFFSET;
  layout.capacity = capacity;
  layout.zone[ZONE_BIN] = start;
  uintptr_t at = live;
  for (unsigned z = ZONE_LIVE; z < ZONE_COUNT; z++) {
    layout.zone[z] = at;
    at += bits_round_up(capacity * zone_bytes[z], HAK_SUPERSLAB);
  }
  for (unsigned z = 0; z < ZONE_COUNT; z++) atomic_set(&layout.zone_end[z], layout.zone[z]);
  layout.start = start;
  layout.end = at + ((uintptr_t)capacity << HAK_SUPERSLAB_SHIFT);
  region.base = at;
  hot_poke(&region.minus_base, 0 - at);
  hot_poke(&region.live, (uint64_t *)live);
  region.live_bias = live - ((at >> 10) << 3);
  region.slabs = (char *)layout.zone[ZONE_SLABS];
  region.free_bits = (char *)layout.zone[ZONE_FREE_BITS];
  region.remote_bits = (char *)layout.zone[ZONE_REMOTE_BITS];
  region.remotes = (char *)layout.zone[ZONE_REMOTES];
  region.superslabs = (superslab_t *)layout.zone[ZONE_SUPERSLABS];
  return layout.end - start;
}

static bool reserve_all(uint64_t bytes) {
  for (; bytes >= HAK_REGION_MIN >> 6; bytes /= 2) {
    uint32_t capacity = (uint32_t)(bytes >> HAK_SUPERSLAB_SHIFT);
    uint64_t whole = layout_plan(HAK_SUPERSLAB, capacity) + HAK_SUPERSLAB;
    void *start = os_reserve(whole);
    if (start == NULL) continue;
    (void)layout_plan(bits_round_up((uintptr_t)start, HAK_SUPERSLAB), capacity);
    layout.start = (uintptr_t)start;
    layout.end = (uintptr_t)start + whole;
    atomic_set(&layout.reserved, true);
    return true;
  }
  return false;
}

/* Places far from where programs, libraries and stacks are put; the last
 * fits kernels that give a process 39 bits of addresses.  The first is for memcheck
 * alone: its tables are quick below what Valgrind keeps for itself. */
static bool place_unreserved(void) {
  static const struct {
    uintptr_t start;
    uint64_t bytes;
    uintptr_t random; /* superslabs */
  } places[] = {{(uintptr_t)1 << 33, HAK_REGION_MIN / 2, 0},
                {(uintptr_t)1 << 44, HAK_REGION_MIN, 0x3fff},
                {(uintptr_t)1 << 36, HAK_REGION_MIN, 0x3fff}};
  for (size_t i = memcheck_on() ? 0 : 1; i < sizeof places / sizeof places[0]; i++) {
    uintptr_t random = ((uintptr_t)os_random_seed() & places[i].random) << HAK_SUPERSLAB_SHIFT;
    (void)layout_plan(places[i].start + random, (uint32_t)(places[i].bytes >> HAK_SUPERSLAB_SHIFT));
    if (grow_locked(1)) return true;
    for (unsigned z = 0; z < ZONE_COUNT; z++) {
      uintptr_t end = atomic_seen(&layout.zone_end[z]);
      if (end > layout.zone[z]) (void)os_unmap((void *)layout.zone[z], end - layout.zone[z]);
    }
    layout.zones_ready = 0;
    hot_poke(&region.limit, 0);
    atomic_set(&region.units, 0);
  }
  region.base = 0;
  return false;
}

static bool region_make(uint64_t reserve_bytes) {
  if (atomic_seen(&layout.reserved)) return grow_locked(HAK_UNITS_PER_SUPERSLAB); /* there was no memory for it before */
  uint64_t bytes = reserve_bytes;
  if (bytes == 0 && memcheck_on()) return place_unreserved(); /* memcheck goes through every byte of a reserve */
  if (bytes == 0) {
    bytes = os_physical_memory() * 4;
    if (bytes < HAK_REGION_MIN) bytes = HAK_REGION_MIN;
  }
  if (bytes > HAK_REGION_MAX) bytes = HAK_REGION_MAX;
  bytes = bits_round_up(bytes, HAK_SUPERSLAB);
  if (os_address_limit() != UINT64_MAX || !reserve_all(bytes)) return place_unreserved();
  return grow_locked(HAK_UNITS_PER_SUPERSLAB);
}

HAK_COLD bool region_init(uint64_t reserve_bytes) {
  bool made = region_seal(false) && region_make(reserve_bytes);
  (void)region_seal(true);
  return made;
}

static void release_range(unsigned range, uintptr_t start, uintptr_t end) {
  start = bits_round_up(start, os_page_size());
  if (start < end && !os_unmap((void *)start, end - start)) layout.kept |= (uint32_t)1 << range;
}

static void release_all(void) {
  atomic_set(&layout.releasing, true);
  if (layout.start < layout.zone[0]) (void)os_unmap((void *)layout.start, layout.zone[0] - layout.start);
  for (unsigned z = 0; z < ZONE_COUNT; z++) {
    uintptr_t next = z + 1 < ZONE_COUNT ? layout.zone[z + 1] : region.base;
    release_range(z, atomic_seen(&layout.zone_end[z]), next);
  }
  release_range(ZONE_COUNT, (uintptr_t)region_address(atomic_seen(&region.units)), layout.end);
  atomic_set(&layout.reserved, false);
  atomic_set(&layout.releasing, false);
}

void region_release_reserve(void) {
  lock_acquire(&grow_lock);
  if (atomic_seen(&layout.reserved)) release_all();
  lock_release(&grow_lock);
}

void region_after_fork(void) {
  uintptr_t start = layout.undo_start, end = layout.undo_end;
  bool entered = start >= region.base && end <= (uintptr_t)region_address(atomic_seen(&region.units));
  for (unsigned z = 0; z < ZONE_COUNT; z++) entered |= start >= layout.zone[z] && end <= atomic_seen(&layout.zone_end[z]);
  if (end > start && !entered) (void)os_unmap((void *)start, end - start);
  layout.undo_end = 0;
  if (atomic_seen(&layout.releasing)) release_all();
  lock_abandon(&grow_lock);
}

region_census_t region_census(void) {
  region_census_t census = {0};
  for (unsigned z = 0; z < ZONE_COUNT; z++) census.metadata += atomic_seen(&layout.zone_end[z]) - layout.zone[z];
  uint32_t count = (atomic_seen(&region.units) + HAK_UNITS_PER_SUPERSLAB - 1) / HAK_UNITS_PER_SUPERSLAB;
  for (uint32_t s = 0; s < count; s++) census.superslabs += atomic_seen(&region.superslabs[s].mapped) != 0;
  census.reserved = atomic_seen(&layout.reserved)
                        ? layout.end - layout.start
                        : census.metadata + ((uint64_t)atomic_seen(&region.units) << HAK_UNIT_SHIFT);
  return census;
}
