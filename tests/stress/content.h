/* content.h - what the programs write into blocks: a sequence of words that no other block has.
 *
 * A word is a function of the block's id and its offset, so that a stray write, a block handed out twice and a
 * copy from the wrong place all show, and any part can be written or checked by itself.
 */
#ifndef STRESS_CONTENT_H
#define STRESS_CONTENT_H

#include <stddef.h>
#include <stdint.h>

#define CONTENT_SAME SIZE_MAX

/* The word at `offset`, a multiple of a word. */
uint64_t content_word(uint64_t id, size_t offset);
/* Writes the bytes [from, to) of the block at `start`; `from` is a multiple of a word. */
void content_write(unsigned char *start, size_t from, size_t to, uint64_t id);
/* The offset of the first word in [from, to) that is not what content_write writes, or CONTENT_SAME. */
size_t content_differs(const unsigned char *start, size_t from, size_t to, uint64_t id);

#endif
