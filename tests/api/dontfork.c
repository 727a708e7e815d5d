/* dontfork.c - a fork's child that lacks pages of its parent's blocks, or has them wiped, as the program has advised the kernel. */
#include "api.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#define MADV_KEEPONFORK 19
#endif

/* The bytes of a block that are advised; rounded to pages outwards as libraries do that register memory with a device. */
typedef struct advised {
  char *block;
  size_t size;
  char *start;
  size_t bytes;
} advised_t;

static size_t page;

static advised_t advise(char *block, size_t size, size_t from, size_t to, int advice) {
  page = (size_t)sysconf(_SC_PAGESIZE);
  uintptr_t start = ((uintptr_t)block + from) & ~(page - 1), end = ((uintptr_t)block + to + page - 1) & ~(page - 1);
  advised_t advised = {block, size, (char *)start, end - start};
  CHECK_EQ(madvise(advised.start, advised.bytes, advice), 0);
  return advised;
}

static advised_t advise_new(size_t align, size_t size, size_t from, size_t to, int advice) {
  char *block = align > 1 ? api.aligned_alloc(align, size) : api.malloc(size);
  if (block == NULL) abort();
  return advise(fill(block, size, 7), size, from, to, advice);
}

static void undo(const advised_t *advised, int advice) {
  CHECK_EQ(madvise(advised->start, advised->bytes, advice), 0);
  api.free(advised->block);
}

static int status_of(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

/* Uses all that a child may get of blocks of such a size. */
static void use_blocks(size_t size) {
  enum { BLOCKS = 12 };
  char *blocks[BLOCKS];
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (i % 3 == 2) CHECK((blocks[i] = api.calloc(1, size)) != NULL && all_bytes(blocks[i], size, 0));
    else blocks[i] = api.malloc(size);
    REQUIRE(blocks[i] != NULL);
    if (i % 3 == 1) REQUIRE((blocks[i] = api.realloc(blocks[i], size + size / 2)) != NULL);
    fill(blocks[i], size, i);
  }
  for (unsigned i = 0; i < BLOCKS; i++) {
    CHECK(filled(blocks[i], size, i));
    api.free(blocks[i]);
  }
}

/* Where the bytes are that the child lacks: all of the block, its first page, one in the middle, its last, or every second one of 16. */
enum { ALL, FIRST, MIDDLE, LAST, SEVERAL, PLACES };

static advised_t advise_at(int place, size_t size) {
  size_t middle = size / 2, from = place == MIDDLE ? middle : place == LAST ? size - 1 : 0;
  size_t to = place == FIRST ? 1 : place == MIDDLE ? middle + 1 : size;
  if (place == SEVERAL) to = 1;
  advised_t advised = advise_new(4096, size, from, to, MADV_DONTFORK);
  for (size_t i = 2; place == SEVERAL && i < 16; i += 2) (void)advise(advised.block, size, i * page, i * page + 1, MADV_DONTFORK);
  if (place == SEVERAL) advised.bytes = 16 * page;
  return advised;
}

TEST(child_frees_large_blocks_that_it_lacks) {
  static const size_t of[] = {200000, 1 << 18, 3 << 20, (8 << 20) + 5};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    for (int place = 0; place < PLACES; place++) {
      size_t size = of[i] & ~(size_t)(place == LAST ? 0 : 4095);
      advised_t advised = advise_at(place, size), second = advise_at(place, size);
      pid_t child = fork();
      if (child == 0) {
        alarm(60);
        api.free(advised.block);
        use_blocks(size);
        api.free(second.block);
        use_blocks(size);
        use_blocks(1000);
        _exit(check_failures() != 0);
      }
      CHECK_EQ(status_of(child), 0);
      undo(&advised, MADV_DOFORK);
      undo(&second, MADV_DOFORK);
    }
  }
}

/* The program has not undone its advice. */
TEST(child_lacks_what_its_parent_has_freed) {
  if (!api_is_hakmem()) check_skip("with glibc, only large blocks may be freed so");
  for (size_t size = 1 << 17; size <= 8 << 20; size *= 4) {
    advised_t advised[4];
    for (int i = 0; i < 4; i++) advised[i] = advise_new(4096, size, 0, size, MADV_DONTFORK);
    for (int i = 0; i < 4; i++) api.free(advised[i].block);
    pid_t child = fork();
    if (child == 0) {
      alarm(60);
      use_blocks(size);
      use_blocks(10000);
      _exit(check_failures() != 0);
    }
    CHECK_EQ(status_of(child), 0);
    for (int i = 0; i < 4; i++) (void)madvise(advised[i].start, advised[i].bytes, MADV_DOFORK);
  }
}

/* A child of a process that lacks pages has holes of its own. */
TEST(child_of_a_child_frees_what_both_lack) {
  advised_t advised = advise_new(4096, 1 << 20, 0, 1 << 20, MADV_DONTFORK), second = advise_new(4096, 1 << 20, 4096, 8192, MADV_DONTFORK);
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    api.free(advised.block);
    use_blocks(1 << 20);
    pid_t grandchild = fork();
    if (grandchild == 0) {
      alarm(60);
      api.free(second.block);
      use_blocks(1 << 20);
      _exit(check_failures() != 0);
    }
    CHECK_EQ(status_of(grandchild), 0);
    _exit(check_failures() != 0);
  }
  CHECK_EQ(status_of(child), 0);
  undo(&advised, MADV_DOFORK);
  undo(&second, MADV_DOFORK);
}

/* Blocks that share pages with the advised ones are lost or wiped too.  The secure library checks blocks when the child exits. */
static void exit_with(int advice, int undone) {
  static const struct {
    size_t align, size;
  } of[] = {{1, 24}, {1, 300}, {1, 1000}, {4096, 4096}, {4096, 20000}, {4096, 57345}, {4096, 100000}, {4096, 3000001}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    void *others[20];
    for (int k = 0; k < 20; k++) others[k] = api.malloc(of[i].size);
    advised_t advised = advise_new(of[i].align, of[i].size, 0, of[i].size, advice);
    for (int k = 0; k < 20; k += 2) api.free(others[k]);
    pid_t child = fork();
    if (child == 0) exit(3);
    CHECK_EQ(status_of(child), 3 << 8);
    undo(&advised, undone);
    for (int k = 1; k < 20; k += 2) api.free(others[k]);
  }
}

TEST(child_that_lacks_pages_exits) { exit_with(MADV_DONTFORK, MADV_DOFORK); }

TEST(child_whose_pages_are_wiped_exits) {
  char *probe = api.aligned_alloc(4096, 4096);
  bool known = madvise(probe, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK) == 0;
  (void)madvise(probe, (size_t)sysconf(_SC_PAGESIZE), MADV_KEEPONFORK);
  api.free(probe);
  if (!known) check_skip("the kernel wipes no pages");
  exit_with(MADV_WIPEONFORK, MADV_KEEPONFORK);
}

/* The secure library clears a block when it is freed, and checks what lies behind it. */
TEST(child_of_the_secure_library_frees_small_blocks_that_it_lacks) {
  if (!is_secure()) check_skip("elsewhere a freed block is not touched, and used again with its holes");
  static const struct {
    size_t align, size;
  } of[] = {{1, 24}, {1, 1000}, {4096, 4096}, {4096, 20000}, {4096, 57345}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    void *others[20];
    for (int k = 0; k < 20; k++) others[k] = api.malloc(of[i].size);
    advised_t advised = advise_new(of[i].align, of[i].size, 0, of[i].size, MADV_DONTFORK);
    pid_t child = fork();
    if (child == 0) {
      alarm(60);
      if (i % 2 == 0) api.free(advised.block);
      else api.free_sized != NULL ? api.free_sized(advised.block, advised.size) : api.free(advised.block);
      for (int k = 0; k < 20; k++) api.free(others[k]);
      use_blocks(of[i].size);
      exit(check_failures() != 0);
    }
    CHECK_EQ(status_of(child), 0);
    undo(&advised, MADV_DOFORK);
    for (int k = 0; k < 20; k++) api.free(others[k]);
  }
}

/* Frees an overflown block, or leaves it to the check at exit. */
static void overflow(bool freed) {
  char *block = api.malloc(100);
  (void)fclose(stderr); /* what follows would be taken for a fault */
  memset(block, 1, 103); /* the byte behind the block alone may have the value 1 */
  if (freed) api.free(block);
  exit(3);
}

TEST(child_of_the_secure_library_is_ended_for_an_overflow) {
  if (!is_secure()) check_skip("the other library does not check what lies behind a block");
  advised_t advised = advise_new(4096, 100000, 0, 100000, MADV_DONTFORK);
  for (int kind = 0; kind < 4; kind++) {
    bool lacks = kind >= 2, freed = kind % 2 != 0;
    bool checks = strcmp(check_context(), "alone") == 0 && getenv("REFUSE") == NULL; /* one thread, and no filter */
    if (!freed && !checks) continue;
    if (!lacks) CHECK_EQ(madvise(advised.start, advised.bytes, MADV_DOFORK), 0);
    pid_t child = fork();
    if (child == 0) overflow(freed);
    int status = status_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK_EQ(madvise(advised.start, advised.bytes, MADV_DONTFORK), 0);
  }
  undo(&advised, MADV_DOFORK);
}
