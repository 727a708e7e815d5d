/* weak.h - what a read may return, and what happens before what: C11's memory, run step by step.
 *
 * Each atomic word has its stores of this execution in modification order.  An actor knows, for each actor, how much of what
 * that one has done happens before its own next step; a release store brings that to who reads it with acquire.  A read may
 * return any store that is not older than one the actor has met, or that it knows another one to have met.  README.md says
 * which model that is, and what it leaves out.  Plain accesses that are not ordered so are a race, which is a failure. */
#ifndef TESTS_EXPLORE_WEAK_H
#define TESTS_EXPLORE_WEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void weak_start(void);
/* A new execution begins, from what memory holds. */
void weak_restart(void);

/* By the running actor. `order` is one of the compiler's; `place` is where in the program. */
uint64_t weak_load(volatile void *at, unsigned bytes, int order, const void *place);
void weak_store(volatile void *at, unsigned bytes, uint64_t value, int order, const void *place);
/* Reads the newest store, and stores what `change` makes of it; returns what it read. */
uint64_t weak_change(volatile void *at, unsigned bytes, uint64_t (*change)(uint64_t, uint64_t), uint64_t operand, int order,
                     const void *place);
/* Whether it has; else *expected is what it has read. */
bool weak_compare_exchange(volatile void *at, unsigned bytes, uint64_t *expected, uint64_t value, int order, int failed, const void *place);
void weak_fence(int order);
/* All that any actor has done happens before what the running one does next. */
void weak_alone(void);
/* What any actor has done happens before what any other does next. */
void weak_barrier(void);
void weak_plain(const volatile void *at, size_t bytes, bool writes, const void *place);

uint64_t weak_memory_get(const volatile void *at, unsigned bytes);
void weak_memory_set(volatile void *at, unsigned bytes, uint64_t value);

#endif
