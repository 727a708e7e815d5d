/* fuzz.h - what the targets share: the input as numbers, and the end of a run that went wrong.
 *
 * A target reads its input to the end as operations and judges what they do.  It begins as in a process where nothing has run:
 * libFuzzer has the memory put back before each input (restore.c), the replay gives each a process of its own (replay.c).  An
 * input therefore does the same wherever it runs, at the same addresses. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The target: each program has one. */
void fuzz_target(void);
/* Runs it on one input. */
void fuzz_run(const uint8_t *data, size_t size);

/* Keeps the memory of the target as it is; brings it back. */
void fuzz_keep(void);
void fuzz_restore(void);

/* ---- The input ---- */

bool input_ends(void);
/* The next byte, 0 after the end. */
uint8_t input_byte(void);
/* The next 2 or 8 bytes. */
uint16_t input_word(void);
uint64_t input_number(void);
/* Below `end`, which is at most 65536. */
unsigned input_below(unsigned end);
/* All that is left. */
const uint8_t *input_rest(size_t *size);

/* ---- Judgement ---- */

/* One line on standard error, and abort. */
_Noreturn void fuzz_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define FUZZ_CHECK(condition)                                          \
  do {                                                                 \
    if (!(condition)) fuzz_fail(__FILE__, __LINE__, "%s", #condition); \
  } while (0)

#define FUZZ_EQ(got, want)                                                                                     \
  do {                                                                                                         \
    unsigned long long got_ = (unsigned long long)(got), want_ = (unsigned long long)(want);                   \
    if (got_ != want_) fuzz_fail(__FILE__, __LINE__, "%s is %#llx, not %s = %#llx", #got, got_, #want, want_); \
  } while (0)

#endif
