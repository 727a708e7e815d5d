/* slow_reader.c - a profile with a slow reader, while blocks that are not reported yet are freed and others come to lie there. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <hakmem/hakmem.h>
#include <hakmem/profile.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv) { return check_main(argc, argv); }

enum { TINY = 200000, OTHERS = 100, MOST_BYTES = 1 << 24, PIPE_BYTES = 4096 };

static void *tiny[TINY], *others[2 * OTHERS];
static char text[MOST_BYTES + 1];
static size_t bytes;

static void *write_profile(void *end) {
  bool written = hak_profile_write(*(int *)end);
  close(*(int *)end);
  return written ? end : NULL;
}

/* Returns false at the end. */
static bool read_more(int end) {
  ssize_t count = read(end, text + bytes, bytes < MOST_BYTES ? MOST_BYTES - bytes : 0);
  if (count > 0) bytes += (size_t)count;
  text[bytes] = '\0';
  return count > 0;
}

/* One in four small blocks of every page stays, so that each page is reported. */
static void take_tiny(void) {
  for (int i = 0; i < TINY; i++) CHECK((tiny[i] = hak_malloc(16)) != NULL);
  for (int i = 0; i < TINY; i++) {
    if (i % 4 != 0) hak_free(tiny[i]), tiny[i] = NULL;
  }
}

static void replace_tiny(void) {
  for (int i = 0; i < TINY; i++) hak_free(tiny[i]);
  (void)hak_collect(true);
  for (int i = 0; i < OTHERS; i++) {
    CHECK((others[2 * i] = hak_malloc(65536)) != NULL);
    CHECK((others[2 * i + 1] = hak_calloc(1, 100000)) != NULL);
  }
}

TEST(a_slow_reader_gets_all_of_a_profile) {
  int ends[2];
  pthread_t writer;
  void *written;
  take_tiny();
  CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES) > 0);
  CHECK(pthread_create(&writer, NULL, write_profile, &ends[1]) == 0);
  while (strstr(text, "\ntracked ") == NULL && read_more(ends[0])) continue;
  usleep(200000); /* by then the pipe is mostly full, and the writer waits */
  replace_tiny();
  while (read_more(ends[0])) continue;
  CHECK(pthread_join(writer, &written) == 0 && written != NULL);
  CHECK(strstr(text, "\ntracked ") != NULL && bytes > 4 && strcmp(text + bytes - 4, "end\n") == 0);
}
