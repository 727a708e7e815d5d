/* opened.c - a library whose constructor waits for a thread that calls a function of libjemalloc.so.2, while the loader's lock is held. */
#include <pthread.h>
#include <stddef.h>

void *mallocx(size_t size, int flags);
void *rallocx(void *block, size_t size, int flags);
void dallocx(void *block, int flags);
extern int opened_library_is_served;
int opened_library_is_served;

static void *resize(void *unused) {
  void *block = mallocx(1000000, 0);
  block = rallocx(block, 200000, 0);
  opened_library_is_served = block != NULL;
  dallocx(block, 0);
  return unused;
}

static __attribute__((constructor)) void start(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, resize, NULL) == 0) (void)pthread_join(thread, NULL);
}
