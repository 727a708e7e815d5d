/* unwind_chain.c - calls of known shapes, compiled in several ways, each with its own CHAIN. Each function notes its return address. */
#include "unwind_chain.h"

#include <alloca.h>
#include <string.h>

#define JOIN(a, b) a##b
#define NAME(a, b) JOIN(a, b)
#define LINK(id) CHAIN_LINK static void NAME(CHAIN, id)(chain_t * c)
#define CALL(id) NAME(CHAIN, id)(c)
/* Code after a call, so that the call is not the last thing that the function does. */
#define AFTER() __asm__ volatile("" ::: "memory")

/* Needs no stack of its own, and calls no function. */
CHAIN_LINK static uint64_t NAME(CHAIN, _leaf)(chain_t *c, const volatile uint64_t *from) {
  c->noted[c->count++] = __builtin_return_address(0);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 4; i++) sum += from[i] * i;
  c->count--;
  return sum;
}

LINK(_many_registers) {
  CHAIN_NOTE(c);
  uint64_t a = c->seed, b = a * 3, d = b ^ 5, e = d + a, f = e * b, g = f - d, h = g ^ e;
  AFTER();
  if (c->leaf_reads != NULL) c->seed += NAME(CHAIN, _leaf)(c, c->leaf_reads);
  c->innermost(c);
  c->seed += a + b + d + e + f + g + h; /* they live across the call */
  c->count--;
}

LINK(_alloca) {
  CHAIN_NOTE(c);
  char *room = alloca(c->seed % 512 + 16);
  memset(room, 1, 16);
  AFTER();
  CALL(_many_registers);
  c->seed += (uint64_t)room[3];
  c->count--;
}

LINK(_pages) {
  CHAIN_NOTE(c);
  volatile char room[3 * 4096];
  room[0] = 1, room[sizeof room - 1] = 2;
  CALL(_alloca);
  c->seed += (uint64_t)room[0];
  c->count--;
}

/* Realigns its stack, by a register other than the stack and frame pointers. */
LINK(_aligned) {
  CHAIN_NOTE(c);
  volatile char room[64] __attribute__((aligned(64)));
  char *more = alloca(c->seed % 64 + 16);
  more[0] = room[0] = 1;
  CALL(_pages);
  c->seed += (uint64_t)room[0] + (uint64_t)more[0];
  c->count--;
}

LINK(_recursive) {
  CHAIN_NOTE(c);
  if (c->rounds-- > 0) CALL(_recursive);
  else CALL(_aligned);
  AFTER();
  c->count--;
}

CHAIN_LINK void CHAIN(chain_t *c) {
  CHAIN_NOTE(c);
  CALL(_recursive);
  AFTER();
  c->count--;
}
