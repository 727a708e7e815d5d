/* held.c - programs that hold much memory, each for another reason: held REASON. About 64 MiB; all goes on to be so. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MUCH = 64 << 20, SMALL = 256, COUNT = MUCH / SMALL, THREADS = 32, BUSY = 4, STACK = 2 << 20, HUGE = 2 << 20 };
static void *blocks[COUNT];

static void fill(size_t bytes) {
  for (int i = 0; i < COUNT; i++) memset(blocks[i] = malloc(bytes), 1, bytes);
}

static void leak(void) { fill(SMALL); }

/* With HAKMEM_DECAY_MS=-1. */
static void cache(void) {
  fill(SMALL);
  for (int i = 0; i < COUNT; i++) free(blocks[i]);
}

/* One block of each page stays. */
static void pinned(void) {
  fill(SMALL);
  for (int i = 0; i < COUNT; i++) {
    if (i % (4096 / SMALL) != 0) free(blocks[i]);
  }
}

/* Large blocks that were full when they were freed, then some that are not: hakmem takes huge pages for them. */
static void huge(void) {
  for (int turn = 0; turn < 64; turn++) {
    memset(blocks[0] = malloc(2 * HUGE), 1, 2 * HUGE);
    __asm__ volatile("" : : "r"(blocks[0]) : "memory"); /* or the compiler leaves all of it out */
    free(blocks[0]);
  }
  for (int i = 0; i < MUCH / HUGE; i++) *(char *)(blocks[i] = malloc(HUGE)) = 1;
}

static void others(void) { memset(mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, MUCH); }

static uintptr_t page_up(uintptr_t address) {
  uintptr_t page = (uintptr_t)getpagesize();
  return (address + page - 1) / page * page;
}

/* The program's data once more, as if it was a library's, and memory of somebody else right above: the kernel makes one mapping of what
 * follows the file's part, as it does where a library comes to lie right below what was there before.
 */
static int map_beside(struct dl_phdr_info *program, size_t size, void *unused) {
  (void)size, (void)unused;
  uintptr_t page = (uintptr_t)getpagesize(), first = UINTPTR_MAX, past = 0;
  const ElfW(Phdr) *written = NULL;
  for (int i = 0; i < program->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &program->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD) continue;
    if (segment->p_vaddr < first) first = segment->p_vaddr / page * page;
    if (segment->p_vaddr + segment->p_memsz > past) past = page_up(segment->p_vaddr + segment->p_memsz);
    if (segment->p_flags & PF_W) written = segment;
  }
  char *base = mmap(NULL, past - first + MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int file = open("/proc/self/exe", O_RDONLY);
  mmap(base, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
  uintptr_t from = written->p_vaddr / page * page, to = page_up(written->p_vaddr + written->p_filesz);
  off_t offset = (off_t)(written->p_offset / page * page);
  mmap(base + (from - first), to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, offset);
  memset(base + (to - first), 1, past - to + MUCH);
  return 1;
}
static void beside(void) { dl_iterate_phdr(map_beside, NULL); }

static pthread_barrier_t filled;
static void *stack(void *unused) {
  volatile char much[STACK];
  for (size_t i = 0; i < STACK; i += 1024) much[i] = 1;
  pthread_barrier_wait(&filled);
  for (;;) pause();
  return unused;
}
static void start(int threads, void *(*run)(void *), size_t stack_bytes) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_barrier_init(&filled, NULL, (unsigned)threads + 1);
  for (int i = 0; i < threads; i++) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, run, NULL) != 0) exit(1);
  }
  pthread_barrier_wait(&filled);
}
static void stacks(void) { start(THREADS, stack, 2 * STACK); }

/* The kernel does not tell where the stack of a thread is that runs. */
static void *busy_stack(void *unused) {
  volatile char much[MUCH / BUSY];
  for (size_t i = 0; i < sizeof much; i += 1024) much[i] = 1;
  pthread_barrier_wait(&filled);
  for (;;) much[0]++;
  return unused;
}
static void busy(void) { start(BUSY, busy_stack, 2 * MUCH / BUSY); }

int main(int count, char **arguments) {
  static const struct {
    const char *name;
    void (*hold)(void);
  } reasons[] = {{"leak", leak},   {"cache", cache},   {"pinned", pinned}, {"huge", huge},
                 {"mmap", others}, {"beside", beside}, {"stacks", stacks}, {"busy", busy}};
  for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
    if (count > 1 && strcmp(arguments[1], reasons[i].name) == 0) reasons[i].hold();
  }
  usleep(50000);
  (void)!write(1, "ready\n", 6);
  for (;;) pause();
}
