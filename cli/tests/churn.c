/* churn.c - a program that allocates much and holds next to nothing: churn [ROUNDS]; for good if there is no number.
 *
 * A round has COUNT blocks of 24 bytes from `often`, of 3,000 from `seldom` a hundredth of that, and one that no bin holds. */
#include <stdlib.h>
#include <unistd.h>

enum { COUNT = 10000 };
static void *volatile sink;

static __attribute__((noinline)) void often(void) {
  for (int i = 0; i < COUNT; i++) free(sink = malloc(24));
}

static __attribute__((noinline)) void seldom(void) {
  for (int i = 0; i < COUNT / 100; i++) free(sink = malloc(3000));
}

int main(int count, char **arguments) {
  (void)!write(1, "ready\n", 6);
  for (long left = count > 1 ? atol(arguments[1]) : -1; left != 0; left--) {
    often();
    seldom();
    free(sink = malloc(100000));
  }
}
