/* large_secure.h - large blocks of the secure library: each lies between inaccessible units.
 *
 * Inaccessible are the unit before a block, the rest of its last unit behind its bytes, the unit behind it, and the block itself, once
 * freed, until FREED_MOST others have been freed after it.  The bytes of its last page beyond what was requested are zero. */
#ifndef SLAB_LARGE_SECURE_H
#define SLAB_LARGE_SECURE_H

#include "space/span.h"
#include "slab/unit.h"

/* The units of a block of `bytes`, a multiple of the page, not yet entered as a large block; SPAN_NONE when out of memory. */
HAK_CHECKED uint32_t large_secure_span(size_t bytes, size_t align, span_use_t use, bool *zero);
void large_secure_free(unit_t *first);
/* Changes the block in place to `bytes`, of which `size` were requested; false if that cannot be.  New bytes are zero. */
HAK_CHECKED bool large_secure_resize(unit_t *first, size_t bytes, size_t size);
/* Makes freed blocks usable before their time; false if none wait. */
bool large_secure_trim(void);

/* The bytes that the program may use: in the secure library what it has requested. */
HAK_INLINE size_t large_usable(const unit_t *first) { return load_relaxed(&first->bytes) - (HAK_SECURE ? first->left : 0); }
/* False if something was written behind these bytes. */
HAK_CHECKED bool large_is_whole(const unit_t *first);
_Noreturn void large_overflown(const unit_t *first, const char *function);
HAK_INLINE void large_require_whole(const unit_t *first, const char *function) {
  if (HAK_SECURE && HAK_UNLIKELY(!large_is_whole(first))) large_overflown(first, function);
}

/* Checks the freed blocks that wait. */
HAK_AUDITS(void large_secure_audit_alone(void);)

#endif
