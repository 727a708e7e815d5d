/* unwind_chain.h - chains of calls that know their own return addresses. */
#ifndef TESTS_UNIT_UNWIND_CHAIN_H
#define TESTS_UNIT_UNWIND_CHAIN_H

#include <stdint.h>

enum { NOTED_MOST = 64 };

/* A function of a frame of its own, and of one copy. */
#ifdef __clang__
#define CHAIN_LINK __attribute__((noinline))
#else
#define CHAIN_LINK __attribute__((noinline, noclone))
#endif

typedef struct chain {
  void *noted[NOTED_MOST]; /* by those under way, the outermost first */
  unsigned count;
  int rounds;
  uint64_t seed;
  const volatile uint64_t *leaf_reads; /* NULL: no leaf is called */
  void (*innermost)(struct chain *c);
} chain_t;

#define CHAIN_NOTE(c) (c)->noted[(c)->count++] = __builtin_return_address(0)

#ifdef __cplusplus
extern "C" {
#endif
void chain_tables(chain_t *c);   /* without frame pointers */
void chain_plain(chain_t *c);    /* not optimised */
void chain_pointers(chain_t *c); /* without tables, with frame pointers */
void chain_nothing(chain_t *c);  /* without either */
void chain_throws(chain_t *c);   /* C++: innermost is called while an exception is on its way, and where it is caught */
#ifdef __cplusplus
}
#endif

#endif
