/* fuzz.h - what the targets share: reading the input as numbers, and ending a run that has failed.
 *
 * A target reads its input to the end as operations and checks their effects.  Each run begins as in a new process: under
 * libFuzzer restore.c restores the memory before each input, and replay.c runs each input in a separate process.  An input
 * therefore does the same everywhere, at the same addresses. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The target: each program defines one. */
void fuzz_target(void);
/* Runs the target on one input. */
void fuzz_run(const uint8_t *data, size_t size);

/* Saves the target's memory; restores it. */
void fuzz_keep(void);
void fuzz_restore(void);

/* ---- The input ---- */

bool input_ends(void);
/* The next byte, 0 after the end. */
uint8_t input_byte(void);
/* The next 2 or 8 bytes. */
uint16_t input_word(void);
uint64_t input_number(void);
/* A number below `end`, which is at most 65536. */
unsigned input_below(unsigned end);
/* Everything that is left. */
const uint8_t *input_rest(size_t *size);

/* ---- Judgement ---- */

/* Prints one line on standard error, and aborts. */
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
