/* churn.c - threads that live for a moment and leave their blocks to others.
 *
 * Each thread takes blocks out of a common table, frees them, and puts blocks
 * of its own there, so what a thread leaves is freed by one that starts after it
 * has ended.  The threads' first call varies: malloc, realloc of another's block,
 * free of another's block, or free(NULL).  At the end everything is freed.
 *
 * Checked: content; flat resident memory, at every tenth of the second half less
 * than 4 MiB above the maximum of the first half, and after malloc_trim at the end
 * less than 4 MiB above the start; and on hakmem, as many live bytes at the end as
 * at the start, and no more heaps than threads at one time.
 *
 * Thread stacks are the program's own, so that the C library keeps no block for
 * a cached stack and the count of live bytes can be exact.
 *
 * Arguments: --lifetimes=1M, --creators=2 (threads that start threads, each
 * --flock=4 at a time), --growth=4M, --seed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "letter.h"

enum { MAILBOXES = 512, CREATORS_MAX = 64, FLOCK_MAX = 64, BLOCKS = 24, STACK_SIZE = 2048 * 1024, WARM_SHARE = 50, HANG_SECONDS = 600 };

typedef struct creator {
  pthread_t handle;
  unsigned number;
  uint64_t lifetimes;
} creator_t;

static _Atomic(letter_t *) mailboxes[MAILBOXES];
static atomic_uint_fast64_t lifetimes_begun;
static size_t resident_start, resident_peak, growth_allowed;
static unsigned flock;

static size_t size_pick(rng_t *rng) { return sizeof(letter_t) + rng_size(rng, rng_one_in(rng, 64) ? 16 : 10); }

static letter_t *mailbox_swap(rng_t *rng, letter_t *letter) { return atomic_exchange(&mailboxes[rng_below(rng, MAILBOXES)], letter); }

static void first_call(rng_t *rng) {
  letter_t *letter = mailbox_swap(rng, NULL);
  switch (rng_below(rng, 3)) {
    case 0: letter_free(letter); return;
    case 1:
      if (letter != NULL) {
        size_t size = size_pick(rng), before = letter->size;
        letter = realloc(letter, size);
        if (letter == NULL || letter->size != before) stress_fail("realloc as a thread's first call lost the content");
        letter_check(letter, (size < before ? size : before) - sizeof *letter);
        letter_free(letter_write(letter, size, 1));
      }
      return;
    default:
      free(NULL);
      letter_free(letter);
      return;
  }
}

static void *life(void *argument) {
  uint64_t number = atomic_fetch_add(&lifetimes_begun, 1);
  rng_t rng = rng_make(number);
  letter_t *own[BLOCKS];
  (void)argument;
  if (rng_one_in(&rng, 2)) first_call(&rng);
  unsigned count = rng_below(&rng, BLOCKS + 1);
  for (unsigned i = 0; i < count; i++) {
    size_t size = size_pick(&rng);
    own[i] = letter_write(rng_one_in(&rng, 4) ? calloc(1, size) : malloc(size), size, number);
  }
  for (unsigned i = 0; i < count; i++) letter_free(rng_one_in(&rng, 2) ? mailbox_swap(&rng, own[i]) : own[i]);
  return NULL;
}

static void lives_run(unsigned creator, uint64_t lifetimes) {
  pthread_attr_t attributes[FLOCK_MAX];
  pthread_t handles[FLOCK_MAX];
  for (unsigned i = 0; i < flock; i++) {
    pthread_attr_init(&attributes[i]);
    pthread_attr_setstack(&attributes[i], pages_take(STACK_SIZE), STACK_SIZE);
  }
  for (uint64_t done = 0; done < lifetimes; done += flock) {
    for (unsigned i = 0; i < flock; i++)
      if (pthread_create(&handles[i], &attributes[i], life, NULL) != 0) stress_fail("creator %u got no thread", creator);
    for (unsigned i = 0; i < flock; i++) pthread_join(handles[i], NULL);
  }
}

static void *creator_run(void *argument) {
  creator_t *creator = argument;
  lives_run(creator->number, creator->lifetimes);
  return NULL;
}

static void mailboxes_empty(void) {
  for (size_t i = 0; i < MAILBOXES; i++) letter_free(atomic_exchange(&mailboxes[i], NULL));
}

static void creators_run(unsigned creators, uint64_t lifetimes) {
  static creator_t all[CREATORS_MAX];
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  for (unsigned i = 0; i < creators; i++) {
    all[i] = (creator_t){.number = i, .lifetimes = lifetimes / creators};
    pthread_attr_setstack(&attributes, pages_take(STACK_SIZE), STACK_SIZE);
    if (pthread_create(&all[i].handle, &attributes, creator_run, &all[i]) != 0) stress_fail("no creator thread");
  }
  for (unsigned i = 0; i < creators; i++) pthread_join(all[i].handle, NULL);
}

static void resident_note(const char *when, size_t before) {
  size_t resident = process_resident();
  if (resident > resident_peak) resident_peak = resident;
  stress_expect(resident < before + growth_allowed, "%s: resident %zu KiB, before %zu KiB", when, resident / KIB, before / KIB);
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  uint64_t lifetimes = stress_count("lifetimes", 1000000);
  unsigned creators = (unsigned)stress_option("creators", 2);
  flock = (unsigned)stress_option("flock", 4);
  growth_allowed = stress_option("growth", 4 * MIB);
  if (creators > CREATORS_MAX || flock > FLOCK_MAX) stress_fail("at most %d creators and a flock of %d", CREATORS_MAX, FLOCK_MAX);
  uint64_t begin = clock_ns();
  resident_start = process_resident();
  creators_run(creators, lifetimes / WARM_SHARE);
  mailboxes_empty();
  hak_stats_t before, after;
  size_t resident_settled = 0;
  bool hakmem = stress_stats(&before);
  for (unsigned tenth = 1; tenth <= 10; tenth++) {
    char when[32];
    snprintf(when, sizeof when, "tenth %u", tenth);
    stress_watch((unsigned)(HANG_SECONDS + lifetimes / 1000), when);
    creators_run(creators, lifetimes / 10);
    size_t resident = process_resident();
    if (tenth > 5) resident_note(when, resident_settled);
    else if (resident > resident_settled) /* it varies with the memory that waits for decay */ resident_settled = resident;
  }
  mailboxes_empty();
  (void)stress_trim(); /* without waiting for the decay */
  resident_note("all freed", resident_start);
  stress_say("%llu lifetimes in %.1f s, resident: start %zu, peak %zu, end %zu KiB", (unsigned long long)atomic_load(&lifetimes_begun),
             (double)(clock_ns() - begin) / 1e9, resident_start / KIB, resident_peak / KIB, process_resident() / KIB);
  if (hakmem && stress_stats(&after)) {
    stress_say("live bytes: %llu before, %llu after; heaps %llu, orphaned %llu", (unsigned long long)before.live,
               (unsigned long long)after.live, (unsigned long long)after.heaps, (unsigned long long)after.heaps_orphaned);
    stress_expect(after.live == before.live, "live bytes: %llu at the start, %llu at the end", (unsigned long long)before.live,
                  (unsigned long long)after.live);
    stress_expect(after.heaps <= 1 + creators * (flock + 1) + 2, "%llu heaps", (unsigned long long)after.heaps);
  }
  return stress_finish();
}
