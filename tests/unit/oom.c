/* oom.c - what happens when the kernel refuses: each call is made to fail once.
 *
 * A scenario is run in a fresh process with the k-th call of the os failing,
 * for k = 1, 2, ... until a run ends without a failure: once with that call
 * alone failing, once with a few in a row, once with all from there on.  During
 * the run: no crash; NULL comes with ENOMEM and only after a failure; success
 * and free keep errno; free never requests memory; blocks keep their content.
 * After the run, with failures off: allocation works, and once all is freed nothing
 * is live and every mapped unit is free again.
 *
 *   unit_oom [-m machine] [-s stride] [filter]      all scenarios whose name contains filter
 *   unit_oom -m machine -p pattern -k number name   one run in this process, for a debugger
 *
 * The library's constructor is not linked in (nothing refers to entry/process.c),
 * so that each run boots by itself and nothing repairs the heap after fork. */
#include "oom.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "front/boot.h"
#include "kit/options.h"

enum { RUN_PASSED = 0, RUN_FAILED = 1, RUN_WITHOUT_FAILURE = 77, RUN_SECONDS = 60, FAILURES_SHOWN = 3, CALLS_MAX = 20000 };

typedef struct machine {
  const char *name;
  uint64_t address_limit;
  size_t page_size;
  int64_t decay_ms;
  os_map_result_t map_at_failure;
} machine_t;

static const machine_t machines[] = {
    {"usual", UINT64_MAX, 0, 1000, OS_NOMEM},
    {"eager", UINT64_MAX, 0, 0, OS_NOMEM}, /* purges immediately: many calls */
    {"limited", (uint64_t)1 << 40, 0, 0, OS_NOMEM},
    {"crowded", (uint64_t)1 << 40, 0, 1000, OS_TAKEN}, /* foreign mappings appear where the heap grows */
    {"pages64k", UINT64_MAX, 65536, 0, OS_NOMEM},
};

typedef struct pattern {
  const char *name;
  unsigned kinds;
  uint64_t count;
} pattern_t;

static const pattern_t patterns[] = {
    {"one", FAKE_ANY, 1},
    {"few", FAKE_ANY, 4},
    {"rest", FAKE_ANY, UINT64_MAX},
    {"memory", FAKE_TAKING, UINT64_MAX}, /* purge and unmap keep working */
};

static const machine_t *machine = machines;
static uint64_t stride = 1;
static uint64_t points, failed_runs;

/* ---- one run ---- */

static int run_once(const scenario_t *scenario, const pattern_t *pattern, uint64_t k) {
  alarm(RUN_SECONDS);
  fake_os_set_address_limit(machine->address_limit);
  fake_os_set_page_size(machine->page_size);
  fake_os_fail_map_at_as(machine->map_at_failure);
  fake_os_capture();
  CHECK(option_set(OPTION_decay_ms, machine->decay_ms) && option_set(OPTION_region_mb, 4096));
  if (scenario->prepare != NULL) scenario->prepare();
  fake_os_fail(pattern->kinds, k, pattern->count);
  boot_finish();
  scenario->run();
  bool injected = fake_os_injected() > 0;
  fake_os_fail_none();
  check_all_works();
  check_nothing_is_lost();
  if (check_failures() > 0) return RUN_FAILED;
  return injected ? RUN_PASSED : RUN_WITHOUT_FAILURE;
}

static int run_apart(const scenario_t *scenario, const pattern_t *pattern, uint64_t k) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(run_once(scenario, pattern, k));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return RUN_FAILED;
  if (WIFEXITED(status) && WEXITSTATUS(status) != RUN_FAILED) return WEXITSTATUS(status);
  printf("\nFAIL, %s; again: -m %s -p %s -k %llu %s\n", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see above", machine->name,
         pattern->name, (unsigned long long)k, scenario->name);
  return RUN_FAILED;
}

/* ---- all runs ---- */

static uint64_t run_pattern(const scenario_t *scenario, const pattern_t *pattern) {
  uint64_t done = 0, failed = 0;
  for (uint64_t k = 1; k < CALLS_MAX && failed < FAILURES_SHOWN; k += stride, done++) {
    int result = run_apart(scenario, pattern, k);
    if (result == RUN_WITHOUT_FAILURE) break;
    failed += result != RUN_PASSED;
  }
  failed_runs += failed;
  return done;
}

static void run_scenario(const scenario_t *scenario) {
  printf("%-9s %-12s", machine->name, scenario->name);
  for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
    uint64_t done = run_pattern(scenario, &patterns[i]);
    printf(" %s %llu", patterns[i].name, (unsigned long long)done);
    points += done;
    failed_runs += done == 0; /* the scenario made no call that could fail, so nothing was tested */
  }
  printf("\n");
}

/* ---- arguments ---- */

static const machine_t *machine_named(const char *name) {
  for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
    if (strcmp(machines[i].name, name) == 0) return &machines[i];
  }
  return NULL;
}

static const pattern_t *pattern_named(const char *name) {
  for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
    if (strcmp(patterns[i].name, name) == 0) return &patterns[i];
  }
  return NULL;
}

static int run_named(const char *name, const pattern_t *pattern, uint64_t k) {
  for (const scenario_t *scenario = scenarios; scenario->name != NULL; scenario++) {
    if (strcmp(scenario->name, name) != 0) continue;
    int result = run_once(scenario, pattern, k);
    printf("%s\n", result == RUN_PASSED ? "passed" : result == RUN_FAILED ? "failed" : "no such call");
    return result;
  }
  return 2;
}

int main(int argc, char **argv) {
  const pattern_t *pattern = &patterns[0];
  uint64_t k = 0;
  for (int option; (option = getopt(argc, argv, "m:s:p:k:")) != -1;) {
    if (option == 'm') machine = machine_named(optarg);
    else if (option == 's') stride = strtoull(optarg, NULL, 10);
    else if (option == 'p') pattern = pattern_named(optarg);
    else if (option == 'k') k = strtoull(optarg, NULL, 10);
    else return 2;
  }
  if (machine == NULL || pattern == NULL || stride == 0) return 2;
  const char *filter = optind < argc ? argv[optind] : "";
  if (k > 0) return run_named(filter, pattern, k);
  for (const scenario_t *scenario = scenarios; scenario->name != NULL; scenario++) {
    if (strstr(scenario->name, filter) != NULL) run_scenario(scenario);
  }
  printf("%s: %llu injection points, %llu failed\n", machine->name, (unsigned long long)points, (unsigned long long)failed_runs);
  return failed_runs > 0 || points == 0; /* no scenario has this name */
}
