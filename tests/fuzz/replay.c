/* replay.c - runs a target without libFuzzer.
 *
 *   fuzz_NAME FOLDER...   each input in a separate process; a file is one input, or a .hex file has one on each line
 *   fuzz_NAME FILE        one input in this process, for a debugger or afl-fuzz */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

enum { INPUT_MOST = 65536, PACK_MOST = 1 << 20 };

static unsigned done, failed;

/* Reads a file, or as much of it as there is room for. Returns the number of bytes. */
static size_t read_file(const char *path, void *bytes, size_t most) {
  FILE *file = fopen(path, "rb");
  size_t size = file != NULL ? fread(bytes, 1, most, file) : 0;
  if (file != NULL) fclose(file);
  return size;
}

static bool run_here(const char *path) {
  static uint8_t input[INPUT_MOST];
  if (access(path, R_OK) != 0) return false;
  fuzz_run(input, read_file(path, input, sizeof input));
  return true;
}

static void judge(pid_t child, const char *name) {
  int status = 1;
  if (child > 0) (void)waitpid(child, &status, 0);
  done++;
  if (status == 0) return;
  failed++;
  printf("FAIL %s: %s\n", name, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see above");
}

static void run_apart(const char *path) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) exit(run_here(path) ? 0 : 1);
  judge(child, path);
}

static int digit(char c) {
  static const char digits[] = "0123456789abcdef";
  const char *at = c != '\0' ? strchr(digits, c) : NULL;
  return at != NULL ? (int)(at - digits) : -1;
}

/* Runs the input that a line holds in hex. Returns false if the line is anything else. */
static bool run_line(const char *line, size_t length) {
  static uint8_t input[INPUT_MOST];
  if (length == 0 || length % 2 != 0 || length / 2 > sizeof input) return false;
  for (size_t i = 0; i < length; i += 2) {
    int high = digit(line[i]), low = digit(line[i + 1]);
    if (high < 0 || low < 0) return false;
    input[i / 2] = (uint8_t)(high << 4 | low);
  }
  fuzz_run(input, length / 2);
  return true;
}

/* The file is read and closed before the first fork, as a child could move its offset. */
static void run_pack(const char *path) {
  static char pack[PACK_MOST];
  const char *end = pack + read_file(path, pack, sizeof pack), *next;
  unsigned number = 1;
  for (const char *line = pack; line < end; line = next + 1, number++) {
    next = memchr(line, '\n', (size_t)(end - line));
    if (next == NULL) next = end;
    char name[4200];
    snprintf(name, sizeof name, "%s:%u", path, number);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) exit(next < end && run_line(line, (size_t)(next - line)) ? 0 : 1);
    judge(child, name);
  }
}

static void run_folder(const char *path) {
  struct dirent **entries;
  int count = scandir(path, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    char file[4096];
    snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
    struct stat facts;
    const char *end = strrchr(entries[i]->d_name, '.');
    bool packed = end != NULL && strcmp(end, ".hex") == 0;
    if (stat(file, &facts) == 0 && S_ISREG(facts.st_mode)) packed ? run_pack(file) : run_apart(file);
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
