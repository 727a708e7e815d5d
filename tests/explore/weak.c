#include "weak.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "explore.h"

enum {
  SC = EXPLORE_ACTORS,      /* index in a view: the number of seq_cst stores */
  CLOCKS = EXPLORE_ACTORS + 1,
  NONE = 0,                 /* instead of an index */
  STORES = 1 << 20,
  MEETINGS = 1 << 20,
  ACCESSES = 1 << 20,
  LOCATIONS = 1 << 15,      /* a power of two, as is the next */
  GRANULES = 1 << 17,
  RUN = 64,                 /* granules side by side */
  NEVER = 0
};

/* A vector clock: the last step of each actor that is included. */
typedef struct view {
  uint32_t at[CLOCKS];
} view_t;

typedef struct knowledge {
  view_t before; /* happens before the actor's next step */
  view_t seen;   /* no read may miss this: all of `before`, and what seq_cst fences add without happens-before */
} knowledge_t;

typedef struct store {
  uint64_t value;
  knowledge_t brings;
  bool is_released; /* an acquire load takes over what it brings */
  bool is_first;    /* no older store can be read */
  uint32_t number;  /* in modification order */
  uint32_t older;
  uint32_t sc;      /* its number among seq_cst stores, from 1; NEVER */
} store_t;

/* At this step, an actor has stored or read the store of a location that has this number. */
typedef struct meeting {
  uint32_t step, number, older;
} meeting_t;

typedef struct location {
  const volatile void *at;
  uint64_t execution;
  uint32_t newest;
  uint32_t met[EXPLORE_ACTORS]; /* the last meeting of each actor */
} location_t;

/* The last access of one kind by one actor to the same bytes of a granule. */
typedef struct access {
  const void *place;
  uint32_t step, next;
  uint8_t actor, bytes, writes, is_atomic;
} access_t;

/* Eight bytes. */
typedef struct granule {
  uintptr_t number;
  uint64_t execution;
  uint32_t first;
} granule_t;

typedef struct actor {
  knowledge_t knows;
  knowledge_t has_read; /* from relaxed loads: the next acquire fence takes it over */
  knowledge_t fenced;   /* at the last release fence: later relaxed stores carry it */
  bool has_fenced;
} actor_t;

typedef struct weak {
  uint64_t execution;
  actor_t actors[EXPLORE_ACTORS];
  view_t fences; /* what was known at any seq_cst fence */
  uint32_t sc_stores, stores_used, meetings_used, accesses_used, locations_used, granules_used;
  location_t locations[LOCATIONS];
  granule_t granules[GRANULES];
  store_t stores[STORES];
  meeting_t meetings[MEETINGS];
  access_t accesses[ACCESSES];
} weak_t;

static weak_t *w;

void weak_start(void) {
  w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (w == MAP_FAILED) abort();
}

void weak_restart(void) {
  w->execution++;
  w->stores_used = w->meetings_used = w->accesses_used = 1;
  w->sc_stores = 0;
  memset(&w->fences, 0, sizeof w->fences);
  memset(w->actors, 0, sizeof w->actors);
  for (unsigned i = 0; i < EXPLORE_ACTORS; i++) w->actors[i].knows.before.at[i] = w->actors[i].knows.seen.at[i] = 1;
}

/* --- orders, views ----------------------------------------------------------------------- */

static bool acquires(int order) { return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE; }
static bool releases(int order) { return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST; }

static void view_join(view_t *view, const view_t *other) {
  for (unsigned i = 0; i < CLOCKS; i++) {
    if (view->at[i] < other->at[i]) view->at[i] = other->at[i];
  }
}

static void learn(knowledge_t *knowledge, const knowledge_t *other) {
  view_join(&knowledge->before, &other->before);
  view_join(&knowledge->seen, &other->seen);
}

static actor_t *me(void) { return &w->actors[explore_actor()]; }
static uint32_t my_step(void) { return me()->knows.before.at[explore_actor()]; }

/* Begins a new step after a release, since what follows is not part of it. */
static void step(void) { me()->knows.seen.at[explore_actor()] = ++me()->knows.before.at[explore_actor()]; }

/* --- memory ------------------------------------------------------------------------------ */

uint64_t weak_memory_get(const volatile void *at, unsigned bytes) {
  switch (bytes) {
    case 1: return *(const volatile uint8_t *)at;
    case 2: return *(const volatile uint16_t *)at;
    case 4: return *(const volatile uint32_t *)at;
    default: return *(const volatile uint64_t *)at;
  }
}

void weak_memory_set(volatile void *at, unsigned bytes, uint64_t value) {
  switch (bytes) {
    case 1: *(volatile uint8_t *)at = (uint8_t)value; break;
    case 2: *(volatile uint16_t *)at = (uint16_t)value; break;
    case 4: *(volatile uint32_t *)at = (uint32_t)value; break;
    default: *(volatile uint64_t *)at = value; break;
  }
}

static size_t hash(uintptr_t x, size_t size) { return (size_t)((x * 0x9e3779b97f4a7c15u) >> 32) % size; }

static store_t *store_push(location_t *location, uint64_t value) {
  if (w->stores_used == STORES) abort();
  store_t *store = &w->stores[w->stores_used];
  memset(store, 0, sizeof *store);
  store->value = value;
  store->older = location->newest;
  store->number = location->newest != NONE ? w->stores[location->newest].number + 1 : 0;
  location->newest = w->stores_used++;
  return store;
}

static location_t *location_slot(const volatile void *at) {
  size_t i = hash((uintptr_t)at, LOCATIONS);
  while (w->locations[i].at != at && w->locations[i].at != NULL) i = (i + 1) % LOCATIONS;
  if (w->locations[i].at == NULL) {
    if (++w->locations_used > LOCATIONS / 4 * 3) abort();
    w->locations[i].at = at;
  }
  return &w->locations[i];
}

/* Memory always holds the newest value. If it differs from the newest store known here, the value was stored plainly; the race
 * check below, which weak_plain calls, ensures that this store was ordered. */
static location_t *location_of(const volatile void *at, unsigned bytes) {
  location_t *location = location_slot(at);
  uint64_t value = weak_memory_get(at, bytes);
  if (location->execution != w->execution) {
    location->execution = w->execution;
    location->newest = NONE;
    memset(location->met, 0, sizeof location->met);
  }
  if (location->newest == NONE || w->stores[location->newest].value != value) store_push(location, value)->is_first = true;
  return location;
}

/* --- what can be read -------------------------------------------------------------------- */

static void meet(location_t *location, uint32_t number) {
  uint32_t *last = &location->met[explore_actor()];
  meeting_t *meeting = &w->meetings[*last];
  if (*last != NONE && meeting->number >= number) return;
  if (*last == NONE || meeting->step != my_step()) {
    if (w->meetings_used == MEETINGS) abort();
    w->meetings[w->meetings_used] = (meeting_t){my_step(), number, *last};
    *last = w->meetings_used++;
  } else {
    meeting->number = number;
  }
}

/* The newest store that the actors have stored or read, as far as the view includes their steps; nothing older may be read. */
static uint32_t oldest_by(const location_t *location, const view_t *view) {
  uint32_t oldest = 0;
  for (unsigned q = 0; q < EXPLORE_ACTORS; q++) {
    uint32_t i = location->met[q];
    while (i != NONE && w->meetings[i].step > view->at[q]) i = w->meetings[i].older;
    if (i != NONE && w->meetings[i].number > oldest) oldest = w->meetings[i].number;
  }
  return oldest;
}

/* Finds the stores that a read may return, newest first. Returns how many there are. */
static unsigned readable(const location_t *location, int order, uint32_t found[EXPLORE_OPTIONS]) {
  const actor_t *actor = me();
  uint32_t oldest = oldest_by(location, &actor->knows.seen);
  uint32_t sc = order == __ATOMIC_SEQ_CST ? UINT32_MAX : actor->knows.seen.at[SC];
  if (order == __ATOMIC_SEQ_CST) {
    uint32_t fenced = oldest_by(location, &w->fences);
    if (fenced > oldest) oldest = fenced;
  }
  unsigned count = 0;
  for (uint32_t i = location->newest; i != NONE && count < EXPLORE_OPTIONS; i = w->stores[i].older) {
    const store_t *store = &w->stores[i];
    found[count++] = i;
    if (store->is_first || store->number <= oldest || (store->sc != NEVER && store->sc <= sc)) break;
  }
  return count;
}

static uint64_t take_in(location_t *location, const store_t *store, int order) {
  meet(location, store->number);
  if (store->is_released) learn(acquires(order) ? &me()->knows : &me()->has_read, &store->brings);
  return store->value;
}

/* --- accesses to atomic words ------------------------------------------------------------ */

static void note(const volatile void *at, size_t bytes, bool writes, bool is_atomic, const void *place);

/* `read`: the store that a read-modify-write has read and whose release sequence it continues, or NULL. */
static void put(location_t *location, unsigned bytes, uint64_t value, int order, const store_t *read) {
  actor_t *actor = me();
  store_t *store = store_push(location, value);
  if (read != NULL && read->is_released) {
    store->is_released = true;
    store->brings = read->brings;
  }
  if (releases(order) || actor->has_fenced) {
    store->is_released = true;
    learn(&store->brings, releases(order) ? &actor->knows : &actor->fenced);
  }
  if (order == __ATOMIC_SEQ_CST) store->sc = ++w->sc_stores;
  meet(location, store->number);
  if (releases(order)) step();
  weak_memory_set((volatile void *)(uintptr_t)location->at, bytes, value);
}

uint64_t weak_load(volatile void *at, unsigned bytes, int order, const void *place) {
  note(at, bytes, false, true, place);
  location_t *location = location_of(at, bytes);
  uint32_t found[EXPLORE_OPTIONS];
  unsigned count = explore_may_be_stale() ? readable(location, order, found) : 1;
  unsigned pick = explore_pick(count);
  return take_in(location, &w->stores[pick == 0 ? location->newest : found[pick]], order);
}

void weak_store(volatile void *at, unsigned bytes, uint64_t value, int order, const void *place) {
  note(at, bytes, true, true, place);
  put(location_of(at, bytes), bytes, value, order, NULL);
}

uint64_t weak_change(volatile void *at, unsigned bytes, uint64_t (*change)(uint64_t, uint64_t), uint64_t operand, int order,
                     const void *place) {
  note(at, bytes, true, true, place);
  location_t *location = location_of(at, bytes);
  const store_t *read = &w->stores[location->newest];
  uint64_t before = take_in(location, read, order);
  uint64_t mask = bytes == 8 ? UINT64_MAX : ((uint64_t)1 << bytes * 8) - 1;
  put(location, bytes, change(before, operand) & mask, order, read);
  return before;
}

bool weak_compare_exchange(volatile void *at, unsigned bytes, uint64_t *expected, uint64_t value, int order, int failed,
                           const void *place) {
  location_t *location = location_of(at, bytes);
  uint32_t found[EXPLORE_OPTIONS];
  unsigned count = 1, all = explore_may_be_stale() ? readable(location, failed, found) : 1;
  found[0] = location->newest;
  /* It may read an older store and fail, but cannot succeed with one. */
  for (unsigned i = 1; i < all; i++) {
    if (w->stores[found[i]].value != *expected) found[count++] = found[i];
  }
  const store_t *read = &w->stores[found[explore_pick(count)]];
  bool succeeds = read->value == *expected;
  note(at, bytes, succeeds, true, place);
  uint64_t before = take_in(location, read, succeeds ? order : failed);
  if (succeeds) put(location, bytes, value, order, read);
  else *expected = before;
  return succeeds;
}

void weak_fence(int order) {
  actor_t *actor = me();
  if (acquires(order)) learn(&actor->knows, &actor->has_read);
  if (order == __ATOMIC_SEQ_CST) {
    view_join(&actor->knows.seen, &w->fences);
    actor->knows.seen.at[SC] = w->sc_stores;
    view_join(&w->fences, &actor->knows.seen);
  }
  if (!releases(order)) return;
  actor->fenced = actor->knows;
  actor->has_fenced = true;
  step();
}

void weak_alone(void) {
  for (unsigned q = 0; q < EXPLORE_ACTORS; q++) learn(&me()->knows, &w->actors[q].knows);
}

void weak_barrier(void) {
  for (unsigned q = 0; q < EXPLORE_ACTORS; q++) learn(&me()->knows, &w->actors[q].knows);
  for (unsigned q = 0; q < EXPLORE_ACTORS; q++) {
    actor_t *actor = &w->actors[q];
    learn(&actor->knows, &me()->knows);
    actor->fenced = actor->knows;
    actor->has_fenced = true;
  }
  for (unsigned q = 0; q < EXPLORE_ACTORS; q++) w->actors[q].knows.seen.at[q] = ++w->actors[q].knows.before.at[q];
}

/* --- races ------------------------------------------------------------------------------- */

/* Neighbouring granules lie side by side in the table, since one access often covers many. */
static granule_t *granule_of(uintptr_t number) {
  size_t i = hash(number / RUN, GRANULES / RUN) * RUN + number % RUN;
  while (w->granules[i].number != number && w->granules[i].number != 0) i = (i + RUN) % GRANULES;
  granule_t *granule = &w->granules[i];
  if (granule->number == 0) {
    if (++w->granules_used > GRANULES / 4 * 3) abort();
    granule->number = number;
  }
  if (granule->execution != w->execution) {
    granule->execution = w->execution;
    granule->first = NONE;
  }
  return granule;
}

/* Accesses by two actors to a common byte, at least one a write and at least one plain, race unless they are ordered. */
static bool races(const access_t *a, const access_t *b) {
  return a->actor != b->actor && (a->bytes & b->bytes) != 0 && (a->writes || b->writes) && !(a->is_atomic && b->is_atomic) &&
         a->step > me()->knows.before.at[a->actor];
}

static void granule_note(uintptr_t number, const access_t *access) {
  granule_t *granule = granule_of(number);
  access_t *same = NULL;
  for (uint32_t i = granule->first; i != NONE; i = w->accesses[i].next) {
    access_t *other = &w->accesses[i];
    if (races(other, access)) explore_race((void *)(number * 8), other->place, other->actor, access->place);
    if (other->actor == access->actor && other->bytes == access->bytes && other->writes == access->writes &&
        other->is_atomic == access->is_atomic) {
      same = other;
    }
  }
  if (same != NULL) {
    same->step = access->step;
    same->place = access->place;
    return;
  }
  if (w->accesses_used == ACCESSES) abort();
  access_t *noted = &w->accesses[w->accesses_used];
  noted->place = access->place; /* field by field: copying the struct would stall on the recent stores to its fields */
  noted->step = access->step;
  noted->next = granule->first;
  noted->actor = access->actor;
  noted->bytes = access->bytes;
  noted->writes = access->writes;
  noted->is_atomic = access->is_atomic;
  granule->first = w->accesses_used++;
}

static void note(const volatile void *at, size_t bytes, bool writes, bool is_atomic, const void *place) {
  access_t access = {.place = place, .step = my_step(), .actor = (uint8_t)explore_actor(), .writes = writes, .is_atomic = is_atomic};
  for (uintptr_t start = (uintptr_t)at, end = start + bytes; start < end;) {
    uintptr_t border = (start | 7) + 1, stop = border < end ? border : end;
    access.bytes = (uint8_t)(((1u << (stop - start)) - 1) << start % 8);
    granule_note(start / 8, &access);
    start = stop;
  }
}

void weak_plain(const volatile void *at, size_t bytes, bool writes, const void *place) { note(at, bytes, writes, false, place); }
