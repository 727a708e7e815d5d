/* thread.c - the thread that libc does not know, and the rights that it gives up before it works.
 *
 * The thread shares the address space with the program, so no process that may not control the program may ever control the thread.
 * Therefore it keeps its user and its permitted capabilities: otherwise a process with as few rights could trace it and so control the
 * program, and a change of either makes the kernel treat the program's memory like that of a set-user-id program.  Instead the thread
 * restricts its system calls to those for memory of this process and for waiting. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/memcheck.h"
#include "os/os.h"
#include "os/syscall.h"

/* A sanitizer's runtime must know every thread.  So must Valgrind, which at exit frees libc's memory and expects no other thread. */
#if defined(__SANITIZE_ADDRESS__) || defined(RACY_ATOMIC)
#define THREAD_POSSIBLE false
#else
#define THREAD_POSSIBLE true
#endif

/* The low half of the stack's first page is thread-local storage: the word that identifies
 * the thread, and room for libc's data should a call reach libc after all. */
#define THREAD_LOCAL 2048
/* How often a thread of a process that may change its user checks whether it has done so. */
#define WATCH_MS 100
/* After this the kernel is done with a thread that has ended: its number, if there is one, is another thread's. */
#define LINGER_MS 1000

bool os_thread_possible(void) { return THREAD_POSSIBLE && !valgrind_on(); }

/* --- the filter --------------------------------------------------------------------------- */

/* The kernel's ABI; not every libc has headers for it. */
typedef struct filter_step {
  uint16_t code;
  uint8_t if_true, if_false;
  uint32_t value;
} filter_step_t;
typedef struct filter {
  uint16_t steps;
  const filter_step_t *step;
} filter_t;
enum { AT_NUMBER = 0, AT_MACHINE = 4, AT_ARGUMENT = 16 };
#if defined(__x86_64__)
#define MACHINE 0xc000003eu
#else
#define MACHINE 0xc00000b7u
#endif

#define LOAD(at) {0x20, 0, 0, (at)}
#define ARGUMENT(n) LOAD(AT_ARGUMENT + 8 * (n)) /* its low half */
#define ARGUMENT_HIGH(n) LOAD(AT_ARGUMENT + 8 * (n) + 4)
#define UNLESS(value, skip) {0x15, 0, (skip), (value)}
#define UNLESS_BITS(value, skip) {0x45, 0, (skip), (value)}
#define IF(value, skip) {0x15, (skip), 0, (value)}
#define ALLOW {0x06, 0, 0, 0x7fff0000}
/* Refuses with an error, since a killed thread would never release its locks. */
#define REFUSE {0x06, 0, 0, 0x00050000 | EPERM}
#define ALLOW_CALL(number) UNLESS(number, 1), ALLOW

/* Each line is a rule.  Memory must not be executable; limits may be read, not set. */
/* clang-format off */
#define BEGIN LOAD(AT_MACHINE), IF(MACHINE, 1), REFUSE, LOAD(AT_NUMBER)
#define FILES ALLOW_CALL(SYS_pread64), ALLOW_CALL(SYS_pwrite64)
#define MEMORY \
    ALLOW_CALL(SYS_futex), ALLOW_CALL(SYS_madvise), ALLOW_CALL(SYS_munmap), ALLOW_CALL(SYS_mremap), ALLOW_CALL(SYS_exit), \
    ALLOW_CALL(SYS_restart_syscall), ALLOW_CALL(SYS_capget), ALLOW_CALL(SYS_membarrier), ALLOW_CALL(SYS_clock_gettime), \
    UNLESS(SYS_mmap, 6), ARGUMENT(2), UNLESS(PROT_READ | PROT_WRITE, 3), ARGUMENT(3), UNLESS_BITS(MAP_ANONYMOUS, 1), ALLOW, REFUSE, \
    UNLESS(SYS_mprotect, 4), ARGUMENT(2), IF(PROT_NONE, 1), UNLESS(PROT_READ | PROT_WRITE, 1), ALLOW, \
    LOAD(AT_NUMBER), UNLESS(SYS_prlimit64, 5), ARGUMENT(2), UNLESS(0, 3), ARGUMENT_HIGH(2), UNLESS(0, 1), ALLOW, \
    REFUSE
static const filter_step_t filter_usual[] = {BEGIN, MEMORY}, filter_with_files[] = {BEGIN, FILES, MEMORY};
/* clang-format on */

/* --- what the thread may do, and the process ---------------------------------------------- */

/* An emulator may accept a filter without applying it. */
static bool filter_works(void) { return syscall_3(SYS_getppid, 0, 0, 0) == -EPERM; }

static bool capabilities_of(long id, os_capabilities_t *found) {
  struct {
    uint32_t version;
    int32_t id;
  } who = {0x20080522, (int32_t)id};
  return syscall_3(SYS_capget, (long)&who, (long)found, 0) == 0;
}

static bool capabilities_lower(const os_capabilities_t *held) {
  struct {
    uint32_t version;
    int32_t id;
  } self = {0x20080522, 0};
  os_capabilities_t lowered = *held;
  for (int i = 0; i < 2; i++) lowered.of[i].effective = 0;
  if (memcmp(&lowered, held, sizeof lowered) == 0) return true;
  return syscall_3(SYS_capset, (long)&self, (long)&lowered, 0) == 0;
}

/* Returns whether the process still has the user, groups and capabilities that it had when the thread was started.  A thread without
 * effective capabilities can read the limits only of processes with exactly its own users and groups, so prlimit64 checks these. */
static bool thread_unchanged(const os_thread_t *thread) {
  os_capabilities_t now;
  struct {
    uint64_t soft, hard;
  } limit;
  if (!thread->confined) return true;
  if (!capabilities_of(thread->leader, &now) || memcmp(&now, &thread->capabilities, sizeof now) != 0) return false;
  return syscall_6(SYS_prlimit64, thread->leader, RLIMIT_NOFILE, 0, (long)&limit, 0, 0) == 0;
}

static bool thread_confine(os_thread_t *thread) {
#define STEPS(rules) {sizeof(rules) / sizeof(rules)[0], rules}
  const filter_t filter = thread->files ? (filter_t)STEPS(filter_with_files) : (filter_t)STEPS(filter_usual);
  os_capabilities_t own;
  thread->leader = (long)os_process_id();
  if (!capabilities_of(0, &own) || !capabilities_of(thread->leader, &thread->capabilities)) return false;
  if (memcmp(&own, &thread->capabilities, sizeof own) != 0 || !capabilities_lower(&own)) return false;
  if (syscall_6(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) != 0) return false;
  if (syscall_3(SYS_prctl, PR_SET_SECCOMP, 2 /* SECCOMP_MODE_FILTER */, (long)&filter) != 0) return false;
  return filter_works() && thread_unchanged(thread);
}

/* --- its life ----------------------------------------------------------------------------- */

static int thread_main(void *argument) {
  os_thread_t *thread = argument;
  uint64_t all = UINT64_MAX;
  store_relaxed(&os_own_thread, thread_self());
  (void)syscall_6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, 0, sizeof all, 0, 0);
  os_prepare_t *prepare = load_acquire(&thread->prepare);
  thread->files = prepare != NULL && prepare();
  bool able = !thread->confined || thread_confine(thread);
  if (!able) store_relaxed(&thread->unable, true);
  store_release(&thread->ready, 1);
  os_wake(&thread->ready, INT32_MAX);
  if (able) thread->run();
  store_relaxed(&thread->ended_ms, os_now_ms());
  return 0;
}

/* Makes a thread that takes a function and its argument from `top`, and calls it. Not by libc's clone: a library may have put its own
 * before that, which runs code in the thread that needs thread-local variables.  Returns its number, or a negated error number; the kernel
 * writes the number to `last` before the thread runs. */
#if defined(__x86_64__)
static long thread_make(os_thread_t *thread, unsigned long flags, void *local, void **top) {
  register void *child __asm__("r10") = &thread->id;
  register void *tls __asm__("r8") = local;
  long result;
  __asm__ volatile(
      "syscall; test %%rax, %%rax; jnz 1f;"
      "xor %%ebp, %%ebp;" /* where a walk of the thread's stack ends */
      "pop %%rax; pop %%rdi; call *%%rax;"
      "mov %[exit], %%eax; xor %%edi, %%edi; syscall; hlt;"
      "1:"
      : "=a"(result)
      : "a"(SYS_clone), "D"(flags), "S"(top), "d"(&thread->last), "r"(child), "r"(tls), [exit] "i"(SYS_exit)
      : "rcx", "r11", "memory");
  return result;
}
#else
static long thread_make(os_thread_t *thread, unsigned long flags, void *local, void **top) {
  register long number __asm__("x8") = SYS_clone;
  register long result __asm__("x0") = (long)flags;
  register void **stack __asm__("x1") = top;
  register void *last __asm__("x2") = &thread->last;
  register void *tls __asm__("x3") = local;
  register void *child __asm__("x4") = &thread->id;
  __asm__ volatile(
      "svc 0; cbnz x0, 1f;"
      "mov x29, xzr; mov x30, xzr;" /* where a walk of the thread's stack ends */
      "ldp x1, x0, [sp]; blr x1;"
      "mov x8, %[exit]; mov x0, xzr; svc 0; brk 1;"
      "1:"
      : "+r"(result)
      : "r"(number), "r"(stack), "r"(last), "r"(tls), "r"(child), [exit] "i"(SYS_exit)
      : "memory", "cc");
  return result;
}
#endif

/* Returns whether the kernel still has the previous thread: it clears the id before it is done with the thread. */
static bool thread_lingers(os_thread_t *thread) {
  uint32_t last = load_relaxed(&thread->last);
  if (last == 0 || os_now_ms() - load_relaxed(&thread->ended_ms) > LINGER_MS) return false;
  return syscall_3(SYS_tgkill, (long)os_process_id(), last, 0) == 0;
}

static bool thread_clone(os_thread_t *thread) {
  const unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                              CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  if (thread->stack == NULL) thread->stack = os_map(OS_THREAD_STACK);
  if (thread->stack == NULL) return false;
  void **local = (void **)(void *)((char *)thread->stack + THREAD_LOCAL);
  *local = local; /* what thread_self reads */
  store_relaxed(&thread->ready, 0);
  store_relaxed(&thread->ended_ms, os_now_ms());
  void **top = (void **)(void *)((char *)thread->stack + OS_THREAD_STACK) - 2;
  top[0] = (void *)(uintptr_t)thread_main;
  top[1] = thread;
  long result = thread_make(thread, flags, local, top);
  /* Wait until the thread has given up its rights, or was killed when it tried. */
  while (result >= 0 && load_acquire(&thread->ready) == 0 && os_thread_exists(thread) && !os_forked()) {
    os_wait(&thread->ready, 0, 1000, false);
  }
  return result >= 0;
}

/* SIGSYS is not blocked: a trapping filter would end a thread that blocks it.  No handler may run before the claim is settled, since a
 * handler that changes credentials would wait for that.  If a handler has forked here, no thread is started in the child before the
 * child is repaired: os_thread_forget would then let a second thread use the same stack. */
bool os_thread_start(os_thread_t *thread, void (*run)(void), bool confined) {
  store_relaxed(&thread->refused, false);
  if (!os_thread_possible() || os_thread_exists(thread) || load_relaxed(&thread->unable)) return false;
  if (confined && thread_lingers(thread)) return false;
  uint64_t most = ~((uint64_t)1 << (SIGSYS - 1)), before;
  uint32_t none = 0;
  (void)syscall_6(SYS_rt_sigprocmask, SIG_BLOCK, (long)&most, (long)&before, sizeof most, 0, 0); /* the new thread inherits the mask */
  bool started = false;
  if (!os_forked() && atomic_compare_exchange_strong(&thread->id, &none, 1)) {
    thread->run = run;
    thread->confined = confined;
    bool held = atomic_load(&thread->held) != 0;
    started = !held && thread_clone(thread);
    store_relaxed(&thread->refused, !held && !started);
    if (!started) store_relaxed(&thread->id, 0); /* otherwise the kernel clears it */
  }
  (void)syscall_6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, sizeof before, 0, 0);
  add_relaxed(&os_counts.other, 3);
  return started && !load_relaxed(&thread->unable);
}

bool os_thread_sleep_ms(os_thread_t *thread, uint64_t milliseconds) {
  bool watches = thread->confined && thread->capabilities.of[0].permitted + thread->capabilities.of[1].permitted != 0;
  while (milliseconds > 0 && atomic_load(&thread->held) == 0) {
    uint64_t nap = watches && milliseconds > WATCH_MS ? WATCH_MS : milliseconds;
    os_wait(&thread->held, 0, nap * 1000, false);
    if (!thread_unchanged(thread)) return false;
    milliseconds -= nap;
  }
  return atomic_load(&thread->held) == 0;
}

HAK_COLD void os_thread_hold(os_thread_t *thread) {
  (void)atomic_fetch_add(&thread->held, 1); /* sequentially consistent, like the claim: at least one of the two sees the other */
  while (atomic_load(&thread->id) != 0) {
    if (os_forked()) return; /* by a signal handler: the thread exists only in the parent */
    os_wake(&thread->held, INT32_MAX);
    os_wait(&thread->id, 1, 1000, true);
  }
  uint32_t last = load_relaxed(&thread->last);
  if (last == 0) return;
  while (thread_lingers(thread)) os_sleep_us(20);
  /* The kernel removes the thread in steps under a lock.  waitid takes that lock, too; for the process itself it never waits. */
  (void)syscall_6(SYS_waitid, P_PID, (long)os_process_id(), 0, WEXITED | WNOHANG | WNOWAIT, 0, 0);
  (void)atomic_compare_exchange_strong(&thread->last, &last, 0);
}

HAK_COLD void os_thread_release(os_thread_t *thread) {
  store_relaxed(&thread->unable, false);
  uint32_t held = load_relaxed(&thread->held);
  while (held != 0 && !atomic_compare_exchange_weak(&thread->held, &held, held - 1)) continue;
}

HAK_COLD void os_thread_forget(os_thread_t *thread) {
  store_relaxed(&os_own_thread, (uintptr_t)0);
  store_relaxed(&thread->id, 0);
  store_relaxed(&thread->last, 0);
  store_relaxed(&thread->held, 0);
}
