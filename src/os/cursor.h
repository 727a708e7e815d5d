/* cursor.h - reads numbers in DWARF encodings, never beyond the end.  A read past the end returns 0 and sets `bad`, which stays set. */
#ifndef OS_CURSOR_H
#define OS_CURSOR_H

#include "base/bits.h"

typedef struct cursor {
  const uint8_t *at, *end;
  bool bad;
} cursor_t;

/* Reads an unsigned number of 1, 2, 4 or 8 bytes. */
HAK_INLINE uint64_t cursor_unsigned(cursor_t *c, unsigned bytes) {
  uint64_t value = 0;
  if ((size_t)(c->end - c->at) < bytes) {
    c->bad = true;
    c->at = c->end;
    return 0;
  }
  for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)c->at[i] << 8 * i;
  c->at += bytes;
  return value;
}

HAK_INLINE int64_t cursor_signed(cursor_t *c, unsigned bytes) {
  unsigned shift = 64 - 8 * bytes;
  return (int64_t)(cursor_unsigned(c, bytes) << shift) >> shift;
}

static inline uint64_t cursor_leb(cursor_t *c, bool is_signed) {
  uint64_t value = 0;
  unsigned shift = 0;
  uint8_t byte;
  do {
    byte = (uint8_t)cursor_unsigned(c, 1);
    if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
    shift += 7;
  } while ((byte & 0x80) != 0);
  if (is_signed && shift < 64 && (byte & 0x40) != 0) value |= ~(uint64_t)0 << shift;
  return value;
}

HAK_INLINE uint64_t cursor_uleb(cursor_t *c) { return cursor_leb(c, false); }
HAK_INLINE int64_t cursor_sleb(cursor_t *c) { return (int64_t)cursor_leb(c, true); }

HAK_INLINE void cursor_skip(cursor_t *c, uint64_t bytes) {
  if ((size_t)(c->end - c->at) < bytes) c->bad = true, c->at = c->end;
  else c->at += bytes;
}

#endif
