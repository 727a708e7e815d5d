/* moment.c - the state of the parent's other threads in a fork's child: the guarantee on which the repair in the child relies.
 *
 * Each writer counts up in words that lie on pages of their own, one after the
 * other, always in the same order, and stores what it has seen of the next
 * writer.  A child must see every writer between two of its stores:
 *
 * - order: of one writer's words, each has the value of the one before it, or one less
 * - cause: what a writer has seen of another, the child sees of that one too
 *
 * This tests the kernel only, and none of our code.  It would fail if pages
 * were copied one by one while the other threads went on.
 *
 * Arguments: --forks=2000, --writers=3, --pages=64, --seed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { WRITERS_MOST = 16, PAGES_MOST = 1024, PAGE = 65536 / 8 };

typedef struct writer {
  atomic_uint_fast64_t *pages; /* a word at the start of each */
  atomic_uint_fast64_t *seen;  /* the value of the next writer's first word, on a page of its own */
} writer_t;

static writer_t writers[WRITERS_MOST];
static unsigned writer_count, page_count;
static atomic_bool stopping;

static atomic_uint_fast64_t *word_of(const writer_t *w, unsigned page) { return w->pages + (size_t)page * PAGE; }

static void *write_run(void *argument) {
  writer_t *w = argument, *next = &writers[((size_t)(w - writers) + 1) % writer_count];
  for (uint64_t round = 1; !atomic_load_explicit(&stopping, memory_order_relaxed); round++) {
    for (unsigned page = 0; page < page_count; page++) atomic_store_explicit(word_of(w, page), round, memory_order_release);
    atomic_store_explicit(w->seen, atomic_load_explicit(word_of(next, 0), memory_order_acquire), memory_order_release);
  }
  return NULL;
}

/* Whether this process, forked from the one with the writers, sees each of them between two of its stores. */
static int child_look(void) {
  for (unsigned i = 0; i < writer_count; i++) {
    const writer_t *w = &writers[i], *next = &writers[(i + 1) % writer_count];
    uint64_t first = atomic_load(word_of(w, 0)), before = first;
    for (unsigned page = 1; page < page_count; page++) {
      uint64_t here = atomic_load(word_of(w, page));
      if (here > before || here + 1 < first) return 1;
      before = here;
    }
    if (atomic_load(w->seen) > atomic_load(word_of(next, 0))) return 2;
  }
  return 0;
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  writer_count = (unsigned)stress_option("writers", 3);
  page_count = (unsigned)stress_option("pages", 64);
  if (writer_count < 1 || writer_count > WRITERS_MOST || page_count < 2 || page_count > PAGES_MOST) stress_fail("out of range");
  pthread_t threads[WRITERS_MOST];
  for (unsigned i = 0; i < writer_count; i++) {
    writers[i].pages = pages_take((size_t)page_count * PAGE * sizeof(uint64_t));
    writers[i].seen = pages_take(PAGE * sizeof(uint64_t));
  }
  for (unsigned i = 0; i < writer_count; i++) {
    if (pthread_create(&threads[i], NULL, write_run, &writers[i]) != 0) stress_fail("no thread");
  }
  for (uint64_t forks = stress_count("forks", 2000); forks > 0; forks--) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(child_look());
    if (child < 0 || waitpid(child, &status, 0) != child) stress_fail("no child");
    if (status != 0)
      stress_fail("a child saw %s", WEXITSTATUS(status) == 1 ? "a later store without an earlier one" : "an effect without its cause");
  }
  atomic_store(&stopping, true);
  for (unsigned i = 0; i < writer_count; i++) pthread_join(threads[i], NULL);
  return stress_finish();
}
