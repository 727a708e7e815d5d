/* death.c - one misuse for each case: it must end the process with one line on
 * standard error that names the fault, the function, the pointer and the class.
 *
 *   hakmem: <fault>: <function>(<pointer>): <detail>
 *
 * Each case runs in a process of its own; it prints on its standard output
 * the pointer that it is about to misuse and the size of the block, so that the
 * line is compared with what really happened.
 *
 *   death [-l] [filter]      run the cases whose names contain `filter`
 *   death -x NAME SIZE       misuse in this process, for a debugger
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <hakmem/hakmem.h>

#include <pthread.h>
#include <regex.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "expect.h"

enum { NEIGHBOURS = 64, MANY = 4000 };

/* The class that the line must name depends on where the block is when it is misused. */
typedef enum block_class {
  CLASS_OF_SIZE, /* "class N", or "class large" */
  CLASS_MAYBE,   /* a freed span: "class large" as long as that is known, otherwise nothing */
  CLASS_NONE     /* no block, no class */
} block_class_t;

typedef enum outcome { DIES, DIES_OR_RETURNS } outcome_t;

typedef struct misuse {
  const char *name;
  void (*run)(size_t size);
  const char *faults;   /* an extended regular expression */
  const char *function; /* as in the line, without the prefix hak_ */
  block_class_t class;
  outcome_t outcome;
  size_t smallest, largest; /* the range of sizes for which it makes sense */
} misuse_t;

/* ---- In the misusing process ---- */

/* Reports to the parent the pointer, and the block size if there is a block. */
static void *announce(void *pointer, size_t usable) {
  char line[64];
  int length = snprintf(line, sizeof line, "%p %zu\n", pointer, usable);
  if (write(STDOUT_FILENO, line, (size_t)length) != length) _exit(2);
  return pointer;
}

static void *neighbours[NEIGHBOURS], *many[MANY];

/* A block among others of its size, so that its slab stays in use. */
static char *new_block(size_t size) {
  char *block = NULL;
  size_t count = size > LARGEST_SLAB_BLOCK ? 2 : NEIGHBOURS;
  for (size_t i = 0; i < count; i++) {
    neighbours[i] = hak_malloc(size);
    if (i == count / 2) block = hak_malloc(size);
  }
  if (!block) _exit(2);
  memset(block, 1, size);
  return announce(block, hak_malloc_usable_size(block));
}

/* A thread that frees one block.  It is started before the block exists: what
 * pthread_create allocates could otherwise reuse the block. */
typedef struct helper {
  pthread_t thread;
  sem_t ready;
  void *block;
} helper_t;

static void *free_when_ready(void *argument) {
  helper_t *helper = argument;
  while (sem_wait(&helper->ready) != 0) continue;
  hak_free(helper->block);
  return NULL;
}

static void start_helper(helper_t *helper) {
  if (sem_init(&helper->ready, 0, 0) != 0 || pthread_create(&helper->thread, NULL, free_when_ready, helper) != 0) _exit(2);
}

static void free_by_helper(helper_t *helper, void *block) {
  helper->block = block;
  sem_post(&helper->ready);
  pthread_join(helper->thread, NULL);
}

static void touch(void *block) { memset(block, 1, 1); }

static void double_free_at_once(size_t size) {
  void *block = new_block(size);
  hak_free(block);
  hak_free(hide(block));
}

static void double_free_after_others(size_t size) {
  void *first = hak_malloc(size), *block = new_block(size), *last = hak_malloc(size);
  hak_free(first);
  hak_free(block);
  hak_free(last);
  hak_free(hide(block));
}

/* So many other blocks are freed that every cache must give blocks back. */
static void double_free_after_a_flush(size_t size) {
  size_t count = size <= 4096 ? MANY : size <= LARGEST_SLAB_BLOCK ? 300 : 10;
  char *block = new_block(size);
  for (size_t i = 0; i < count; i++) many[i] = hak_malloc(size);
  hak_free(block);
  for (size_t i = 0; i < count; i++) hak_free(many[i]);
  hak_free(hide(block));
}

static void double_free_after_collect(size_t size) {
  void *block = new_block(size);
  hak_free(block);
  hak_collect(true);
  hak_free(hide(block));
}

static void double_free_in_another_thread(size_t size) {
  helper_t helper;
  start_helper(&helper);
  void *block = new_block(size);
  hak_free(block);
  free_by_helper(&helper, block);
}

static void double_free_of_a_remotely_freed_block(size_t size) {
  helper_t helper;
  start_helper(&helper);
  void *block = new_block(size);
  free_by_helper(&helper, block);
  hak_free(hide(block));
}

static void double_free_in_two_other_threads(size_t size) {
  helper_t first, second;
  start_helper(&first), start_helper(&second);
  void *block = new_block(size);
  free_by_helper(&first, block);
  free_by_helper(&second, block);
}

static void double_free_by_free_sized(size_t size) {
  void *block = new_block(size);
  hak_free(block);
  hak_free_sized(hide(block), size);
}

static void double_free_by_batch(size_t size) {
  void *block = new_block(size);
  void *blocks[] = {block, hide(block)};
  hak_free_batch(blocks, 2);
}

static void double_free_of_an_aligned_block(size_t size) {
  char *block = hak_aligned_alloc(4096, size);
  char *other = hak_aligned_alloc(4096, size);
  announce(block, hak_malloc_usable_size(block));
  hak_free(block);
  hak_free(hide(block));
  hak_free(other);
}

static void realloc_of_a_freed_block(size_t size) {
  void *block = new_block(size);
  hak_free(block);
  touch(hak_realloc(hide(block), size + size / 2));
}

static void recallocarray_of_a_freed_block(size_t size) {
  void *block = new_block(size);
  hak_free(block);
  touch(hak_recallocarray(hide(block), size, size + size / 2, 1));
}

static void realloc_of_a_freed_block_in_place(size_t size) {
  void *block = new_block(size);
  hak_free(block);
  touch(hak_realloc(hide(block), size));
}

static void realloc_to_0_of_a_freed_block(size_t size) {
  void *block = new_block(size);
  hak_free(block);
  if (hak_realloc(hide(block), 0)) _exit(2);
}

static void realloc_of_an_interior_pointer(size_t size) {
  char *block = new_block(size);
  size_t inside = hak_malloc_usable_size(block) / 2 & ~(size_t)15;
  touch(hak_realloc(announce(block + inside, hak_malloc_usable_size(block)), size * 2));
}

static void realloc_of_the_stack(size_t size) {
  char content[64];
  touch(hak_realloc(announce(hide(content), 0), size));
}

static void realloc_of_a_low_address(size_t size) { touch(hak_realloc(announce((void *)(uintptr_t)0x10, 0), size)); }

static void expand_of_a_freed_block(size_t size) {
  void *block = new_block(size);
  hak_free(block);
  if (hak_expand(hide(block), size)) _exit(2);
}

static void free_of_an_interior_pointer(size_t size) {
  char *block = new_block(size);
  size_t usable = hak_malloc_usable_size(block);
  hak_free(hide(announce(block + (usable / 2 & ~(size_t)15), usable)));
}

static void free_of_a_pointer_16_bytes_in(size_t size) {
  char *block = new_block(size);
  hak_free(hide(announce(block + 16, hak_malloc_usable_size(block))));
}

static void free_of_a_page_inside(size_t size) {
  char *block = new_block(size);
  hak_free(hide(announce(block + 65536, hak_malloc_usable_size(block))));
}

static void free_of_a_pointer_1_byte_in(size_t size) {
  char *block = new_block(size);
  hak_free(hide(announce(block + 1, hak_malloc_usable_size(block))));
}

static void free_of_a_pointer_8_bytes_in(size_t size) {
  char *block = new_block(size);
  hak_free(hide(announce(block + 8, hak_malloc_usable_size(block))));
}

static void free_sized_of_an_interior_pointer(size_t size) {
  char *block = new_block(size);
  size_t usable = hak_malloc_usable_size(block);
  hak_free_sized(hide(announce(block + (usable / 2 & ~(size_t)15), usable)), size);
}

static void free_of_the_stack(size_t size) {
  char content[64];
  (void)size;
  hak_free(announce(hide(content), 0));
}

static void free_of_a_global(size_t size) {
  _Alignas(16) static char content[64];
  (void)size;
  hak_free(announce(hide(content), 0));
}

static void free_of_a_constant(size_t size) {
  _Alignas(16) static const char content[] = "a constant that is not from any heap";
  (void)size;
  hak_free(announce((void *)(uintptr_t)content, 0));
}

static void free_of_mapped_memory(size_t size) {
  void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  hak_free(announce(mapped, 0));
}

static void free_of_unmapped_memory(size_t size) {
  void *mapped = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(mapped, size);
  hak_free(announce(mapped, 0));
}

static void free_of_a_function(size_t size) { hak_free(announce((void *)((uintptr_t)&free_of_a_function & ~(uintptr_t)15), 0 * size)); }

static void free_of_address(uintptr_t address) { hak_free(announce((void *)address, 0)); }
static void free_of_1(size_t size) { free_of_address(1 + 0 * size); }
static void free_of_a_low_address(size_t size) { free_of_address(0x10 + 0 * size); }
static void free_of_the_first_page(size_t size) { free_of_address(0x1000 + 0 * size); }
static void free_of_a_non_canonical_address(size_t size) { free_of_address(((uintptr_t)0x5a5a << 48 | 0x1230) + 0 * size); }
static void free_of_a_kernel_address(size_t size) { free_of_address(((uintptr_t)0xffff8880 << 32 | 0x1000) + 0 * size); }
static void free_of_the_highest_address(size_t size) { free_of_address(~(uintptr_t)15 + 0 * size); }

/* Addresses in hakmem's own range that it has never handed out. */
static void free_beyond_what_was_used(size_t size) {
  char *block = new_block(size);
  hak_free(hide(announce((char *)((uintptr_t)block & ~(uintptr_t)15) + ((size_t)1 << 30), 0)));
}

static void free_of_a_block_never_allocated(size_t size) {
  uintptr_t highest = 0;
  for (int i = 0; i < 16; i++) {
    void *block = hak_malloc(size);
    if ((uintptr_t)block > highest) highest = (uintptr_t)block;
  }
  size_t usable = hak_malloc_good_size(size);
  hak_free(hide(announce((char *)highest + 4 * usable, usable)));
}

static void free_sized_of_twice_the_size(size_t size) { hak_free_sized(new_block(size), size * 2 + 1); }
static void free_sized_of_a_huge_size(size_t size) { hak_free_sized(new_block(size), SIZE_MAX); }
static void free_sized_of_one_more(size_t size) {
  char *block = new_block(size);
  hak_free_sized(block, hak_malloc_usable_size(block) + 1);
}
static void sdallocx_of_twice_the_size(size_t size) { hak_sdallocx(new_block(size), size * 2 + 1, 0); }
static void free_aligned_sized_of_twice_the_size(size_t size) {
  char *block = hak_aligned_alloc(64, size);
  size_t usable = hak_malloc_usable_size(block), least = (size + CANARY + 63) & ~(size_t)63;
  announce(block, size + CANARY > LARGEST_SLAB_BLOCK ? usable : class_bytes(least) - CANARY);
  hak_free_aligned_sized(block, 64, size * 2 + 64);
}

/* malloc_usable_size returns 0, or ends the process in the secure library, and never touches the address. */
static void want_0(void *pointer) {
  if (hak_malloc_usable_size(announce(pointer, 0)) != 0) _exit(3);
}
static void usable_size_of_a_freed_block(size_t size) {
  void *block = new_block(size);
  hak_free(block);
  want_0(block);
}
static void usable_size_of_an_interior_pointer(size_t size) { want_0(new_block(size) + 8); }
static void usable_size_of_the_stack(size_t size) {
  char content[64];
  want_0((char *)hide(content) + 0 * size);
}
static void usable_size_of_a_low_address(size_t size) { want_0((void *)(uintptr_t)(0x10 + 0 * size)); }
static void usable_size_of_a_non_canonical_address(size_t size) { want_0((void *)(((uintptr_t)0x5a5a << 48 | 0x1230) + 0 * size)); }
static void usable_size_of_a_kernel_address(size_t size) { want_0((void *)(((uintptr_t)0xffff8880 << 32 | 0x1000) + 0 * size)); }

/* What a program writes into a freed block must never be returned as an address. */
static void overwritten_link(size_t size) {
  _Alignas(64) static char target[1 << 16];
  char *blocks[8];
  for (int i = 0; i < 8; i++) blocks[i] = new_block(size);
  for (int i = 0; i < 8; i++) hak_free(blocks[i]);
  for (int i = 0; i < 8; i++)
    for (size_t at = 0; at + sizeof(void *) <= size && at < 64; at += sizeof(void *))
      memcpy(blocks[i] + at, &(void *){target + 4096}, sizeof(void *));
  for (int i = 0; i < 3000; i++) {
    char *block = hak_malloc(size);
    if (block >= target && block < target + sizeof target) _exit(3);
    if (size > LARGEST_SLAB_BLOCK && i > 20) break;
  }
}

#ifdef EXPECT_SECURE

/* Changes the byte behind the usable size; the report names the call that frees the block. */
static char *overflown_block(size_t size) {
  char *block = new_block(size);
  ((char *)hide(block))[hak_malloc_usable_size(block)] ^= 1;
  return block;
}

static void overflow_found_by_free(size_t size) { hak_free(overflown_block(size)); }
static void overflow_found_by_realloc(size_t size) { touch(hak_realloc(overflown_block(size), size * 3)); }

static void overflow_found_by_another_thread(size_t size) {
  helper_t helper;
  start_helper(&helper);
  free_by_helper(&helper, overflown_block(size));
}

static void overflow_found_at_exit(size_t size) { (void)overflown_block(size); }

static void overflow_found_at_exit_after_a_thread(size_t size) {
  helper_t helper;
  start_helper(&helper);
  free_by_helper(&helper, hak_malloc(size));
  (void)overflown_block(size);
}

/* Frees so many other blocks that none needs to wait, and takes all that is free. */
static void reuse_all(size_t size) {
  size_t count = size <= 200 ? MANY : 300;
  for (size_t i = 0; i < NEIGHBOURS; i++) hak_free(neighbours[i]);
  for (size_t i = 0; i < count; i++) many[i] = hak_malloc(size);
}

static void write_after_free(size_t size, size_t at) {
  char *block = new_block(size);
  hak_free(block);
  ((char *)hide(block))[at] = 1;
  reuse_all(size);
}

static void write_to_the_first_byte_after_free(size_t size) { write_after_free(size, 0); }
static void write_to_the_last_byte_after_free(size_t size) { write_after_free(size, size - 1); }
static void free_sized_of_another_class(size_t size) { hak_free_sized(new_block(size), size / 2); }
static void sdallocx_of_another_class(size_t size) { hak_sdallocx(new_block(size), size / 2, 0); }

#endif

/* ---- The table ---- */

#define FREED "double free"
#define FREED_SPAN "double free|foreign pointer"
#define SLAB 16, LARGEST_SLAB_BLOCK
#define SPAN LARGEST_SLAB_BLOCK + 1, SIZE_MAX
#define ONCE 200, 200
#define EVERY 16, SIZE_MAX
#ifdef EXPECT_SECURE
#define DIES_IF_SECURE DIES
#else
#define DIES_IF_SECURE DIES_OR_RETURNS
#endif

static const misuse_t table[] = {
    {"double_free_at_once", double_free_at_once, FREED, "free", CLASS_OF_SIZE, DIES, SLAB},
    {"double_free_at_once_of_a_span", double_free_at_once, FREED_SPAN, "free", CLASS_MAYBE, DIES, SPAN},
    {"double_free_after_others", double_free_after_others, FREED, "free", CLASS_OF_SIZE, DIES, SLAB},
    {"double_free_after_others_of_a_span", double_free_after_others, FREED_SPAN, "free", CLASS_MAYBE, DIES, SPAN},
    {"double_free_after_a_flush", double_free_after_a_flush, FREED, "free", CLASS_OF_SIZE, DIES, SLAB},
    {"double_free_after_a_flush_of_a_span", double_free_after_a_flush, FREED_SPAN, "free", CLASS_MAYBE, DIES, SPAN},
    {"double_free_after_collect", double_free_after_collect, FREED, "free", CLASS_OF_SIZE, DIES, SLAB},
    {"double_free_after_collect_of_a_span", double_free_after_collect, FREED_SPAN, "free", CLASS_MAYBE, DIES, SPAN},
    {"double_free_in_another_thread", double_free_in_another_thread, FREED, "free", CLASS_OF_SIZE, DIES, SLAB},
    {"double_free_in_another_thread_of_a_span", double_free_in_another_thread, FREED_SPAN, "free", CLASS_MAYBE, DIES, SPAN},
    {"double_free_of_a_remotely_freed_block", double_free_of_a_remotely_freed_block, FREED, "free", CLASS_OF_SIZE, DIES, SLAB},
    {"double_free_of_a_remotely_freed_span", double_free_of_a_remotely_freed_block, FREED_SPAN, "free", CLASS_MAYBE, DIES, SPAN},
    {"double_free_in_two_other_threads", double_free_in_two_other_threads, FREED, "free", CLASS_OF_SIZE, DIES, SLAB},
    {"double_free_in_two_other_threads_of_a_span", double_free_in_two_other_threads, FREED_SPAN, "free", CLASS_MAYBE, DIES, SPAN},
    {"double_free_by_free_sized", double_free_by_free_sized, FREED, "free_sized", CLASS_OF_SIZE, DIES, SLAB},
    {"double_free_by_free_sized_of_a_span", double_free_by_free_sized, FREED_SPAN, "free_sized", CLASS_MAYBE, DIES, SPAN},
    {"double_free_by_batch", double_free_by_batch, FREED, "free_batch", CLASS_OF_SIZE, DIES, SLAB},
    {"double_free_by_batch_of_a_span", double_free_by_batch, FREED_SPAN, "free_batch", CLASS_MAYBE, DIES, SPAN},
    {"double_free_of_an_aligned_block", double_free_of_an_aligned_block, FREED_SPAN, "free", CLASS_MAYBE, DIES, EVERY},

    {"realloc_of_a_freed_block", realloc_of_a_freed_block, FREED, "realloc", CLASS_OF_SIZE, DIES, SLAB},
    {"recallocarray_of_a_freed_block", recallocarray_of_a_freed_block, FREED, "recallocarray", CLASS_OF_SIZE, DIES, SLAB},
    {"realloc_of_a_freed_span", realloc_of_a_freed_block, FREED_SPAN, "realloc", CLASS_MAYBE, DIES, SPAN},
    {"realloc_of_a_freed_block_in_place", realloc_of_a_freed_block_in_place, FREED, "realloc", CLASS_OF_SIZE, DIES, SLAB},
    {"realloc_of_a_freed_span_in_place", realloc_of_a_freed_block_in_place, FREED_SPAN, "realloc", CLASS_MAYBE, DIES, SPAN},
    {"realloc_to_0_of_a_freed_block", realloc_to_0_of_a_freed_block, FREED, "realloc", CLASS_OF_SIZE, DIES, SLAB},
    {"realloc_to_0_of_a_freed_span", realloc_to_0_of_a_freed_block, FREED_SPAN, "realloc", CLASS_MAYBE, DIES, SPAN},
    {"realloc_of_an_interior_pointer", realloc_of_an_interior_pointer, "interior pointer", "realloc", CLASS_OF_SIZE, DIES, 200, SIZE_MAX},
    {"realloc_of_the_stack", realloc_of_the_stack, "foreign pointer", "realloc", CLASS_NONE, DIES, ONCE},
    {"realloc_of_a_low_address", realloc_of_a_low_address, "foreign pointer", "realloc", CLASS_NONE, DIES, ONCE},
    {"expand_of_a_freed_block", expand_of_a_freed_block, FREED, "expand", CLASS_OF_SIZE, DIES, SLAB},
    {"expand_of_a_freed_span", expand_of_a_freed_block, FREED_SPAN, "expand", CLASS_MAYBE, DIES, SPAN},

    {"free_of_an_interior_pointer", free_of_an_interior_pointer, "interior pointer", "free", CLASS_OF_SIZE, DIES, 200, SIZE_MAX},
    {"free_of_a_pointer_16_bytes_in", free_of_a_pointer_16_bytes_in, "interior pointer", "free", CLASS_OF_SIZE, DIES, 200, SIZE_MAX},
    {"free_of_a_page_inside", free_of_a_page_inside, "interior pointer", "free", CLASS_OF_SIZE, DIES, SPAN},
    {"free_of_a_pointer_1_byte_in", free_of_a_pointer_1_byte_in, "misaligned pointer", "free", CLASS_OF_SIZE, DIES, EVERY},
    {"free_of_a_pointer_8_bytes_in", free_of_a_pointer_8_bytes_in, "misaligned pointer", "free", CLASS_OF_SIZE, DIES, EVERY},
    {"free_sized_of_an_interior_pointer", free_sized_of_an_interior_pointer, "interior pointer", "free_sized", CLASS_OF_SIZE, DIES, 200,
     SIZE_MAX},

    {"free_of_the_stack", free_of_the_stack, "foreign pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_of_a_global", free_of_a_global, "foreign pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_of_a_constant", free_of_a_constant, "foreign pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_of_a_function", free_of_a_function, "foreign pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_of_mapped_memory", free_of_mapped_memory, "foreign pointer", "free", CLASS_NONE, DIES, EVERY},
    {"free_of_unmapped_memory", free_of_unmapped_memory, "foreign pointer", "free", CLASS_NONE, DIES, EVERY},
    {"free_of_1", free_of_1, "foreign pointer|misaligned pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_of_a_low_address", free_of_a_low_address, "foreign pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_of_the_first_page", free_of_the_first_page, "foreign pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_of_a_non_canonical_address", free_of_a_non_canonical_address, "foreign pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_of_a_kernel_address", free_of_a_kernel_address, "foreign pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_of_the_highest_address", free_of_the_highest_address, "foreign pointer", "free", CLASS_NONE, DIES, ONCE},
    {"free_beyond_what_was_used", free_beyond_what_was_used, "foreign pointer", "free", CLASS_NONE, DIES, EVERY},
    {"free_of_a_block_never_allocated", free_of_a_block_never_allocated, "double free|foreign pointer|interior pointer", "free",
     CLASS_MAYBE, DIES, SLAB},

    {"free_sized_of_twice_the_size", free_sized_of_twice_the_size, "size mismatch", "free_sized", CLASS_OF_SIZE, DIES, EVERY},
    {"free_sized_of_a_huge_size", free_sized_of_a_huge_size, "size mismatch", "free_sized", CLASS_OF_SIZE, DIES, EVERY},
    {"free_sized_of_one_more", free_sized_of_one_more, "size mismatch", "free_sized", CLASS_OF_SIZE, DIES, EVERY},
    {"sdallocx_of_twice_the_size", sdallocx_of_twice_the_size, "size mismatch", "sdallocx", CLASS_OF_SIZE, DIES, EVERY},
    {"free_aligned_sized_of_twice_the_size", free_aligned_sized_of_twice_the_size, "size mismatch", "free_aligned_sized", CLASS_OF_SIZE,
     DIES, EVERY},

    {"usable_size_of_a_freed_block", usable_size_of_a_freed_block, FREED_SPAN, "malloc_usable_size", CLASS_MAYBE, DIES_IF_SECURE, EVERY},
    {"usable_size_of_an_interior_pointer", usable_size_of_an_interior_pointer, "misaligned pointer", "malloc_usable_size", CLASS_MAYBE,
     DIES_IF_SECURE, EVERY},
    {"usable_size_of_the_stack", usable_size_of_the_stack, "foreign pointer", "malloc_usable_size", CLASS_NONE, DIES_IF_SECURE, ONCE},
    {"usable_size_of_a_low_address", usable_size_of_a_low_address, "foreign pointer", "malloc_usable_size", CLASS_NONE, DIES_IF_SECURE,
     ONCE},
    {"usable_size_of_a_non_canonical_address", usable_size_of_a_non_canonical_address, "foreign pointer", "malloc_usable_size", CLASS_NONE,
     DIES_IF_SECURE, ONCE},
    {"usable_size_of_a_kernel_address", usable_size_of_a_kernel_address, "foreign pointer", "malloc_usable_size", CLASS_NONE,
     DIES_IF_SECURE, ONCE},

#ifdef EXPECT_SECURE /* a freed large block cannot be written to: crash.c */
    {"overwritten_link", overwritten_link, "use after free", "malloc", CLASS_MAYBE, DIES, SLAB},

    {"overflow_found_by_free", overflow_found_by_free, "overflow", "free", CLASS_OF_SIZE, DIES, SLAB},
    {"overflow_found_by_realloc", overflow_found_by_realloc, "overflow", "realloc", CLASS_OF_SIZE, DIES, SLAB},
    {"overflow_found_by_another_thread", overflow_found_by_another_thread, "overflow", "free", CLASS_OF_SIZE, DIES, SLAB},
    {"overflow_found_at_exit", overflow_found_at_exit, "overflow", "exit", CLASS_OF_SIZE, DIES, SLAB},
    {"overflow_found_at_exit_after_a_thread", overflow_found_at_exit_after_a_thread, "overflow", "exit", CLASS_OF_SIZE, DIES, SLAB},
    {"write_to_the_first_byte_after_free", write_to_the_first_byte_after_free, "use after free", "malloc", CLASS_OF_SIZE, DIES, SLAB},
    {"write_to_the_last_byte_after_free", write_to_the_last_byte_after_free, "use after free", "malloc", CLASS_OF_SIZE, DIES, SLAB},
    {"free_sized_of_another_class", free_sized_of_another_class, "size mismatch", "free_sized", CLASS_OF_SIZE, DIES, 200, SIZE_MAX},
    {"sdallocx_of_another_class", sdallocx_of_another_class, "size mismatch", "sdallocx", CLASS_OF_SIZE, DIES, 200, SIZE_MAX},
#else
    {"overwritten_link", overwritten_link, "[a-z ]+", "malloc", CLASS_MAYBE, DIES_OR_RETURNS, EVERY},
#endif
};

static const size_t block_sizes[] = {16, 200, 4096, 20000, 256 << 10, 4 << 20};

/* ---- In the parent ---- */

/* The regular expression that all of standard error must match. */
static void expected_line(const misuse_t *misuse, const char *announced, char *pattern, size_t room) {
  char pointer[32], class[64];
  size_t usable = 0;
  if (sscanf(announced, "%31s %zu", pointer, &usable) != 2) strcpy(pointer, "nothing was announced");
  if (usable > LARGEST_SLAB_BLOCK) snprintf(class, sizeof class, ".*[^a-z]class large");
  else snprintf(class, sizeof class, ".*[^a-z]class %zu([^0-9].*)?", class_bytes(usable + CANARY));
  const char *detail = misuse->class == CLASS_OF_SIZE ? class : ".+";
  /* the report on overwritten_link may come at any block, in any function */
  bool any = strcmp(misuse->name, "overwritten_link") == 0;
  snprintf(pattern, room, "^hakmem: (%s): (hak_)?%s\\(%s\\): %s$", misuse->faults, any ? "[a-z_]+" : misuse->function,
           any ? "0x[0-9a-f]+" : pointer, detail);
}

/* Whether the text is one complete line that matches. */
static bool matches(char *text, const char *pattern) {
  regex_t compiled;
  char *end = strchr(text, '\n');
  if (!end || end[1]) return false;
  *end = 0;
  bool found = regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) == 0 && regexec(&compiled, text, 0, NULL, 0) == 0;
  regfree(&compiled);
  *end = '\n';
  return found;
}

static const char *last_line(const char *text) {
  const char *line = text;
  for (const char *c = text; *c; c++)
    if (*c == '\n' && c[1]) line = c + 1;
  return line;
}

static bool run(const misuse_t *misuse, size_t size) {
  char number[32], errors[4096], output[4096], pattern[512];
  snprintf(number, sizeof number, "%zu", size);
  char *const argv[] = {(char *)(uintptr_t)check_self(), (char *)(uintptr_t)"-x", (char *)(uintptr_t)misuse->name, number, NULL};
  int status = check_spawn(argv, environ, 20, errors, output, sizeof errors);
  expected_line(misuse, last_line(output), pattern, sizeof pattern);
  bool returned = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (returned && misuse->outcome == DIES_OR_RETURNS && errors[0] == 0) return true;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && matches(errors, pattern)) return true;
  if (WIFSIGNALED(status)) printf("FAIL %s %zu: %s", misuse->name, size, strsignal(WTERMSIG(status)));
  else printf("FAIL %s %zu: exit status %d", misuse->name, size, WEXITSTATUS(status));
  printf("\n  said:     %s%s  expected: %s\n", errors, *errors ? "" : "nothing\n", pattern);
  return false;
}

/* An emulator's own threads count for the kernel, so a process is never alone there. */
static bool is_never_alone(void) {
  struct stat threads;
  return stat("/proc/self/task", &threads) == 0 && threads.st_nlink > 3; /* ".", ".." and the first */
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "-x") == 0) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
      if (strcmp(table[i].name, argv[2]) == 0) table[i].run(strtoul(argv[3], NULL, 10));
    return 0; /* the process survived */
  }
  bool list = argc > 1 && strcmp(argv[1], "-l") == 0;
  const char *filter = argc > 1 && !list ? argv[1] : "";
  int passed = 0, failed = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    for (size_t j = 0; j < sizeof block_sizes / sizeof block_sizes[0]; j++) {
      if (block_sizes[j] < table[i].smallest || block_sizes[j] > table[i].largest) continue;
      if (!strstr(table[i].name, filter)) continue;
      if (list) printf("%s %zu\n", table[i].name, block_sizes[j]);
      else if (strstr(table[i].name, "after_a_thread") && is_never_alone()) printf("skipped: %s: never alone here\n", table[i].name);
      else if (run(&table[i], block_sizes[j])) passed++;
      else failed++;
    }
  if (!list) printf("%d passed, %d failed\n", passed, failed);
  return list ? 0 : failed || !passed;
}
