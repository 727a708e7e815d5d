/* zeroed_tables.c - large tables from calloc in which, as in hash tables, few entries are ever used.
 * Each step replaces a random table; every entry must be zero before its first use. */
#include "workload.h"

static void table_use(uint64_t *entries, uint32_t count, uint32_t uses, uint64_t *state) {
  for (uint32_t i = 0; i < uses; i++) {
    uint64_t *entry = &entries[workload_below(state, count)];
    if (*entry != 0 && *entry != count) workload_fail("calloc gave what is not zero");
    *entry = count;
  }
}

int main(int argc, char **argv) {
  enum { STEPS, TABLES, SMALLEST, LARGEST, SPARSENESS, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {WORKLOAD_STEPS(1000),
                                     WORKLOAD_COUNT("tables", 16),
                                     WORKLOAD_SIZE("smallest", 256 << 10),
                                     WORKLOAD_SIZE("largest", 8 << 20),
                                     WORKLOAD_COUNT("one in how many entries is used", 2048),
                                     WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  uint32_t smallest = (uint32_t)arguments[SMALLEST].value, largest = (uint32_t)arguments[LARGEST].value;
  if (largest < smallest) workload_usage(argv[0], arguments, ARGUMENTS);
  uint32_t tables = (uint32_t)arguments[TABLES].value;
  uint64_t steps = arguments[STEPS].value, state = workload_seed(arguments[SEED].value, 0);
  uint64_t **kept = workload_table(tables, sizeof *kept);
  double begin = workload_seconds();
  for (uint64_t i = 0; i < steps; i++) {
    uint64_t **slot = &kept[workload_below(&state, tables)];
    uint32_t count = workload_between(&state, smallest, largest) / (uint32_t)sizeof **slot;
    free(*slot);
    *slot = workload_table(count, sizeof **slot);
    table_use(*slot, count, 1 + count / (uint32_t)arguments[SPARSENESS].value, &state);
  }
  for (uint32_t i = 0; i < tables; i++) free(kept[i]);
  workload_report("zeroed_tables", 2 * steps, workload_seconds() - begin);
  free(kept);
  return 0;
}
