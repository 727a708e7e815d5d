/* unload.c - a library that contains hakmem's archive is closed while the keeper runs: no code of the library may run
 * afterwards.   unload LIBRARY */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static int tasks(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  if (folder == NULL) return 0;
  for (const struct dirent *each; (each = readdir(folder)) != NULL;) count += each->d_name[0] != '.';
  closedir(folder);
  return count;
}

static bool is_mapped(const char *path) {
  static char line[4096];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) found |= strstr(line, path) != NULL;
  if (maps != NULL) fclose(maps);
  return found;
}

static bool is_handled(int number) {
  struct sigaction now;
  return sigaction(number, NULL, &now) == 0 && now.sa_handler != SIG_DFL;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  alarm(120);
  setenv("HAKMEM_CRASH_REPORT", "1", 1);
  setenv("HAKMEM_KEEPER", "2", 1); /* also in a container with a filter, and in the secure library */
  for (int round = 0; round < 3; round++) {
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    void (*use)(void);
    void *found = dlsym(library, "plugin_use");
    memcpy(&use, &found, sizeof use);
    while (tasks() < 2) use();
    CHECK(is_mapped(argv[1]) && is_handled(SIGSEGV) && is_handled(SIGABRT));
    CHECK_EQ(dlclose(library), 0);
    CHECK_EQ(tasks(), 1);
    CHECK(!is_mapped(argv[1]) && !is_handled(SIGSEGV) && !is_handled(SIGABRT));
  }
  return check_failures() != 0;
}
