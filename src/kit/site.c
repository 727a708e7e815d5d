#include "kit/site.h"

#include "base/atomics.h"
#include "kit/closed.h"
#include "kit/meta.h"
#include "kit/random.h"
#include "os/memo.h"
#include "os/module.h"
#include "os/os.h"
#include "os/probe.h"
#include "os/unwind.h"

__thread uint32_t site_tag;

/* --- the tree ----------------------------------------------------------------------------- */

/* The first sites use one page of buckets, which is enough for most programs.  Later sites use a larger table; without it, a walk of 30
 * calls would visit hundreds of other sites in the buckets. */
#define FEW_SHIFT 10
#define FEW_SITES (4u << FEW_SHIFT)
#define MANY_SHIFT 14

HAK_APART void *_Atomic site_chunks[SITE_MOST / SITE_CHUNK];
static HAK_APART _Atomic uint32_t site_buckets[1 << FEW_SHIFT]; /* the newest site of each hash */
static void *_Atomic site_buckets_many;
_Atomic uint32_t site_count = 1; /* numbers in use, including SITE_NONE */

static site_t *node_at(uint32_t number) {
  site_t *chunk = load_acquire(&site_chunks[number >> SITE_CHUNK_SHIFT]);
  return chunk == NULL ? NULL : &chunk[number % SITE_CHUNK];
}

const site_t *site_at(uint32_t number) { return number != SITE_NONE && number < SITE_MOST ? node_at(number) : NULL; }

static site_t *node_make(uint32_t number) {
  site_t *chunk = meta_once(&site_chunks[number >> SITE_CHUNK_SHIFT], SITE_CHUNK * sizeof(site_t));
  return chunk == NULL ? NULL : &chunk[number % SITE_CHUNK];
}

/* Searches the chain from `number` down to `end`, exclusive. */
static uint32_t node_find(uint32_t number, uint32_t end, uint32_t parent, uintptr_t address) {
  while (number != end) {
    const site_t *site = node_at(number);
    if (racy_load(&site->address) == address && site->parent == parent) return number; /* site_move */
    number = site->next;
  }
  return SITE_NONE;
}

/* Hashes only the part of an address that stays the same if its module is loaded elsewhere. */
static uint64_t node_hash(uint32_t parent, uintptr_t address) { return random_mix(address % PROBE_PAGE ^ (uint64_t)parent << 16); }

static uint32_t site_find(uint64_t hash, uint32_t parent, uintptr_t address) {
  const _Atomic uint32_t *bucket = &site_buckets[hash >> (64 - FEW_SHIFT)], *buckets = load_acquire(&site_buckets_many);
  uint32_t found = node_find(load_acquire(bucket), SITE_NONE, parent, address);
  if (found != SITE_NONE || buckets == NULL) return found;
  bucket = &buckets[hash >> (64 - MANY_SHIFT)];
  return node_find(load_acquire(bucket), SITE_NONE, parent, address);
}

/* If the code at the address was closed and is loaded again, moves its sites back and returns true.  Does nothing while another thread
 * holds the loader lock. */
static HAK_COLD bool sites_come_back(uintptr_t address) {
  code_t code;
  if (!module_hold()) return false; /* the address may come from a guess of the walk */
  bool known = code_with(address, &code);
  module_let_go();
  if (!known || !lock_try(&loader_lock)) return false;
  uintptr_t place = closed_leave(&code);
  if (place != 0) site_move(place, place + (code.end - code.start), code.start);
  lock_release(&loader_lock);
  return place != 0;
}

/* Finds or makes the site; returns the parent if there is no room for another.  While the larger table is new, two threads may make two
 * sites for the same call.  Only a new site requests that table: otherwise, without memory for it, a walk would request it in vain for each
 * of its calls. */
static uint32_t site_enter(uint32_t parent, uintptr_t address) {
  uint64_t hash = node_hash(parent, address);
  _Atomic uint32_t *bucket = &site_buckets[hash >> (64 - FEW_SHIFT)], *buckets = load_acquire(&site_buckets_many);
  if (buckets != NULL) bucket = &buckets[hash >> (64 - MANY_SHIFT)];
  uint32_t first = load_acquire(bucket), found = site_find(hash, parent, address);
  if (found == SITE_NONE && HAK_UNLIKELY(load_relaxed(&closed_count) != 0) && sites_come_back(address)) {
    found = site_find(hash, parent, address);
  }
  if (found != SITE_NONE) return found;
  if (buckets == NULL && load_relaxed(&site_count) >= FEW_SITES) {
    buckets = meta_once(&site_buckets_many, sizeof *buckets << MANY_SHIFT);
    if (buckets != NULL) bucket = &buckets[hash >> (64 - MANY_SHIFT)], first = SITE_NONE; /* bucket not searched yet, may have sites */
  }
  site_t *site;
  uint32_t number = load_relaxed(&site_count);
  do { /* never take a number without memory for it */
    site = number < SITE_MOST ? node_make(number) : NULL;
    if (site == NULL) return parent;
  } while (!atomic_compare_exchange_weak_explicit(&site_count, &number, number + 1, memory_order_relaxed, memory_order_relaxed));
  racy_store(&site->address, address); /* a snapshot may read it */
  racy_store(&site->parent, parent);
  site->next = first;
  while (!atomic_compare_exchange_strong_explicit(bucket, &site->next, number, memory_order_release, memory_order_acquire)) {
    found = node_find(site->next, first, parent, address); /* sites were entered since, perhaps this one */
    if (found != SITE_NONE) return found;
    first = site->next;
  }
  return number;
}

/* Returns the first site from `number` on that is in [start, end), or SITE_NONE. */
static HAK_COLD uint32_t next_within(uint32_t number, uintptr_t start, uintptr_t end) {
  uint32_t count = load_relaxed(&site_count);
  for (; number < count && number < SITE_MOST; number++) {
    const site_t *site = node_at(number);
    uintptr_t address = site != NULL ? racy_load(&site->address) : 0;
    if (address >= start && address < end) return number;
  }
  return SITE_NONE;
}

HAK_COLD bool site_knows(uintptr_t start, uintptr_t end) { return next_within(SITE_NONE + 1, start, end) != SITE_NONE; }

HAK_COLD void site_move(uintptr_t start, uintptr_t end, uintptr_t to) {
  for (uint32_t i = next_within(SITE_NONE + 1, start, end); i != SITE_NONE; i = next_within(i + 1, start, end)) {
    site_t *site = node_at(i);
    racy_store(&site->address, to + (site->address - start));
  }
}

/* --- stacks ------------------------------------------------------------------------------- */

static _Atomic bool sites_starting, sites_ready;

/* Done by one thread; until it is done, stacks are unknown. */
void site_start(void) {
  if (atomic_exchange_explicit(&sites_starting, true, memory_order_relaxed)) return;
  unwind_prepare();
  store_release(&sites_ready, true);
}

/* Takes the innermost frames and skips those of this library; returns how many are left, from *first on. */
static uint32_t frames_take(void **frames, uint32_t most, unwind_reads_t *reads, void ***first) {
  uint32_t count = unwind_here(frames, most, NULL, reads), ours = 0;
  while (ours < count && module_is_ours((uintptr_t)frames[ours])) ours++;
  *first = frames + ours;
  return count - ours;
}

/* Called from one place, which is never duplicated: in an archive our own calls cannot be told from the program's, so two calling places
 * would make two sites of every stack. */
static HAK_NOINLINE uint32_t site_walk(void) {
  void *frames[SITE_FRAMES], **first;
  uint32_t site = SITE_NONE;
  for (uint32_t i = frames_take(frames, SITE_FRAMES, NULL, &first); i-- > 0;) {
    uint32_t inner = site_enter(site, (uintptr_t)first[i]);
    if (inner == site) break; /* no room: frames further in would seem to be called from here */
    site = inner;
  }
  return site;
}

/* --- site numbers cached by the innermost calls -------------------------------------------- */

/* An entry: some of the key's hash, how right its site has proved, whether the key belongs to several sites, how often the entry may
 * still be trusted, the site.  Each check that finds it right doubles the trust: so a key of several sites is found out before many samples
 * have gone to the wrong one. */
#define KEY_SHIFT 9
#define KEY_FRAMES 12 /* including those of this library */
enum { KEY_HASH = 35, KEY_RIGHT = 32, KEY_RIGHT_LEAST = 1, KEY_RIGHT_MOST = 5, KEY_AMBIGUOUS = 31, KEY_TRUST = 26, KEY_TRUST_MOST = 31 };
_Static_assert(SITE_MOST <= 1 << KEY_TRUST, "a site's number has its bits");
_Static_assert((1 << KEY_RIGHT_MOST) - 1 == KEY_TRUST_MOST, "what is trusted most has its bits");

static HAK_APART _Atomic uint64_t site_keys[1 << KEY_SHIFT];
_Atomic uint64_t site_keys_checked, site_keys_wrong;
static __thread uintptr_t site_depth_from; /* a fixed place in the thread's stack */

static uint64_t key_hash(void) {
  void *frames[KEY_FRAMES], **first;
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  uint64_t hash;
  if (memo_find(here, &hash)) return hash;
  unwind_reads_t reads = {.from = here};
  if (site_depth_from == 0) site_depth_from = here;
  hash = site_depth_from - here;
  for (uint32_t i = frames_take(frames, KEY_FRAMES, &reads, &first); i-- > 0;) hash = random_mix(hash ^ (uintptr_t)first[i]);
  memo_keep(&reads, hash);
  return hash;
}

static uint64_t key_of(uint64_t hash, unsigned right, bool ambiguous, uint32_t site) {
  uint64_t trust = ((uint64_t)1 << right) - 1;
  return hash >> KEY_HASH << KEY_HASH | (uint64_t)right << KEY_RIGHT | (uint64_t)ambiguous << KEY_AMBIGUOUS | trust << KEY_TRUST | site;
}

/* A separate function, so that the usual case does not need stack for its frames. */
static HAK_NOINLINE uint32_t site_look(uint64_t hash, _Atomic uint64_t *entry, uint64_t before) {
  uint32_t site = site_walk();
  bool known = before >> KEY_HASH == hash >> KEY_HASH, ambiguous = known && (before >> KEY_AMBIGUOUS & 1) != 0;
  unsigned right = KEY_RIGHT_LEAST;
  if (known && !ambiguous) {
    right = (unsigned)(before >> KEY_RIGHT) % (1u << (KEY_HASH - KEY_RIGHT));
    uint64_t trusted = ((uint64_t)1 << right) - 1;
    ambiguous = (before & (((uint64_t)1 << KEY_TRUST) - 1)) != site;
    add_relaxed(&site_keys_checked, trusted + 1);
    if (ambiguous) add_relaxed(&site_keys_wrong, trusted);
    if (right < KEY_RIGHT_MOST) right++;
  }
  store_relaxed(entry, key_of(hash, right, ambiguous, site));
  return site;
}

uint32_t site_here(void) {
  if (!load_acquire(&sites_ready)) return SITE_NONE;
  uint64_t hash = key_hash();
  _Atomic uint64_t *entry = &site_keys[hash % ((uint32_t)1 << KEY_SHIFT)];
  uint64_t found = load_relaxed(entry);
  bool trusted = (found >> KEY_TRUST & KEY_TRUST_MOST) != 0 && (found >> KEY_AMBIGUOUS & 1) == 0;
  if (found >> KEY_HASH != hash >> KEY_HASH || !trusted) return site_look(hash, entry, found);
  store_relaxed(entry, found - ((uint64_t)1 << KEY_TRUST));
  return (uint32_t)(found & (((uint64_t)1 << KEY_TRUST) - 1));
}

HAK_COLD void site_forget(void) {
  unwind_forget();
  memo_forget();
  for (uint32_t i = 0; i < (uint32_t)1 << KEY_SHIFT; i++) store_relaxed(&site_keys[i], (uint64_t)0);
}

site_figures_t site_figures(void) {
  uint32_t numbers = load_relaxed(&site_count);
  if (numbers > SITE_MOST) numbers = SITE_MOST;
  return (site_figures_t){numbers - 1, load_relaxed(&site_keys_checked), load_relaxed(&site_keys_wrong)};
}
