/* explore.c - the search: chooses which actor moves next and what it reads, until every choice has been made.
 *
 * A choice is made before each access to a shared word, at each read that may
 * return more than one store, and whenever the running actor waits or ends.  The choices of an execution are a path of
 * nodes; the next execution repeats the path up to the deepest node that has
 * an untried option, takes that option, and continues with first options.
 *
 * All state is in one mapping that memory.c does not restore. */
#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "fake_os.h"
#include "trace.h"
#include "weak.h"

enum {
  STACK_BYTES = 1 << 18,
  LOCAL_BYTES = 1 << 12, /* thread-local variables lie this close to the thread pointer */
  WORDS = 1 << 15,       /* size of the table; a power of two */
  NODES = 1 << 16,       /* in a path */
  STEPS_MOST = 1 << 20,  /* accesses in one execution; with more, it is taken for endless */
  LOOKED = 16,           /* words read in one round of a waiting loop; with more, any write ends the wait */
  NOBODY = -1,
  JUDGE = EXPLORE_ACTORS /* the identity for which nothing is explored */
};

typedef enum actor_state { ACTOR_READY, ACTOR_WAITING, ACTOR_ENDED } actor_state_t;

typedef struct actor {
  ucontext_t context;
  char *stack;
  actor_state_t state;
  step_t next; /* the access that it is about to make */
  const volatile void *looked[LOOKED]; /* what it has read since it last waited */
  unsigned looked_count;               /* LOOKED + 1: more */
  bool outdated;                       /* another actor has written to one of these since */
} actor_t;

typedef struct word {
  const volatile void *at;
  uint64_t execution;       /* the execution that the next three belong to */
  uint8_t readers, writers; /* a bit for each actor */
  bool early;               /* accessed before an actor's first choice */
  bool shared;              /* switches are tried before accesses to it */
  bool fresh;               /* shared for the first time in this pass */
  bool found;               /* will be shared from the next pass on */
  bool ignored;
} word_t;

/* Masks of options: actors, or what a read may return. */
typedef struct node {
  uint8_t options, wanted, done, chosen; /* the last is a number */
  uint8_t asleep;                        /* actors that are no options, since another path covers their next steps */
  uint32_t steps;                        /* of the trace before it */
} node_t;

typedef enum outcome { RUNNING, COMPLETE, PRUNED, DIED, FAILED } outcome_t;

typedef struct explorer {
  const scenario_t *scenario;
  int bound, preemptions, current;
  unsigned stale_bound, stale; /* reads that do not return the newest value */
  unsigned actors_count;
  actor_t actors[EXPLORE_ACTORS];
  ucontext_t main;
  bool starting, judging, verbose, quiet;
  bool expects, shown;
  void (*handler)(void);
  bool interrupted; /* in this execution */
  jmp_buf judge_end;
  outcome_t outcome;
  unsigned asleep; /* a bit for each actor: another path covers its next step */
  uint64_t execution;
  uint32_t steps, length; /* accesses so far, and by the actors in all */
  char reason[512];
  uint32_t at, depth;
  bool by_sleep_sets;
  uint64_t judged;
  node_t nodes[NODES];
  uint32_t same_steps; /* of the trace, as in the execution before */
  unsigned word_count;
  bool grown;       /* a shared word was found in this pass */
  bool redo;        /* it changes all executions of the pass */
  bool fresh_alone; /* an earlier pass has made all executions without a switch before a fresh word */
  bool fresh_taken; /* this execution has had a switch before a fresh word */
  word_t words[WORDS];
} explorer_t;

bool explore_tracked;
static explorer_t *x;

/* --- words ------------------------------------------------------------------------------- */

static word_t *word_find(const volatile void *at) {
  size_t i = (size_t)(((uint64_t)(uintptr_t)at * 0x9e3779b97f4a7c15u) >> 40) % WORDS;
  while (x->words[i].at != at) {
    if (x->words[i].at == NULL) {
      if (++x->word_count > WORDS / 4 * 3) abort();
      x->words[i].at = at;
      break;
    }
    i = (i + 1) % WORDS;
  }
  return &x->words[i];
}

void explore_meet(const volatile void *word) { word_find(word)->found = word_find(word)->shared = true; }
void explore_ignore(const volatile void *word) { word_find(word)->ignored = true; }

/* Without a bound no access may be left out: source sets would miss the orders that differ by it. */
static bool is_ignored(const word_t *word) { return word->ignored && x->bound != EXPLORE_EVERY; }

static void word_note(word_t *word, explore_access_t access) {
  uint8_t me = (uint8_t)(1u << x->current);
  if (word->execution != x->execution) {
    word->execution = x->execution;
    word->readers = word->writers = 0;
    word->early = false;
  }
  word->early |= x->starting;
  if (access == EXPLORE_READ) word->readers |= me;
  else word->writers |= me;
  unsigned all = word->readers | word->writers;
  if (word->found || is_ignored(word) || word->writers == 0 || (all & (all - 1)) == 0) return;
  word->found = true;
  x->grown = true;
  x->redo |= word->early || x->bound == EXPLORE_EVERY;
}

static void words_enter_found(void) {
  for (size_t i = 0; i < WORDS; i++) {
    word_t *word = &x->words[i];
    word->fresh = word->found && !word->shared;
    word->shared = word->found && !is_ignored(word);
  }
  x->grown = x->redo = false;
}

/* --- choices ----------------------------------------------------------------------------- */

static bool can_run(const actor_t *actor) { return actor->state == ACTOR_READY || (actor->state == ACTOR_WAITING && actor->outdated); }

/* Without a bound: an actor tried before stays asleep as long as the chosen steps are independent of its own (sleep sets). */
static void sleep_update(unsigned done, unsigned pick) {
  unsigned before = x->asleep | done;
  x->asleep = 0;
  for (unsigned q = 0; q < x->actors_count; q++) {
    bool stays = (before >> q & 1) != 0 && q != pick && steps_are_independent(&x->actors[q].next, &x->actors[pick].next);
    if (stays) x->asleep |= 1u << q;
  }
}

static bool all_ended(void) {
  bool ended = true;
  for (unsigned q = 0; q < x->actors_count; q++) ended &= x->actors[q].state == ACTOR_ENDED;
  return ended;
}

/* No actor can be chosen. */
static int choice_none(void) {
  bool some_can = false;
  for (unsigned q = 0; q < x->actors_count; q++) some_can |= can_run(&x->actors[q]);
  if (all_ended()) x->outcome = COMPLETE;
  else if (some_can) x->outcome = PRUNED;
  else {
    x->outcome = FAILED;
    snprintf(x->reason, sizeof x->reason, "every actor waits");
  }
  return NOBODY;
}

static unsigned lowest(unsigned options) { return (unsigned)__builtin_ctz(options); }

/* The next node of the path; a new one takes `first`. */
static const node_t *node_next(unsigned options, unsigned first, unsigned wanted) {
  if (x->at == x->depth) {
    if (x->depth == NODES) abort();
    x->nodes[x->depth++] = (node_t){(uint8_t)options, (uint8_t)wanted, 0, (uint8_t)first, (uint8_t)x->asleep, trace_length()};
  }
  const node_t *node = &x->nodes[x->at++];
  if (node->options != options) {
    (void)!write(2, "explore: executions are not deterministic\n", 42);
    _exit(3);
  }
  return node;
}

/* Takes each of so many options in turn. */
static unsigned pick_of(unsigned count) {
  unsigned options = (1u << count) - 1;
  return node_next(options, 0, options)->chosen;
}

/* Without a bound, a node first wants one actor; races show which others it needs (source sets, Abdulla et al. 2014). */
static unsigned pick_actor(unsigned options, unsigned first) {
  bool every = x->bound == EXPLORE_EVERY, all = !every || x->by_sleep_sets, alone = (options & (options - 1)) == 0;
  const node_t *node = alone ? NULL : node_next(options, first, all ? options : 1u << first);
  unsigned pick = alone ? first : node->chosen;
  if (!every) return pick;
  trace_add(pick, &x->actors[pick].next, alone ? TRACE_NO_NODE : (int)(node - x->nodes));
  sleep_update(alone ? 0 : node->done, pick);
  return pick;
}

static void node_want(int number, unsigned begin, unsigned second) {
  node_t *node = &x->nodes[number];
  if ((begin & (node->wanted | node->asleep)) != 0) return; /* that order is run; or it is the same as one of another path */
  begin &= node->options;                                   /* an actor that waits for the first step cannot come before it */
  if ((begin >> second & 1) != 0) node->wanted |= (uint8_t)(1u << second);
  else if (begin != 0) node->wanted |= (uint8_t)(1u << lowest(begin));
}

static void node_want_all(int number) {
  if (number != TRACE_NO_NODE) x->nodes[number].wanted = x->nodes[number].options;
}

/* What actors would still have done when another one ended the process is not known, so it may race with any step. */
static void path_want(void) {
  if (x->bound == EXPLORE_EVERY) trace_races(node_want);
  for (int i = 0; !all_ended() && x->outcome == DIED && i < (int)x->depth; i++) node_want_all(i);
}

/* In a pass that only adds executions with a switch before a fresh word, the last preemption is kept for such a switch. */
static bool may_preempt(bool at_fresh) {
  int most = x->fresh_alone && !x->fresh_taken && !at_fresh ? x->bound - 1 : x->bound;
  return x->preemptions < most;
}

/* An actor that need not wait any more goes on to its next access at once: that changes nothing for the others. */
static int choose_woken(void) {
  for (int q = 0; q < (int)x->actors_count; q++) {
    if (x->actors[q].state == ACTOR_WAITING && x->actors[q].outdated) return q;
  }
  return NOBODY;
}

/* Returns the actor that moves next, or NOBODY if the execution ends; `me` is the running actor, or NOBODY. */
static int choose(int me, bool at_fresh) {
  bool can_stay = me != NOBODY && x->actors[me].state == ACTOR_READY;
  bool may_switch = !can_stay || may_preempt(at_fresh);
  int woken = x->bound == EXPLORE_EVERY ? choose_woken() : NOBODY;
  if (woken != NOBODY) return woken;
  unsigned options = can_stay ? 1u << me : 0;
  for (unsigned q = 0; may_switch && q < x->actors_count; q++) {
    if ((int)q != me && can_run(&x->actors[q])) options |= 1u << q;
  }
  options &= ~x->asleep;
  if (options == 0) return choice_none();
  int pick = (int)pick_actor(options, can_stay && (options >> me & 1) != 0 ? (unsigned)me : lowest(options));
  if (can_stay && pick != me) {
    x->preemptions++;
    x->fresh_taken |= at_fresh;
  }
  return pick;
}

static bool path_next(void) {
  while (x->depth > 0) {
    node_t *node = &x->nodes[x->depth - 1];
    node->done |= (uint8_t)(1u << node->chosen);
    unsigned left = node->wanted & ~(unsigned)node->done;
    if (left != 0) {
      node->chosen = (uint8_t)lowest(left);
      x->same_steps = node->steps;
      return true;
    }
    x->depth--;
  }
  return false;
}

/* --- places ------------------------------------------------------------------------------ */

/* The functions and lines of a place in the program, innermost first. */
static const char *place_text(const void *place) {
  static char text[512];
  char command[128];
  snprintf(text, sizeof text, "%p", place);
  if (x->quiet) return text;
  unsigned long address = (unsigned long)((uintptr_t)place - 1);
  snprintf(command, sizeof command, "addr2line -s -i -f -p -e /proc/%d/exe %#lx 2>/dev/null", (int)getpid(), address);
  FILE *pipe = popen(command, "r");
  if (pipe == NULL) return text;
  size_t used = fread(text, 1, sizeof text - 1, pipe);
  (void)pclose(pipe);
  while (used > 0 && text[used - 1] == '\n') used--;
  text[used] = '\0';
  for (char *end = strchr(text, '\n'); end != NULL; end = strchr(end, '\n')) *end = ' ';
  return text;
}

/* --- actors ------------------------------------------------------------------------------ */

/* Makes the next actor, or the search, current; returns its context. */
static ucontext_t *turn_to(int next) {
  x->current = next;
  if (next == NOBODY) return &x->main;
  target_run_as((unsigned)next);
  return &x->actors[next].context;
}

static void decide(bool at_fresh) {
  int me = x->current;
  int next = x->starting ? NOBODY : choose(me, at_fresh);
  if (next != me) swapcontext(&x->actors[me].context, turn_to(next));
}

static void actor_run(void) {
  int me = x->current;
  x->scenario->actors[me]();
  x->actors[me].state = ACTOR_ENDED;
  setcontext(turn_to(x->starting ? NOBODY : choose(me, false)));
}

static bool has_looked(const actor_t *actor, const volatile void *at) {
  if (actor->looked_count > LOOKED) return true;
  for (unsigned i = 0; i < actor->looked_count; i++) {
    if (actor->looked[i] == at) return true;
  }
  return false;
}

static void note_look(actor_t *actor, const volatile void *at) {
  if (has_looked(actor, at)) return;
  if (actor->looked_count < LOOKED) actor->looked[actor->looked_count] = at;
  actor->looked_count++;
}

void explore_changed(const volatile void *at) {
  for (int q = 0; x->current != NOBODY && q < (int)x->actors_count; q++) {
    if (q != x->current && has_looked(&x->actors[q], at)) x->actors[q].outdated = true;
  }
}

/* The running actor's stack. */
static bool is_on_stack(const volatile void *at) { return (uintptr_t)at - (uintptr_t)x->actors[x->current].stack < STACK_BYTES; }

static const char *const access_text[] = {"reads", "writes", "changes"};

int explore_actor(void) { return x->current; }

/* As with a real signal, the handler runs on the actor's own stack and as the same thread. */
void explore_interrupt(const volatile void *at) {
  if (x->handler == NULL || x->interrupted || x->current != 0 || is_on_stack(at)) return;
  if (pick_of(2) == 0) return;
  x->interrupted = true;
  if (x->verbose) printf("    A is interrupted by a signal handler\n");
  x->handler();
  x->actors[0].outdated = true; /* the handler may have done what the actor was about to wait for */
  if (x->verbose) printf("    A goes on\n");
}

bool explore_point(const volatile void *at, explore_access_t access, const void *place) {
  explore_interrupt(at);
  if (++x->steps > STEPS_MOST) explore_fail("no end after %d accesses", STEPS_MOST);
  if (x->current == NOBODY) return false;
  actor_t *actor = &x->actors[x->current];
  word_t *word = word_find(at);
  word_note(word, access);
  if (word->shared) {
    actor->next = (step_t){at, access};
    decide(word->fresh);
    actor->next.word = NULL;
    if (x->verbose) printf("    %c %s %p in %s\n", 'A' + x->current, access_text[access], (void *)(uintptr_t)at, place_text(place));
  }
  if (access == EXPLORE_WRITE) explore_changed(at);
  else note_look(actor, at);
  return true;
}

/* Thread-local variables are not watched: each actor has its own, which are swapped in while it runs. */
bool explore_is_watched(const volatile void *at) {
  if (x->current == NOBODY) return false;
  uintptr_t local = (uintptr_t)__builtin_thread_pointer() - (uintptr_t)at + LOCAL_BYTES;
  return !is_on_stack(at) && local >= 2 * LOCAL_BYTES;
}

/* --- reads of what is not newest --------------------------------------------------------- */

bool explore_was_stale(void) { return x->stale > 0; }

bool explore_may_be_stale(void) { return x->stale < x->stale_bound && !x->starting; }

unsigned explore_pick(unsigned options) {
  if (options <= 1) return 0;
  unsigned pick = pick_of(options);
  if (pick == 0) return 0;
  x->stale++;
  x->actors[x->current].outdated = true; /* it will see the newest store in time, and need not wait for a further one */
  if (x->verbose) printf("      and gets what %u stores have replaced\n", pick);
  return pick;
}

/* Returns immediately, for another round of the loop, if a word that the actor has read has changed since; else waits for that. */
void explore_wait(void) {
  if (x->current == NOBODY) explore_fail("the judge waits for an actor, and all have ended");
  actor_t *actor = &x->actors[x->current];
  if (!actor->outdated) {
    actor->state = ACTOR_WAITING;
    if (x->verbose) printf("    %c waits\n", 'A' + x->current);
    decide(false);
    actor->state = ACTOR_READY;
  }
  actor->outdated = false;
  actor->looked_count = 0;
}

/* --- one execution ----------------------------------------------------------------------- */

static _Noreturn void leave(outcome_t outcome) {
  x->outcome = outcome;
  setcontext(turn_to(NOBODY));
  abort();
}

void explore_fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(x->reason, sizeof x->reason, format, arguments);
  va_end(arguments);
  if (x->current != NOBODY) leave(FAILED);
  x->outcome = FAILED;
  if (x->judging) longjmp(x->judge_end, 1);
  printf("  not prepared: %s\n", x->reason);
  exit(1);
}

void explore_race(const void *at, const void *earlier, unsigned actor, const void *later) {
  char before[256];
  snprintf(before, sizeof before, "%.250s", place_text(earlier));
  explore_fail("a race for %p: %c in %.200s with %c in %.200s", at, 'A' + (int)actor, before, 'A' + x->current, place_text(later));
}

void explore_died(void) {
  if (x->current != NOBODY) leave(DIED);
  if (!x->judging) explore_fail("the process ended: %.300s", fake_os_captured());
  x->outcome = DIED;
  longjmp(x->judge_end, 1);
}

void explore_crashed(int signal, const void *address) { explore_fail("signal %d at %p", signal, address); }

void explore_alone(void) {
  decide(false); /* so that the others may be anywhere at the fork */
  node_want_all(trace_last_node()); /* what they would still have done is not known */
  for (int q = 0; q < (int)x->actors_count; q++) {
    if (q != x->current) x->actors[q].state = ACTOR_ENDED;
  }
  weak_alone();
}

void explore_expect(void) { x->expects = true; }
void explore_handle(void (*handler)(void)) { x->handler = handler; }

void explore_show(void) {
  x->shown = true;
  if (!x->expects) explore_fail("what must not be has been seen");
}

static void actor_make(unsigned i) {
  actor_t *actor = &x->actors[i];
  getcontext(&actor->context);
  actor->context.uc_stack.ss_sp = actor->stack;
  actor->context.uc_stack.ss_size = STACK_BYTES;
  actor->context.uc_link = NULL;
  makecontext(&actor->context, actor_run, 0);
  actor->state = ACTOR_READY;
  actor->next.word = NULL;
  actor->looked_count = 0;
  actor->outdated = false;
}

static void run_actors(void) {
  x->starting = true; /* runs each actor up to its first choice: nothing before that matters to the others */
  for (unsigned i = 0; i < x->actors_count && x->outcome == RUNNING; i++) swapcontext(&x->main, turn_to((int)i));
  x->starting = false;
  x->current = NOBODY;
  if (x->outcome != RUNNING) return;
  int first = choose(NOBODY, false);
  if (first != NOBODY) swapcontext(&x->main, turn_to(first));
}

static void judge(void) {
  if (x->outcome == COMPLETE) x->scenario->judge();
}

/* Returns whether the handler interrupted the allocator while its thread held a lock. */
static bool is_reentered(void) { return x->interrupted && strstr(fake_os_captured(), "a signal handler called the allocator") != NULL; }

static void judge_outcome(void) {
  const char *dies = x->scenario->dies;
  if (x->outcome == DIED && is_reentered()) return;
  if (x->outcome == DIED && (dies == NULL || strncmp(fake_os_captured(), dies, strlen(dies)) != 0)) {
    explore_fail("the process ended: %.300s", fake_os_captured());
  }
  if (x->outcome == COMPLETE && dies != NULL) explore_fail("nobody noticed: no \"%s\"", dies);
}

static void run_once(void) {
  memory_restore();
  trace_restart(x->same_steps);
  target_run_again();
  x->at = 0;
  x->preemptions = 0;
  x->stale = 0;
  x->asleep = 0;
  x->fresh_taken = false;
  x->interrupted = false;
  weak_restart();
  x->execution++;
  x->steps = 0;
  x->outcome = RUNNING;
  x->reason[0] = '\0';
  for (unsigned i = 0; i < x->actors_count; i++) actor_make(i);
  run_actors();
  x->length = x->steps;
  x->steps = 0;
  target_run_as(JUDGE);
  x->judging = true;
  if (setjmp(x->judge_end) == 0) judge();
  if (setjmp(x->judge_end) == 0) judge_outcome();
  x->judging = false;
}

/* Runs the failed execution again and shows the order of accesses to shared words. */
static void report(void) {
  printf("  FAILED: %s\n", x->reason);
  if (x->quiet) return;
  printf("  %d preemptions, %u stale reads:\n", x->preemptions, x->stale);
  x->verbose = true;
  run_once();
  printf("  FAILED: %s\n", x->reason);
}

/* --- the search -------------------------------------------------------------------------- */

double explore_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Makes passes until one finds no new shared word.  The first pass makes all executions with the words known so far; a later one only adds
 * those with a switch before a fresh word.  Exceptions: a word accessed before an actor's first choice changes that choice; and without
 * a bound, the sleep sets depend on all words.  In these cases the pass ends, and the next makes all executions again. */
uint64_t explore_search(int bound, unsigned stale, const search_limit_t *limit) {
  double start = explore_seconds();
  uint64_t executions = 0, pruned = 0, longest = 0, in_all = 0;
  bool over = false;
  x->bound = bound;
  x->stale_bound = stale;
  x->fresh_alone = false;
  do {
    words_enter_found();
    x->depth = x->same_steps = 0;
    if (!x->fresh_alone) executions = pruned = longest = 0;
    do {
      run_once();
      if (x->outcome == FAILED) {
        report();
        return 0;
      }
      path_want();
      executions += !x->fresh_alone || x->fresh_taken;
      pruned += x->outcome == PRUNED;
      if (x->length > longest) longest = x->length;
      over = ++in_all == limit->executions || (in_all % 64 == 0 && explore_seconds() > limit->end);
    } while (!x->redo && !over && path_next());
    x->fresh_alone = !x->redo;
  } while (x->grown && !over);
  x->judged = executions - pruned;
  char text[32];
  snprintf(text, sizeof text, bound == EXPLORE_EVERY ? "every order" : "%d preemptions", bound);
  printf("  %-13s %u stale %10llu executions", text, stale, (unsigned long long)executions);
  if (pruned != 0) printf(", %llu of them cut short", (unsigned long long)pruned);
  printf("; %llu accesses at most, %.1f s, %llu run in all%s\n", (unsigned long long)longest, explore_seconds() - start,
         (unsigned long long)in_all, over ? "; NOT FINISHED" : "");
  fflush(stdout);
  return executions;
}

void explore_start(const scenario_t *scenario, bool quiet) {
  x = mmap(NULL, sizeof *x, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (x == MAP_FAILED) abort();
  x->scenario = scenario;
  x->quiet = quiet;
  x->current = NOBODY;
  while (x->actors_count < EXPLORE_ACTORS && scenario->actors[x->actors_count] != NULL) {
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) abort();
    x->actors[x->actors_count++].stack = stack;
  }
  memory_start();
  weak_start();
  trace_start();
  fake_os_capture();
  target_run_as(JUDGE);
  scenario->prepare();
  target_run_as(JUDGE);
  memory_keep();
}

uint64_t explore_judged(void) { return x->judged; }
void explore_by_sleep_sets(void) { x->by_sleep_sets = true; }
bool explore_is_missed(void) { return x->expects && !x->shown; }
