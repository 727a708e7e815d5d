/* format.h - formats text into a fixed buffer, and reads numbers from text, without stdio and without allocation.
 * Text that does not fit is cut; the buffer always ends in a NUL.  One thread per buffer. */
#ifndef BASE_FORMAT_H
#define BASE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"

typedef struct format {
  char *text;
  size_t size; /* size of the buffer in bytes, at least 1 */
  size_t used;
} format_t;

void format_init(format_t *f, char *text, size_t size);
void format_char(format_t *f, char c);
void format_text(format_t *f, const char *text);
void format_unsigned(format_t *f, uint64_t value);
void format_bytes(format_t *f, uint64_t count); /* "1 byte", "2 bytes" */
void format_signed(format_t *f, int64_t value);
void format_hex(format_t *f, uint64_t value); /* with 0x */

HAK_INLINE bool decimal_is_digit(char c) { return c >= '0' && c <= '9'; }
/* Returns the number that the text begins with, 0 if with none.  Wraps if it is too large. */
HAK_INLINE uint64_t decimal_read(const char *text) {
  uint64_t number = 0;
  for (; decimal_is_digit(*text); text++) number = number * 10 + (uint64_t)(*text - '0');
  return number;
}

#endif
