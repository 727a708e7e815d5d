/* fake_os.h - os.h on demand: failures, limits, time, files and output as a test wants them.
 *
 * fake_os.c implements the contract of src/os/os.h on real mappings and is
 * linked in place of os_linux.c.  It checks its callers: addresses and sizes
 * must be whole pages.  Inside every call errno is overwritten and restored, as
 * a real call would do.  Settings are for one thread before others start; the
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
  FAKE_MAPPED = FAKE_CALLS /* not a call that fails: os_map_at has mapped, and not yet returned */
} fake_call_t;

#define FAKE_ONLY(call) (1u << (call))
#define FAKE_ANY ((1u << FAKE_CALLS) - 1)
/* The calls that take memory from the kernel; a free may make none of these. */
#define FAKE_TAKING (FAKE_ONLY(FAKE_MAP_AT) | FAKE_ONLY(FAKE_MAP))

/* ---- Failures ---- */

/* Of the calls in the set `kinds` made from now on, counted from 1, `count`
 * fail, starting with the `first`.  Replaces earlier settings. */
void fake_os_fail(unsigned kinds, uint64_t first, uint64_t count);
void fake_os_fail_none(void);
/* Acts as if the program had locked the page of this byte: a purge of a range with this page fails. NULL ends this. */
void fake_os_lock(const void *byte);
/* Whether os_purge_locked does its work. */
void fake_os_give_back_locked(bool go);
/* What a failing os_map_at returns: OS_NOMEM by default, or OS_TAKEN. */
void fake_os_fail_map_at_as(os_map_result_t result);
/* Failures made so far. */
uint64_t fake_os_injected(void);
/* Calls of the kinds made so far, failed ones included. */
uint64_t fake_os_calls(unsigned kinds);

/* Calls `run` inside each call of the kind, before the call's work, with its first argument; NULL ends this. */
void fake_os_during(fake_call_t call, void (*run)(void *start));

/* ---- The machine ---- */

void fake_os_set_time(uint64_t ms);
void fake_os_pass_time(uint64_t ms);
void fake_os_set_address_limit(uint64_t bytes);
void fake_os_set_physical_memory(uint64_t bytes);
/* A power of two, at least the real page size. To be set before the first mapping. */
void fake_os_set_page_size(size_t bytes);
void fake_os_set_map_limit(size_t mappings);
void fake_os_set_random_seed(uint64_t seed);
void fake_os_set_secure(bool secure);
/* One thread plays all parts: nothing changes while it sleeps, so sleeping takes no time. */
void fake_os_set_alone(bool alone);
/* How long it has slept, or would have; the second function sets what runs during each sleep, NULL: nothing. */
uint64_t fake_os_slept_us(void);
void fake_os_set_meanwhile(void (*run)(void));
/* What os_credentials returns; both are false by default. */
void fake_os_set_credentials(bool filtered, bool privileged);
/* Runs in place of each barrier in all threads; NULL: the kernel has no such barrier. */
void fake_os_set_barrier(void (*barrier)(void));
/* Whether the thread that was last requested was to be confined. */
bool fake_os_confined(void);
/* The resident pages that os_resident finds, at most as many as it checks; none by default. */
void fake_os_set_resident(size_t pages);
/* The number of pages that the last call was to check. */
size_t fake_os_looked_at(void);
/* The price of bringing in a unit's pages, and of a page where os_huge has requested huge pages, in ns of os_thread_ns. Only from then
 * on does os_thread_ns report the time. */
void fake_os_set_prices(uint64_t unit, uint64_t huge);
/* Adds to the time of os_thread_ns: what a call takes, while it is made (fake_os_during). */
void fake_os_spend(uint64_t ns);
/* Bytes for which os_huge was called so far, with this argument. */
uint64_t fake_os_made(bool huge);

/* ---- Addresses ---- */

/* From now on all that may be mapped anywhere is mapped in a row from `start` on, a multiple of any page size far from all else: so each
 * run has the same addresses. For one thread. */
void fake_os_set_arena(uintptr_t start);
/* Unmaps all that was mapped there. */
void fake_os_drop_arena(void);

/* ---- Files and output ---- */

/* The only file besides the real ones; NULL removes it. */
void fake_os_set_file(const char *path, const char *text);
/* Keeps the text that os_write sends to standard error instead of writing it. */
void fake_os_capture(void);
/* The kept text, NUL-terminated. */
const char *fake_os_captured(void);
/* os_abort jumps there, with value 1, instead of ending the process. */
void fake_os_catch_abort(jmp_buf *place);

#endif
