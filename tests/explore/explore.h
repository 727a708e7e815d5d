/* explore.h - enumerates the interleavings of actors on the allocator's shared words.
 *
 * An actor is a coroutine that the allocator takes for a thread.  A scenario
 * prepares a state, runs its actors, and judges the state they leave.  It is
 * run again and again from the same state (memory.c restores it), each time
 * with another choice of which actor moves next.  README.md has the details. */
#ifndef TESTS_EXPLORE_H
#define TESTS_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXPLORE_ACTORS = 4 }; /* the maximum; further identities are for judges */
enum { EXPLORE_OPTIONS = 8 }; /* the maximum for one choice */
/* Instead of a number of preemptions: no bound. */
enum { EXPLORE_EVERY = 1 << 30 };

typedef enum explore_access { EXPLORE_READ, EXPLORE_WRITE, EXPLORE_CHANGE /* writes if it succeeds */ } explore_access_t;

/* For scenarios: whether every block of every slab is sampled, so that its record and not its bit says whether it is live. */
extern bool explore_tracked;

typedef struct scenario {
  const char *name;
  void (*prepare)(void);
  void (*actors[EXPLORE_ACTORS])(void);
  void (*judge)(void); /* after all actors have ended */
  const char *dies;    /* every execution must end the process, in the judge at the latest, by a line that begins so; NULL: none may */
  int quick, soak;     /* preemptions, or EXPLORE_EVERY */
} scenario_t;
/* The scenarios that product.h does not generate. */
extern const scenario_t scenarios[];
extern const size_t scenario_count;

/* --- for the compiler's callbacks and the memory model --------------------------------------- */

/* What thread_self() returns for the running actor. */
extern uintptr_t explore_self;
/* The running actor; negative during the preparation and in the judge, where nothing is explored. */
int explore_actor(void);
/* Called before any access: a signal handler may run here. */
void explore_interrupt(const volatile void *at);
/* Called before an access to an atomic word, at `place` in the program. Returns whether an actor makes the access. */
bool explore_point(const volatile void *word, explore_access_t access, const void *place);
/* Called after an EXPLORE_CHANGE that has succeeded. */
void explore_changed(const volatile void *word);
/* Returns whether plain accesses to the address are checked: if an actor runs, and it is not its stack or a thread-local variable. */
bool explore_is_watched(const volatile void *at);
/* Returns whether the bound allows one more stale read; returns which of the options it is to be, 0 for the newest. */
bool explore_may_be_stale(void);
unsigned explore_pick(unsigned options);
/* Two accesses are not ordered: the execution fails. */
_Noreturn void explore_race(const void *at, const void *earlier, unsigned actor, const void *later);

/* --- for scenarios ------------------------------------------------------------------------- */

/* Ends the execution as failed. */
_Noreturn void explore_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends all other actors where they are: the running one is in a fork's child. */
void explore_alone(void);
/* In a preparation: some execution must have the outcome that the judge reports by explore_show, which otherwise is a failure. */
void explore_expect(void);
void explore_show(void);
/* In a preparation: a signal with this handler interrupts the first actor before any one of its accesses. If the thread is then inside
 * the allocator under a lock, the process may end with the line that says so. */
void explore_handle(void (*handler)(void));
/* Returns whether any load of this execution was stale. */
bool explore_was_stale(void);
/* No switch is tried before accesses to the word: what is decided by it does not matter. */
void explore_ignore(const volatile void *word);

/* A switch is tried before accesses to the word, even if only one actor makes them. */
void explore_meet(const volatile void *word);

/* --- between the parts of the explorer ----------------------------------------------------- */

/* explore.c: the running actor cannot continue until another has written; it has ended the process; it has crashed. */
void explore_wait(void);
_Noreturn void explore_died(void);
_Noreturn void explore_crashed(int signal, const void *address);

/* explore.c, for main.c: prepares a scenario. */
void explore_start(const scenario_t *scenario, bool quiet);
typedef struct search_limit {
  double end;          /* of explore_seconds */
  uint64_t executions; /* 0: no limit */
} search_limit_t;
/* Runs every execution within these bounds, up to the limit. Returns how many there were, or 0 if one failed, which it prints. */
uint64_t explore_search(int bound, unsigned stale, const search_limit_t *limit);
/* How many executions of the last search were not cut short. */
uint64_t explore_judged(void);
/* From now on, searches without a bound use sleep sets alone, which cut short most of what they run. */
void explore_by_sleep_sets(void);
/* Returns whether explore_expect was called and the outcome was never seen. */
bool explore_is_missed(void);
double explore_seconds(void);

/* memory.c: saves the program's variables and the allocator's pages, and restores them. */
void memory_start(void);
void memory_keep(void);
void memory_restore(void);
/* In a preparation: actors may also be switched before an os_barrier. */
void memory_meet_barriers(void);
/* The next `count` mappings at an address that the program chooses fail. */
void memory_refuse(unsigned count);

/* target.c: the allocator.  Switches to the thread with this number; to the one that ran when memory was saved. */
void target_run_as(unsigned identity);
void target_run_again(void);

#endif
