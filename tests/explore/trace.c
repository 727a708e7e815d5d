#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STEPS = 1 << 16 };

typedef struct event {
  step_t step;
  unsigned actor;
  int node;
  uint32_t known[EXPLORE_ACTORS]; /* of each actor's events, those below this number happen before this one, or are it */
} event_t;

typedef struct trace {
  uint32_t length, same;
  event_t events[STEPS];
} trace_t;

static trace_t *t;

void trace_start(void) {
  t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (t == MAP_FAILED) abort();
}

void trace_restart(uint32_t same) {
  t->length = 0;
  t->same = same;
}

uint32_t trace_length(void) { return t->length; }
int trace_last_node(void) { return t->length == 0 ? TRACE_NO_NODE : t->events[t->length - 1].node; }

void trace_add(unsigned actor, const step_t *step, int node) {
  if (t->length == STEPS) abort();
  if (t->length >= t->same) t->events[t->length] = (event_t){*step, actor, node, {0}};
  t->length++;
}

bool steps_are_independent(const step_t *a, const step_t *b) {
  if (a->word == NULL || b->word == NULL) return false;
  return a->word != b->word || (a->access == EXPLORE_READ && b->access == EXPLORE_READ);
}

/* --- order ------------------------------------------------------------------------------- */

static bool happens_before(uint32_t earlier, const event_t *event) { return event->known[t->events[earlier].actor] > earlier; }

static void learn(event_t *event, const event_t *earlier) {
  for (unsigned q = 0; q < EXPLORE_ACTORS; q++) {
    if (event->known[q] < earlier->known[q]) event->known[q] = earlier->known[q];
  }
}

static void learn_own(uint32_t number) {
  event_t *event = &t->events[number];
  for (uint32_t i = number; i-- > 0;) {
    if (t->events[i].actor != event->actor) continue;
    learn(event, &t->events[i]);
    return;
  }
}

/* --- races ------------------------------------------------------------------------------- */

/* In the opposite order the first event comes last: before it come the second, and the events between them that do not depend on the first.
 * Returns the actors whose first event of these needs none of the others before it. */
static unsigned initials(uint32_t first, uint32_t second) {
  uint32_t begin[EXPLORE_ACTORS];
  memset(begin, 0xff, sizeof begin);
  unsigned found = 0;
  for (uint32_t i = first + 1; i <= second; i++) {
    const event_t *event = &t->events[i];
    if (begin[event->actor] != UINT32_MAX || (i != second && happens_before(first, event))) continue;
    bool needs_none = true;
    for (unsigned q = 0; q < EXPLORE_ACTORS; q++) needs_none &= event->known[q] <= begin[q];
    if (needs_none) found |= 1u << event->actor;
    begin[event->actor] = i;
  }
  return found;
}

/* From the newest event on downwards, so that what happens before by way of another event is known when its turn comes, and is no race. */
static void event_races(uint32_t number, void (*want)(int node, unsigned begin, unsigned second)) {
  event_t *event = &t->events[number];
  learn_own(number);
  for (uint32_t i = number; i-- > 0;) {
    const event_t *earlier = &t->events[i];
    if (happens_before(i, event) || steps_are_independent(&earlier->step, &event->step)) continue;
    if (earlier->node != TRACE_NO_NODE) want(earlier->node, initials(i, number), event->actor);
    learn(event, earlier);
  }
  event->known[event->actor] = number + 1;
}

void trace_races(void (*want)(int node, unsigned begin, unsigned second)) {
  for (uint32_t i = t->same; i < t->length; i++) event_races(i, want);
}
