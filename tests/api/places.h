/* places.h - three places in the code that hold blocks, so that profiles can be told right from wrong. */
#ifndef TESTS_API_PLACES_H
#define TESTS_API_PLACES_H

#include "api.h"

enum { PLACES = 3, HELD = 60 << 20, RATE = 128 << 10 }; /* bytes in all; bytes a sample, by default */
extern uint64_t held_bytes[PLACES];                     /* usable ones */

/* The place whose code the address is in; PLACES: none. */
unsigned place_at(uintptr_t address);
/* One more block of some size. */
void hold(unsigned place);
/* Its caller frees it. */
void *allocate_at(unsigned place, size_t bytes);
/* Until they hold HELD, by 60, 30 and 10 %, each with blocks that come and go in between, from all three. */
void hold_all(void);
void let_go(unsigned place);
/* A number below `end`, the same in each run. */
uint32_t below(uint32_t end);

#endif
