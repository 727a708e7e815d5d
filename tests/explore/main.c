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
  CHEAP_EVERY = 550, /* up to so many with one preemption, every order follows, as far as EVERY_MOST executions go */
  EVERY_MOST = 4000,
  CHEAP_STALE = 20, /* the same for executions with one stale read */
  CHEAP_BOTH = 100, /* up to so many with one preemption and one stale read, two of each follow */
  UNSET = -1
};

typedef struct settings {
  int bound; /* UNSET: the scenario's own */
  int stale; /* the same */
  bool soak, quiet, twice;
  double limit;
} settings_t;

/* Searches without stale reads. Few preemptions come first, since they make a failure that is easy to read. */
static bool explore_orders(int last, int cheap_after, const search_limit_t *limit) {
  uint64_t executions = 0;
  for (int bound = 0; bound <= (last == EXPLORE_EVERY ? 1 : last) && explore_seconds() < limit->end; bound++) {
    executions = explore_search(bound, 0, limit);
    if (executions == 0) return false;
    if (bound == cheap_after && bound == last && executions <= CHEAP) last++;
  }
  return last != EXPLORE_EVERY || explore_search(EXPLORE_EVERY, 0, limit) != 0;
}

/* In the quick run. */
static bool explore_few(const scenario_t *scenario, const search_limit_t *limit) {
  if (!explore_orders(scenario->quick, scenario->quick, limit)) return false;
  if (scenario->quick == EXPLORE_EVERY || explore_judged() > CHEAP_EVERY) return true;
  const search_limit_t few = {limit->end, EVERY_MOST};
  return explore_search(EXPLORE_EVERY, 0, &few) != 0;
}

static bool explore_stale(bool soak, const search_limit_t *limit) {
  uint64_t executions = explore_search(0, 1, limit);
  if (executions == 0) return false;
  if (!soak && executions > CHEAP_STALE) return true;
  executions = explore_search(1, 1, limit);
  if (executions == 0 || explore_search(0, 2, limit) == 0) return false;
  return executions > CHEAP_BOTH || explore_search(2, 2, limit) != 0;
}

/* Every order with source sets, then by sleep sets alone: both judge each order once. */
static bool explore_twice(const search_limit_t *limit) {
  if (explore_search(EXPLORE_EVERY, 0, limit) == 0) return false;
  uint64_t judged = explore_judged();
  explore_by_sleep_sets();
  if (explore_search(EXPLORE_EVERY, 0, limit) == 0) return false;
  if (judged == explore_judged()) return true;
  printf("  FAILED: %llu and %llu orders\n", (unsigned long long)judged, (unsigned long long)explore_judged());
  return false;
}

static bool explore_all(const scenario_t *scenario, const settings_t *settings) {
  const search_limit_t limit = {explore_seconds() + settings->limit, 0};
  if (settings->twice) return explore_twice(&limit);
  if (settings->stale > 0) return explore_search(settings->bound == UNSET ? 0 : settings->bound, (unsigned)settings->stale, &limit) != 0;
  if (settings->bound != UNSET) return explore_orders(settings->bound, UNSET, &limit);
  if (!settings->soak) return explore_few(scenario, &limit) && explore_stale(false, &limit);
  return explore_orders(scenario->soak, scenario->quick, &limit) && explore_stale(true, &limit);
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
  while ((option = getopt(argc, argv, "b:aAw:sqTt:l")) != -1) {
    if (option == 'b') settings.bound = atoi(optarg);
    else if (option == 'a') settings.bound = EXPLORE_EVERY;
    else if (option == 'A') settings.twice = true;
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
