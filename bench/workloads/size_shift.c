/* size_shift.c - fragmentation: memory is filled with blocks of one size, nine of ten are freed at
 * random, and the freed bytes are filled with the next size.  The remaining blocks live to the end of the round. */
#include "workload.h"

/* A block that stays. */
typedef struct block {
  uint32_t tag;
  uint32_t size;
  struct block *next;
} block_t;

/* Each is larger than the last by a half or a third. */
static const uint32_t sizes[] = {32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096};
enum { SIZES = sizeof sizes / sizeof *sizes, STAYING = 10, STAYS = 0x59415453 };

typedef struct memory {
  uint64_t state;
  uint64_t bytes; /* to fill */
  uint64_t used;
  uint64_t allocated; /* blocks, in all */
  block_t **fresh;
  block_t *staying;
} memory_t;

static uint32_t memory_fill(memory_t *memory, uint32_t size) {
  uint32_t count = 0;
  for (; memory->used + size <= memory->bytes; memory->used += size, count++) memory->fresh[count] = workload_block(size, count);
  memory->allocated += count;
  return count;
}

static void memory_thin(memory_t *memory, uint32_t size, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    block_t *block = memory->fresh[i];
    if (workload_below(&memory->state, STAYING) == 0) {
      workload_check(block, i);
      *block = (block_t){.tag = STAYS, .size = size, .next = memory->staying};
      memory->staying = block;
    } else {
      memory->used -= size;
      free(block);
    }
  }
}

static void memory_empty(memory_t *memory) {
  while (memory->staying != NULL) {
    block_t *block = memory->staying;
    workload_check(block, STAYS);
    memory->staying = block->next;
    memory->used -= block->size;
    free(block);
  }
}

int main(int argc, char **argv) {
  enum { MEBIBYTES, ROUNDS, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {{"mebibytes", 64, 1, 16384}, WORKLOAD_COUNT("rounds", 1), WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  memory_t memory = {.state = workload_seed(arguments[SEED].value, 0), .bytes = arguments[MEBIBYTES].value << 20};
  memory.fresh = workload_table(memory.bytes / sizes[0], sizeof(block_t *));
  double begin = workload_seconds();
  for (uint64_t round = 0; round < arguments[ROUNDS].value; round++) {
    for (uint32_t i = 0; i < SIZES; i++) {
      uint32_t count = memory_fill(&memory, sizes[i]);
      memory_thin(&memory, sizes[i], count);
    }
    memory_empty(&memory);
  }
  workload_report("size_shift", 2 * memory.allocated, workload_seconds() - begin);
  free(memory.fresh);
  return 0;
}
