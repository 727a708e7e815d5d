#include "space/region.h"

#include "os/lock.h"
#include "os/memcheck.h"
#include "os/os.h"
#include "kit/fault.h"

region_t region;
/* The fast paths read it as the beginning of a bin. */
region_bin_t region_no_bin HAK_ALIGNED(HAK_CACHE_LINE);

/* The zones, in bytes for each superslab; the first has a fixed place below the second. */
typedef enum zone {
  ZONE_BIN,
  ZONE_LIVE,
  ZONE_BITS,
  ZONE_UNITS,
  ZONE_REMOTES,
  ZONE_SAMPLES,
  ZONE_SUPERSLABS,
  ZONE_ROOMS,
  ZONE_COUNT
} zone_t;
#define OF_UNITS(bytes) (WORD_UNITS * (size_t)(bytes))
static const size_t zone_bytes[ZONE_COUNT] = {
    OF_UNITS(REGION_BIN_BYTES),    OF_UNITS(REGION_LIVE_BYTES),   REGION_MAPS_BYTES,   OF_UNITS(REGION_UNIT_BYTES),
    OF_UNITS(REGION_REMOTE_BYTES), OF_UNITS(REGION_SAMPLE_BYTES), sizeof(superslab_t), sizeof(room_t) / ROOM_GROUP,
};
_Static_assert(sizeof *region_bin(NULL, 0) == REGION_BIN_BYTES, "the zone of bins has room for every unit's");
_Static_assert(REGION_LIVE_BYTES == sizeof *region.live * (HAK_UNIT >> 10), "a word of the live map for each KiB: region_live_word");
_Static_assert(sizeof(superslab_t) == 8 * 4 && WORD_UNITS == 8 * sizeof region.superslabs->free, "a bit a unit");
#define ZONE_PIECE ((uintptr_t)64 << 10) /* the largest page that a kernel has */

/* How much the blocks grow at a time: a fraction of their current size, within bounds.  Nothing reports an address limit that is set
 * meanwhile, and asking for it is a call that a filter may forbid: so a step is no more than a limit has to spare. */
#define GROW_SHARE 64
#define GROW_MAX_UNITS (((uint32_t)256 << 20) >> HAK_UNIT_SHIFT)
#define GROW_MIN_UNITS WORD_UNITS
/* The same where addresses are limited, so that most of what a limit leaves remains for the program's threads and libraries. */
#define SCARCE_SHARE 16
#define SCARCE_MAX_UNITS (((uint32_t)4 << 20) >> HAK_UNIT_SHIFT)
#define SCARCE_MIN_UNITS 4u
#define ZONES_AHEAD 8 /* superslabs, at least; and at most, since every unit's bin is written */
#define ZONES_AHEAD_MOST 128

/* A zone, or the blocks.  `end` is written once the kernel has mapped what lies below it, and before anything leads there.  So a fork's
 * child finds mapped whatever is led to; and what nothing leads to below the end of the blocks is not mapped a second time. */
typedef struct range {
  uintptr_t start;        /* of the contiguous mapping */
  _Atomic uintptr_t end;
  _Atomic uintptr_t begun; /* of a zone: the end up to which the kernel is asked to map */
} range_t;

/* Written under `grow_lock`. */
static struct {
  range_t zone[ZONE_COUNT];
  range_t blocks;
  uint32_t capacity;      /* superslabs that there are addresses for */
  uint32_t zones_ready;   /* superslabs whose zones are usable */
  _Atomic bool scarce;    /* region_scarce */
  bool gate_open;         /* region_open_gate */
} layout;
static lock_t grow_lock = LOCK_OF_RANK(LOCK_GROW);

bool region_scarce(void) { return load_relaxed(&layout.scarce); }

static uint32_t between(uint32_t n, uint32_t least, uint32_t most) { return n < least ? least : n > most ? most : n; }

/* Whether the range has room for a huge page below `end`. */
static bool range_has_room(const range_t *range, uintptr_t end) {
  return bits_round_up(range->start, HAK_SUPERSLAB) + HAK_SUPERSLAB <= end;
}

/* Enters [from, end) as mapped: it begins where the range ends or, for the blocks, behind something else.  The kernel is advised to make no
 * huge page there, for the whole range once it has room for one: so the range stays one mapping. */
static void range_enter(range_t *range, uintptr_t from, uintptr_t end) {
  if (from != load_relaxed(&range->end)) range->start = from;
  store_relaxed(&range->end, end);
  if (!range_has_room(range, end)) return;
  uintptr_t first = range_has_room(range, from) ? from : range->start;
  os_huge((void *)first, end - first, false);
}

static os_map_result_t range_map(range_t *range, uintptr_t from, uintptr_t end) {
  if (from >= end) return OS_MAPPED;
  os_map_result_t result = os_map_at((void *)from, end - from);
  if (result == OS_MAPPED) range_enter(range, from, end);
  return result;
}

/* Extends a zone.  In a fork's child a thread that is gone may have had a part mapped and not entered it.  Blocks step over such a mapping,
 * which leaks, but a zone has to take it over. */
static bool zone_map(range_t *zone, uintptr_t end) {
  uintptr_t had = load_relaxed(&zone->end), begun = load_relaxed(&zone->begun);
  if (range_map(zone, had, begun) == OS_TAKEN && os_is_mapped((void *)had, begun - had)) range_enter(zone, had, begun);
  store_relaxed(&zone->begun, end);
  bool mapped = range_map(zone, load_relaxed(&zone->end), end) == OS_MAPPED;
  store_relaxed(&zone->begun, (uintptr_t)0); /* a foreign mapping is never taken for what was begun */
  return mapped;
}

static void limit_set(uintptr_t limit) {
  __atomic_store_n(&region.limit, limit, __ATOMIC_RELEASE);
  if (layout.gate_open) __atomic_store_n(&region.gated_limit, limit, __ATOMIC_RELEASE);
}

/* Extends every zone to cover `superslabs` superslabs. */
static bool zones_extend(uint32_t superslabs) {
  const size_t piece = region_scarce() ? os_page_size() : ZONE_PIECE;
  if (superslabs <= layout.zones_ready) return true;
  for (unsigned z = 0; z < ZONE_COUNT; z++) {
    range_t *zone = &layout.zone[z];
    if (!zone_map(zone, bits_round_up(zone->start + superslabs * zone_bytes[z], piece))) return false;
  }
  for (size_t unit = (size_t)layout.zones_ready * WORD_UNITS; unit < (size_t)superslabs * WORD_UNITS; unit++) {
    racy_store(region_bin(region.live, unit), &region_no_bin);
  }
  layout.zones_ready = superslabs;
  if (memcheck_on()) return true; /* without a limit no free takes the fast path */
  limit_set((uintptr_t)superslabs << (HAK_SUPERSLAB_SHIFT - REGION_LIMIT_SHIFT));
  return true;
}

/* Covers the superslabs up to `needed`, and more in the same step while there is plenty. */
static bool zones_cover(uint32_t needed) {
  if (needed <= layout.zones_ready) return true;
  if (!region_scarce()) {
    uint32_t ahead = layout.zones_ready + between(layout.zones_ready / 2, ZONES_AHEAD, ZONES_AHEAD_MOST);
    if (ahead > layout.capacity) ahead = layout.capacity;
    if (ahead > needed && zones_extend(ahead)) return true;
  }
  return zones_extend(needed);
}

/* Enters the units as usable and free. */
static void units_publish(uint32_t start, uint32_t end) {
  word_walk_t walk = {start, end};
  uint32_t s, mask;
  while (word_next(&walk, &s, &mask)) {
    atomic_fetch_or_explicit(&region.superslabs[s].mapped, mask, memory_order_relaxed);
    room_note(region.rooms, s, atomic_fetch_or(&region.superslabs[s].free, mask) | mask);
  }
}

/* Maps units [start, start + n). OS_TAKEN: something else lies there. */
static os_map_result_t units_map(uint32_t start, uint32_t n) {
  uint32_t end = start + n;
  uintptr_t had = load_relaxed(&layout.blocks.end);
  uintptr_t from = (uintptr_t)region_address(start), to = (uintptr_t)region_address(end);
  if (had > from) from = had; /* what a thread that is gone had mapped: see range_t */
  os_map_result_t result = range_map(&layout.blocks, from, to);
  if (result != OS_MAPPED) return result;
  if (!zones_cover((end + WORD_UNITS - 1) / WORD_UNITS)) {
    store_relaxed(&layout.blocks.end, had); /* first: a fork's child must not take for mapped what is not */
    if (from < to && !os_unmap((void *)from, to - from)) store_relaxed(&layout.blocks.end, to);
    return OS_NOMEM;
  }
  store_release(&region.units, end);
  units_publish(start, end);
  return OS_MAPPED;
}

/* How many units just below the frontier are free: a span that needs more can use them. */
static uint32_t units_free_at_end(uint32_t frontier, uint32_t most) {
  uint32_t n = 0;
  while (n < most && n < frontier) {
    uint32_t unit = frontier - 1 - n;
    uint32_t word = load_relaxed(&region.superslabs[unit / WORD_UNITS].free);
    if ((word >> unit % WORD_UNITS & 1) == 0) break;
    n++;
  }
  return n;
}

/* At least `need` where addresses are not scarce.  Then a step ends where a superslab does, since only a wholly mapped superslab can be a
 * huge page. */
static uint32_t grow_step(uint32_t frontier, uint32_t need) {
  if (region_scarce()) return between(frontier / SCARCE_SHARE, SCARCE_MIN_UNITS, SCARCE_MAX_UNITS);
  uint32_t step = between(frontier / GROW_SHARE, GROW_MIN_UNITS, GROW_MAX_UNITS);
  uint64_t end = (uint64_t)frontier + (step > need ? step : need);
  return (uint32_t)(bits_round_up(end, WORD_UNITS) - frontier);
}

/* Steps over `units` at the frontier, where a foreign mapping lies; the caller goes further each time. */
static bool frontier_skip(uint32_t frontier, uint32_t units) {
  uint32_t next = frontier + units;
  if (next >= layout.capacity * WORD_UNITS || next < frontier) return false;
  if (!zones_cover(next / WORD_UNITS + 1)) return false;
  store_release(&region.units, next);
  return true;
}

static bool grow_locked(uint32_t units) {
  for (uint32_t skip = 1;; skip += skip / 2 + 1) {
    uint32_t frontier = load_relaxed(&region.units);
    uint32_t room = layout.capacity * WORD_UNITS - frontier;
    uint32_t at_end = units_free_at_end(frontier, units);
    uint32_t need = units > at_end ? units - at_end : 1;
    uint32_t step = grow_step(frontier, need);
    if (need > room) return false;
    if (step > room) step = room;
    os_map_result_t result = OS_NOMEM;
    if (step > need) {
      result = units_map(frontier, step);
      if (result == OS_NOMEM) store_relaxed(&layout.scarce, true);
    }
    if (result != OS_MAPPED) result = units_map(frontier, need);
    if (result == OS_MAPPED) return true;
    if (result == OS_NOMEM || !frontier_skip(frontier, skip)) return false;
  }
}

/* After the start only growth and region_open_gate write to `region`, with the lock. */
static bool region_seal(bool sealed) { return !HAK_SECURE || os_seal(&region, sizeof region, sealed); }

bool region_grow(uint32_t frontier, uint32_t units) {
  lock_acquire(&grow_lock);
  bool grown = load_relaxed(&region.units) != frontier;
  if (!grown) {
    grown = region_seal(false) && grow_locked(units);
    (void)region_seal(true);
  }
  lock_release(&grow_lock);
  return grown;
}

/* --- the places -------------------------------------------------------------------------- */

#define GIB ((uint64_t)1 << 30)
#define TIB ((uint64_t)1 << 40)

/* Where the zones may lie, where the blocks may lie, and the most bytes of blocks. */
typedef struct place {
  uint64_t zones, zones_end;
  uint64_t blocks, blocks_end;
  uint64_t most;
} place_t;
static const place_t region_places[] = {
    /* Below lie programs that take random addresses of 46 bits (V8) or places of their own (Go, GHC, ZGC), and AddressSanitizer's shadow;
     * its blocks are at 96 TiB, programs of x86-64 at 85, and what the kernel places at 120 and more. aarch64 with 48 bits has its programs
     * above. */
    {64 * TIB, 80 * TIB, 101 * TIB, 120 * TIB, HAK_REGION_MAX},
    /* 39 bits of addresses: programs are at 341 GiB; Go begins at 256, V8 takes any address below. */
    {320 * GIB, 336 * GIB, 64 * GIB, 256 * GIB, 64 * GIB},
    /* 36 bits; also for Valgrind, whose tables are fast there. */
    {8 * GIB, 12 * GIB, 12 * GIB, 60 * GIB, 32 * GIB},
};
#define PLACES (sizeof region_places / sizeof region_places[0])

/* A random multiple of `step` above `start`, such that `bytes` from there end before `end`. */
static uintptr_t place_choose(uint64_t start, uint64_t end, uint64_t bytes, uint64_t step, uint32_t random) {
  uint64_t choices = (end - start - bytes) / step;
  return start + (choices * random >> 32) * step;
}

/* Lays the zones out; returns their bytes in all. */
static uint64_t zones_plan(uintptr_t start, uint32_t capacity) {
  uintptr_t at = start + (uintptr_t)REGION_BIN_OFFSET;
  for (unsigned z = 0; z < ZONE_COUNT; z++) {
    uintptr_t zone = z == ZONE_BIN ? start : at;
    layout.zone[z].start = zone;
    store_relaxed(&layout.zone[z].end, zone);
    if (z != ZONE_BIN) at += bits_round_up(capacity * zone_bytes[z], ZONE_PIECE);
  }
  return at - start;
}

static void layout_plan(const place_t *place, uint64_t most_bytes, uint64_t random) {
  uint64_t most = most_bytes < place->most ? most_bytes : place->most;
  layout.capacity = (uint32_t)(most >> HAK_SUPERSLAB_SHIFT);
  layout.zones_ready = 0;
  uint64_t bytes = zones_plan(0, layout.capacity);
  (void)zones_plan(place_choose(place->zones, place->zones_end, bytes, ZONE_PIECE, (uint32_t)random), layout.capacity);
  uintptr_t base = place_choose(place->blocks, place->blocks_end, most, HAK_SUPERSLAB, (uint32_t)(random >> 32));
  layout.blocks.start = base;
  store_relaxed(&layout.blocks.end, base);
  uintptr_t live = layout.zone[ZONE_LIVE].start;
  region.base = base;
  racy_store(&region.minus_base, 0 - base);
  racy_store(&region.live, (uint64_t *)live);
  region.live_bias = live - ((base >> 10) << 3);
  region.bins = (char *)layout.zone[ZONE_BIN].start;
  region.unit_records = (char *)layout.zone[ZONE_UNITS].start;
  region.free_bits = (char *)layout.zone[ZONE_BITS].start;
  region.remote_bits = region.free_bits + REGION_BITS_BYTES;
  region.marks = region.remote_bits + REGION_BITS_BYTES;
  region.remotes = (char *)layout.zone[ZONE_REMOTES].start;
  region.samples = (char *)layout.zone[ZONE_SAMPLES].start;
  region.superslabs = (superslab_t *)layout.zone[ZONE_SUPERSLABS].start;
  region.rooms = (room_t *)layout.zone[ZONE_ROOMS].start;
}

/* Undoes a start that has mapped a part of the zones. */
static void layout_drop(void) {
  for (unsigned z = 0; z < ZONE_COUNT; z++) {
    uintptr_t start = layout.zone[z].start, end = load_relaxed(&layout.zone[z].end);
    if (end > start) (void)os_unmap((void *)start, end - start);
  }
  limit_set(0);
  store_relaxed(&region.units, 0);
  region.base = 0;
}

/* Tries each place twice, since something may lie at a random address.  A user of Valgrind wants the same addresses each time. */
static bool region_make(uint64_t most_bytes) {
  if (most_bytes == 0) {
    most_bytes = os_physical_memory() * 4;
    if (most_bytes < HAK_REGION_MIN) most_bytes = HAK_REGION_MIN;
  }
  most_bytes = bits_round_up(most_bytes, HAK_SUPERSLAB);
  store_relaxed(&layout.scarce, os_address_limit() != UINT64_MAX);
  for (size_t n = valgrind_on() ? 2 * PLACES - 1 : os_has_shadow() ? 2 : 0; n < 2 * PLACES; n++) {
    layout_plan(&region_places[n / 2], most_bytes, valgrind_on() ? 0 : os_random());
    if (grow_locked(1)) return true;
    layout_drop();
  }
  return false;
}

void region_open_gate(void) {
  lock_acquire(&grow_lock);
  if (region_seal(false)) { /* otherwise every such free goes on checking */
    layout.gate_open = true;
    limit_set(racy_load(&region.limit));
  }
  (void)region_seal(true);
  lock_release(&grow_lock);
}

bool region_init(uint64_t most_bytes) {
  bool made = region_seal(false) && region_make(most_bytes);
  (void)region_seal(true);
  return made;
}

/* --- the rest ---------------------------------------------------------------------------- */

/* Whether the kernel would map everything up to `end` that is not mapped yet, if nothing were in the way. */
static bool blocks_may_reach(uintptr_t end) {
  uintptr_t from = (uintptr_t)region_address(load_relaxed(&region.units)), had = load_relaxed(&layout.blocks.end);
  if (had > from) from = had;
  if (end <= from) return true;
  os_map_result_t result = os_map_at((void *)from, end - from);
  if (result == OS_MAPPED) (void)os_unmap((void *)from, end - from);
  return result != OS_NOMEM;
}

HAK_COLD bool region_may_hold(uint64_t units, uint64_t align_units) {
  uint64_t base_units = region.base >> HAK_UNIT_SHIFT;
  uint64_t end = bits_round_up(base_units, align_units) - base_units + units; /* of the lowest such run */
  if (end > (uint64_t)layout.capacity * WORD_UNITS) return false;
  lock_acquire(&grow_lock);
  bool may = blocks_may_reach((uintptr_t)region_address((uint32_t)end));
  lock_release(&grow_lock);
  return may;
}

HAK_AUDITED bool region_maps(uint32_t superslab, uint32_t mask) {
  lock_acquire(&grow_lock); /* what its last holder has entered is seen */
  bool maps = (mask & ~load_relaxed(&region.superslabs[superslab].mapped)) == 0;
  lock_release(&grow_lock);
  return maps;
}

HAK_AUDITED bool region_maps_unit(uint32_t unit) {
  return (load_relaxed(&region.superslabs[unit / WORD_UNITS].mapped) >> unit % WORD_UNITS & 1) != 0;
}

HAK_AUDITED void region_audit(void) {
  lock_acquire(&grow_lock);
  uintptr_t limit = memcheck_on() ? 0 : (uintptr_t)layout.zones_ready << (HAK_SUPERSLAB_SHIFT - REGION_LIMIT_SHIFT);
  uint32_t units = load_relaxed(&region.units), end = units;
  while (end > 0 && !region_maps_unit(end - 1)) end--;
  AUDIT(units <= layout.zones_ready * WORD_UNITS && layout.zones_ready <= layout.capacity, &region, "units without zones");
  AUDIT(racy_load(&region.limit) == limit, &region.limit, "the limit is not where the zones end");
  AUDIT(racy_load(&region.gated_limit) == (layout.gate_open ? limit : 0), &region.gated_limit, "the gate has another limit");
  AUDIT((uintptr_t)region_address(end) <= load_relaxed(&layout.blocks.end), region_address(end), "units beyond what is mapped");
  for (unsigned z = 0; z < ZONE_COUNT; z++) {
    const range_t *zone = &layout.zone[z];
    AUDIT(zone->start + layout.zones_ready * zone_bytes[z] <= load_relaxed(&zone->end), zone, "a zone ends before its last record");
  }
  for (uint32_t unit = units; unit % WORD_UNITS != 0; unit++) {
    AUDIT(!region_maps_unit(unit), region_address(unit), "a usable unit beyond the frontier");
  }
  lock_release(&grow_lock);
}

/* What a thread that is gone was mapping is entered or leaks: see range_t. */
HAK_COLD void region_after_fork(bool inside) { lock_abandon(&grow_lock, inside); }

HAK_COLD region_census_t region_census(void) {
  region_census_t census = {0};
  for (unsigned z = 0; z < ZONE_COUNT; z++) census.metadata += load_relaxed(&layout.zone[z].end) - layout.zone[z].start;
  census.mapped = census.metadata;
  for (uint32_t s = region_superslabs(); s-- > 0;) {
    uint32_t mapped = load_relaxed(&region.superslabs[s].mapped);
    census.superslabs += mapped != 0;
    census.mapped += (uint64_t)bits_count32(mapped) << HAK_UNIT_SHIFT;
  }
  return census;
}
