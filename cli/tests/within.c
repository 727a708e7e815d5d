/* within.c - a program with a hakmem of its own, under its own names alone, beside libc's malloc: within OWN OTHER [wait]. So many blocks of
 * 500 bytes of its own, and of 1000 bytes of malloc's. */
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *kept[1 << 20];
static int count;

__attribute__((noinline)) static void hold_own(int blocks) {
  for (int i = 0; i < blocks; i++) memset(kept[count++] = hak_malloc(500), 1, 500);
}

__attribute__((noinline)) static void hold_other(int blocks) {
  for (int i = 0; i < blocks; i++) memset(kept[count++] = malloc(1000), 1, 1000);
}

int main(int words, char **word) {
  hold_own(atoi(word[1]));
  hold_other(atoi(word[2]));
  puts("ready");
  fflush(stdout);
  if (words > 3) pause();
  return 0;
}
