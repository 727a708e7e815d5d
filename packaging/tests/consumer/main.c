/* Succeeds when plain malloc is served by hakmem. */
#include <hakmem/hakmem.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  void *block = malloc(100);
  bool served =
      block && hak_malloc_usable_size(block) == malloc_usable_size(block) && malloc_usable_size(block) == hak_malloc_good_size(100);
  free(block);
  printf("hakmem %s %s malloc\n", hak_version(), served ? "serves" : "does not serve");
  return served ? EXIT_SUCCESS : EXIT_FAILURE;
}
