/* trace.c - a printed stack leads to the code: the bytes at each place in a file are those at the frame's address. */
#include "os/trace.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"

enum { TEXT = 16384, PATH = 4096, CODE = 16 };

static trace_t trace;

/* Stores what trace_print writes to standard error. */
static void print_into(char *text) {
  int kept = dup(STDERR_FILENO), file = memfd_create("stderr", 0);
  dup2(file, STDERR_FILENO);
  trace_print("taken", &trace);
  dup2(kept, STDERR_FILENO);
  ssize_t length = pread(file, text, TEXT - 1, 0);
  text[length > 0 ? length : 0] = '\0';
  close(file), close(kept);
}

static bool is_code_of(const void *address, const char *path, unsigned long offset) {
  unsigned char bytes[CODE];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  bool same = pread(file, bytes, CODE, (off_t)offset) == CODE && memcmp(bytes, address, CODE) == 0;
  close(file);
  return same;
}

TEST(each_frame_is_told_by_file_and_offset) {
  static char text[TEXT];
  trace_prepare();
  CHECK(trace_ready());
  trace_take(&trace);
  CHECK(trace.depth >= 1 && trace.thread == (uint32_t)getpid());
  print_into(text);
  CHECK(strncmp(text, "hakmem: taken by thread ", 24) == 0);
  unsigned frames = 0, here = 0;
  for (char *line = strchr(text, '\n'); line != NULL && line[1] != '\0'; line = strchr(line + 1, '\n')) {
    void *address = NULL;
    char path[PATH];
    unsigned long offset = 0;
    int found = sscanf(line, "\nhakmem:   #%*u %p %4095[^+\n]+%lx", &address, path, &offset);
    CHECK(found >= 1 && address == trace.frame[frames]);
    frames++;
    if (found < 3 || path[0] != '/') continue; /* the kernel's own page, or a frame of no file */
    CHECK(is_code_of(address, path, offset));
    here += strcmp(path, check_self()) == 0;
  }
  CHECK_EQ(frames, trace.depth);
  CHECK(here >= 1);
}
