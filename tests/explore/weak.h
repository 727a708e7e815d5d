/* weak.h - which values a read may return, and what happens before what: an operational form of C11's memory model.
 *
 * Each atomic word keeps the stores of this execution in modification order.  Each actor has a vector clock: for every other
 * actor, how much of its work happens before the actor's own next step.  A release store passes this on to a load that acquires.
 * A read may return any store that is not older than one the actor has stored or read, or that another is known to have stored
 * or read.  README.md names the model and what it omits.  Plain accesses that are not ordered are a race, which is a failure. */
#ifndef TESTS_EXPLORE_WEAK_H
#define TESTS_EXPLORE_WEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void weak_start(void);
/* Begins a new execution with the current content of memory. */
void weak_restart(void);

/* An access by the running actor. `order` is one of the compiler's constants; `place` is the address in the program. */
uint64_t weak_load(volatile void *at, unsigned bytes, int order, const void *place);
void weak_store(volatile void *at, unsigned bytes, uint64_t value, int order, const void *place);
/* Reads the newest store and stores change(that value, operand). Returns the value it read. */
uint64_t weak_change(volatile void *at, unsigned bytes, uint64_t (*change)(uint64_t, uint64_t), uint64_t operand, int order,
                     const void *place);
/* Returns whether it succeeded; if not, *expected is the value it read. */
bool weak_compare_exchange(volatile void *at, unsigned bytes, uint64_t *expected, uint64_t value, int order, int failed, const void *place);
void weak_fence(int order);
/* Everything that any actor has done happens before what the running actor does next. */
void weak_alone(void);
/* Everything that any actor has done happens before what any other does next. */
void weak_barrier(void);
void weak_plain(const volatile void *at, size_t bytes, bool writes, const void *place);

uint64_t weak_memory_get(const volatile void *at, unsigned bytes);
void weak_memory_set(volatile void *at, unsigned bytes, uint64_t value);

#endif
