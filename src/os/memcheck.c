#include "os/memcheck.h"

#if HAK_VALGRIND

#include <string.h>
#include <valgrind/memcheck.h>

_Atomic uint32_t memcheck_state;

/* Only memcheck answers this request; other tools and a real processor leave the result 0. */
bool memcheck_ask(void) {
  if (load_relaxed(&memcheck_state) == MEMCHECK_UNKNOWN) {
    bool watches = VALGRIND_MAKE_MEM_DEFINED(&memcheck_state, sizeof memcheck_state) != 0;
    store_relaxed(&memcheck_state, (uint32_t)(watches ? MEMCHECK_WATCHES : MEMCHECK_ABSENT));
  }
  return load_relaxed(&memcheck_state) == MEMCHECK_WATCHES;
}

bool valgrind_on(void) { return RUNNING_ON_VALGRIND != 0; }

void memcheck_make_open(void *start, size_t bytes) { (void)VALGRIND_MAKE_MEM_DEFINED(start, bytes); }
void memcheck_make_hidden(void *start, size_t bytes) { (void)VALGRIND_MAKE_MEM_NOACCESS(start, bytes); }

/* Disables error reports instead of opening the tail, which stays inaccessible to other threads. */
static void tail_write(void *block, size_t size, size_t usable) {
  VALGRIND_DISABLE_ERROR_REPORTING;
  memcpy((char *)block + usable - sizeof size, &size, sizeof size);
  VALGRIND_ENABLE_ERROR_REPORTING;
}

size_t memcheck_size(const void *block, size_t usable) {
  size_t size;
  VALGRIND_DISABLE_ERROR_REPORTING;
  memcpy(&size, (const char *)block + usable - sizeof size, sizeof size);
  VALGRIND_ENABLE_ERROR_REPORTING;
  return size;
}

void memcheck_alloc(void *block, size_t size, size_t usable, bool zero) {
  memcheck_make_hidden((char *)block + size, usable - size);
  tail_write(block, size, usable);
  VALGRIND_MALLOCLIKE_BLOCK(block, size, 0, zero);
}

void memcheck_free(void *block) { VALGRIND_FREELIKE_BLOCK(block, 0); }

void memcheck_resize(void *block, size_t old, size_t size, size_t usable) {
  memcheck_make_hidden((char *)block + old, usable - old);
  VALGRIND_RESIZEINPLACE_BLOCK(block, old, size, 0);
  tail_write(block, size, usable);
}

#endif
