#include <hakmem/hakmem.h>
#include <stdlib.h>

int main(void) {
  hak_free(malloc(100)); /* ends the process if it is another malloc's */
  return 0;
}
