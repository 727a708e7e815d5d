/* unwind_throw.cpp - while an exception passes through frames. */
#include "unwind_chain.h"

namespace {
struct Ends {
  chain_t *c;
  ~Ends() { c->innermost(c); }
};

CHAIN_LINK void passes(chain_t *c) {
  CHAIN_NOTE(c);
  struct Notes { /* of those below only what is under way is noted */
    chain_t *c;
    unsigned count;
    ~Notes() { c->count = count - 1; }
  } notes{c, c->count};
  Ends ends{c};
  if (c->rounds-- > 0) passes(c);
  else throw c->rounds;
  __asm__ volatile("" ::: "memory");
}
}  // namespace

extern "C" __attribute__((noinline)) void chain_throws(chain_t *c) {
  CHAIN_NOTE(c);
  unsigned count = c->count;
  try {
    passes(c);
  } catch (int) {
    c->count = count;
    c->innermost(c);
  }
  c->count--;
}
