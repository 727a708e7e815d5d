/* replay.c - runs a target without libFuzzer.
 *
 *   fuzz_NAME FOLDER...   each file there in a process of its own
 *   fuzz_NAME FILE        that one here: for a debugger, or afl-fuzz */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

enum { INPUT_MOST = 65536 };

static unsigned done, failed;

static bool run_here(const char *path) {
  static uint8_t input[INPUT_MOST];
  FILE *file = fopen(path, "rb");
  if (file == NULL) return false;
  size_t size = fread(input, 1, sizeof input, file);
  fclose(file);
  fuzz_run(input, size);
  return true;
}

static void run_apart(const char *path) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) exit(run_here(path) ? 0 : 1);
  int status = 1;
  if (child > 0) (void)waitpid(child, &status, 0);
  done++;
  if (status == 0) return;
  failed++;
  printf("FAIL %s: %s\n", path, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see above");
}

static void run_folder(const char *path) {
  struct dirent **entries;
  int count = scandir(path, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    char file[4096];
    snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
    struct stat facts;
    if (stat(file, &facts) == 0 && S_ISREG(facts.st_mode)) run_apart(file);
    free(entries[i]);
  }
  if (count >= 0) free(entries);
}

int main(int argc, char **argv) {
  struct stat facts;
  if (argc == 2 && stat(argv[1], &facts) == 0 && !S_ISDIR(facts.st_mode)) return run_here(argv[1]) ? 0 : 1;
  for (int i = 1; i < argc; i++) run_folder(argv[i]);
  printf("%u inputs, %u failed\n", done, failed);
  return failed > 0 || done == 0;
}
