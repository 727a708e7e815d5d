#include "space/room.h"

/* The units at which a run of 2^level begins, from the units at which a run of half that length begins. */
static uint32_t runs_double(uint32_t runs, unsigned level) { return runs & runs >> (1u << (level - 1)); }

static bool has_run(uint32_t free, unsigned level) {
  for (unsigned n = 1; n <= level && free != 0; n++) free = runs_double(free, n);
  return free != 0;
}

static bool is_kept(uint32_t superslab) { return superslab + 1 > ROOM_FIRST; }

void room_note(room_t *rooms, uint32_t superslab, uint32_t free) {
  uint64_t bit = (uint64_t)1 << superslab % ROOM_GROUP;
  if (!is_kept(superslab)) return;
  for (unsigned level = 0; free != 0; free = level < ROOM_LEVELS ? runs_double(free, level) : 0) {
    _Atomic uint64_t *may_have = &rooms[superslab / ROOM_GROUP].may_have[level++];
    if ((atomic_load(may_have) & bit) == 0) (void)atomic_fetch_or(may_have, bit);
  }
}

static void room_drop(room_t *rooms, const superslab_t *superslabs, uint32_t superslab, unsigned level) {
  (void)atomic_fetch_and(&rooms[superslab / ROOM_GROUP].may_have[level], ~((uint64_t)1 << superslab % ROOM_GROUP));
  room_note(rooms, superslab, atomic_load(&superslabs[superslab].free));
}

/* The first superslab from `from` on whose bit is set; not below `end` if there is none. */
static uint32_t room_hint(room_t *rooms, uint32_t from, uint32_t end, unsigned level) {
  while (from < end) {
    uint64_t bits = load_acquire(&rooms[from / ROOM_GROUP].may_have[level]) >> from % ROOM_GROUP;
    if (bits != 0) return from + bits_lowest64(bits);
    from += ROOM_GROUP - from % ROOM_GROUP;
  }
  return from;
}

uint32_t room_next(room_t *rooms, const superslab_t *superslabs, uint32_t from, uint32_t end, unsigned level) {
  for (uint32_t s = from; s < end; s++) {
    if (HAK_UNLIKELY(is_kept(s)) && (s = room_hint(rooms, s, end, level)) >= end) break;
    /* A search that misses units because a purge has claimed them sees that purge under way: span_alloc. */
    if (has_run(load_acquire(&superslabs[s].free), level)) return s;
    if (HAK_UNLIKELY(is_kept(s))) room_drop(rooms, superslabs, s, level);
  }
  return end;
}

HAK_AUDITED bool room_has_noted(const room_t *rooms, uint32_t superslab, uint32_t free) {
  for (unsigned level = 0; is_kept(superslab) && level < ROOM_LEVELS && has_run(free, level); level++) {
    uint64_t word = load_relaxed(&rooms[superslab / ROOM_GROUP].may_have[level]);
    if ((word >> superslab % ROOM_GROUP & 1) == 0) return false;
  }
  return true;
}
