/* deepbind.c - libraries opened with RTLD_DEEPBIND, malloc looked up in a library, calls of dlopen that depend on their caller, and forks
 * beside threads that open or close one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "behind.h"
#include "check.h"

int main(int argc, char **argv) { return check_main(argc, argv); }

int deep_who(void);
int deep_who(void) { return 1; }

static void *library(const char *name, int mode) {
  char path[512];
  const char *self = check_self(), *end = strrchr(self, '/');
  CHECK(end != NULL && (size_t)(end - self) + strlen(name) + 2 < sizeof path);
  memcpy(path, self, (size_t)(end - self) + 1);
  strcpy(path + (end - self) + 1, name);
  void *opened = dlopen(path, mode);
  if (opened == NULL) check_fail(__FILE__, __LINE__, "%s", dlerror());
  return opened;
}

static void *function(void *from, const char *name) {
  void *found = dlsym(from, name);
  CHECK(found != NULL);
  if (found == NULL) _exit(1);
  return found;
}

static int ask(void *deep) { return ((int (*)(void))function(deep, "deep_ask"))(); }

static void free_from(void *deep) { free(((void *(*)(int, size_t))function(deep, "deep_make"))(0, 100)); }

static bool under_hakmem(void) { return dlsym(RTLD_DEFAULT, "hak_version") != NULL; }

/* Passes blocks of every kind, each made on one side and freed on the other. */
static void blocks_pass(void *deep) {
  void *(*make)(int, size_t) = (void *(*)(int, size_t))function(deep, "deep_make");
  void *(*move)(void *, size_t) = (void *(*)(void *, size_t))function(deep, "deep_move");
  void (*drop)(void *) = (void (*)(void *))function(deep, "deep_drop");
  size_t (*usable)(void *) = (size_t (*)(void *))function(deep, "deep_usable");
  char *(*first)(void) = (char *(*)(void))function(deep, "deep_first");
  free(first()); /* made by its constructor */
  for (int how = 0; how <= 9; how++) {
    for (size_t size = 40; size < 1000000; size *= 10) {
      char *block = make(how, size);
      CHECK(block != NULL && usable(block) == malloc_usable_size(block));
      block = realloc(block, size + 100);
      CHECK(block != NULL);
      free(block);
      drop(malloc(size));
      drop(move(malloc(size), 2 * size));
      free(move(make(how, size), 3 * size));
    }
  }
}

/* Its headers cannot be read, as if another thread were just closing the library. */
TEST(a_profile_survives_a_library_whose_headers_cannot_be_read) {
  bool (*writes[])(int) = {(bool (*)(int))dlsym(RTLD_DEFAULT, "hak_profile_write"),
                           (bool (*)(int))dlsym(RTLD_DEFAULT, "hak_profile_pprof")};
  void *deep = library("libdeep.so", RTLD_NOW), *ask_it = function(deep, "deep_ask");
  Dl_info info;
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (writes[0] == NULL) check_skip("the system's malloc runs");
  REQUIRE(nowhere >= 0 && dladdr(ask_it, &info) != 0);
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  REQUIRE(mprotect(info.dli_fbase, page, PROT_NONE) == 0);
  for (int i = 0; i < 2; i++) CHECK(writes[i](nowhere));
  REQUIRE(mprotect(info.dli_fbase, page, PROT_READ) == 0);
  dlclose(deep);
}

TEST(a_deep_library_has_the_programs_malloc) { blocks_pass(library("libdeep.so", RTLD_NOW | RTLD_DEEPBIND)); }
TEST(a_deep_library_that_binds_late_has_it_too) { blocks_pass(library("libdeep.so", RTLD_LAZY | RTLD_DEEPBIND | RTLD_GLOBAL)); }
TEST(all_other_names_bind_as_the_flag_says) { CHECK_EQ(ask(library("libdeep.so", RTLD_NOW | RTLD_DEEPBIND)), 2); }
TEST(without_the_flag_they_bind_as_ever) { CHECK_EQ(ask(library("libdeep.so", RTLD_NOW)), 1); }

/* What libc allocates for the program by calling malloc is freed by whatever `from` leads to. */
static void libc_blocks_pass(void *from) {
  void (*drop)(void *) = (void (*)(void *))function(from, "free");
  size_t (*usable)(void *) = (size_t (*)(void *))function(from, "malloc_usable_size");
  char *text = strdup("a text that libc makes a block for"), *printed = NULL;
  CHECK(asprintf(&printed, "%d and %d", 1, 2) == 7);
  CHECK(usable(text) == malloc_usable_size(text));
  drop(text);
  drop(printed);
  free(((void *(*)(void *, size_t))function(from, "realloc"))(strdup("another"), 10000));
  void *block = NULL;
  CHECK(((int (*)(void **, size_t, size_t))function(from, "posix_memalign"))(&block, 64, 100) == 0);
  free(block);
}
TEST(libc_itself_leads_to_the_programs_malloc) {
  void *libc = dlopen("libc.so.6", RTLD_LAZY);
  if (under_hakmem()) CHECK(function(libc, "malloc") == (void *)malloc);
  CHECK(function(libc, "getpid") != function(libc, "malloc"));
  libc_blocks_pass(libc);
}
TEST(an_opened_library_leads_to_the_programs_malloc) { libc_blocks_pass(library("libdeep.so", RTLD_NOW)); }
TEST(the_programs_own_handle_leads_there_too) { libc_blocks_pass(dlopen(NULL, RTLD_NOW)); }

/* Libraries behind hakmem look malloc and free up when they first need them: before and after the program opens a library. */
TEST(a_block_of_libcs_own_malloc_goes_back_to_it) {
  char *(*make)(size_t) = (char *(*)(size_t))behind_next("malloc"), *blocks[2];
  REQUIRE(make != NULL);
  for (int i = 0; i < 2; i++) REQUIRE((blocks[i] = make(100)) != NULL);
  REQUIRE(dlopen("libm.so.6", RTLD_LAZY) != NULL);
  CHECK(((size_t (*)(void *))behind_next("malloc_usable_size"))(blocks[0]) >= 100);
  ((void (*)(void *))behind_next("free"))(blocks[0]);
  blocks[1] = ((char *(*)(char *, size_t))behind_next("realloc"))(blocks[1], 100000);
  REQUIRE(blocks[1] != NULL);
  memset(blocks[1], 1, 100000);
  ((void (*)(void *))behind_next("free"))(blocks[1]);
  free(((char *(*)(size_t))behind_next("malloc"))(100));
}

/* As Python's users do to make a process smaller: ctypes.CDLL("libc.so.6").malloc_trim(0). */
TEST(malloc_trim_of_libc_itself_trims_the_programs_heap) {
  static void *blocks[1000];
  int (*trim)(size_t) = (int (*)(size_t))function(dlopen("libc.so.6", RTLD_LAZY), "malloc_trim");
  for (int i = 0; i < 1000; i++) CHECK((blocks[i] = malloc(10000)) != NULL);
  for (int i = 0; i < 1000; i++) memset(blocks[i], 1, 10000);
  for (int i = 0; i < 1000; i++) free(blocks[i]);
  if (under_hakmem()) CHECK_EQ(trim(0), 1);
}

TEST(a_deep_library_is_told_the_programs_figures) {
  void *deep = library("libdeep.so", RTLD_NOW | RTLD_DEEPBIND);
  size_t (*used)(void) = (size_t (*)(void))function(deep, "deep_used");
  int (*trim)(void) = (int (*)(void))function(deep, "deep_trim");
  static void *blocks[1000];
  size_t before = used();
  for (int i = 0; i < 1000; i++) CHECK((blocks[i] = malloc(10000)) != NULL);
#if __GLIBC_PREREQ(2, 33)
  CHECK(used() >= before + 10000000);
#else
  CHECK_EQ(before, 0);
#endif
  for (int i = 0; i < 1000; i++) memset(blocks[i], 1, 10000);
  for (int i = 0; i < 1000; i++) free(blocks[i]);
  if (under_hakmem()) CHECK(trim() == 1);
}

static void *open_again(void *unused) {
  blocks_pass(library("libdeep.so", RTLD_NOW | RTLD_DEEPBIND));
  return unused;
}

static void *open_often(void *unused) {
  for (int i = 0; i < 200; i++) {
    void *deep = library("libdeep.so", RTLD_NOW | RTLD_DEEPBIND);
    void *(*make)(int, size_t) = (void *(*)(int, size_t))function(deep, "deep_make");
    free(make(0, 100));
    dlclose(deep);
  }
  return unused;
}

TEST(threads_open_at_once) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, open_often, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  open_again(NULL);
}

/* ---- The caller's place ---- */

static void hidden_opens(int mode) {
  void *(*near_open)(int) = (void *(*)(int))function(library("libnear.so", RTLD_NOW), "near_open");
  void *hidden = near_open(mode);
  CHECK(hidden != NULL);
  if (hidden != NULL) CHECK_EQ(((int (*)(void))function(hidden, "hidden"))(), 3);
}

TEST(the_programs_own_runpath_does_not_lead_there) { CHECK(dlopen("libhidden.so", RTLD_NOW) == NULL); }
TEST(the_callers_runpath_leads) { hidden_opens(RTLD_NOW); }
TEST(the_callers_runpath_leads_with_the_flag) { hidden_opens(RTLD_NOW | RTLD_DEEPBIND); }
TEST(the_callers_runpath_leads_in_dlmopen) {
  void *(*near_open_in)(long, int) = (void *(*)(long, int))function(library("libnear.so", RTLD_NOW), "near_open_in");
  CHECK(near_open_in(LM_ID_BASE, RTLD_NOW | RTLD_DEEPBIND) != NULL);
}
TEST(errors_are_the_loaders_own) {
  CHECK(dlopen("/nowhere/libnothing.so", RTLD_NOW | RTLD_DEEPBIND) == NULL);
  const char *text = dlerror();
  CHECK(text != NULL && strstr(text, "/nowhere/libnothing.so") != NULL);
  CHECK(dlopen("libc.so.6", 0) == NULL && dlerror() != NULL);
  CHECK(dlopen(NULL, RTLD_LAZY) != NULL);
}

/* ---- A fork beside a thread that opens or closes a library ---- */

/* The thread is stopped in a libc function that the library calls while it holds its lock: the program's functions precede libc's. */
enum { PASSING, HOLDING, HELD };
static _Atomic int gate;
static __thread bool is_held_up;

static void gate_pass(void) {
  int holding = HOLDING;
  if (is_held_up && atomic_compare_exchange_strong(&gate, &holding, HELD)) {
    while (atomic_load(&gate) == HELD) usleep(1000);
  }
}

int dladdr1(const void *address, Dl_info *info, void **extra, int flags) {
  gate_pass();
  return ((int (*)(const void *, Dl_info *, void **, int))function(RTLD_NEXT, "dladdr1"))(address, info, extra, flags);
}

int strcmp(const char *a, const char *b) {
  gate_pass();
  while (*a != '\0' && *a == *b) a++, b++;
  return (unsigned char)*a - (unsigned char)*b;
}

static void open_deep(void) { free_from(library("libdeep.so", RTLD_NOW | RTLD_DEEPBIND)); }

/* Closes a library that has allocated sampled blocks, so that there is something to note when it is closed. */
static void close_deep(void) {
  void *deep = library("libdeep.so", RTLD_NOW);
  void *(*make)(int, size_t) = (void *(*)(int, size_t))function(deep, "deep_make");
  for (int i = 0; i < 1000; i++) CHECK(make(0, 10000) != NULL);
  CHECK_EQ(dlclose(deep), 0);
}

static void *held_up(void *act) {
  is_held_up = true;
  (*(void (**)(void))act)();
  return NULL;
}

static void child_does_beside(void (*act)(void)) {
  pthread_t thread;
  int status;
  atomic_store(&gate, HOLDING);
  CHECK(pthread_create(&thread, NULL, held_up, &act) == 0);
  while (atomic_load(&gate) != HELD) usleep(1000);
  pid_t child = fork();
  if (child == 0) {
    alarm(60); /* otherwise it would wait forever */
    free(malloc(5000000)); /* the child has repaired its state by then */
    act();
    _exit(check_failures() != 0);
  }
  atomic_store(&gate, PASSING);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

TEST(a_child_opens_one_as_a_thread_of_its_parent_did) {
  if (!under_hakmem()) check_skip("the system's malloc runs");
  child_does_beside(open_deep);
}

TEST(a_child_closes_one_as_a_thread_of_its_parent_did) {
  if (!under_hakmem()) check_skip("the system's malloc runs");
  if (getenv("TEST_SECURE") != NULL) check_skip("the secure library takes no samples, so it notes nothing");
  close_deep(); /* known from then on, so that it is compared */
  child_does_beside(close_deep);
}

/* ---- Where libc's table cannot be written ---- */

static int find_libc(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  if (strstr(info->dlpi_name, "/libc.so") != NULL) *(uintptr_t *)found = info->dlpi_addr;
  return 0;
}

/* Refuses mprotect in the MiB from `start` on; `start` is aligned to 64 KiB. */
static void refuse_mprotect(uintptr_t start) {
  uint32_t high = (uint32_t)(start >> 32), low = (uint32_t)start;
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, low, 0, 2),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, low + (1 << 20), 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

TEST(the_flag_goes_where_the_table_stays) {
  if (!under_hakmem()) check_skip("the system's malloc runs");
  uintptr_t libc = 0;
  dl_iterate_phdr(find_libc, &libc);
  CHECK(libc != 0);
  refuse_mprotect(libc);
  void *deep = library("libdeep.so", RTLD_NOW | RTLD_DEEPBIND);
  CHECK_EQ(ask(deep), 1);
  blocks_pass(deep);
}

TEST(opening_what_is_loaded_makes_no_call_that_a_filter_may_forbid) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  CHECK(dlopen("libc.so.6", RTLD_LAZY) != NULL);
}

/* ---- What is reported if such a library keeps libc's malloc ---- */

static void foreign_line(const char *option, const char *name, const char *expected) {
  char errors[2000];
  const char *program = check_self();
  char *const argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)"-x", (char *)(uintptr_t)name, NULL};
  if (option != NULL) putenv((char *)(uintptr_t)option);
  setenv("DEEPBIND_CHILD", "1", 1);
  int status = check_spawn(argv, environ, 60, errors, NULL, sizeof errors);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  if (strstr(errors, expected) == NULL) check_fail(__FILE__, __LINE__, "%s", errors);
}

TEST(with_the_option_the_line_names_the_flag) {
  if (!under_hakmem()) check_skip("the system's malloc runs");
  if (getenv("DEEPBIND_CHILD") != NULL) free_from(library("libdeep.so", RTLD_NOW | RTLD_DEEPBIND));
  else
    foreign_line("HAKMEM_DEEPBIND=1", "with_the_option_the_line_names_the_flag",
                 "): not from this allocator, but a library was opened with RTLD_DEEPBIND\n");
}

TEST(with_the_option_libc_keeps_its_malloc) {
  if (!under_hakmem()) check_skip("the system's malloc runs");
  if (getenv("DEEPBIND_CHILD") == NULL)
    foreign_line("HAKMEM_DEEPBIND=1", "with_the_option_libc_keeps_its_malloc", "foreign pointer: free(");
  else free(((void *(*)(size_t))function(dlopen("libc.so.6", RTLD_LAZY), "malloc"))(100));
}

TEST(the_line_names_dlmopen) {
  if (!under_hakmem()) check_skip("the system's malloc runs");
  if (getenv("DEEPBIND_CHILD") == NULL) {
    foreign_line(NULL, "the_line_names_dlmopen", "): not from this allocator, but a library was opened by dlmopen\n");
    return;
  }
  Dl_info info;
  void *deep = library("libdeep.so", RTLD_NOW);
  CHECK(dladdr(function(deep, "deep_make"), &info) != 0);
  free_from(dlmopen(LM_ID_NEWLM, info.dli_fname, RTLD_NOW));
}
