/* tracer.c - what a tracer learns from hakmem's probes: tracer OBJECT PLACES
 *
 * OBJECT is part of the name of the file that has the probes; empty for the program itself.  PLACES are four addresses in this file:
 * of the probes alloc and free, and of their semaphores.  The program forks; the parent increments the child's semaphores, sets
 * breakpoints on its probes, and prints a line each time that one is reached:
 *
 *   alloc ADDRESS SIZE WEIGHT
 *   free ADDRESS
 *   done PHASE ALLOCATED LIVE    the child has ended this phase; the bytes of blocks that it has allocated in it, and that it holds
 *
 * x86-64 Linux only: a breakpoint replaces a nop of one byte, so the child can continue after it. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALLOC, FREE, ALLOC_SEMAPHORE, FREE_SEMAPHORE, PLACES };

/* Written by the child. */
typedef struct told {
  char phase[32];
  uint64_t allocated, live;
} told_t;

static void die(const char *what) {
  perror(what);
  exit(2);
}

/* ---- the child ---- */

enum { KEPT = 100000, RING = 16 << 10, REUSES = 3, ROUNDS = 200, LARGE = 2000, CERTAIN = 100 };
static told_t *told;
static void *kept[KEPT], *ring[RING], *large[LARGE], *certain[CERTAIN];

static uint32_t below(uint32_t end) {
  static uint32_t state = 1;
  state = state * 1103515245u + 12345u;
  return (uint32_t)((uint64_t)state * end >> 32);
}

static void *take(size_t size) {
  void *block = malloc(size);
  told->allocated += malloc_usable_size(block);
  told->live += malloc_usable_size(block);
  return block;
}

static void give(void *block) {
  told->live -= malloc_usable_size(block);
  free(block);
}

static void done(const char *phase) {
  strcpy(told->phase, phase);
  if (raise(SIGSTOP) != 0) _exit(1);
  told->allocated = 0;
}

static void *give_all(void *unused) {
  for (int i = 0; i < KEPT; i++) give(kept[i]);
  for (int i = 0; i < LARGE; i++) give(large[i]);
  for (int i = 0; i < CERTAIN; i++) give(certain[i]);
  return unused;
}

static int child_run(void) {
  done("start");
  for (int i = 0; i < KEPT; i++) kept[i] = take(1 + below(2000));
  done("kept");
  for (int i = 0; i < LARGE; i++) large[i] = take(40000 + below(80000));
  done("large");
  for (int i = 0; i < CERTAIN; i++) certain[i] = take((128 << 10) + below(4 << 20));
  done("certain");
  for (int i = 0; i < CERTAIN; i++) {
    told->live -= malloc_usable_size(certain[i]);
    void *resized = realloc(certain[i], malloc_usable_size(certain[i]) * 3 / 4 + (128 << 10));
    if (resized == NULL) return 1;
    certain[i] = resized;
    told->allocated += malloc_usable_size(resized);
    told->live += malloc_usable_size(resized);
  }
  done("resized");
  pthread_t thread; /* frees by other threads are reported as well */
  if (pthread_create(&thread, NULL, give_all, NULL) != 0 || pthread_join(thread, NULL) != 0) return 1;
  done("freed");
  for (int i = 0; i < RING; i++) ring[i] = take(1000);
  done("ring");
  for (int round = 0; round < REUSES; round++) { /* no slab ends, so the same blocks are reused */
    for (int i = 0; i < RING; i++) {
      if (i % 16 != 0) give(ring[i]);
    }
    for (int i = 0; i < RING; i++) {
      if (i % 16 != 0) ring[i] = take(1000);
    }
  }
  done("reused");
  for (int round = 0; round < ROUNDS; round++) { /* more events than may be reported: the samples are thinned out */
    for (int i = 0; i < RING; i++) give(ring[i]);
    for (int i = 0; i < RING; i++) ring[i] = take(1000);
  }
  for (int i = 0; i < RING; i++) give(ring[i]);
  done("churn");
  return 0;
}

/* ---- the parent ---- */

typedef struct object {
  const char *part;
  uintptr_t base;
  int seen;
} object_t;

static int object_find(struct dl_phdr_info *info, size_t size, void *data) {
  object_t *object = data;
  (void)size;
  if (*object->part == '\0' ? object->seen++ > 0 : strstr(info->dlpi_name, object->part) == NULL) return 0;
  object->base = info->dlpi_addr;
  return 1;
}

static uintptr_t base_of(const char *part) {
  object_t object = {.part = part, .base = UINTPTR_MAX};
  int found = dl_iterate_phdr(object_find, &object);
  if (*part == '\0' ? object.seen == 0 : found == 0) {
    fprintf(stderr, "tracer: no object %s\n", part);
    exit(2);
  }
  return object.base;
}

static void arm(pid_t pid, const uintptr_t places[]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
  int memory = open(path, O_RDWR);
  if (memory < 0) die(path);
  for (int i = 0; i < PLACES; i++) {
    uint8_t nop, trap = 0xcc;
    uint16_t listeners;
    off_t place = (off_t)places[i];
    if (i == ALLOC || i == FREE) {
      if (pread(memory, &nop, 1, place) != 1 || nop != 0x90 || pwrite(memory, &trap, 1, place) != 1) die("a probe is no nop");
    } else {
      if (pread(memory, &listeners, 2, place) != 2 || listeners++ != 0 || pwrite(memory, &listeners, 2, place) != 2) die("a semaphore");
    }
  }
  close(memory);
}

/* Prints which probe the stopped thread has reached. */
static void tell(pid_t pid, const uintptr_t places[]) {
  struct user_regs_struct regs;
  if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) != 0) die("ptrace");
  if (regs.rip == places[ALLOC] + 1) printf("alloc %#llx %llu %llu\n", regs.rdi, regs.rsi, regs.rdx);
  else if (regs.rip == places[FREE] + 1) printf("free %#llx\n", regs.rdi);
  else die("a trap of another's");
}

static int parent_run(pid_t pid, const uintptr_t places[]) {
  int armed = 0;
  for (;;) {
    int status;
    pid_t stopped = waitpid(-1, &status, __WALL);
    if (stopped < 0) die("waitpid");
    if (!WIFSTOPPED(status)) {
      if (stopped == pid) return status != 0;
      continue;
    }
    if (WSTOPSIG(status) == SIGSTOP && stopped == pid) {
      if (!armed++ && ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) != 0) die("ptrace");
      if (armed == 1) arm(pid, places);
      else printf("done %s %llu %llu\n", told->phase, (unsigned long long)told->allocated, (unsigned long long)told->live);
    } else if (WSTOPSIG(status) == SIGTRAP && status >> 16 == 0) {
      tell(stopped, places);
    } else if (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP) {
      fprintf(stderr, "tracer: the child was stopped by signal %d\n", WSTOPSIG(status));
      return 1;
    }
    if (ptrace(PTRACE_CONT, stopped, NULL, NULL) != 0) die("ptrace");
  }
}

int main(int count, char **words) {
  uintptr_t places[PLACES];
  if (count != 2 + PLACES) {
    fputs("usage: tracer OBJECT ALLOC FREE ALLOC_SEMAPHORE FREE_SEMAPHORE\n", stderr);
    return 2;
  }
  uintptr_t base = base_of(words[1]);
  for (int i = 0; i < PLACES; i++) places[i] = base + strtoul(words[2 + i], NULL, 16);
  told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (told == MAP_FAILED) die("mmap");
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid != 0) return parent_run(pid, places);
  if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) die("ptrace");
  _exit(child_run());
}
