/* random_mixed.c - random replacement of blocks of 16 to 1040 bytes in 4096 slots. */
#include "random_mixed.h"

int main(int argc, char **argv) {
  return mixed_main(argc, argv, "random_mixed", &(mixed_t){.steps = 20000000, .slots = 4096, .smallest = 16, .largest = 1040});
}
