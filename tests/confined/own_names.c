/* own_names.c - a program that defines names which hakmem's archive defines too: it links, and its own functions are called. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static int calls;

int prctl(int option, ...) {
  (void)option;
  calls++;
  return 11;
}

long syscall(long number, ...) {
  (void)number;
  calls++;
  return 12;
}

/* Using one of hakmem's names (unshare) links all of them into the program. */
int main(void) {
  void *block = malloc(100);
  free(block);
  if (unshare(0) != 0 || block == NULL) return 1;
  return prctl(PR_SET_NO_NEW_PRIVS) == 11 && syscall(0) == 12 && calls == 2 ? 0 : 2;
}
