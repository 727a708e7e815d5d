/* limits.c - a program whose address space or data is limited, by itself or from outside.
 *
 * - start: at the start less than 16 MiB is mapped private and writable, and less than
 *   16 MiB is held without access
 * - lowered: RLIMIT_AS set by setrlimit, setrlimit64, prlimit and prlimit64, by a system
 *   call that no library sees and by another process, with and without other threads.  Afterwards the stack grows, small and middle blocks
 *   can be had, and old blocks are intact; once the limit is raised, large ones can be had too
 * - sweep: for RLIMIT_AS, and RLIMIT_DATA, at 8 to 512 MiB above the present use:
 *   fill the memory with blocks of one size until NULL with ENOMEM; check content
 *   and a failing realloc; free all; seven sizes up and seven down in one process.
 *   Each pass serves 95 % of the budget (90 % below 64 MiB; sizes up to 1/64 of it)
 *   and as much on the way down as on the way up: nothing is lost
 * - threads: the same with four threads that fill concurrently and free each other's blocks;
 *   one of them calls malloc for the first time when nothing is left
 * - eight: 8 threads that allocate and free; run under `ulimit -v 204800` by limits.sh
 * - crash: allocates a little and aborts; limits.sh measures the core dump
 *
 * Each case is a process of its own.  On hakmem the amounts served are judged;
 * on another malloc they are printed.
 *
 * Arguments: --scene=all (without eight and crash), --most=512M above the present use, --seed.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { SIZES = 7, EXTRAS = 7, FILLERS = 4, WAYS = 6, HANG_SECONDS = 300, EIGHT = 8 };

static const size_t sizes[SIZES] = {16, 200, 1000, 8 * KIB, 64 * KIB, MIB, 4 * MIB};
static const size_t extras[EXTRAS] = {8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB, 256 * MIB, 512 * MIB};

/* Runs `scene(argument)` in a child; its failures count as failures of this process. */
static void apart(const char *name, void (*scene)(uintptr_t), uintptr_t argument) {
  pid_t pid = fork();
  int status;
  if (pid == 0) {
    stress_watch(HANG_SECONDS, name);
    scene(argument);
    exit(stress_finish());
  }
  waitpid(pid, &status, 0);
  stress_expect(status == 0, "%s %zu: ended with status 0x%x", name, (size_t)argument, (unsigned)status);
}

/* ---- What is mapped ---- */

typedef struct mapped {
  size_t accessible; /* any permission */
  size_t writable;   /* private and writable */
  size_t reserved;   /* no permission */
} mapped_t;

/* Reads /proc/self/maps without stdio, which would allocate. */
static mapped_t maps_read(void) {
  static char text[1 << 20];
  mapped_t mapped = {0, 0, 0};
  FILE *file = fopen("/proc/self/maps", "r");
  if (file == NULL) stress_fail("no /proc/self/maps");
  setvbuf(file, text, _IOFBF, sizeof text);
  char line[4400], permissions[8];
  unsigned long from, to;
  while (fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "%lx-%lx %7s", &from, &to, permissions) == 3) {
      bool none = strncmp(permissions, "---", 3) == 0;
      *(none ? &mapped.reserved : &mapped.accessible) += to - from;
      if (permissions[1] == 'w' && permissions[3] == 'p') mapped.writable += to - from;
    }
  fclose(file);
  return mapped;
}

static void scene_start(uintptr_t unused) {
  (void)unused;
  mapped_t mapped = maps_read();
  stress_say("start: %zu KiB accessible, %zu KiB private and writable, %zu MiB reserved, %zu KiB resident", mapped.accessible / KIB,
             mapped.writable / KIB, mapped.reserved / MIB, process_resident() / KIB);
  stress_expect(mapped.writable < 16 * MIB, "start: %zu KiB private and writable", mapped.writable / KIB);
  stress_expect(mapped.reserved < 16 * MIB, "start: %zu KiB held without access", mapped.reserved / KIB);
}

/* ---- lowered ---- */

static void limit_set(__typeof__(RLIMIT_AS) resource, size_t bytes) {
  bool addresses = resource == RLIMIT_AS; /* only constants convert to the type that each libc takes */
  struct rlimit limit;
  (void)(addresses ? getrlimit(RLIMIT_AS, &limit) : getrlimit(RLIMIT_DATA, &limit));
  limit.rlim_cur = bytes;
  if ((addresses ? setrlimit(RLIMIT_AS, &limit) : setrlimit(RLIMIT_DATA, &limit)) != 0) stress_fail("setrlimit: errno %d", errno);
}

/* As `prlimit -p` does it. */
static int as_lower_outside(const struct rlimit64 *limit) {
  int status;
  pid_t pid = fork();
  if (pid == 0) _exit(syscall(SYS_prlimit64, getppid(), RLIMIT_AS, limit, NULL) != 0);
  waitpid(pid, &status, 0);
  return status;
}

static void as_lower(unsigned how, size_t bytes) {
  struct rlimit limit;
  struct rlimit64 limit64;
  getrlimit(RLIMIT_AS, &limit);
  getrlimit64(RLIMIT_AS, &limit64);
  limit.rlim_cur = bytes;
  limit64.rlim_cur = bytes;
  int error = how == 0   ? setrlimit(RLIMIT_AS, &limit)
              : how == 1 ? setrlimit64(RLIMIT_AS, &limit64)
              : how == 2 ? prlimit(0, RLIMIT_AS, &limit, NULL)
              : how == 3 ? prlimit64(getpid(), RLIMIT_AS, &limit64, NULL)
              : how == 4 ? (int)syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit64, NULL)
                         : as_lower_outside(&limit64);
  if (error != 0) stress_fail("lowered: way %u: errno %d", how, errno);
}

/* Recursion that the compiler cannot turn into a loop: about 1 KiB for each level. */
__attribute__((noinline)) static unsigned stack_grow(unsigned levels) {
  volatile unsigned char frame[KIB];
  memset((void *)(uintptr_t)frame, (int)levels, sizeof frame);
  return levels == 0 ? frame[7] : stack_grow(levels - 1) + frame[levels % KIB];
}

static unsigned char *blocks_fill(size_t count, size_t size, void **blocks, unsigned char byte) {
  for (size_t i = 0; i < count; i++) {
    blocks[i] = malloc(size);
    if (blocks[i] == NULL)
      stress_fail("lowered: block %zu of %zu x %zu bytes: errno %d, %zu MiB mapped", i, count, size, errno, process_virtual() / MIB);
    memset(blocks[i], byte, size);
  }
  return blocks[0];
}

static void blocks_check(size_t count, size_t size, void **blocks, unsigned char byte) {
  for (size_t i = 0; i < count; i++)
    for (size_t offset = 0; offset < size; offset++)
      if (((unsigned char *)blocks[i])[offset] != byte) stress_fail("lowered: block %zu of %zu bytes changed at %zu", i, size, offset);
}

static atomic_bool pausing;

static void *bystander_run(void *unused) {
  (void)unused;
  while (!atomic_load(&pausing)) {
    void *block = malloc(3000);
    if (block == NULL) stress_fail("lowered: a bystander got no block: errno %d", errno);
    free(block);
  }
  return NULL;
}

static void scene_lowered(uintptr_t kind) {
  static void *old[2000], *fresh[8000], *middle[8];
  unsigned how = (unsigned)(kind % WAYS);
  bool threads = kind >= WAYS;
  pthread_t bystanders[2];
  for (unsigned i = 0; threads && i < 2; i++) pthread_create(&bystanders[i], NULL, bystander_run, NULL);
  blocks_fill(2000, 1000, old, 0x11);
  size_t limit = maps_read().accessible + (threads ? 200 * MIB : 32 * MIB); /* glibc's arenas reserve 128 MiB */
  as_lower(how, limit);
  stress_say("lowered: way %u, %s: limit %zu MiB, %zu MiB mapped", how, threads ? "threads" : "alone", limit / MIB,
             process_virtual() / MIB);
  stack_grow(4 * 1024);
  blocks_fill(8000, 1000, fresh, 0x22);
  blocks_fill(8, MIB, middle, 0x33);
  blocks_check(2000, 1000, old, 0x11);
  void *volatile big = malloc(limit);
  if (big != NULL || errno != ENOMEM) stress_fail("lowered: %zu MiB under a limit of as much gave %p, errno %d", limit / MIB, big, errno);
  as_lower(how, RLIM_INFINITY);
  big = malloc(512 * MIB);
  if (big == NULL) stress_fail("lowered: 512 MiB failed after the limit was raised: errno %d", errno);
  memset(big, 1, 64 * MIB);
  free(big);
  blocks_check(8000, 1000, fresh, 0x22);
  blocks_check(8, MIB, middle, 0x33);
  atomic_store(&pausing, true);
  for (unsigned i = 0; threads && i < 2; i++) pthread_join(bystanders[i], NULL);
}

/* ---- sweep ---- */

/* Blocks form a list through their own first words: counting them takes no memory. */
typedef struct link {
  struct link *next;
  uintptr_t tag; /* the block's address, inverted */
} link_t;

static link_t *fill_one(link_t *list, size_t size) {
  errno = 0;
  link_t *link = malloc(size);
  if (link == NULL) {
    if (errno != ENOMEM) stress_fail("sweep: malloc(%zu) gave NULL with errno %d", size, errno);
    return NULL;
  }
  link->next = list;
  link->tag = ~(uintptr_t)link;
  if (size >= 2 * sizeof *link) memset((char *)link + size - sizeof link->tag, 0x77, sizeof link->tag);
  return link;
}

static size_t list_check(const link_t *list, size_t size) {
  size_t count = 0;
  for (; list != NULL; list = list->next, count++) {
    uintptr_t tail = UINT64_C(0x7777777777777777);
    if (size >= 2 * sizeof *list) memcpy(&tail, (const char *)list + size - sizeof tail, sizeof tail);
    if (list->tag != ~(uintptr_t)list || tail != UINT64_C(0x7777777777777777))
      stress_fail("sweep: block %p of %zu bytes is damaged", (const void *)list, size);
  }
  return count;
}

static void list_free(link_t *list) {
  while (list != NULL) {
    link_t *next = list->next;
    free(list);
    list = next;
  }
}

/* A realloc and a calloc that cannot succeed when memory is full. */
static void full_check(link_t *list, size_t size, size_t budget) {
  errno = 0;
  if (list != NULL && (realloc(list, 2 * budget + size) != NULL || errno != ENOMEM))
    stress_fail("sweep: realloc of %zu to %zu bytes did not give NULL and ENOMEM", size, 2 * budget);
  errno = 0;
  void *volatile zeroed = calloc(2, budget);
  void *aligned = NULL;
  if (zeroed != NULL || errno != ENOMEM || posix_memalign(&aligned, 4096, 2 * budget) != ENOMEM || aligned != NULL)
    stress_fail("sweep: calloc or posix_memalign of twice the budget did not fail with ENOMEM");
}

/* Counts what malloc_usable_size reports: rounding up to a class is no loss here. */
static size_t usable_of(link_t *list) { return list != NULL ? malloc_usable_size(list) : 0; }

/* Fills, checks and frees; returns the bytes served. */
static size_t pass_run(size_t size, size_t budget) {
  link_t *list = NULL;
  size_t count = 0;
  for (link_t *link; (link = fill_one(list, size)) != NULL; count++) list = link;
  size_t served = count * usable_of(list);
  full_check(list, size, budget);
  if (list_check(list, size) != count) stress_fail("sweep: the list of %zu-byte blocks broke", size);
  list_free(list);
  return served;
}

static bool is_judged(size_t size, size_t extra) { return stress_on_hakmem() && size <= extra / 64; }

static double share_wanted(size_t extra) { return extra >= 64 * MIB ? 0.95 : 0.90; }

/* Sets the limit; returns the budget: what the limit leaves beyond the mappings that stay. */
static size_t budget_set(int resource, size_t extra) {
  mapped_t mapped = maps_read();
  size_t limit = (resource == RLIMIT_AS ? mapped.accessible : mapped.writable) + extra;
  limit_set(resource, limit);
  size_t used = resource == RLIMIT_AS ? process_virtual() : process_status("VmData");
  return limit > used ? limit - used : 0;
}

static void sweep(int resource, size_t extra) {
  size_t served[SIZES];
  char line[256];
  int length = 0;
  size_t budget = budget_set(resource, extra);
  for (unsigned i = 0; i < SIZES; i++) {
    served[i] = pass_run(sizes[i], budget);
    length += snprintf(line + length, sizeof line - (size_t)length, " %zu", served[i] * 100 / (budget + 1));
    if (is_judged(sizes[i], extra))
      stress_expect((double)served[i] >= share_wanted(extra) * (double)budget, "sweep +%zu MiB: %zu KiB of %zu KiB served in blocks of %zu",
                    extra / MIB, served[i] / KIB, budget / KIB, sizes[i]);
  }
  for (unsigned i = SIZES; i-- > 0;) {
    size_t again = pass_run(sizes[i], budget);
    length += snprintf(line + length, sizeof line - (size_t)length, "%s %zu", i == SIZES - 1 ? " |" : "", again * 100 / (budget + 1));
    if (is_judged(sizes[i], extra))
      stress_expect((double)again >= 0.97 * (double)served[i], "sweep +%zu MiB: blocks of %zu: %zu KiB, then only %zu KiB", extra / MIB,
                    sizes[i], served[i] / KIB, again / KIB);
  }
  stress_say("sweep %s +%zu MiB, budget %zu KiB, %% served:%s", resource == RLIMIT_AS ? "AS" : "DATA", extra / MIB, budget / KIB, line);
}

static void scene_sweep_as(uintptr_t extra) { sweep(RLIMIT_AS, extra); }
static void scene_sweep_data(uintptr_t extra) { sweep(RLIMIT_DATA, extra); }

/* ---- threads ---- */

typedef struct filler {
  pthread_t handle;
  bool late; /* its first malloc comes when nothing is left */
  size_t size;
  link_t *list;
  size_t count;
  size_t served;
} filler_t;

static filler_t fillers[FILLERS];
static pthread_barrier_t ready, full, checked;

static void *filler_run(void *argument) {
  filler_t *filler = argument;
  pthread_barrier_wait(&ready);
  if (!filler->late)
    for (link_t *link; (link = fill_one(filler->list, filler->size)) != NULL; filler->count++) filler->list = link;
  pthread_barrier_wait(&full);
  if (filler->late)
    for (link_t *link; filler->count < 1000 && (link = fill_one(filler->list, filler->size)) != NULL; filler->count++) filler->list = link;
  filler->served = filler->count * usable_of(filler->list);
  pthread_barrier_wait(&checked);
  filler_t *neighbour = &fillers[(filler - fillers + 1) % FILLERS];
  if (list_check(neighbour->list, filler->size) != neighbour->count) stress_fail("threads: a list of %zu-byte blocks broke", filler->size);
  list_free(neighbour->list);
  return NULL;
}

/* The threads are started before the limit is lowered: their stacks are not part of the budget. */
static void scene_threads(uintptr_t kind) {
  size_t extra = extras[kind % EXTRAS], size = sizes[kind / EXTRAS];
  pthread_barrier_init(&ready, NULL, FILLERS + 1);
  pthread_barrier_init(&full, NULL, FILLERS);
  pthread_barrier_init(&checked, NULL, FILLERS);
  for (unsigned i = 0; i < FILLERS; i++) {
    fillers[i] = (filler_t){.size = size, .late = i == 0};
    if (pthread_create(&fillers[i].handle, NULL, filler_run, &fillers[i]) != 0) stress_fail("threads: no thread");
  }
  size_t budget = budget_set(RLIMIT_AS, extra), served = 0;
  pthread_barrier_wait(&ready);
  for (unsigned i = 0; i < FILLERS; i++) {
    pthread_join(fillers[i].handle, NULL);
    served += fillers[i].served;
  }
  size_t again = pass_run(size, budget);
  stress_say("threads +%zu MiB, blocks of %zu: %zu %% served, then to the main thread %zu %%", extra / MIB, size,
             served * 100 / (budget + 1), again * 100 / (budget + 1));
  if (!is_judged(size, extra) || extra < 64 * MIB) return;
  stress_expect((double)served >= 0.90 * (double)budget, "threads +%zu MiB: %zu KiB of %zu KiB served in blocks of %zu", extra / MIB,
                served / KIB, budget / KIB, size);
  stress_expect((double)again >= 0.90 * (double)budget,
                "threads +%zu MiB: blocks of %zu: %zu KiB of %zu KiB to the main thread after all was freed", extra / MIB, size,
                again / KIB, budget / KIB);
}

/* ---- eight ---- */

static void *eight_run(void *argument) {
  rng_t rng = rng_make((uint64_t)(uintptr_t)argument);
  void *blocks[256] = {NULL};
  for (unsigned i = 0; i < 100000; i++) {
    size_t size = 1 + rng_size(&rng, 12);
    void **slot = &blocks[rng_below(&rng, 256)];
    free(*slot);
    *slot = malloc(size);
    if (*slot == NULL) stress_fail("eight: no block of %zu bytes: errno %d", size, errno);
    memset(*slot, 1, size);
  }
  for (unsigned i = 0; i < 256; i++) free(blocks[i]);
  return NULL;
}

static void scene_eight(void) {
  pthread_t handles[EIGHT];
  for (unsigned i = 0; i < EIGHT; i++)
    if (pthread_create(&handles[i], NULL, eight_run, (void *)(uintptr_t)i) != 0) stress_fail("eight: thread %u could not start", i);
  for (unsigned i = 0; i < EIGHT; i++) pthread_join(handles[i], NULL);
}

static _Noreturn void scene_crash(void) {
  for (unsigned i = 0; i < 1000; i++) memset(malloc(1000), 1, 1000);
  abort();
}

static bool scene_chosen(const char *name) {
  const char *scene = stress_word("scene", "all");
  return strcmp(scene, name) == 0 || (strcmp(scene, "all") == 0 && strcmp(name, "eight") != 0 && strcmp(name, "crash") != 0);
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  size_t most = stress_option("most", extras[EXTRAS - 1]);
  if (scene_chosen("start")) apart("start", scene_start, 0);
  for (unsigned kind = 0; kind < 2 * WAYS && scene_chosen("lowered"); kind++) apart("lowered", scene_lowered, kind);
  for (unsigned i = 0; i < EXTRAS && extras[i] <= most && scene_chosen("sweep"); i++) {
    apart("sweep AS", scene_sweep_as, extras[i]);
    apart("sweep DATA", scene_sweep_data, extras[i]);
  }
  for (unsigned kind = 0; kind < EXTRAS * SIZES && scene_chosen("threads"); kind++) {
    size_t extra = extras[kind % EXTRAS];
    if (kind % EXTRAS % 3 == 0 && extra <= most && sizes[kind / EXTRAS] <= extra / 8) /* +8, +64 and +512 MiB */
      apart("threads", scene_threads, kind);
  }
  if (scene_chosen("eight")) scene_eight();
  if (scene_chosen("crash")) scene_crash();
  return stress_finish();
}
