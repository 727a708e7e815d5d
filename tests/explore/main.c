/* main.c - the command line, and how far each scenario is searched. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "explore.h"
#include "product.h"

enum {
  CHEAP = 250,      /* up to so many executions, a search with one more preemption follows, within a second or so */
  CHEAP_STALE = 20, /* the same for executions with one stale read */
  CHEAP_BOTH = 100, /* up to so many with one preemption and one stale read, two of each follow */
  UNSET = -1
};

typedef struct settings {
  int bound; /* UNSET: the scenario's own */
  int stale; /* the same */
  bool soak, quiet;
  double limit;
} settings_t;

/* Searches without stale reads. Few preemptions come first, since they make a failure that is easy to read. */
static bool explore_orders(int last, int cheap_after, double end) {
  for (int bound = 0; bound <= (last == EXPLORE_EVERY ? 1 : last) && explore_seconds() < end; bound++) {
    uint64_t executions = explore_search(bound, 0, end);
    if (executions == 0) return false;
    if (bound == cheap_after && bound == last && executions <= CHEAP) last++;
  }
  return last != EXPLORE_EVERY || explore_search(EXPLORE_EVERY, 0, end) != 0;
}

static bool explore_stale(bool soak, double end) {
  uint64_t executions = explore_search(0, 1, end);
  if (executions == 0) return false;
  if (!soak && executions > CHEAP_STALE) return true;
  executions = explore_search(1, 1, end);
  if (executions == 0 || explore_search(0, 2, end) == 0) return false;
  return executions > CHEAP_BOTH || explore_search(2, 2, end) != 0;
}

static bool explore_all(const scenario_t *scenario, const settings_t *settings) {
  double end = explore_seconds() + settings->limit;
  if (settings->stale > 0) return explore_search(settings->bound == UNSET ? 0 : settings->bound, (unsigned)settings->stale, end) != 0;
  if (settings->bound != UNSET) return explore_orders(settings->bound, UNSET, end);
  return explore_orders(settings->soak ? scenario->soak : scenario->quick, scenario->quick, end) && explore_stale(settings->soak, end);
}

static bool explore(const scenario_t *scenario, const settings_t *settings) {
  printf("%s\n", scenario->name);
  explore_start(scenario, settings->quiet);
  bool passed = explore_all(scenario, settings);
  if (!passed || !explore_is_missed()) return passed;
  printf("  FAILED: what may be was never seen\n");
  return false;
}

/* In a separate process, so that nothing is left of the scenario before. */
static bool explored(const scenario_t *scenario, const settings_t *settings) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) exit(explore(scenario, settings) ? 0 : 1);
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  if (WIFSIGNALED(status)) printf("  FAILED: signal %d\n", WTERMSIG(status));
  return status == 0;
}

static const scenario_t *scenario_at(size_t i) { return i < scenario_count ? &scenarios[i] : product_cell(i - scenario_count); }

static bool is_wanted(const char *name, char *const *patterns) {
  bool wanted = *patterns == NULL;
  for (; *patterns != NULL; patterns++) wanted |= fnmatch(*patterns, name, 0) == 0;
  return wanted;
}

int main(int argc, char **argv) {
  settings_t settings = {.bound = UNSET, .stale = UNSET, .limit = 1e9};
  bool lists = false;
  int option;
  while ((option = getopt(argc, argv, "b:aw:sqTt:l")) != -1) {
    if (option == 'b') settings.bound = atoi(optarg);
    else if (option == 'a') settings.bound = EXPLORE_EVERY;
    else if (option == 'w') settings.stale = atoi(optarg);
    else if (option == 's') settings.soak = true;
    else if (option == 'q') settings.quiet = true;
    else if (option == 'T') explore_tracked = true;
    else if (option == 't') settings.limit = atof(optarg);
    else if (option == 'l') lists = true;
    else return 2;
  }
  bool passed = true, any = false;
  for (size_t i = 0; i < product_count() + scenario_count; i++) {
    const scenario_t *scenario = scenario_at(i);
    if (!is_wanted(scenario->name, argv + optind)) continue;
    any = true;
    if (lists) puts(scenario->name);
    else passed &= explored(scenario, &settings);
    if (settings.quiet && !passed) break; /* -q ends with the first failure */
  }
  return passed && any ? 0 : 1;
}
