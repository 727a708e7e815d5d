/* restore.c - restores the memory of a target before each input that libFuzzer tries.
 *
 * The target, the allocator and the fake kernel are one shared object; libFuzzer's own variables are elsewhere.  So it is enough to
 * restore that object's writable segments from a copy and to drop the fake kernel's mappings.  The coverage counters lie in these
 * segments too and are left alone.  Compiled without sanitizers, because it also copies their redzones. */
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_os.h"
#include "fuzz.h"

enum { SEGMENTS_MOST = 4 };

typedef struct segment {
  volatile uint64_t *start;
  uint64_t *copy;
  size_t words;
} segment_t;

static segment_t segments[SEGMENTS_MOST];
static unsigned segment_count;

extern uint64_t __start___sancov_cntrs[] __attribute__((weak, visibility("hidden")));
extern uint64_t __stop___sancov_cntrs[] __attribute__((weak, visibility("hidden")));

static bool is_ours(const struct dl_phdr_info *object) {
  uintptr_t here = (uintptr_t)segments - object->dlpi_addr;
  for (unsigned i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && here >= part->p_vaddr && here < part->p_vaddr + part->p_memsz) return true;
  }
  return false;
}

static int segments_find(struct dl_phdr_info *object, size_t size, void *unused) {
  (void)size, (void)unused;
  if (!is_ours(object)) return 0;
  for (unsigned i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_W) == 0) continue;
    if (segment_count == SEGMENTS_MOST) abort();
    segment_t *segment = &segments[segment_count++];
    uintptr_t start = (object->dlpi_addr + part->p_vaddr + 7) & ~(uintptr_t)7;
    segment->start = (volatile uint64_t *)start;
    segment->words = (object->dlpi_addr + part->p_vaddr + part->p_memsz - start) / 8;
    segment->copy = mmap(NULL, segment->words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (segment->copy == MAP_FAILED) abort();
  }
  return 1;
}

void fuzz_keep(void) {
  dl_iterate_phdr(segments_find, NULL);
  if (segment_count == 0) abort();
  for (unsigned i = 0; i < segment_count; i++) {
    for (size_t n = 0; n < segments[i].words; n++) segments[i].copy[n] = segments[i].start[n];
  }
}

void fuzz_restore(void) {
  fake_os_drop_arena();
  for (unsigned i = 0; i < segment_count; i++) {
    for (size_t n = 0; n < segments[i].words; n++) {
      volatile uint64_t *word = &segments[i].start[n];
      if (word >= __start___sancov_cntrs && word < __stop___sancov_cntrs) continue;
      if (*word != segments[i].copy[n]) *word = segments[i].copy[n];
    }
  }
}
