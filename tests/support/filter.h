/* filter.h - filters of system calls for tests, written for the kernel's ABI, since not every libc has headers for it. */
#ifndef TESTS_SUPPORT_FILTER_H
#define TESTS_SUPPORT_FILTER_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { FILTER_STEPS_MOST = 400 };

typedef struct filter_step {
  uint16_t code;
  uint8_t if_true, if_false;
  uint32_t value;
} filter_step_t;

typedef struct filter {
  unsigned short count; /* more than FILTER_STEPS_MOST if the filter was too long */
  filter_step_t *steps;
  filter_step_t step[FILTER_STEPS_MOST];
} filter_t;

#define FILTER_ALLOWED 0x7fff0000u
#define FILTER_KILLED 0x80000000u
#define FILTER_TRAPPED 0x00030000u
#define FILTER_ERRNO(number) (0x00050000u | (uint32_t)(number))
enum { FILTER_NUMBER = 0, FILTER_PLACE = 8, FILTER_ARGUMENT = 16 };

static inline void filter_add(filter_t *filter, unsigned code, unsigned if_true, unsigned if_false, uint32_t value) {
  filter_step_t step = {(uint16_t)code, (uint8_t)if_true, (uint8_t)if_false, value};
  if (filter->count < FILTER_STEPS_MOST) filter->step[filter->count] = step;
  if (filter->count <= FILTER_STEPS_MOST) filter->count++;
}

static inline void filter_load(filter_t *filter, uint32_t at) { filter_add(filter, 0x20, 0, 0, at); }
static inline void filter_answer(filter_t *filter, uint32_t value) { filter_add(filter, 0x06, 0, 0, value); }
static inline void filter_if_equal(filter_t *filter, uint32_t value, uint32_t then) {
  filter_add(filter, 0x15, 0, 1, value);
  filter_answer(filter, then);
}

/* ---- Which code is hakmem's ---- */

typedef struct filter_code {
  uintptr_t start, end;
} filter_code_t;

static inline int filter_note_code(struct dl_phdr_info *info, size_t size, void *found) {
  filter_code_t *code = found;
  (void)size;
  if (strstr(info->dlpi_name, "libhakmem") == NULL) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    uintptr_t start = info->dlpi_addr + part->p_vaddr, end = start + part->p_memsz;
    if (code->start == 0 || start < code->start) code->start = start;
    if (end > code->end) code->end = end;
  }
  return 1;
}

/* Adds the answer to calls from code outside hakmem's library; the steps that follow are for calls from inside it, with the number of the
 * call loaded.  A step compares half an address, and the code may lie on both sides of a boundary of 4 GiB.  Returns NULL, or the
 * reason why this is not possible. */
static inline const char *filter_unless_ours(filter_t *filter, uint32_t then) {
  filter_code_t code = {0, 0};
  (void)dl_iterate_phdr(filter_note_code, &code);
  if (code.end == 0) return "libhakmem is not here";
  bool parted = code.start >> 32 != code.end >> 32;
  filter_load(filter, FILTER_PLACE + 4);
  if (parted) { /* addresses above the boundary: on to the last step if the code is hakmem's */
    filter_add(filter, 0x15, 0, 3, (uint32_t)(code.end >> 32));
    filter_load(filter, FILTER_PLACE);
    filter_add(filter, 0x35, 0, 6, (uint32_t)code.end);
    filter_answer(filter, then);
  }
  filter_add(filter, 0x15, 1, 0, (uint32_t)(code.start >> 32));
  filter_answer(filter, then);
  filter_load(filter, FILTER_PLACE);
  filter_add(filter, 0x35, 1, 0, (uint32_t)code.start);
  filter_answer(filter, then);
  if (!parted) {
    filter_add(filter, 0x35, 0, 1, (uint32_t)code.end);
    filter_answer(filter, then);
  }
  filter_load(filter, FILTER_NUMBER);
  return NULL;
}

/* ---- Without libc ---- */

static inline long filter_past_libc(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
#else
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d,
                   x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#endif
}

/* Installs the filter in the calling thread and the threads that it starts. If `past`, no library sees the calls. Returns NULL or the
 * reason. */
static inline const char *filter_install(filter_t *filter, bool past) {
  if (filter->count > FILTER_STEPS_MOST) return "too long a filter";
  filter->steps = filter->step;
  if (past) {
    if (filter_past_libc(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) != 0) return "no_new_privs";
    return filter_past_libc(SYS_prctl, PR_SET_SECCOMP, 2, (long)filter, 0, 0, 0) == 0 ? NULL : "seccomp";
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "no_new_privs";
  return prctl(PR_SET_SECCOMP, 2, filter, 0, 0) == 0 ? NULL : "prctl";
}

/* Makes every madvise call fail, or one kind of it; returns false if that is not possible. */
static inline bool filter_refuse_madvise(unsigned advice, unsigned error) {
  static filter_t filter;
  filter.count = 0;
  filter_load(&filter, FILTER_NUMBER);
  filter_add(&filter, 0x15, 0, 3, SYS_madvise);
  filter_load(&filter, FILTER_ARGUMENT + 8 * 2);
  filter_add(&filter, advice == 0 ? 0x35 : 0x15, 0, 1, advice);
  filter_answer(&filter, FILTER_ERRNO(error));
  filter_answer(&filter, FILTER_ALLOWED);
  return filter_install(&filter, false) == NULL;
}

#endif
