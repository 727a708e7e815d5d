#include "os/stack.h"

#include <sys/auxv.h>

#include "base/atomics.h"
#include "base/thread.h"
#include "os/probe.h"

/* No other mapping lies this near below the first thread's stack: the kernel and emulators leave it more room. */
#define FIRST_MOST ((uintptr_t)4 << 20)
/* The most that is probed at a time, in bytes.  For a thread that is deeper than this, only its current page counts as readable. */
#define ASKED_MOST ((uintptr_t)1 << 20)

static _Atomic uintptr_t first_end;    /* of the first thread's stack; 0: not known */
static _Atomic uintptr_t first_thread; /* thread pointer of the first thread, which is not on its stack */
/* The stack is known readable from here to the thread pointer; 0: nothing is known.  A signal handler that interrupts proves at least
 * as much. */
static __thread uintptr_t proved __attribute__((tls_model("initial-exec")));

void stack_prepare(void) { store_relaxed(&first_end, getauxval(AT_RANDOM)); }

static uintptr_t stack_prove(uintptr_t at, uintptr_t end) {
  if (at < end && !probe_works()) return at;
  while (at < end && probe_readable(at)) at += PROBE_PAGE;
  return at;
}

bool stack_is_first(uintptr_t sp) { return load_relaxed(&first_end) - sp - 1 < FIRST_MOST; }

uintptr_t stack_readable_end(uintptr_t sp) {
  uintptr_t self = thread_self(), end = load_relaxed(&first_end), page = bits_round_down(sp, PROBE_PAGE);
  if (stack_is_first(sp)) {
    if (load_relaxed(&first_thread) != self) store_relaxed(&first_thread, self);
    return end;
  }
  uintptr_t from = proved;
  if (from != 0 && sp >= from && sp < self) return self;
  uintptr_t known = from != 0 && sp < from ? from : self;
  if (sp >= self || known - page > ASKED_MOST || self == load_relaxed(&first_thread)) return page + PROBE_PAGE;
  uintptr_t reached = stack_prove(page + PROBE_PAGE, known);
  if (reached < known) return reached;
  proved = page;
  return self;
}
