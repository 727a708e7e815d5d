/* crash.c - optionally reports what a faulting address is to the allocator, before the process ends as it would have. */
#include "entry/entry.h"

#include <signal.h>
#include <stddef.h>

#include "base/format.h"
#include "os/line.h"
#include "os/os.h"
#include "os/trace.h"
#include "kit/options.h"
#include "slab/slots.h"
#include "front/inspect.h"

typedef struct watched {
  int number;
  const char *name;
  struct sigaction before; /* the action that ours replaces */
} watched_t;
enum { WATCHED = 3 };
static struct {
  watched_t of[WATCHED];
} HAK_SEALED watched = {
    .of = {{.number = SIGSEGV, .name = "SIGSEGV"}, {.number = SIGBUS, .name = "SIGBUS"}, {.number = SIGABRT, .name = "SIGABRT"}},
};

static const watched_t *watched_of(int number) {
  const watched_t *w = watched.of;
  while (w->number != number) w++;
  return w;
}

static void say(const watched_t *w, const siginfo_t *info) {
  line_t line;
  format_t *f = line_begin(&line);
  format_text(f, w->name);
  bool sent = info->si_code <= 0; /* by kill, raise or abort: no address is involved */
  if (sent) {
    format_text(f, ": sent by process ");
    format_signed(f, info->si_pid);
  } else if (info->si_code == SI_KERNEL) { /* si_addr is then 0, whatever was accessed */
    format_text(f, " at an address that the processor does not tell, such as one that is not canonical");
  } else {
    format_text(f, " at ");
    format_hex(f, (uint64_t)(uintptr_t)info->si_addr);
    format_text(f, ": ");
    block_describe(f, info->si_addr);
  }
  line_end(&line);
  if (!sent && slots_hold(info->si_addr)) slot_print(info->si_addr);
}

#ifndef SEGV_MTEAERR
#define SEGV_MTEAERR 8
#endif
/* False for faults that the kernel reports only after the instruction: asynchronous memory tag checks, and memory that has failed. */
static bool faults_again(int number, int code) {
  return code > 0 && !(number == SIGSEGV && code == SEGV_MTEAERR) && !(number == SIGBUS && code == BUS_MCEERR_AO);
}

/* Passes the signal to the previous handler. Where that is the default action, an instruction that faults again brings it about;
 * any other signal, such as abort's or one that was sent, is raised again here. */
static void pass_on(const watched_t *w, int number, siginfo_t *info, void *context) {
  const struct sigaction *before = &w->before;
  if ((before->sa_flags & SA_SIGINFO) != 0) {
    before->sa_sigaction(number, info, context);
  } else if (before->sa_handler == SIG_IGN && !faults_again(number, info->si_code)) {
    return;
  } else if (before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN) {
    struct sigaction standard = {.sa_handler = SIG_DFL};
    (void)sigaction(number, &standard, NULL);
    if (!faults_again(number, info->si_code)) (void)raise(number);
  } else {
    before->sa_handler(number);
  }
}

static void crashed(int number, siginfo_t *info, void *context) {
  const watched_t *w = watched_of(number);
  /* With guard slots alone, only faults in them are reported. */
  if (option_get(OPTION_crash_report) != 0 || (info->si_code > 0 && slots_hold(info->si_addr))) say(w, info);
  pass_on(w, number, info, context);
}

HAK_COLD void crash_watch(void) {
  bool guard = option_get(OPTION_guard) != 0, report = option_get(OPTION_crash_report) != 0;
  if (guard) trace_prepare();
  for (int i = 0; i < WATCHED; i++) {
    if (!report && !(guard && watched.of[i].number == SIGSEGV)) continue;
    struct sigaction action = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    (void)sigaction(watched.of[i].number, &action, &watched.of[i].before);
  }
  if (HAK_SECURE) (void)os_seal(&watched, sizeof watched, true);
}

HAK_COLD void crash_unwatch(void) {
  struct sigaction now;
  for (int i = 0; i < WATCHED; i++) {
    const watched_t *w = &watched.of[i];
    bool ours = sigaction(w->number, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == crashed;
    if (ours) (void)sigaction(w->number, &w->before, NULL);
  }
}
