/* explore.h - enumerates the interleavings of actors on the allocator's shared words.
 *
 * An actor is a coroutine that is a thread to the allocator.  A scenario
 * prepares a state, starts its actors, and judges what they leave.  It runs
 * again and again, each time with another choice of who moves next, from the
 * same state: memory is put back, see memory.c.  README.md tells the rest. */
#ifndef TESTS_EXPLORE_H
#define TESTS_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXPLORE_ACTORS = 4 }; /* at most; further identities are for judges */
enum { EXPLORE_OPTIONS = 8 }; /* of a choice, at most */
/* In place of a number of preemptions: no bound. */
enum { EXPLORE_EVERY = 1 << 30 };

typedef enum explore_access { EXPLORE_READ, EXPLORE_WRITE, EXPLORE_CHANGE /* writes if it succeeds */ } explore_access_t;

/* For scenarios: whether every block of every slab is sampled, so that it is live by its record and not by its bit. */
extern bool explore_tracked;

typedef struct scenario {
  const char *name;
  void (*prepare)(void);
  void (*actors[EXPLORE_ACTORS])(void);
  void (*judge)(void); /* after all actors have ended */
  const char *dies;    /* how the line begins that every execution must end with, in the judge at the latest; NULL: none may end */
  int quick, soak;     /* preemptions, or EXPLORE_EVERY */
} scenario_t;
/* Beside those of product.h. */
extern const scenario_t scenarios[];
extern const size_t scenario_count;

/* --- for the compiler's callbacks and the memory model --------------------------------------- */

/* The allocator's name of the thread that runs. */
extern uintptr_t explore_self;
/* The actor that runs; negative: the preparation or the judge, for whom nothing is explored. */
int explore_actor(void);
/* Before any access: a signal handler may come between. */
void explore_interrupt(const volatile void *at);
/* Before an access to an atomic word, at `place` in the program; whether an actor makes it. */
bool explore_point(const volatile void *word, explore_access_t access, const void *place);
/* After an EXPLORE_CHANGE that has succeeded. */
void explore_changed(const volatile void *word);
/* Whether plain accesses there are looked at: an actor makes them, and not to its stack or to thread-local variables. */
bool explore_is_watched(const volatile void *at);
/* Whether the bound allows one more read of what is not newest; which of so many options it is: 0, or that. */
bool explore_may_be_stale(void);
unsigned explore_pick(unsigned options);
/* Two accesses that are not ordered: the execution is wrong. */
_Noreturn void explore_race(const void *at, const void *earlier, unsigned actor, const void *later);

/* --- for scenarios ------------------------------------------------------------------------- */

/* The execution is wrong, and ends. */
_Noreturn void explore_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The other actors are no more, wherever they are: the running one is in a fork's child. */
void explore_alone(void);
/* In a preparation: some execution has to end in what the judge is to see.  The judge has seen it; without the former it is wrong. */
void explore_expect(void);
void explore_show(void);
/* In a preparation: a signal interrupts the first actor before any one of its accesses, and this is its handler. If that finds the thread
 * inside of the allocator under a lock, the process may end with the line that says so. */
void explore_handle(void (*handler)(void));
/* Whether a load of this execution has not returned the newest value. */
bool explore_was_stale(void);
/* Accesses to the word are no reason to switch: what is chosen by it does not matter. */
void explore_ignore(const volatile void *word);

/* Accesses to the word are a reason to switch, though only one actor makes them. */
void explore_meet(const volatile void *word);

/* --- between the parts of the explorer ----------------------------------------------------- */

/* explore.c: the running actor cannot go on until another one has written; has ended the process; has crashed. */
void explore_wait(void);
_Noreturn void explore_died(void);
_Noreturn void explore_crashed(int signal, const void *address);

/* explore.c, for main.c: prepares a scenario. */
void explore_start(const scenario_t *scenario, bool quiet);
/* Every execution with so many preemptions and stale reads; how many, or 0 when one failed, which is printed. */
uint64_t explore_search(int bound, unsigned stale, double end);
/* Whether what explore_expect waits for has not been seen. */
bool explore_is_missed(void);
double explore_seconds(void);

/* memory.c: keeps the program's variables and the allocator's pages as they are, and brings them back. */
void memory_start(void);
void memory_keep(void);
void memory_restore(void);
/* In a preparation: actors may be switched before a barrier in all threads. */
void memory_meet_barriers(void);
/* The next so many mappings at a place of the program's choice fail. */
void memory_refuse(unsigned count);

/* target.c: the allocator.  Lets the thread with this number run; puts back who ran when memory was kept. */
void target_run_as(unsigned identity);
void target_run_again(void);

#endif
