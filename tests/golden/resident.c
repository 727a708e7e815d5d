/* resident.c - prints /proc/self/smaps: without an argument, of a process that allocates nothing; with one, of a small process with one
 * thread. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Enough that the thread checks its bins, and that profiles take samples. */
enum { BLOCKS = 400, STEPS = 40000, LARGEST = 3000 };

static void *resized(void *block, size_t size) {
  void *grown = realloc(block, size);
  if (grown == NULL) abort();
  return grown;
}

static void work(void) {
  static void *blocks[BLOCKS];
  unsigned state = 1;
  for (unsigned step = 0; step < STEPS; step++) {
    state = state * 1103515245 + 12345;
    void **block = &blocks[(state >> 16) % BLOCKS];
    size_t size = 1 + (state >> 8) % LARGEST;
    if (step % 4 == 0) {
      *block = resized(*block, size);
      continue;
    }
    free(*block);
    if (step % 4 == 1) *block = calloc(1, size);
    else if (step % 4 == 2) *block = malloc(size);
    else if (posix_memalign(block, 64, size) != 0) abort();
  }
  for (unsigned i = 0; i < BLOCKS; i++) free(blocks[i]);
  free(resized(malloc(30000), 200000));
}

int main(int count, char **arguments) {
  static char text[1 << 17];
  (void)arguments;
  if (count > 1) work();
  int file = open("/proc/self/smaps", O_RDONLY);
  ssize_t bytes;
  while ((bytes = read(file, text, sizeof text)) > 0) {
    if (write(1, text, (size_t)bytes) != bytes) return 1;
  }
  return bytes < 0;
}
