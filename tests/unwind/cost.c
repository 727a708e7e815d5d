/* cost.c - walks a stack of known depth, for callgrind to count: cost FRAMES WALKS [anew].
 *
 * Each frame belongs to a different function.  With "anew" no walk finds anything in the cache. */
#include "os/unwind.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 200 };
static unsigned walks, depth;
static bool anew;

__attribute__((noinline)) static void innermost(void) {
  static void *frames[MOST];
  for (unsigned i = 0; i < walks; i++) {
    if (anew) unwind_forget();
    depth = unwind_here(frames, MOST, NULL, NULL);
  }
}

#define FRAME(n, next)                                    \
  __attribute__((noinline)) static void frame_##n(void) { \
    volatile char room[8 + 8 * (n % 7)];                  \
    room[0] = 1;                                          \
    next();                                               \
    room[0]++;                                            \
  }
/* clang-format off */
FRAME(0, innermost)
#define FOUR(a, b, c, d, below) FRAME(a, below) FRAME(b, frame_##a) FRAME(c, frame_##b) FRAME(d, frame_##c)
FOUR(1, 2, 3, 4, frame_0) FOUR(5, 6, 7, 8, frame_4) FOUR(9, 10, 11, 12, frame_8) FOUR(13, 14, 15, 16, frame_12)
FOUR(17, 18, 19, 20, frame_16) FOUR(21, 22, 23, 24, frame_20) FOUR(25, 26, 27, 28, frame_24) FOUR(29, 30, 31, 32, frame_28)
FOUR(33, 34, 35, 36, frame_32) FOUR(37, 38, 39, 40, frame_36) FOUR(41, 42, 43, 44, frame_40) FOUR(45, 46, 47, 48, frame_44)
/* clang-format on */

    int main(int argc, char **argv) {
  if (argc < 3) return 2;
  walks = (unsigned)atoi(argv[2]);
  anew = argc > 3;
  unwind_prepare();
  switch (atoi(argv[1])) {
    case 10: frame_8(); break;
    case 50: frame_48(); break;
    default: return 2;
  }
  printf("%u frames\n", depth);
  return 0;
}
