/* content.c - see content.h.  The words of a sequence grow by a constant, so a whole block costs only additions and wide stores. */
#include "content.h"

#include <string.h>

enum { WORD = sizeof(uint64_t) };

#define GROWTH UINT64_C(0x9e3779b97f4a7c15) /* for each byte of the offset */

/* Two words at a time: a vector on every machine that has vectors of this size. */
typedef uint64_t lanes_t __attribute__((vector_size(2 * WORD), aligned(WORD), may_alias));

static const lanes_t lanes_growth = {sizeof(lanes_t) * GROWTH, sizeof(lanes_t) * GROWTH};

uint64_t content_word(uint64_t id, size_t offset) { return (id + offset) * GROWTH; }

static size_t word_length(size_t from, size_t to) { return to - from < WORD ? to - from : WORD; }

void content_write(unsigned char *start, size_t from, size_t to, uint64_t id) {
  lanes_t lanes = {content_word(id, from), content_word(id, from + WORD)};
  for (; from + sizeof lanes <= to; from += sizeof lanes, lanes += lanes_growth) *(lanes_t *)(start + from) = lanes;
  for (; from < to; from += WORD) {
    uint64_t word = content_word(id, from);
    memcpy(start + from, &word, word_length(from, to));
  }
}

static size_t words_differ(const unsigned char *start, size_t from, size_t to, uint64_t id) {
  for (; from < to; from += WORD) {
    uint64_t word = content_word(id, from);
    if (memcmp(start + from, &word, word_length(from, to)) != 0) return from;
  }
  return CONTENT_SAME;
}

/* The exact word matters only when one differs. */
size_t content_differs(const unsigned char *start, size_t from, size_t to, uint64_t id) {
  size_t at = from;
  lanes_t lanes = {content_word(id, at), content_word(id, at + WORD)}, differing = {0, 0};
  for (; at + sizeof lanes <= to; at += sizeof lanes, lanes += lanes_growth) differing |= *(const lanes_t *)(start + at) ^ lanes;
  return words_differ(start, (differing[0] | differing[1]) != 0 ? from : at, to, id);
}
