/* Gets its memory through libc alone. */
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
  (void)count;
  char *copy = strdup(words[0]);
  return copy ? EXIT_SUCCESS : EXIT_FAILURE;
}
