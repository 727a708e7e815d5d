/* closing_library.c - a library for closing.c: two differ in the frames of their functions alone, so one comes to lie where the other was. */
#include <stdlib.h>

#define JOIN(a, b) a##_##b
#define NAME(a, b) JOIN(a, b)

__attribute__((noinline)) void *NAME(WHICH, inner)(size_t size);
__attribute__((noinline)) void *NAME(WHICH, inner)(size_t size) {
  volatile char frame[FRAME];
  frame[0] = (char)size;
  void *block = malloc(size);
  frame[1] = frame[0];
  return block;
}

void *outer(size_t size);
__attribute__((noinline)) void *outer(size_t size) {
  volatile char frame[FRAME];
  frame[0] = (char)size;
  void *block = NAME(WHICH, inner)(size);
  frame[1] = frame[0];
  return block;
}
