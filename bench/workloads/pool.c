/* pool.c - random replacement of blocks of 8 to 32 KiB in 256 slots. */
#include "random_mixed.h"

int main(int argc, char **argv) {
  return mixed_main(argc, argv, "pool", &(mixed_t){.steps = 10000000, .slots = 256, .smallest = 8 * 1024, .largest = 32 * 1024});
}
