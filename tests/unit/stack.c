/* stack.c - what is known of stacks, how often the kernel is asked, and how far its answers can be trusted. */
#include "os/probe.c"

/* The real functions, counted; refused on demand. */
static unsigned asked;
static bool refused;
static bool counted_readable(uintptr_t address) { return asked++, !refused && probe_readable(address); }
static bool counted_works(void) { return !refused && probe_works(); }
#define probe_readable counted_readable
#define probe_works counted_works
#include "os/stack.c"
#undef probe_readable
#undef probe_works

#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "filter.h"
#include "unit.h"

static uintptr_t page_of(uintptr_t address) { return address & ~(PROBE_PAGE - 1); }
static uintptr_t here(void) { return (uintptr_t)__builtin_frame_address(0); }

enum { STACK = 4 << 20 };

static void in_thread(void *(*run)(void *), void *argument, void *stack, size_t bytes) {
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  CHECK((stack != NULL ? pthread_attr_setstack(&attributes, stack, bytes) : pthread_attr_setstacksize(&attributes, STACK)) == 0);
  if (pthread_create(&thread, &attributes, run, argument) != 0) check_fail(__FILE__, __LINE__, "no thread");
  else pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
}

/* ---- the first thread ---- */

TEST(the_first_threads_stack_is_known) {
  stack_prepare();
  CHECK_EQ(stack_readable_end(here()), getauxval(AT_RANDOM));
  volatile char *deep = alloca(FIRST_MOST / 2);
  deep[0] = 1;
  CHECK_EQ(stack_readable_end((uintptr_t)deep), getauxval(AT_RANDOM));
  CHECK_EQ(asked, 0);
}

TEST(as_far_as_nothing_else_can_be_there) {
  uintptr_t end = getauxval(AT_RANDOM);
  stack_prepare();
  CHECK_EQ(stack_readable_end(end - FIRST_MOST), end);
  CHECK_EQ(stack_readable_end(end - FIRST_MOST - 8), page_of(end - FIRST_MOST - 8) + PROBE_PAGE);
  CHECK_EQ(stack_readable_end(end), page_of(end) + PROBE_PAGE);
}

/* For a thread that the first thread has made, everything up to the thread pointer may be readable: libraries, for example. */
TEST(the_first_thread_has_no_other_stack) {
  stack_prepare();
  (void)stack_readable_end(here());
  uintptr_t near = thread_self() - 8;
  CHECK_EQ(stack_readable_end(near), page_of(near) + PROBE_PAGE);
  CHECK_EQ(asked, 0);
}

TEST(nothing_is_known_before_the_start) {
  uintptr_t end = stack_readable_end(here());
  CHECK(end == page_of(here()) + PROBE_PAGE || here() < thread_self());
}

/* ---- other threads ---- */

static void *ask_three_times(void *unused) {
  uintptr_t self = thread_self(), sp = here(), deeper = sp - 5 * PROBE_PAGE;
  CHECK_EQ(stack_readable_end(sp), self);
  CHECK_EQ(asked, (page_of(self - 1) - page_of(sp)) / PROBE_PAGE);
  asked = 0;
  CHECK_EQ(stack_readable_end(sp), self);
  CHECK_EQ(stack_readable_end(sp + 64), self);
  CHECK_EQ(asked, 0);
  CHECK_EQ(stack_readable_end(deeper), self);
  CHECK_EQ(asked, 4); /* the page in use needs no call */
  asked = 0;
  CHECK_EQ(stack_readable_end(deeper), self);
  CHECK_EQ(asked, 0);
  return unused;
}

TEST(another_threads_is_asked_for_once) {
  stack_prepare();
  in_thread(ask_three_times, NULL, NULL, 0);
  asked = 0;
  in_thread(ask_three_times, NULL, NULL, 0); /* on the same pages, but another thread */
}

static void *ask_above(void *unused) {
  uintptr_t above = page_of(thread_self()) + 5 * PROBE_PAGE;
  CHECK_EQ(stack_readable_end(above), above + PROBE_PAGE);
  CHECK_EQ(asked, 0);
  return unused;
}
TEST(above_the_thread_pointer_is_no_stack_of_the_threads) { in_thread(ask_above, NULL, NULL, 0); }

static void *ask_in_vain(void *unused) {
  uintptr_t sp = here() - 5 * PROBE_PAGE;
  refused = true;
  CHECK_EQ(stack_readable_end(sp), page_of(sp) + PROBE_PAGE);
  CHECK_EQ(asked, 0); /* the first probe showed that the answers mean nothing */
  refused = false;
  CHECK_EQ(stack_readable_end(sp), thread_self());
  return unused;
}
TEST(what_could_not_be_asked_is_not_remembered) { in_thread(ask_in_vain, NULL, NULL, 0); }

static void *ask_deep(void *unused) {
  uintptr_t sp = page_of(thread_self()) - ASKED_MOST;
  CHECK_EQ(stack_readable_end(sp - PROBE_PAGE), sp);
  CHECK_EQ(asked, 0);
  CHECK_EQ(stack_readable_end(sp + PROBE_PAGE), thread_self());
  CHECK_EQ(stack_readable_end(sp - PROBE_PAGE), thread_self()); /* now it is near the known part */
  return unused;
}
TEST(no_more_is_asked_than_a_walk_may_take) { in_thread(ask_deep, NULL, NULL, 0); }

/* A fiber right below the guard of its thread's own stack, which the program has made itself. */
#ifdef __SANITIZE_THREAD__
enum { OWN_BYTES = 960 << 10 }; /* the sanitizer's runtime takes most of it */
#else
enum { OWN_BYTES = 512 << 10 };
#endif
enum { FIBER_PAGES = 16 };
static uintptr_t system_page(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }

static void *have_a_fiber(void *memory) {
  uintptr_t page = system_page(), end = (uintptr_t)memory + FIBER_PAGES * page, self = thread_self();
  for (int own = 0; own < 2; own++) { /* before and after the thread's own stack is known */
    CHECK_EQ(stack_readable_end(end - 2 * page - PROBE_PAGE), end);
    CHECK_EQ(asked, 2 * page / PROBE_PAGE + 1); /* the last is refused */
    if (own == 0) CHECK_EQ(stack_readable_end(here()), self);
    asked = 0;
  }
  CHECK(munmap((void *)(end - 2 * page), 2 * page) == 0);
  CHECK_EQ(stack_readable_end(end - 2 * page - PROBE_PAGE), end - 2 * page);
  CHECK_EQ(stack_readable_end(here()), self);
  return NULL;
}

TEST(a_fibers_stack_is_asked_for_each_time) {
  size_t fiber = FIBER_PAGES * system_page(), guard = system_page();
  char *memory = mmap(NULL, fiber + guard + OWN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED && mprotect(memory + fiber, guard, PROT_NONE) == 0);
  stack_prepare();
  in_thread(have_a_fiber, memory, memory + fiber + guard, OWN_BYTES);
}

/* ---- what the kernel answers ---- */

static void check_probes(void) {
  static const char constant[] = "read-only";
  _Atomic uint32_t same = VALUE;
  uintptr_t page = system_page();
  char *pages = mmap(NULL, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uintptr_t at = (uintptr_t)pages;
  REQUIRE(pages != MAP_FAILED && munmap(pages + 2 * page, page) == 0 && mprotect(pages + page, page, PROT_NONE) == 0);
  errno = EXDEV;
  CHECK(probe_works());
  CHECK(probe_readable(at) && probe_readable(at + page - 1) && probe_readable((uintptr_t)constant) &&
        probe_readable((uintptr_t)check_probes));
  CHECK(!probe_readable(at + page) && !probe_readable(at + 2 * page) && !probe_readable(0) && !probe_readable((uintptr_t)1 << 63));
  CHECK(probe_readable((uintptr_t)&same)); /* a wait that ends immediately */
  CHECK(errno == EXDEV && load_relaxed(&same) == VALUE);
}

TEST(the_answers_of_the_kernel) { check_probes(); }
static void *check_in_thread(void *unused) { return check_probes(), unused; }
TEST(the_answers_beside_another_thread) { in_thread(check_in_thread, NULL, NULL, 0); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(RACY_ATOMIC) /* their runtimes make such calls themselves */
static __thread volatile unsigned trapped;
static void count_trap(int number) { (void)number, trapped++; }

/* Installs a filter past libc, as if from outside the process: each call that probes memory becomes a signal. */
static void trap_probes(void) {
  static filter_t filter;
  struct sigaction action = {.sa_handler = count_trap};
  filter_load(&filter, FILTER_NUMBER);
  filter_add(&filter, 0x15, 0, 3, SYS_futex);
  filter_load(&filter, FILTER_ARGUMENT + 8);
  filter_if_equal(&filter, FUTEX_WAIT | FUTEX_PRIVATE, FILTER_TRAPPED);
  filter_answer(&filter, FILTER_ALLOWED);
  CHECK(sigaction(SIGSYS, &action, NULL) == 0 && filter_install(&filter, true) == NULL);
}

TEST(a_filter_is_not_asked_by_a_process_of_one_thread) {
  if (!os_single_threaded()) check_skip("libc does not say how many threads there are");
  trap_probes();
  CHECK(!probe_works() && !probe_readable((uintptr_t)page_of));
  CHECK_EQ(trapped, 0);
}

static void *ask_under_a_filter(void *unused) {
  (void)probe_readable((uintptr_t)page_of);
  CHECK_EQ(trapped, 1); /* glibc's malloc may make that call too */
  atomic_store(&os_filters, 1);
  CHECK(!probe_works() && !probe_readable((uintptr_t)page_of));
  CHECK_EQ(trapped, 1);
  return unused;
}
TEST(a_filter_of_the_processs_own_is_never_asked) {
  trap_probes();
  in_thread(ask_under_a_filter, NULL, NULL, 0);
}
#endif
