/* deep.c - a library for deepbind.c to open. With `WAY` 1 it is a second one, which opens a third that only its own RUNPATH leads to. */
#include <dlfcn.h>
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if WAY == 0

/* The program has a function with the same name. */
int deep_who(void);
int deep_who(void) { return 2; }
int deep_ask(void);
int deep_ask(void) { return deep_who(); }

static char *made_first;
__attribute__((constructor)) static void construct(void) { made_first = malloc(50); }
char *deep_first(void);
char *deep_first(void) { return made_first; }

void *deep_make(int how, size_t size);
void *deep_make(int how, size_t size) {
  void *block = NULL;
  switch (how) {
    case 0: return malloc(size);
    case 1: return calloc(size, 1);
    case 2: return realloc(malloc(10), size);
    case 3: return aligned_alloc(64, size);
    case 4: return posix_memalign(&block, 64, size) == 0 ? block : NULL;
    case 5: return strdup("a text that libc makes a block for");
    case 6: return reallocarray(NULL, size, 1);
    case 7: return memalign(64, size);
    case 8: return valloc(size);
    case 9: return pvalloc(size);
    default: return NULL;
  }
}
size_t deep_usable(void *block);
size_t deep_usable(void *block) { return malloc_usable_size(block); }
size_t deep_used(void);
size_t deep_used(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  return mallinfo2().uordblks;
#else
  return 0;
#endif
}
int deep_trim(void);
int deep_trim(void) { return malloc_trim(0); }
void deep_drop(void *block);
void deep_drop(void *block) { free(block); }
void *deep_move(void *block, size_t size);
void *deep_move(void *block, size_t size) { return realloc(block, size); }

#elif WAY == 1

void *near_open(int mode);
void *near_open(int mode) { return dlopen("libhidden.so", mode); }
void *near_open_in(long space, int mode);
void *near_open_in(long space, int mode) { return dlmopen(space, "libhidden.so", mode); }

#else

int hidden(void);
int hidden(void) { return 3; }

#endif
