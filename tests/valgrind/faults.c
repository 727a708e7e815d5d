/* faults.c - functions with one wrong use of memory each, for memcheck to report; cases.py has the expected reports.
 *
 *   faults NAME...
 *
 * Stacks are compared by the functions of this file, so each call that takes, drops or resizes a block has its own function. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile int sink;

static void require(int condition) {
  if (!condition) _exit(2);
}

static NOINLINE char *take(size_t size) { return malloc(size); }
static NOINLINE char *take_zeroed(size_t size) { return calloc(1, size); }
static NOINLINE char *take_aligned(size_t align, size_t size) { return aligned_alloc(align, size); }
static NOINLINE char *resize(char *block, size_t size) { return realloc(block, size); }
static NOINLINE void drop(char *block) { free(block); }

static void *drop_there(void *block) {
  drop(block);
  return NULL;
}

static void in_thread(void *(*run)(void *), void *argument) {
  pthread_t thread;
  require(pthread_create(&thread, NULL, run, argument) == 0 && pthread_join(thread, NULL) == 0);
}

/* ---- After free ---- */

static void read_after_free(void) {
  char *block = take(40);
  drop(block);
  sink = block[8];
}

static void write_after_free(void) {
  char *block = take(4000);
  drop(block);
  block[3999] = 1;
}

static void write_after_free_of_large(void) {
  char *block = take(100000);
  drop(block);
  block[5000] = 1;
}

static void read_after_free_elsewhere(void) {
  char *block = take(88);
  in_thread(drop_there, block);
  sink = block[8];
}

static void read_after_move(void) {
  char *block = take(120);
  char *moved = resize(block, 4000);
  require(moved != block);
  sink = block[0];
  drop(moved);
}

/* Another block of the class lies right behind the first, and is free. */
static void write_into_free_neighbour(void) {
  char *blocks[64], *first = NULL, *second = NULL;
  for (int i = 0; i < 64; i++) blocks[i] = take(40);
  for (int i = 0; i < 64; i++)
    for (int j = 0; j < 64; j++)
      if (blocks[j] - blocks[i] == 64) first = blocks[i], second = blocks[j];
  require(first != NULL);
  drop(second);
  first[64 + 3] = 1;
  for (int i = 0; i < 64; i++)
    if (blocks[i] != second) drop(blocks[i]);
}

/* ---- What was never written ---- */

static void branch_on_new(void) {
  char *block = take(40);
  memset(block, 0, 39);
  if (block[39] == 1) sink = 1;
  drop(block);
}

static void branch_on_new_large(void) {
  char *block = take(300000);
  if (block[200000] == 1) sink = 1;
  drop(block);
}

static void branch_on_new_aligned(void) {
  char *block = take_aligned(4096, 100);
  if (block[99] == 1) sink = 1;
  drop(block);
}

/* What the last user of a block wrote does not count as written. */
static void branch_on_reused(void) {
  enum { MOST = 20000 };
  static char *blocks[MOST];
  size_t count = 0;
  char *first = take(72);
  memset(first, 7, 72);
  drop(first);
  do {
    blocks[count] = take(72);
  } while (blocks[count++] != first && count < MOST);
  require(blocks[count - 1] == first);
  if (first[0] == 1) sink = 1;
  while (count > 0) drop(blocks[--count]);
}

static void branch_on_reused_large(void) {
  char *first = take(300000);
  memset(first, 7, 300000);
  drop(first);
  char *block = take(300000);
  require(block == first);
  if (block[70000] == 1) sink = 1;
  drop(block);
}

static void branch_on_grown(void) {
  char *block = take(40);
  memset(block, 0, 40);
  require(resize(block, 48) == block);
  if (block[44] == 1) sink = 1;
  drop(block);
}

/* ---- Beside a block ---- */

static void write_past_end(void) {
  char *block = take(40);
  block[40] = 1;
  drop(block);
}

/* The size is exactly that of a class. */
static void write_past_whole_class(void) {
  char *block = take(48);
  block[48] = 1;
  drop(block);
}

static void read_past_zeroed(void) {
  char *block = take_zeroed(45);
  sink = block[45];
  drop(block);
}

static void read_before_start(void) {
  char *block = take(40);
  sink = block[-1];
  drop(block);
}

static void write_past_large(void) {
  char *block = take(100000);
  block[100000] = 1;
  drop(block);
}

static void write_past_pages(void) {
  char *block = take(1 << 20);
  block[1 << 20] = 1;
  drop(block);
}

static void write_past_aligned(void) {
  char *block = take_aligned(256, 300);
  block[300] = 1;
  drop(block);
}

static void write_past_shrunk(void) {
  char *block = take(48);
  require(resize(block, 44) == block);
  block[44] = 1;
  drop(block);
}

static void write_past_grown(void) {
  char *block = take(40);
  require(resize(block, 44) == block);
  block[44] = 1;
  drop(block);
}

static void write_past_moved(void) {
  char *block = resize(take(40), 4000);
  block[4000] = 1;
  drop(block);
}

/* Into the place of the next block, which was never handed out. */
static void write_far_past_end(void) {
  char *block = take(7000);
  block[9000] = 1;
  drop(block);
}

static void write_past_usable(void) {
  char *block = take(41);
  block[malloc_usable_size(block)] = 1;
  drop(block);
}

/* ---- Leaks ---- */

static void leak(void) { memset(take(56), 1, 56); }
static void leak_zeroed(void) { (void)take_zeroed(1000); }
static void leak_aligned(void) { (void)take_aligned(4096, 5000); }
static void leak_large(void) { (void)take(200000); }
static void leak_moved(void) { (void)resize(take(40), 3000); }
static void leak_grown(void) { (void)resize(take(90), 92); }

static void *leak_there(void *unused) {
  (void)take(24);
  return unused;
}
static void leak_in_thread(void) { in_thread(leak_there, NULL); }

/* ---- What ends the process ---- */

static void free_twice(void) {
  char *block = take(40);
  drop(block);
  drop(block);
}

static void free_large_twice(void) {
  char *block = take(100000);
  drop(block);
  drop(block);
}

static void free_inside(void) {
  static char *volatile block; /* static, so that the block is not lost */
  block = take(200);
  drop(block + 16);
}

static void free_local(void) {
  char local[64] = "";
  drop(local);
}

static void realloc_freed(void) {
  char *block = take(40);
  drop(block);
  (void)resize(block, 400);
}

/* ---- By name ---- */

typedef struct fault {
  const char *name;
  void (*run)(void);
} fault_t;
#define FAULT(name) {#name, name}
static const fault_t faults[] = {
    FAULT(read_after_free),
    FAULT(write_after_free),
    FAULT(write_after_free_of_large),
    FAULT(read_after_free_elsewhere),
    FAULT(read_after_move),
    FAULT(write_into_free_neighbour),
    FAULT(branch_on_new),
    FAULT(branch_on_new_large),
    FAULT(branch_on_new_aligned),
    FAULT(branch_on_reused),
    FAULT(branch_on_reused_large),
    FAULT(branch_on_grown),
    FAULT(write_past_end),
    FAULT(write_past_whole_class),
    FAULT(read_past_zeroed),
    FAULT(read_before_start),
    FAULT(write_past_large),
    FAULT(write_past_pages),
    FAULT(write_past_aligned),
    FAULT(write_past_shrunk),
    FAULT(write_past_grown),
    FAULT(write_past_moved),
    FAULT(write_past_usable),
    FAULT(write_far_past_end),
    FAULT(leak),
    FAULT(leak_zeroed),
    FAULT(leak_aligned),
    FAULT(leak_large),
    FAULT(leak_moved),
    FAULT(leak_grown),
    FAULT(leak_in_thread),
    FAULT(free_twice),
    FAULT(free_large_twice),
    FAULT(free_inside),
    FAULT(free_local),
    FAULT(realloc_freed),
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

/* Clears the stack, so that no pointer to a leaked block is left on it. */
static NOINLINE void sweep_stack(void) {
  volatile char room[16384];
  for (size_t i = 0; i < sizeof room; i++) room[i] = 0;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    int found = 0;
    for (int j = 0; j < FAULTS; j++)
      if (strcmp(faults[j].name, argv[i]) == 0) faults[j].run(), found = 1;
    if (!found) return fprintf(stderr, "faults: no fault is called %s\n", argv[i]), 2;
    sweep_stack();
  }
  return 0;
}
