/* clean.c - a correct program that allocates, resizes and frees in every way: memcheck must report nothing.
 *
 * All blocks that it holds at its end are reachable: chains of blocks from a static variable and from thread-local ones.
 * It prints how many blocks and bytes these are, to be compared with memcheck's account. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "clean: %s\n", what);
  _exit(2);
}

static const size_t sizes[] = {0, 1, 15, 16, 40, 48, 100, 1000, 1024, 1040, 4096, 10000, 32752, 32768, 33000, 100000, 1 << 20, 3 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static char *filled(char *block, size_t size, int byte) {
  require(block != NULL, "no memory");
  return memset(block, byte, size);
}

static int holds(const char *block, size_t size, int byte) {
  for (size_t i = 0; i < size; i += 1 + size / 100)
    if (block[i] != byte) return 0;
  return 1;
}

/* ---- One thread ---- */

static void come_and_go(void) {
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < SIZES; i++) {
      char *plain = filled(malloc(sizes[i]), sizes[i], 1), *zeroed = calloc(1, sizes[i]);
      require(zeroed != NULL && holds(zeroed, sizes[i], 0), "calloc does not zero");
      filled(zeroed, sizes[i], 2);
      free(plain);
      free(zeroed);
    }
}

static void change_size(void) {
  char *block = NULL;
  size_t last = 1;
  for (int step = 0; step < 2 * SIZES; step++) {
    size_t size = sizes[step < SIZES ? step : 2 * SIZES - 1 - step] + 1;
    block = realloc(block, size);
    require(block != NULL && (step == 0 || holds(block, size < last ? size : last, 3)), "realloc loses content");
    filled(block, size, 3);
    last = size;
  }
  for (size_t size = 1; size < 300; size++) require(filled(block = realloc(block, size), size, 3) != NULL, "realloc");
  for (size_t size = 1 << 18; size < 1 << 20; size += 30000) filled(block = realloc(block, size), size, 3);
  free(block);
}

static void align(void) {
  for (size_t alignment = 16; alignment <= 4 << 20; alignment *= 2)
    for (int i = 0; i < SIZES; i += 3) {
      char *block = filled(aligned_alloc(alignment, sizes[i]), sizes[i], 4);
      require((size_t)block % alignment == 0, "not aligned");
      block = realloc(block, sizes[i] + 10);
      require(block != NULL && holds(block, sizes[i], 4), "realloc of an aligned block");
      free(block);
    }
}

static void use_whole(void) {
  for (int i = 0; i < SIZES; i++) {
    char *block = malloc(sizes[i]);
    filled(block, malloc_usable_size(block), 5);
    free(block);
  }
}

/* ---- Several ---- */

enum { THREADS = 3, ROUNDS = 400, SLOTS = 64 };
static char *slots[SLOTS];

/* Blocks pass from thread to thread; those left in the slots outlive the threads. */
static void *exchange(void *seed) {
  unsigned random = (unsigned)(size_t)seed;
  for (int i = 0; i < ROUNDS; i++) {
    random = random * 1103515245 + 12345;
    size_t size = 8 + (random >> 8) % (i % 50 == 0 ? 100000 : 600);
    char *block = filled(i % 3 ? malloc(size) : calloc(1, size), size, 6);
    char *other = __atomic_exchange_n(&slots[(random >> 4) % SLOTS], block, __ATOMIC_ACQ_REL);
    if (other != NULL && i % 2) other = realloc(other, size);
    require(other == NULL || other[0] == 6, "another thread's block");
    free(other);
  }
  return NULL;
}

static void run_threads(void) {
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) require(pthread_create(&threads[i], NULL, exchange, (void *)(i + 1)) == 0, "pthread_create");
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void free_slots(void) {
  for (int i = 0; i < SLOTS; i++) {
    free(slots[i]);
    slots[i] = NULL;
  }
}

/* The child frees inherited blocks, and uses its copy of the heap. */
static void fork_child(void) {
  pid_t child = fork();
  if (child == 0) {
    free_slots();
    come_and_go();
    run_threads();
    free_slots();
    _exit(0);
  }
  int status = -1;
  require(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child");
}

/* ---- What is held at the end ---- */

typedef struct link {
  struct link *next;
  char text[];
} link_t;
static link_t *chain;
static __thread link_t *thread_chain;
static size_t held_blocks, held_bytes;

static link_t *link_to(link_t *next, size_t size) {
  link_t *link = malloc(sizeof *link + size);
  require(link != NULL, "no memory");
  link->next = next;
  held_blocks++;
  held_bytes += sizeof *link + size;
  return link;
}

static void hold(void) {
  for (int round = 0; round < 20; round++)
    for (int i = 0; i < SIZES; i += round == 0 ? 1 : 4) chain = link_to(chain, sizes[i]);
  for (int i = 0; i < 10; i++) thread_chain = link_to(thread_chain, 100);
}

int main(void) {
  come_and_go();
  change_size();
  align();
  use_whole();
  run_threads();
  fork_child();
  free_slots();
  hold();
  char line[64];
  int length = snprintf(line, sizeof line, "%zu %zu\n", held_blocks, held_bytes);
  return write(STDOUT_FILENO, line, (size_t)length) == length ? 0 : 2;
}
