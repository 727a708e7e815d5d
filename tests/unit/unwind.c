/* unwind.c - stacks with known return addresses: each way of compiling them, and each place from which a walk can start. */
#include "os/unwind.c"
#include "os/memo.c"

#include <errno.h>
#if __has_include(<linux/seccomp.h>)
#include <linux/filter.h>
#include <linux/seccomp.h>
#define HAS_FILTERS
#endif
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <ucontext.h>

#include "os/syscall.h"
#include "unit.h"
#include "unwind_chain.h"

enum { MOST = 64, LEVELS = 3, PAGE = 4096 };

/* musl's own functions have no tables: a walk from the program ends in the first of them. */
#if defined(__GLIBC__)
#define LIBC_HAS_TABLES true
#else
#define LIBC_HAS_TABLES false
#endif

static unsigned judged;

/* Whether the frames contain all noted addresses, the innermost first: side by side, or with gaps between them. */
static bool are_noted(void *const *frames, unsigned depth, const chain_t *c, bool gaps) {
  unsigned left = c->count;
  for (unsigned i = 0; i < depth && left > 0; i++) {
    if (frames[i] == c->noted[left - 1]) left--;
    else if (!gaps && left < c->count) return false;
  }
  return left == 0;
}

static void show(void *const *frames, unsigned depth, const chain_t *c) {
  static int shown;
  if (shown++ > 0) return;
  for (unsigned i = 0; i < depth; i++) printf("    frame %p\n", frames[i]);
  for (unsigned i = c->count; i-- > 0;) printf("    noted %p\n", c->noted[i]);
}

/* Checks two walks: one by the tables, and one by what the first has left in the cache. */
static void judge(const chain_t *c, bool gaps, bool want_whole) {
  void *frames[2][MOST];
  unsigned depth[2] = {0, 0};
  unwind_forget();
  for (int i = 0; i < 2; i++) {
    bool whole = false;
    errno = EXDEV;
    depth[i] = unwind_here(frames[i], MOST, &whole, NULL);
    CHECK(errno == EXDEV);
    CHECK(whole || !want_whole);
    bool noted = are_noted(frames[i], depth[i], c, gaps);
    CHECK(noted);
    if (!noted) show(frames[i], depth[i], c);
  }
  CHECK(depth[0] == depth[1] && memcmp(frames[0] + 1, frames[1] + 1, (depth[0] - 1) * sizeof(void *)) == 0);
  judged++;
}

static void judge_calls(chain_t *c) { judge(c, false, LIBC_HAS_TABLES); }
static void judge_through_others(chain_t *c) { judge(c, true, LIBC_HAS_TABLES); }

static chain_t new_chain(void (*innermost)(chain_t *)) { return (chain_t){.rounds = LEVELS, .seed = 7, .innermost = innermost}; }

/* ---- the words that a walk has read ---- */

enum { CALLS = 6 };

/* The words that lead to the callers: one of them contains each caller's address. */
static HAK_NOINLINE void judge_reads(void) {
  void *frames[CALLS];
  unwind_reads_t reads = {.from = (uintptr_t)__builtin_frame_address(0)};
  unwind_forget();
  uint32_t found = 1;
  CHECK(unwind_here(frames, CALLS, NULL, &reads) == CALLS && !reads.all); /* by tables */
  for (int i = 0; i < 2000 && !reads.all; i++) CHECK_EQ(unwind_here(frames, CALLS, NULL, &reads), CALLS);
  CHECK(reads.all); /* by the cached rules; if two rules share a place in the cache, once the cache has grown */
  for (uint32_t i = 0; i < reads.count; i++) {
    CHECK(reads.place[i] >= reads.from);
    if (found < CALLS && *(void **)reads.place[i] == frames[found]) found++;
  }
  CHECK_EQ(found, CALLS);
  (void)unwind_here(frames, 1, NULL, &reads);
  CHECK_EQ(reads.count, 0);
  judged++;
}

static HAK_NOINLINE void judge_below(unsigned levels) {
  if (levels > 0) judge_below(levels - 1);
  else judge_reads();
  judged++;
}

TEST(a_walk_tells_what_it_has_read) {
  unwind_prepare();
  judge_below(CALLS);
  CHECK_EQ(judged, CALLS + 2);
}

enum { WORDS = PAGE / 8, HERE = 4 };
static _Alignas(PAGE) uint64_t page_words[2 * WORDS];

static unwind_reads_t reads_of(uint32_t count, uint64_t apart) {
  unwind_reads_t reads = {.from = (uintptr_t)&page_words[HERE], .count = count, .all = true};
  for (uint32_t i = 0; i < count; i++) {
    reads.place[i] = (uintptr_t)&page_words[HERE + apart * i];
    page_words[HERE + apart * i] = 1000 + i;
  }
  return reads;
}

static bool is_kept(uint64_t number) {
  uint64_t found = 0;
  return memo_find((uintptr_t)&page_words[HERE], &found) && found == number;
}

TEST(a_stack_that_looks_as_it_did_has_its_number) {
  for (uint32_t count = 1; count <= UNWIND_READS; count++) {
    unwind_reads_t reads = reads_of(count, 3);
    memo_keep(&reads, count);
    CHECK(is_kept(count));
    page_words[HERE + 1]++, page_words[HERE + 3 * count]++; /* neither of them was read */
    CHECK(is_kept(count));
    for (uint32_t i = 0; i < count; i++) {
      ++*(uint64_t *)reads.place[i];
      CHECK(!is_kept(count));
      --*(uint64_t *)reads.place[i];
    }
    CHECK(is_kept(count));
  }
  uint64_t found;
  CHECK(!memo_find((uintptr_t)&page_words[HERE + 2], &found));
  memo_forget();
  CHECK(!is_kept(UNWIND_READS));
}

TEST(a_stack_of_which_not_all_is_known_has_none) {
  unwind_reads_t reads = reads_of(3, 1);
  reads.all = false;
  memo_keep(&reads, 1);
  CHECK(!is_kept(1));
  reads = reads_of(0, 1); /* there is nothing to recognise it by */
  memo_keep(&reads, 2);
  CHECK(!is_kept(2));
  reads = reads_of(2, 1);
  reads.place[1] = reads.from + ((uintptr_t)1 << 20); /* too far for a memo */
  memo_keep(&reads, 3);
  CHECK(!is_kept(3));
}

/* Two threads write one entry: the later steps are from the one with the deeper stack. */
TEST(a_memo_with_the_steps_of_another_leads_nowhere) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *stack = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(stack != MAP_FAILED);
  uint64_t *here = (uint64_t *)(void *)stack, *far = (uint64_t *)(void *)(stack + page), found = 0;
  unwind_reads_t deep = {.from = (uintptr_t)here, .place = {(uintptr_t)(here + 1), (uintptr_t)far}, .count = 2, .all = true};
  unwind_reads_t shallow = deep;
  shallow.place[1] = (uintptr_t)(here + 2);
  memo_t *memo = memo_at(deep.from);
  memo_keep(&deep, 7);
  uint64_t step = load_relaxed(&memo->steps[1]);
  memo_keep(&shallow, 8);
  CHECK(memo_find(deep.from, &found) && found == 8);
  store_relaxed(&memo->steps[1], step);
  REQUIRE(munmap(stack + page, page) == 0);
  CHECK(!memo_find(deep.from, &found));
}

/* As if a signal handler had written one memo in the middle of another, or two threads had. */
TEST(a_memo_with_the_end_of_another_is_none) {
  unwind_reads_t reads = reads_of(3, 1);
  memo_keep(&reads, 5);
  memo_t *memo = memo_at(reads.from);
  uint64_t end = load_relaxed(&memo->steps[reads.count]);
  store_relaxed(&memo->steps[2], end);
  CHECK(!is_kept(5));
  memo_keep(&reads, 5);
  CHECK(is_kept(5));
}

/* As if a fiber's stack were gone and another stack began at the same place. */
TEST(behind_a_word_that_differs_nothing_is_read) {
  size_t bytes = 2 * (size_t)sysconf(_SC_PAGESIZE);
  char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(stack != MAP_FAILED);
  uint64_t *here = (uint64_t *)(void *)stack, *far = (uint64_t *)(void *)(stack + bytes / 2), found = 0;
  unwind_reads_t reads = {.from = (uintptr_t)here, .place = {(uintptr_t)(here + 1), (uintptr_t)far}, .count = 2, .all = true};
  memo_keep(&reads, 7);
  CHECK(memo_find(reads.from, &found) && found == 7);
  REQUIRE(munmap(stack + bytes / 2, bytes / 2) == 0);
  here[1] = 1;
  CHECK(!memo_find(reads.from, &found));
}

/* ---- calls ---- */

TEST(calls_by_tables) {
  chain_t c = new_chain(judge_calls);
  unwind_prepare();
  chain_tables(&c);
  chain_plain(&c);
  CHECK_EQ(judged, 2);
}

TEST(calls_by_frame_pointers) {
  chain_t c = new_chain(judge_calls);
  unwind_prepare();
  chain_pointers(&c);
  CHECK_EQ(judged, 1);
}

/* As if a thread's stack had no guard and a fiber's stack lay below it when that range was found readable. */
TEST(a_frame_pointer_leads_to_nothing_that_has_gone) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *stack = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(stack != MAP_FAILED && munmap(stack + page, page) == 0);
  walk_t w = {.known = BIT(CFI_SP) | BIT(CFI_FP), .low = (uintptr_t)stack, .high = (uintptr_t)stack + 2 * page};
  w.reg[CFI_SP] = w.low + 64;
  w.reg[CFI_FP] = w.low + page + 64;
  CHECK_EQ(follow_frame_pointer(&w), STEP_STUCK);
}

/* The kernel is not asked about the page that tables have led to. */
TEST(a_frame_pointer_stays_on_the_page_in_use) {
  static _Alignas(PAGE) uint64_t words[2 * WORDS];
  walk_t w = {.known = BIT(CFI_SP) | BIT(CFI_FP), .asked = true, .refused = true, .read = (uintptr_t)&words[1]};
  unwind_prepare();
  w.reg[CFI_SP] = (uintptr_t)&words[2];
  w.reg[CFI_FP] = (uintptr_t)&words[4];
  words[4] = (uintptr_t)&words[WORDS];
  words[5] = (uintptr_t)__builtin_return_address(0);
  CHECK_EQ(follow_frame_pointer(&w), STEP_DONE);
  CHECK(w.pc == words[5] && w.reg[CFI_FP] == words[4]);
  CHECK_EQ(follow_frame_pointer(&w), STEP_STUCK);
}

static void judge_closing(chain_t *c) {
  (void)c;
  void *frames[MOST];
  bool whole;
  uint32_t all = unwind_here(frames, MOST, &whole, NULL);
  module_close_begin();
  uint32_t some = unwind_here(frames, MOST, &whole, NULL);
  CHECK(some < all && !whole && !module_hold());
  module_close_end();
  CHECK_EQ(unwind_here(frames, MOST, &whole, NULL), all);
  CHECK(module_hold());
  module_let_go();
  judged++;
}

/* A frame pointer may be left over from an earlier call, and lead into a library that is being closed. */
TEST(a_frame_pointer_leads_to_no_code_while_a_library_is_closed) {
  chain_t c = new_chain(judge_closing);
  unwind_prepare();
  chain_pointers(&c);
  CHECK_EQ(judged, 1);
}

/* The threads that held or closed a library do not exist in a fork's child. */
TEST(a_child_waits_for_nobody_who_is_gone) {
  CHECK(module_hold());
  module_after_fork();
  module_close_begin();
  module_after_fork();
  CHECK(module_hold());
  module_let_go();
  module_let_go();
  module_close_end();
  CHECK(module_hold());
  module_let_go();
}

static void (*next_chain)(chain_t *);
static void go_on(chain_t *c) {
  CHAIN_NOTE(c);
  c->innermost = judge_calls;
  c->rounds = 1;
  next_chain(c);
  c->count--;
}

TEST(calls_of_both_kinds) {
  static void (*const chains[])(chain_t *) = {chain_tables, chain_plain, chain_pointers};
  unwind_prepare();
  unsigned rounds = 0;
  for (int outer = 0; outer < 3; outer++) {
    for (int inner = 0; inner < 3; inner++) {
      /* On this processor a frame pointer does not show where its frame ends, and these callers have no frame pointer. */
      if (LEAF_KEEPS_RA && outer == 0 && inner == 2) continue;
      rounds++;
      chain_t c = new_chain(go_on);
      c.rounds = 1;
      next_chain = chains[inner];
      chains[outer](&c);
    }
  }
  CHECK_EQ(judged, rounds);
}

#if defined(__x86_64__)
/* Finds the end of its frame by a register that its callees save, and that the cache's rules do not cover. */
void call_by_rbx(chain_t *c, void (*next)(chain_t *));
__asm__(
    ".text\n .type call_by_rbx, @function\n call_by_rbx:\n .cfi_startproc\n"
    "push %rbx\n .cfi_def_cfa_offset 16\n .cfi_offset 3, -16\n mov %rsp, %rbx\n .cfi_def_cfa_register 3\n"
    "sub $40, %rsp\n and $-16, %rsp\n call *%rsi\n"
    "mov %rbx, %rsp\n .cfi_def_cfa_register 7\n pop %rbx\n .cfi_def_cfa_offset 8\n ret\n"
    ".cfi_endproc\n .size call_by_rbx, . - call_by_rbx\n");

static void go_on_by_rbx(chain_t *c) {
  CHAIN_NOTE(c);
  c->innermost = judge_through_others; /* call_by_rbx notes nothing itself */
  call_by_rbx(c, chain_tables);
  c->count--;
}

TEST(calls_of_code_with_a_frame_register_of_its_own) {
  chain_t c = new_chain(go_on_by_rbx);
  unwind_prepare();
  chain_tables(&c);
  CHECK_EQ(judged, 1);
}
#endif

/* What is reported is correct, although it may not be all. */
static void judge_the_first(chain_t *c) {
  void *frames[MOST];
  unsigned depth = unwind_here(frames, MOST, NULL, NULL);
  CHECK(depth >= 2 && frames[1] == __builtin_return_address(0) && c->count > 0);
  judged++;
}

TEST(code_without_either_ends_a_stack) {
  chain_t c = new_chain(judge_the_first);
  c.rounds = 0;
  unwind_prepare();
  chain_nothing(&c);
  CHECK_EQ(judged, 1);
}

static void judge_a_short_one(chain_t *c) {
  void *frames[4] = {NULL, NULL, NULL, c};
  CHECK_EQ(unwind_here(frames, 3, NULL, NULL), 3);
  CHECK(frames[1] == __builtin_return_address(0) && frames[2] == c->noted[c->count - 1] && frames[3] == c);
  CHECK_EQ(unwind_here(frames, 0, NULL, NULL), 0);
  judged++;
}

TEST(no_more_frames_than_there_is_room_for) {
  chain_t c = new_chain(judge_a_short_one);
  unwind_prepare();
  chain_tables(&c);
  CHECK_EQ(judged, 1);
}

/* ---- called by others ---- */

static chain_t *current;

static int compare(const void *a, const void *b) {
  static bool done;
  chain_t *c = current;
  CHAIN_NOTE(c);
  if (!done) judge_through_others(c);
  done = true;
  c->count--;
  return *(const int *)a - *(const int *)b;
}

static void sort(chain_t *c) {
  int numbers[] = {4, 3, 2, 1, 5, 9, 8};
  CHAIN_NOTE(c);
  current = c;
  qsort(numbers, sizeof numbers / sizeof numbers[0], sizeof numbers[0], compare);
  c->count--;
}

TEST(a_callback_of_libc) {
  chain_t c = new_chain(sort);
  unwind_prepare();
  chain_tables(&c);
  CHECK_EQ(judged, 1);
}

static void *in_thread(void *unused) {
  chain_t c = new_chain(judge_calls);
  chain_tables(&c);
  return unused;
}

TEST(a_thread) {
  pthread_t thread;
  unwind_prepare();
  REQUIRE(pthread_create(&thread, NULL, in_thread, NULL) == 0);
  pthread_join(thread, NULL);
  CHECK_EQ(judged, 1);
}

#if defined(HAK_TEST_CXX)
TEST(an_exception_on_its_way) {
  chain_t c = new_chain(judge_through_others);
  unwind_prepare();
  chain_throws(&c);
  CHECK_EQ(judged, LEVELS + 2);
}
#endif

#if defined(__GLIBC__)
static ucontext_t main_context, fiber_context;
static chain_t fiber_chain;

/* The fiber's first function returns to the very start of another one; tables cannot tell this address from the end of the function
 * before. */
static void judge_in_fiber(chain_t *c) { judge(c, false, false); }
static void run_fiber(void) { chain_tables(&fiber_chain); }

/* Nothing lies behind the end of its stack: a walk that went on would fault. */
TEST(a_fiber) {
  enum { STACK = 16 * PAGE };
  char *stack = mmap(NULL, STACK + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(stack != MAP_FAILED && mprotect(stack, STACK, PROT_READ | PROT_WRITE) == 0);
  unwind_prepare();
  fiber_chain = new_chain(judge_in_fiber);
  REQUIRE(getcontext(&fiber_context) == 0);
  fiber_context.uc_stack.ss_sp = stack;
  fiber_context.uc_stack.ss_size = STACK;
  fiber_context.uc_link = &main_context;
  makecontext(&fiber_context, run_fiber, 0);
  REQUIRE(swapcontext(&main_context, &fiber_context) == 0);
  CHECK_EQ(judged, 1);
}
#endif

/* ---- signals ---- */

static void handle(int number) {
  (void)number;
  int saved = errno;
  judge(current, true, false);
  errno = saved;
}

static void watch(int number, int flags, void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  REQUIRE(sigaction(number, &action, NULL) == 0);
}

#if !defined(RACY_ATOMIC) /* ThreadSanitizer delivers signals later */
/* In this file and not in libc, whose functions may have no tables. */
static void send_signal(chain_t *c) {
  CHAIN_NOTE(c);
  current = c;
#if defined(__x86_64__)
  __asm__ volatile("syscall" ::"a"(SYS_kill), "D"(getpid()), "S"(SIGUSR1) : "rcx", "r11", "memory");
#else
  (void)syscall_3(SYS_kill, getpid(), SIGUSR1, 0);
#endif
  c->count--;
}

static void signal_in_a_chain(int flags) {
  chain_t c = new_chain(send_signal);
  unwind_prepare();
  watch(SIGUSR1, flags, handle);
  chain_tables(&c);
  CHECK_EQ(judged, 1);
}

TEST(a_signal_handler) { signal_in_a_chain(0); }

TEST(a_signal_handler_on_a_stack_of_its_own) {
  enum { STACK = 64 * 1024 };
  char *stack = mmap(NULL, STACK + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(stack != MAP_FAILED && mprotect(stack + PAGE, STACK, PROT_READ | PROT_WRITE) == 0);
  stack_t other = {.ss_sp = stack + PAGE, .ss_size = STACK};
  REQUIRE(sigaltstack(&other, NULL) == 0);
  signal_in_a_chain(SA_ONSTACK);
}

/* As if a library now lay where a program had written code: the cache has rules for which it has no room. */
static void handle_with_an_old_rule(int number) {
  void *frames[MOST];
  (void)number;
  REQUIRE(unwind_here(frames, MOST, NULL, NULL) > 2);
  for (int i = 0; i < CACHE_ANEW; i++) {
    if (i == 0) cache_put((uintptr_t)frames[1] - 1, RULE_NONE); /* where the handler returns to */
    (void)unwind_here(frames, MOST, NULL, NULL);
  }
  uint32_t depth = unwind_here(frames, MOST, NULL, NULL);
  CHECK(are_noted(frames, depth, current, true));
  judged++;
}

TEST(what_was_remembered_of_a_place_gets_old) {
  chain_t c = new_chain(send_signal);
  unwind_prepare();
  watch(SIGUSR1, 0, handle_with_an_old_rule);
  chain_tables(&c);
  CHECK_EQ(judged, 1);
}
#endif

static sigjmp_buf back;

static void handle_and_leave(int number) {
  handle(number);
  siglongjmp(back, 1);
}

static void nothing(chain_t *c) { (void)c; }

TEST(a_fault_in_a_leaf) {
  chain_t c = new_chain(nothing);
  c.leaf_reads = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unwind_prepare();
  current = &c;
  watch(SIGSEGV, 0, handle_and_leave);
  if (sigsetjmp(back, 1) == 0) chain_tables(&c);
  CHECK_EQ(judged, 1);
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(RACY_ATOMIC) /* the sanitizers insert code that has no tables */
/* At each instruction the walk must find the frames that surely exist: all that were noted before the steps began. */
static unsigned stepped, stepped_wrong, stepped_end;
static unsigned stepped_base;
static volatile bool steps_done;
enum { TRAP_FLAG = 0x100 };

static void handle_step(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  if (steps_done) {
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    return;
  }
  void *frames[MOST];
  chain_t outer = *current;
  outer.count = stepped_base;
  bool whole = false;
  unsigned depth = unwind_here(frames, MOST, &whole, NULL);
  if (!are_noted(frames, depth, &outer, true)) {
    if (stepped_wrong++ == 0) show(frames, depth, &outer);
  }
  stepped_end += whole;
  stepped++;
}

__attribute__((noinline)) static void step_on(void) { __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq" ::: "memory", "cc"); }

static uint64_t leaf_data[4];

__attribute__((noinline)) static void step_through(chain_t *c) {
  CHAIN_NOTE(c);
  chain_t inner = new_chain(nothing);
  inner.leaf_reads = leaf_data;
  stepped_base = c->count;
  current = c;
  step_on();
  chain_tables(&inner);
  chain_plain(&inner);
  steps_done = true;
  c->count--;
}

TEST(every_instruction) {
  chain_t c = new_chain(step_through);
  unwind_prepare();
  struct sigaction action = {.sa_sigaction = handle_step, .sa_flags = SA_SIGINFO};
  REQUIRE(sigaction(SIGTRAP, &action, NULL) == 0);
  chain_tables(&c);
  CHECK(stepped > 300);
  CHECK_EQ(stepped_wrong, 0);
  CHECK(stepped_end == stepped || !LIBC_HAS_TABLES);
}
#endif

/* ---- memory that cannot be read, or makes no sense ---- */

#if defined(HAS_FILTERS) && !defined(__SANITIZE_ADDRESS__) /* which needs the call itself */
/* Installs a filter that gives this answer to the calls that probe whether memory is readable. */
static bool answer_probes(uint32_t answer) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_WAIT | FUTEX_PRIVATE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* What lies on the page in use is certain; a frame of three pages is not, except in the first thread. */
static void judge_without_proof(chain_t *c) {
  void *frames[MOST];
  bool whole = true;
  unsigned depth = unwind_here(frames, MOST, &whole, NULL);
  CHECK(depth < c->count && !whole);
  for (unsigned i = 2; i < depth; i++) CHECK(frames[i] == c->noted[c->count + 1 - i]);
  judged++;
}

static void *have_a_chain(void *chain) { return chain_tables(chain), NULL; }

static void judge_filtered(uint32_t answer) {
  pthread_t thread;
  chain_t c = new_chain(judge_without_proof), known = new_chain(judge_calls);
  unwind_prepare();
  REQUIRE(answer_probes(answer));
  REQUIRE(pthread_create(&thread, NULL, have_a_chain, &c) == 0);
  pthread_join(thread, NULL);
  chain_tables(&known);
  CHECK_EQ(judged, 2);
}

TEST(a_filter_refuses_the_probe) { judge_filtered(SECCOMP_RET_ERRNO | EPERM); }
TEST(a_filter_gives_the_answer_of_a_readable_page) { judge_filtered(SECCOMP_RET_ERRNO | EAGAIN); }
TEST(a_filter_does_nothing_and_says_success) { judge_filtered(SECCOMP_RET_ERRNO | 0); }

/* ---- without the kernel ---- */

#if !defined(RACY_ATOMIC)
/* Every system call is counted and fails, except those by which a process and its handlers end. */
static volatile unsigned calls;
static void count_call(int number) { (void)number, calls++; }

static bool count_calls(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
  struct sigaction action = {.sa_handler = count_call, .sa_flags = SA_NODEFER};
  return sigaction(SIGSYS, &action, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void judge_uncalled(chain_t *c) {
  judge(c, false, LIBC_HAS_TABLES);
  CHECK_EQ(calls, 0);
  (void)syscall_3(SYS_getpid, 0, 0, 0);
  CHECK_EQ(calls, 1); /* the count works */
}

TEST(a_filter_meets_no_call_of_the_first_threads_walk) {
  chain_t c = new_chain(judge_uncalled);
  unwind_prepare();
  REQUIRE(count_calls());
  chain_tables(&c);
  CHECK_EQ(judged, 1);
}

/* A frame of code that a program has written itself, in memory of no file: it calls `next` with its own argument. */
void call_from_nowhere(chain_t *c, void (*next)(chain_t *));
extern const char call_from_nowhere_end[];
#if defined(__x86_64__)
__asm__(
    ".text\n call_from_nowhere:\n push %rbp\n mov %rsp, %rbp\n call *%rsi\n pop %rbp\n ret\n"
    "call_from_nowhere_end:\n");
#else
__asm__(
    ".text\n call_from_nowhere:\n stp x29, x30, [sp, -16]!\n mov x29, sp\n blr x1\n ldp x29, x30, [sp], 16\n ret\n"
    "call_from_nowhere_end:\n");
#endif

static void judge_known_code(chain_t *c) {
  void *frames[MOST];
  judge_through_others(c);
  CHECK(count_calls());
  unsigned depth = unwind_here(frames, MOST, NULL, NULL);
  CHECK(are_noted(frames, depth, c, true));
  CHECK_EQ(calls, 0);
}

static void go_on_from_nowhere(chain_t *c) {
  void (*code)(chain_t *, void (*)(chain_t *)) = call_from_nowhere;
  size_t bytes = (size_t)((uintptr_t)call_from_nowhere_end - (uintptr_t)code);
  char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  memcpy(page, (const void *)(uintptr_t)code, bytes);
  __builtin___clear_cache(page, page + bytes);
  code = (void (*)(chain_t *, void (*)(chain_t *)))(uintptr_t)page;
  CHAIN_NOTE(c);
  code(c, judge_known_code);
  c->count--;
}

/* Code that once had no tables and was not a signal's return is treated the same way the next time. */
TEST(a_filter_meets_no_call_for_code_that_has_been_looked_at) {
  chain_t c = new_chain(go_on_from_nowhere);
  store_relaxed(&cache_shift, CACHE_SHIFT);
  unwind_prepare();
  chain_plain(&c);
  CHECK_EQ(judged, 1);
}

#if defined(__x86_64__)
/* A signal may come before each instruction, and the last instruction before a signal's return may be one byte long. Then the address less
 * one is the same for both. */
TEST(code_before_a_signals_return_does_not_hide_it) {
  static const uint8_t code[] = {0xc3, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
  static uint64_t words[WORDS];
  enum { PC = 5 + 16 }; /* in struct ucontext */
  uint8_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  memcpy(page, code, sizeof code);
  words[PC] = 2 * PAGE;
  unwind_prepare();
  walk_t interrupted = {.pc = (uintptr_t)page, .cached = true, .exact = true};
  CHECK_EQ(step(&interrupted), STEP_STUCK);
  walk_t w = {.pc = (uintptr_t)page + 1, .cached = true, .low = (uintptr_t)words, .high = (uintptr_t)(words + WORDS)};
  w.reg[CFI_SP] = w.low;
  CHECK_EQ(step(&w), STEP_DONE);
  CHECK(w.pc == words[PC] && w.exact);
}
#endif

static void judge_twice(chain_t *c) {
  judge_calls(c);
  CHECK(count_calls());
  judge_uncalled(c);
}
static void *walk_twice(void *chain) { return chain_tables(chain), NULL; }

/* The thread's first walk has asked about all pages. */
TEST(a_filter_meets_no_call_of_a_threads_later_walks) {
  chain_t c = new_chain(judge_twice);
  pthread_t thread;
  unwind_prepare();
  REQUIRE(pthread_create(&thread, NULL, walk_twice, &c) == 0);
  pthread_join(thread, NULL);
  CHECK_EQ(judged, 2);
}
#endif
#endif

#if defined(__x86_64__)
/* Frame pointers that lead to all kinds of places, none of them a frame. */
static void judge_wild_pointers(chain_t *c) {
  static uint64_t state = 88172645463325252u;
  char *hole = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(hole != MAP_FAILED && mprotect(hole + PAGE, PAGE, PROT_NONE) == 0);
  const uint64_t places[] = {0,
                             8,
                             PAGE,
                             (uintptr_t)hole,
                             (uintptr_t)hole + PAGE - 16,
                             (uintptr_t)hole + PAGE,
                             (uintptr_t)c,
                             (uint64_t)1 << 47,
                             0 - (uint64_t)16,
                             (uint64_t)1 << 63};
  for (unsigned i = 0; i < 2000; i++) {
    void *frames[MOST];
    uint64_t place = i < 10 ? places[i] : i % 2 != 0 ? places[i % 10] + 8 * unit_below(&state, 1024) : (uint64_t)unit_random(&state) << 16;
    unsigned depth;
    step_t last;
    walk_t w = {.known = BIT(CFI_FP) | BIT(CFI_SP), .cached = true, .pc = place + 1};
    w.reg[CFI_SP] = (uintptr_t)&w & ~(uint64_t)15;
    w.reg[CFI_FP] = place;
    depth = walk(&w, frames, MOST, &last);
    CHECK(depth <= MOST);
    w = (walk_t){.known = BIT(CFI_FP) | BIT(CFI_SP), .pc = (uintptr_t)judge_wild_pointers + 1};
    w.reg[CFI_SP] = place;
    w.reg[CFI_FP] = (uintptr_t)__builtin_frame_address(0);
    (void)walk(&w, frames, MOST, &last);
  }
  judged++;
}

TEST(registers_that_lead_anywhere) {
  chain_t c = new_chain(judge_wild_pointers);
  unwind_prepare();
  chain_pointers(&c);
  CHECK_EQ(judged, 1);
}
#endif

/* ---- locks ---- */

static sem_t held, finished;

static int hold(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)info, (void)size, (void)unused;
  sem_post(&held);
  while (sem_wait(&finished) != 0) continue;
  return 1;
}

static void *hold_the_loader(void *unused) {
  (void)dl_iterate_phdr(hold, NULL);
  return unused;
}

TEST(the_loaders_lock_is_not_taken) {
  pthread_t thread;
  chain_t c = new_chain(judge_calls);
  unwind_prepare();
  sem_init(&held, 0, 0), sem_init(&finished, 0, 0);
  REQUIRE(pthread_create(&thread, NULL, hold_the_loader, NULL) == 0);
  while (sem_wait(&held) != 0) continue;
  chain_tables(&c);
  sem_post(&finished);
  pthread_join(thread, NULL);
  CHECK_EQ(judged, 1);
}

/* ---- the cache ---- */

/* Another address with the same place in the cache. */
static uint64_t rival_of(uint64_t pc) {
  uint64_t rival = pc;
  do rival++;
  while (cache_at(cache_hash(rival)) != cache_at(cache_hash(pc)));
  return rival;
}

TEST(an_entry_of_two_writers_is_none) {
  uint64_t one = 0x401000, other = rival_of(one);
  cache_entry_t *entry = cache_at(cache_hash(one));
  uint32_t rule = 0;
  cache_put(one, 5);
  CHECK(cache_get(one, &rule) && rule == 5 && !cache_get(other, &rule));
  uint64_t rule_of_one = load_relaxed(&entry->rule);
  cache_put(other, 9);
  CHECK(cache_get(other, &rule) && rule == 9 && !cache_get(one, &rule));
  store_relaxed(&entry->pc, one); /* the second word is still that of the other address */
  CHECK(!cache_get(one, &rule));
  store_relaxed(&entry->pc, other);
  store_relaxed(&entry->rule, rule_of_one);
  CHECK(!cache_get(other, &rule));
  unwind_forget();
  CHECK(!cache_get(one, &rule) && !cache_get(other, &rule));
}

static unsigned found_of(unsigned count) {
  unsigned found = 0;
  for (unsigned i = 0; i < count; i++) {
    uint32_t rule = 0;
    if (cache_get(0x401000 + 16 * i, &rule)) found += rule == i;
  }
  return found;
}

static void put_all(unsigned count) {
  for (unsigned i = 0; i < count; i++) cache_put(0x401000 + 16 * i, i);
}

/* The cache uses one page for a program with few stacks, and all of its memory for one with many. */
TEST(the_cache_is_as_large_as_it_is_used) {
  enum { FEW = 100, MANY = 2000 };
  put_all(FEW);
  CHECK(found_of(FEW) > FEW / 2);
  CHECK(unit_is_zero((char *)rule_cache + PAGE, sizeof rule_cache - PAGE));
  for (int i = 0; i < 5; i++) put_all(MANY);
  CHECK_EQ(load_relaxed(&cache_shift), CACHE_SHIFT);
  CHECK(found_of(MANY) > MANY / 2);
}

/* Makes the rule for one of the frames wrong so that it shows: not every wrong place holds what could be a return address. */
static bool spoil_a_rule(void *const *frames, unsigned depth, const chain_t *c) {
  void *others[MOST];
  uint32_t rule;
  for (unsigned i = 1; i < depth; i++) {
    uint64_t pc = (uint64_t)(uintptr_t)frames[i] - 1;
    if (!cache_get(pc, &rule) || rule == 0) continue;
    for (uint32_t more = 1; more < 200; more++) {
      cache_put(pc, rule + (more << RULE_CFA));
      if (!are_noted(others, unwind_here(others, MOST, NULL, NULL), c, false)) return true;
    }
  }
  return false;
}

/* An outdated rule, as after a library was closed, is used for a limited number of walks. */
static void judge_after_wrong_rules(chain_t *c) {
  void *frames[MOST];
  unsigned walks = 0, depth = unwind_here(frames, MOST, NULL, NULL);
  CHECK(are_noted(frames, depth, c, false));
  CHECK(spoil_a_rule(frames, depth, c));
  while (!are_noted(frames, unwind_here(frames, MOST, NULL, NULL), c, false) && walks <= CACHE_ANEW) walks++;
  CHECK(walks < CACHE_ANEW);
  judged++;
}

TEST(old_rules_are_replaced) {
  chain_t c = new_chain(judge_after_wrong_rules);
  store_relaxed(&cache_shift, CACHE_SHIFT); /* in a small cache, rules of one walk may displace each other */
  unwind_prepare();
  chain_tables(&c);
  CHECK_EQ(judged, 1);
}
