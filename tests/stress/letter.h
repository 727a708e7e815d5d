/* letter.h - a block that says what it must hold, so that any thread or process can check it. */
#ifndef STRESS_LETTER_H
#define STRESS_LETTER_H

#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "names.h" /* for all who write letters */

typedef struct letter {
  size_t size; /* of the block, this header included */
  uint64_t id;
} letter_t;

static inline unsigned char letter_byte(const letter_t *letter) { return (unsigned char)(letter->id * 31 + letter->size); }

static inline letter_t *letter_write(letter_t *letter, size_t size, uint64_t id) {
  if (letter == NULL) stress_fail("no block of %zu bytes", size);
  letter->size = size;
  letter->id = id;
  memset(letter + 1, letter_byte(letter), size - sizeof *letter);
  return letter;
}

/* Checks the first `limit` bytes behind the header. */
static inline void letter_check(const letter_t *letter, size_t limit) {
  const unsigned char *bytes = (const unsigned char *)(letter + 1);
  for (size_t i = 0; i < letter->size - sizeof *letter && i < limit; i++)
    if (bytes[i] != letter_byte(letter))
      stress_fail("block %p of %zu bytes changed at offset %zu", (const void *)letter, letter->size, i + sizeof *letter);
}

static inline void letter_free(letter_t *letter) {
  if (letter != NULL) letter_check(letter, SIZE_MAX);
  free(letter);
}

#endif
