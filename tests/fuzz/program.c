/* program.c - a program of up to four threads that makes every call of the API, against its shadow.
 *
 * For each call: NULL comes with ENOMEM, and only if memory may be exhausted; nothing else changes errno; a block is aligned,
 * large enough, overlaps no other, and is zero where that is promised; its content stays while it is held and when it is moved.
 * At any time, the statistics and the map of live blocks agree with the shadow.  At the end nothing is lost. */
#include <errno.h>
#include <string.h>

#include "entry/entry.h"
#include "fake_os.h"
#include "front/secure.h"
#include "fuzz.h"
#include "hakmem/hakmem.h"
#include "kit/options.h"
#include "library.h"
#include "shadow.h"
#include "slab/class.h"
#include "slab/slots.h"

#define ERRNO_MARK 4242
#define HELD_MOST ((size_t)12 << 20)

static bool guards;
static uint64_t injected_before;

/* --- numbers ----------------------------------------------------------------------------- */

static size_t extreme_size(unsigned n) {
  static const size_t sizes[] = {PTRDIFF_MAX,     SIZE_MAX,       (size_t)PTRDIFF_MAX + 1, SIZE_MAX - 15,
                                 (size_t)1 << 47, HAK_REGION_MAX, HAK_REGION_MAX + 1,      PTRDIFF_MAX - 65535};
  return sizes[n % 8];
}

static size_t input_size(void) {
  unsigned byte = input_byte(), n = byte & 31, more;
  size_t size;
  switch (byte >> 5) {
    case 0: return n;
    case 1: return n * 16 + input_below(3);
    case 2: return n << 7 | (input_byte() & 127u);
    case 3: /* around a class */
      more = input_byte();
      size = class_info[(n << 1 | (more & 1)) % CLASS_ZERO].size + (more >> 1 & 3) * 8;
      return size - 8 - CLASS_CANARY * (more >> 3 & 1) + (more >> 4 & 1);
    case 4: return (n << 8 | input_byte()) * 4 + 3;
    case 5: size = SMALL_REQUEST_MAX + (size_t)(n << 8 | input_byte()) * 64; break;
    case 6: size = (size_t)(n + 1) << 17 | input_byte(); break;
    default: return n < 24 ? extreme_size(n) : SMALL_REQUEST_MAX + n - 28;
  }
  return shadow_bytes() + size > HELD_MOST ? size % 8192 : size;
}

/* --- calls ------------------------------------------------------------------------------- */

static void call_begins(void) {
  injected_before = fake_os_injected();
  errno = ERRNO_MARK;
}

/* The kernel refused something in this call; or no start has succeeded yet, and after a failed one the place of the region could
 * not be unmapped and stays taken (the second place belongs to a sanitizer). */
static bool may_be_out_of_memory(void) {
  return fake_os_injected() != injected_before || (load_relaxed(&region.units) == 0 && injected_before > 0);
}

/* Returns whether there is a block. */
static bool call_ends(const void *block, size_t size, size_t align) {
  if (block != NULL) {
    FUZZ_EQ(errno, ERRNO_MARK);
    FUZZ_CHECK((uintptr_t)block % align == 0);
    return true;
  }
  FUZZ_EQ(errno, ENOMEM);
  FUZZ_CHECK(size > (size_t)1 << 33 || may_be_out_of_memory());
  return false;
}

static void free_ends(void) { FUZZ_EQ(errno, ERRNO_MARK); }

static void drop(unsigned i) {
  size_t size = shadows[i].size;
  void *block = shadow_leave(i);
  call_begins();
  switch (input_below(8)) {
    case 0: hak_cfree(block); break;
    case 1: hak_free_sized(block, size); break;
    case 2: hak_free_aligned_sized(block, HAK_GRANULE, size); break;
    case 3: hak_sdallocx(block, size, 0); break;
    case 4: hak_free_batch(&block, 1); break;
    case 5: FUZZ_CHECK(hak_realloc(block, 0) == NULL); break;
    default: hak_free(block);
  }
  free_ends();
}

/* An entry without a block. */
static unsigned empty_entry(void) {
  unsigned i = input_below(SHADOWS);
  if (shadows[i].block != NULL) drop(i);
  return i;
}

static void enter(unsigned i, void *block, size_t size, size_t align) {
  if (!call_ends(block, size, align)) return;
  if (HAK_SECURE && hak_malloc_usable_size(block) <= SMALL_REQUEST_MAX && !slots_hold(block)) {
    shadow_check_zero(block, hak_malloc_usable_size(block));
  }
  shadow_enter(i, block, size);
  if (!guards) FUZZ_EQ(shadows[i].usable, hak_nallocx(size, HAK_ALIGN(align)));
}

/* --- allocation -------------------------------------------------------------------------- */

static void op_malloc(void) {
  unsigned i = empty_entry();
  size_t size = input_size();
  call_begins();
  enter(i, hak_malloc(size), size, 1);
}

static void op_calloc(void) {
  static const size_t counts[] = {1, 1, 2, 3, 7, 16};
  unsigned i = empty_entry();
  size_t size = input_size(), count = counts[input_below(6)];
  call_begins();
  size_t each = size / count, all = each * count;
  void *block = hak_calloc(count, each);
  if (block != NULL) shadow_check_zero(block, all);
  enter(i, block, all, 1);
}

static void wrong_arguments(void) {
  call_begins();
  FUZZ_CHECK(hak_calloc(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
  errno = 0;
  FUZZ_CHECK(hak_reallocarray(NULL, (size_t)1 << 40, (size_t)1 << 40) == NULL && errno == ENOMEM);
  errno = 0;
  FUZZ_CHECK(hak_memalign(48, 16) == NULL && errno == EINVAL);
  void *untouched = &untouched;
  FUZZ_CHECK(hak_posix_memalign(&untouched, 4, 16) == EINVAL && untouched == &untouched);
}

/* Makes the complete reports, and compares figures that must agree. */
static void reports(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  hak_heap_stats_t heap;
  uint64_t slabs = 0, heaps = 0;
  fake_os_capture();
  (void)hak_stats_text(2), (void)hak_stats_json(2), (void)hak_options_json(2);
  FUZZ_CHECK(hak_stats_get(&stats));
  for (uint32_t i = 0; hak_stats_heap(i, &heap); i++) {
    slabs += heap.slabs;
    heaps++;
  }
  FUZZ_EQ(slabs, stats.slabs);
  FUZZ_EQ(heaps, stats.heaps);
  FUZZ_EQ(hak_mallinfo2().uordblks, stats.live);
  FUZZ_EQ(stats.committed, stats.live + stats.cached + stats.remote + stats.slab_free + stats.span_free);
  fake_os_capture();
}

static void op_odd(void) {
  if (input_below(3) == 0) reports();
  else wrong_arguments();
}

static void op_aligned(void) {
  unsigned i = empty_entry(), shift = input_below(26), form = input_below(4);
  size_t size = input_size(), align = (size_t)1 << shift;
  void *block = NULL;
  call_begins();
  if (form == 0 && align >= sizeof(void *)) {
    int error = hak_posix_memalign(&block, align, size);
    FUZZ_CHECK((error == 0) == (block != NULL) && (error == 0 || error == ENOMEM));
    FUZZ_EQ(errno, ERRNO_MARK);
    if (error != 0) errno = error;
  } else {
    block = form == 1 ? hak_memalign(align, size) : hak_aligned_alloc(align, size);
  }
  enter(i, block, size, align);
}

static void op_pages(void) {
  unsigned i = empty_entry();
  size_t size = input_size(), page = os_page_size();
  bool rounded = input_below(2) == 1;
  call_begins();
  void *block = rounded ? hak_pvalloc(size) : hak_valloc(size);
  if (rounded && size <= PTRDIFF_MAX) size = size == 0 ? page : bits_round_up(size, page);
  enter(i, block, size, page);
}

static void op_at_least(void) {
  unsigned i = empty_entry();
  size_t size = input_size();
  call_begins();
  hak_sized_t got = hak_alloc_at_least(size);
  FUZZ_CHECK(got.ptr != NULL ? got.size >= size : got.size == 0);
  enter(i, got.ptr, got.ptr != NULL ? got.size : size, 1);
}

static void op_batch(void) {
  enum { MOST = 24 };
  void *blocks[MOST];
  unsigned first = input_below(SHADOWS - MOST), count = 1 + input_below(MOST);
  size_t size = input_size() % 40000;
  for (unsigned i = first; i < first + count; i++) {
    if (shadows[i].block != NULL) hak_free(shadow_leave(i));
  }
  if (shadow_bytes() + size * count > HELD_MOST) return;
  call_begins();
  size_t got = hak_malloc_batch(size, count, blocks);
  FUZZ_CHECK(got == count || (errno == ENOMEM && may_be_out_of_memory()));
  for (unsigned i = 0; i < got; i++) {
    errno = ERRNO_MARK;
    enter(first + i, blocks[i], size, 1);
  }
}

/* --- resizing ---------------------------------------------------------------------------- */

static void *call_resize(const shadow_t *before, size_t size, unsigned form) {
  switch (form) {
    case 0: return hak_reallocarray(before->block, 1, size);
    case 1: return hak_reallocf(before->block, size);
    case 2: return hak_recallocarray(before->block, before->size, size, 1);
    default: return hak_realloc(before->block, size);
  }
}

static void op_resize(void) {
  unsigned i = shadow_next(input_below(SHADOWS)), form = input_below(6);
  size_t size = input_size();
  if (i == SHADOWS) return;
  shadow_t before = shadows[i];
  (void)shadow_leave(i);
  call_begins();
  unsigned char *moved = call_resize(&before, size, form);
  if (size == 0) {
    FUZZ_CHECK(moved == NULL);
    free_ends();
    return;
  }
  if (!call_ends(moved, size, HAK_GRANULE)) {
    if (form == 1) return; /* reallocf has freed it */
    shadow_check_moved(&before, before.block, before.usable);
    shadow_enter(i, before.block, before.size);
    return;
  }
  size_t kept = before.usable < size ? before.usable : size;
  if (form == 2) {
    if (kept > before.size) kept = before.size;
    shadow_check_zero(moved + kept, size - kept);
  }
  shadow_check_moved(&before, moved, kept);
  shadow_enter(i, moved, size);
}

static void op_expand(void) {
  unsigned i = shadow_next(input_below(SHADOWS));
  size_t size = input_size();
  if (i == SHADOWS) return;
  shadow_t before = shadows[i];
  call_begins();
  bool done = hak_expand(before.block, size);
  free_ends();
  shadow_check_moved(&before, before.block, done && size < before.usable ? size : before.usable);
  if (!done || size == 0) return;
  shadow_forget(i);
  shadow_enter(i, before.block, size);
}

/* --- freeing, threads, the kernel -------------------------------------------------------- */

static void op_free(void) {
  unsigned i = shadow_next(input_below(SHADOWS));
  if (i < SHADOWS) drop(i);
}

static void op_free_many(void) {
  unsigned first = input_below(SHADOWS), count = input_below(64);
  for (unsigned n = 0; n < count; n++) {
    unsigned i = (first + n) % SHADOWS;
    if (shadows[i].block != NULL) hak_free(shadow_leave(i));
  }
}

static void op_run_as(void) { thread_run_as(input_below(THREADS)); }
static void op_end_thread(void) { thread_end_running((thread_end_t)input_below(3)); }
static void op_fork(void) { thread_fork(); }

static void op_collect(void) {
  unsigned how = input_below(4);
  call_begins();
  if (how == 0) (void)hak_malloc_trim(0);
  else (void)hak_collect(how != 1);
  free_ends();
}

static void op_census(void) {
  shadow_census();
  shadow_check_all();
}

static void op_time(void) { fake_os_pass_time((uint64_t[]){1, 40, 600, 5000}[input_below(4)]); }

/* So many slow paths that the heap reads the clock. */
static void op_slow_paths(void) {
  fake_os_pass_time(1000);
  for (unsigned n = 0; n < 64; n++) hak_free(hak_malloc(HAK_SMALL_MAX + 1));
}

static void op_failures(void) {
  unsigned which = input_below(FAKE_CALLS + 3);
  unsigned kinds = which < FAKE_CALLS ? FAKE_ONLY(which) : which == FAKE_CALLS ? FAKE_TAKING : FAKE_ANY;
  unsigned first = 1 + input_below(16), count = input_below(16);
  if (which == FAKE_CALLS + 2) fake_os_fail_none();
  else fake_os_fail(kinds, first, count == 15 ? UINT64_MAX : count);
}

static void op_option(void) {
  static const struct {
    const char *name;
    int64_t values[4];
  } options[] = {
      {"decay_ms", {0, -1, 10, 1000}}, {"idle_percent", {0, 12, 100, 100000}},
      {"keeper", {0, 1, 1, 1}},        {"huge", {0, 1, 2, 1}},
      {"move", {0, 1, 1, 1}},          {"populate", {0, 1, 1, 1}},
      {"zero_kb", {0, 1, 64, 16384}},  {"bins_extra_kb", {0, 16, 512, 4096}},
  };
  unsigned n = input_below(8), value = input_below(4);
  FUZZ_CHECK(hak_option_set(options[n].name, options[n].values[value]));
}

static void op_resident(void) { fake_os_set_resident(input_below(4) * 32); }

/* --- a run ------------------------------------------------------------------------------- */

static void (*const ops[])(void) = {
    op_malloc, op_malloc,   op_malloc, op_calloc,   op_aligned, op_pages,      op_at_least,  op_batch,
    op_resize, op_resize,   op_resize, op_expand,   op_free,    op_free,       op_free,      op_free_many,
    op_run_as, op_run_as,   op_run_as, op_run_as,   op_collect, op_end_thread, op_fork,      op_census,
    op_time,   op_failures, op_option, op_resident, op_odd,     op_batch,      op_free_many, op_slow_paths,
};
enum { OPS = sizeof ops / sizeof ops[0] };

/* Chooses the machine, and the options that are set before the start. */
static void prepare(void) {
  unsigned byte = input_byte();
  if ((byte & 1) != 0) fake_os_set_address_limit((uint64_t)1 << 46);
  if ((byte & 6) == 6) fake_os_set_page_size(65536);
  if ((byte & 8) != 0) fake_os_fail_map_at_as(OS_TAKEN);
  if ((byte & 16) != 0) FUZZ_CHECK(option_set(OPTION_bin_adapt, 0));
  if ((byte & 32) != 0) FUZZ_CHECK(option_set(OPTION_bin_kb, 1));
  guards = (byte & 192) == 192;
  library_start();
  if (!guards) return;
  FUZZ_CHECK(option_set(OPTION_guard, 1) && option_set(OPTION_guard_every, 3) && option_set(OPTION_guard_slots, 5));
  library_watch();
}

static void finish(void) {
  uint64_t refused = fake_os_injected();
  fake_os_fail_none();
  op_census();
  for (unsigned i = 0; i < SHADOWS; i++) {
    thread_run_as(i % THREADS);
    if (shadows[i].block != NULL) hak_free(shadow_leave(i));
  }
  for (unsigned n = 0; n < THREADS; n++) {
    thread_run_as(n);
    hak_free(hak_malloc(1)); /* a thread after END_UNSEEN takes up the heap again, so that it can end */
    thread_end_running(END_ELSEWHERE);
  }
  shadow_nothing_is_lost(refused > 0);
}

void fuzz_target(void) {
  prepare();
  while (!input_ends()) ops[input_byte() % OPS]();
  finish();
}
