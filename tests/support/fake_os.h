/* fake_os.h - os.h on demand: failures, limits, time, files and output as a test wants them.
 *
 * fake_os.c implements the contract of src/os/os.h on real mappings and is
 * linked in place of os_linux.c.  It checks its callers: addresses and sizes
 * must be whole pages.  Inside every call errno is spoilt and put back, as a
 * real call would do.  Settings are for one thread before others start; the
 * counters may be read at any time. */
#ifndef TESTS_SUPPORT_FAKE_OS_H
#define TESTS_SUPPORT_FAKE_OS_H

#include <setjmp.h>

#include "os/os.h"

/* The calls that can fail. */
typedef enum fake_call {
  FAKE_MAP_AT,
  FAKE_MAP,
  FAKE_UNMAP,
  FAKE_PURGE,
  FAKE_POPULATE,
  FAKE_MOVE,
  FAKE_RENEW,
  FAKE_GUARD,
  FAKE_THREAD,
  FAKE_WRITE,
  FAKE_READ,
  FAKE_CALLS,
  FAKE_MAPPED = FAKE_CALLS /* none that fails: what os_map_at has mapped, and not yet returned */
} fake_call_t;

#define FAKE_ONLY(call) (1u << (call))
#define FAKE_ANY ((1u << FAKE_CALLS) - 1)
/* What takes memory from the kernel; a free may make none of these. */
#define FAKE_TAKING (FAKE_ONLY(FAKE_MAP_AT) | FAKE_ONLY(FAKE_MAP))

/* ---- Failures ---- */

/* Of the calls in the set `kinds` made from now on, counted from 1, `count`
 * fail from the `first` on.  Replaces what was set before. */
void fake_os_fail(unsigned kinds, uint64_t first, uint64_t count);
void fake_os_fail_none(void);
/* As if the program had locked the page of this byte: a purge that it is part of fails. NULL ends it. */
void fake_os_lock(const void *byte);
/* What a failing os_map_at returns: OS_NOMEM at first, or OS_TAKEN. */
void fake_os_fail_map_at_as(os_map_result_t result);
/* Failures made so far. */
uint64_t fake_os_injected(void);
/* Calls of the kinds made so far, failed ones included. */
uint64_t fake_os_calls(unsigned kinds);

/* Has `run` called inside each call of the kind, before its work, with its first argument; NULL ends it. */
void fake_os_during(fake_call_t call, void (*run)(void *start));

/* ---- The machine ---- */

void fake_os_set_time(uint64_t ms);
void fake_os_pass_time(uint64_t ms);
void fake_os_set_address_limit(uint64_t bytes);
void fake_os_set_physical_memory(uint64_t bytes);
/* A power of two, at least the real size. Before the first mapping. */
void fake_os_set_page_size(size_t bytes);
void fake_os_set_map_limit(size_t mappings);
void fake_os_set_random_seed(uint64_t seed);
void fake_os_set_secure(bool secure);
/* One thread plays all: nothing changes while it sleeps, which takes no time then. */
void fake_os_set_alone(bool alone);
/* How long it has slept, or would have; what happens meanwhile, NULL: nothing. */
uint64_t fake_os_slept_us(void);
void fake_os_set_meanwhile(void (*run)(void));
/* What os_standing tells; neither at first. */
void fake_os_set_standing(bool filtered, bool privileged);
/* Runs in place of each barrier in all threads; NULL: the kernel has none. */
void fake_os_set_barrier(void (*barrier)(void));
/* Whether the thread that was last asked for was to be confined. */
bool fake_os_confined(void);
/* The pages that os_resident finds, if asked for as many; none at first. */
void fake_os_set_resident(size_t pages);
/* How many it was last asked for. */
size_t fake_os_looked_at(void);
/* What it costs to bring in a unit's pages, and what a page where os_huge was asked for huge ones, in ns of os_thread_ns, which
 * tells the time from then on: not at first. */
void fake_os_set_prices(uint64_t unit, uint64_t huge);
/* Bytes that os_huge was called for so far, the one way or the other. */
uint64_t fake_os_made(bool huge);

/* ---- Addresses ---- */

/* From now on what is mapped anywhere is mapped in a row from here on, a multiple of any page size far from all else: a run then
 * has the same addresses each time. For one thread. */
void fake_os_set_arena(uintptr_t start);
/* Unmaps all that was mapped since. */
void fake_os_drop_arena(void);

/* ---- Files and output ---- */

/* The one file there is beside the real ones; NULL takes it away. */
void fake_os_set_file(const char *path, const char *text);
/* Keeps what os_write sends to standard error instead of writing it. */
void fake_os_capture(void);
/* What was kept, NUL-terminated. */
const char *fake_os_captured(void);
/* os_abort jumps here, with value 1, instead of ending the process. */
void fake_os_catch_abort(jmp_buf *place);

#endif
