/* trace.h - the steps of an execution in their order, and which of them could have come in the opposite order.
 *
 * A step is what an actor does from one choice to the next: an access to a shared word, and what follows it.  Two steps depend on each
 * other if swapping them could change anything.  A race is a pair of dependent steps of two actors that no step between them orders. */
#ifndef TESTS_EXPLORE_TRACE_H
#define TESTS_EXPLORE_TRACE_H

#include "explore.h"

enum { TRACE_NO_NODE = -1 };

typedef struct step {
  const volatile void *word; /* NULL: it depends on every other step */
  explore_access_t access;
} step_t;

bool steps_are_independent(const step_t *a, const step_t *b);

void trace_start(void);
/* An execution begins, which repeats the first `same` steps of the one before. */
void trace_restart(uint32_t same);
/* The actor makes this step, chosen at `node` of the path; TRACE_NO_NODE: no other actor could be chosen. */
void trace_add(unsigned actor, const step_t *step, int node);
/* How many steps there are so far. */
uint32_t trace_length(void);
/* The node that the last step was chosen at, or TRACE_NO_NODE. */
int trace_last_node(void);
/* For each race with a step that the execution before did not have, calls `want` with the node of its first step, and as a mask the actors
 * that can begin there what leads to the opposite order; `second` is the actor of its second step.  Any one of them is enough. */
void trace_races(void (*want)(int node, unsigned begin, unsigned second));

#endif
