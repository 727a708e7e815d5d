/* misuse.c - wrong calls among correct ones: each wrong call must end in the right line, and change nothing.
 *
 * The model knows exactly what a pointer is if a live block is near: in the same unit of a slab of small blocks, or around the
 * pointer.  Elsewhere it knows only that no block there is live, and whether the address is in the region.  os_abort returns here,
 * and the run continues; at the end the statistics must be right, and nothing may be lost. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "fake_os.h"
#include "front/inspect.h"
#include "fuzz.h"
#include "hakmem/hakmem.h"
#include "kit/fault.h"
#include "kit/options.h"
#include "library.h"
#include "shadow.h"
#include "slab/slots.h"

enum { FREED_MOST = 64 };
static char *freed[FREED_MOST];
static unsigned freed_count;

/* --- the kind of a pointer --------------------------------------------------------------- */

typedef struct verdict {
  bool known;
  block_state_t state;
  unsigned of; /* the entry of the block, or SHADOWS */
  size_t fault_class;
} verdict_t;

static bool is_small(const shadow_t *s) { return !shadow_is_large(s) && !slots_hold(s->block); }

static block_state_t state_at(size_t offset, unsigned c) {
  if (offset % HAK_GRANULE != 0) return BLOCK_MISALIGNED;
  return offset % class_info[c].size != 0 || offset / class_info[c].size >= class_info[c].blocks ? BLOCK_INTERIOR : BLOCK_FREED;
}

/* What one live block implies about p; not known if it implies nothing. */
static verdict_t seen_from(unsigned i, const char *p) {
  const shadow_t *s = &shadows[i];
  const char *block = (const char *)s->block;
  verdict_t v = {false, BLOCK_FREED, SHADOWS, 0};
  if (p == block) return (verdict_t){true, BLOCK_LIVE, i, 0};
  if (slots_hold(block)) return v;
  if (!is_small(s)) {
    v.known = p > block && p < block + bits_round_up(s->usable, HAK_UNIT);
    v.state = (uintptr_t)p % HAK_GRANULE != 0 ? BLOCK_MISALIGNED : BLOCK_INTERIOR;
    v.fault_class = FAULT_LARGE;
    return v;
  }
  unsigned c = shadow_class(s);
  v.fault_class = class_info[c].size;
  if (class_info[c].units == 1) {
    v.known = (uintptr_t)p / HAK_UNIT == (uintptr_t)block / HAK_UNIT;
    v.state = state_at((uintptr_t)p % HAK_UNIT, c);
  } else {
    v.known = p > block && p < block + class_info[c].size;
    v.state = (uintptr_t)p % HAK_GRANULE != 0 ? BLOCK_MISALIGNED : BLOCK_INTERIOR;
  }
  return v;
}

static verdict_t judge(const char *p) {
  verdict_t best = {false, BLOCK_FREED, SHADOWS, 0};
  for (unsigned i = 0; i < SHADOWS; i++) {
    if (shadows[i].block == NULL) continue;
    verdict_t v = seen_from(i, p);
    if (v.known && v.state == BLOCK_LIVE) return v;
    if (v.known) best = v;
  }
  if (region_unit(p) >= load_relaxed(&region.units)) return (verdict_t){true, BLOCK_FOREIGN, SHADOWS, 0};
  return best;
}

/* --- pointers ---------------------------------------------------------------------------- */

static char *live_block(void) {
  unsigned i = shadow_next(input_below(SHADOWS));
  return i < SHADOWS ? (char *)shadows[i].block : NULL;
}

static char *moved(char *p, size_t by) { return (char *)((uintptr_t)p + by); }

static char *input_pointer(void) {
  static char here[64];
  char *block;
  switch (input_below(12)) {
    case 0: return live_block();
    case 1: return moved(live_block(), input_word());
    case 2: return moved(live_block(), 0 - (size_t)input_word());
    case 3: return moved(live_block(), (size_t)input_byte() * HAK_GRANULE);
    case 4: return freed_count == 0 ? here : freed[input_below(freed_count)];
    case 5: return moved(freed_count == 0 ? here : freed[input_below(freed_count)], input_byte());
    case 6: return here + input_below(64);
    case 7: return region.base == 0 ? here : moved(region_address(input_word() % (load_relaxed(&region.units) + 64u)), input_word());
    case 8: return moved((char *)region.live, (size_t)input_word() * 8);
    case 9: /* near the end of a slab */
      block = live_block();
      return moved((char *)bits_round_up((uintptr_t)block, HAK_UNIT), 0 - (size_t)input_byte() * HAK_GRANULE);
    case 10: block = live_block(); return moved(block, ((size_t)input_byte() - 128) * HAK_UNIT);
    default: return (char *)(uintptr_t)input_number();
  }
}

/* --- wrong calls ------------------------------------------------------------------------- */

/* Calls that free. None gets NULL, which is not wrong. */
typedef struct call {
  const char *name; /* as the line prints it */
  void (*run)(void *p);
} call_t;

static size_t call_size; /* for the calls that take a size */
static void call_free(void *p) { hak_free(p); }
static void call_cfree(void *p) { hak_cfree(p); }
static void call_batch(void *p) { hak_free_batch(&p, 1); }
static void call_free_sized(void *p) { hak_free_sized(p, call_size); }
static void call_free_aligned_sized(void *p) { hak_free_aligned_sized(p, 16, call_size); }
static void call_sdallocx(void *p) { hak_sdallocx(p, call_size, 4); }
static void call_realloc(void *p) { FUZZ_CHECK(hak_realloc(p, call_size) == NULL); }
static void call_reallocf(void *p) { FUZZ_CHECK(hak_reallocf(p, call_size) == NULL); }
static void call_recallocarray(void *p) { FUZZ_CHECK(hak_recallocarray(p, 1, call_size, 1) == NULL); }
#if HAK_SECURE
static void call_usable_size(void *p) { (void)hak_malloc_usable_size(p); }
#else
#define call_usable_size NULL
#endif
static void call_expand(void *p) { FUZZ_CHECK(!hak_expand(p, call_size)); }

static const call_t calls[] = {
    {"free", call_free},
    {"free", call_free},
    {"cfree", call_cfree},
    {"hak_free_batch", call_batch},
    {"free_sized", call_free_sized},
    {"free_aligned_sized", call_free_aligned_sized},
    {"sdallocx", call_sdallocx},
    {"realloc", call_realloc},
    {"realloc", call_reallocf},
    {"recallocarray", call_recallocarray},
    {"hak_expand", call_expand},
};
enum { CALLS = sizeof calls / sizeof calls[0], FIRST_SIZED = 4, END_SIZED = 7 };

/* Returns whether the call would have ended the process. */
static bool attempt(const call_t *call, void *p) {
  static jmp_buf place;
  fake_os_capture();
  fake_os_catch_abort(&place);
  volatile bool ended = false;
  if (setjmp(place) == 0) call->run(p);
  else ended = true;
  if (ended) thread_escape();
  fake_os_catch_abort(NULL);
  return ended;
}

static const char *fault_name(block_state_t state) {
  static const char *const names[] = {
      [BLOCK_LIVE] = "size mismatch",        [BLOCK_FREED] = "double free",
      [BLOCK_INTERIOR] = "interior pointer", [BLOCK_MISALIGNED] = "misaligned pointer",
      [BLOCK_FOREIGN] = "foreign pointer",
  };
  return names[state];
}

static void class_text(char *text, size_t size, size_t fault_class) {
  if (fault_class == FAULT_LARGE) snprintf(text, size, ", class large\n");
  else if (fault_class == 0) snprintf(text, size, "\n");
  else snprintf(text, size, ", class %zu\n", fault_class);
}

static void check_line(const verdict_t *v, const char *function, const char *p) {
  char start[160], end[64];
  const char *said = fake_os_captured();
  size_t length = strlen(said);
  block_state_t state = v->state;
  if (!v->known) {
    block_info_t info = block_inspect(p); /* no model: checks only that its answer is plausible */
    FUZZ_CHECK(info.state != BLOCK_LIVE);
    FUZZ_CHECK(info.state == BLOCK_FOREIGN || (info.state == BLOCK_MISALIGNED) == ((uintptr_t)p % HAK_GRANULE != 0));
    state = info.state;
  }
  snprintf(start, sizeof start, "hakmem: %s: %s(%#zx): ", fault_name(state), function, (size_t)p);
  if (strncmp(said, start, strlen(start)) != 0) fuzz_fail(__FILE__, __LINE__, "\"%s\" does not begin with \"%s\"", said, start);
  FUZZ_CHECK(length > 0 && said[length - 1] == '\n');
  if (!v->known || slots_hold(p)) return;
  class_text(end, sizeof end, v->fault_class);
  FUZZ_CHECK(length >= strlen(end) && strcmp(said + length - strlen(end), end) == 0 && memchr(said, '\n', length) == said + length - 1);
}

static void op_wrong(void) {
  char *p = input_pointer();
  const call_t *call = &calls[input_below(CALLS)];
  call_size = 1 + input_byte();
  if (p == NULL) return;
  verdict_t v = judge(p);
  if (v.state == BLOCK_LIVE && v.known) return;
  if (HAK_SECURE) {
    static const call_t ask = {"malloc_usable_size", call_usable_size};
    FUZZ_CHECK(attempt(&ask, p));
    check_line(&v, ask.name, p);
  } else {
    FUZZ_EQ(hak_malloc_usable_size(p), 0);
  }
  FUZZ_CHECK(attempt(call, p));
  check_line(&v, call->name, p);
}

/* The secure library also detects a size that is too small. */
static bool one_byte_is_wrong(const shadow_t *s) { return HAK_SECURE && s->usable != 1; }

/* A size that the block does not have. */
static void op_wrong_size(void) {
  unsigned i = shadow_next(input_below(SHADOWS));
  const call_t *call = &calls[FIRST_SIZED + input_below(END_SIZED - FIRST_SIZED)];
  size_t more = 1 + input_word();
  if (i == SHADOWS) return;
  const shadow_t *s = &shadows[i];
  if (!HAK_SECURE && s->usable == 0) more += HAK_GRANULE; /* for a block of no bytes, sizes up to a granule are accepted */
  call_size = more % 2 == 0 && one_byte_is_wrong(s) ? 1 : s->usable + more;
  verdict_t v = {true, BLOCK_LIVE, i, is_small(s) ? class_info[shadow_class(s)].size : FAULT_LARGE};
  FUZZ_CHECK(attempt(call, s->block));
  check_line(&v, call->name, (char *)s->block);
  shadow_check(i);
}

/* --- right calls ------------------------------------------------------------------------- */

static size_t input_size(void) {
  static const size_t sizes[] = {0, 1, 16, 24, 100, 512, 1000, 1024, 1500, 4096, 5000, 9000, 16384, 20000, 32000, 32768, 40000, 200000};
  return sizes[input_below(sizeof sizes / sizeof sizes[0])];
}

static void drop(unsigned i) {
  void *block = shadow_leave(i);
  freed[freed_count < FREED_MOST ? freed_count++ : input_below(FREED_MOST)] = block;
  hak_free(block);
}

static void op_malloc(void) {
  unsigned i = input_below(SHADOWS);
  if (shadows[i].block != NULL) drop(i);
  size_t size = input_size();
  void *block = hak_malloc(size);
  FUZZ_CHECK(block != NULL);
  shadow_enter(i, block, size);
}

static void op_free(void) {
  unsigned i = shadow_next(input_below(SHADOWS));
  if (i < SHADOWS) drop(i);
}

static void op_run_as(void) { thread_run_as(input_below(THREADS)); }
static void op_end_thread(void) { thread_end_running((thread_end_t)input_below(2)); }
static void op_collect(void) { (void)hak_collect(true); }

static void op_describe(void) {
  char text[256];
  format_t f;
  format_init(&f, text, sizeof text);
  block_describe(&f, input_pointer());
  FUZZ_CHECK(f.used > 0 && f.used < sizeof text - 1);
}

/* --- the secure library: writes outside live blocks ---------------------------------------- */

static bool over; /* the run ends, because the block that a line has named is lost */

/* Of a guard slot the whole page is checked. */
static void write_beside(const shadow_t *s, unsigned at, unsigned char change) {
  size_t page = os_page_size(), offset = (uintptr_t)s->block % page;
  size_t place = at * 8191 % page;
  if (s->size == 0 || (place >= offset && place < offset + s->size)) return; /* a block of no bytes may begin where its page ends */
  s->block[(ptrdiff_t)place - (ptrdiff_t)offset] ^= change;
  FUZZ_CHECK(attempt(&calls[0], s->block));
  FUZZ_CHECK(strncmp(fake_os_captured(), place < offset ? "hakmem: underflow: free(" : "hakmem: overflow: free(", 23) == 0);
  over = true;
}

static void op_write_behind(void) {
  unsigned i = shadow_next(input_below(SHADOWS)), at = input_byte();
  unsigned char change = (unsigned char)(1 + input_below(255));
  if (i < SHADOWS && slots_hold(shadows[i].block)) write_beside(&shadows[i], at, change);
  at %= 8;
  if (over || !HAK_SECURE || i == SHADOWS || !is_small(&shadows[i]) || shadows[i].usable == 0) return;
  shadow_t s = shadows[i];
  s.block[s.usable + at] ^= change;
  shadow_forget(i);
  FUZZ_CHECK(attempt(&calls[0], s.block));
  FUZZ_CHECK(strncmp(fake_os_captured(), "hakmem: overflow: free(", 23) == 0);
  over = true;
}

/* Returns whether p is a freed block that was handed out before: malloc does not check a block that it hands out for the first time. */
static bool is_freed_block(const char *p) {
  block_info_t info = block_inspect(p);
  if (info.state != BLOCK_FREED || info.span == NULL || load_relaxed(&info.span->kind) != UNIT_SLAB) return false;
  unsigned c = load_relaxed(&info.span->size_class);
  size_t offset = (size_t)(p - (const char *)region_address(unit_number(info.span)));
  return c < CLASS_ZERO && class_block_at(c, offset) < info.span->touched;
}

static void call_malloc(void *size) {
  void *block = hak_malloc((size_t)size);
  FUZZ_CHECK(block != NULL);
  shadow_check_zero(block, hak_malloc_usable_size(block));
}

/* The write must be found when malloc reuses the block, and the block must not be handed out with it. */
static void op_write_freed(void) {
  static const call_t take = {"malloc", call_malloc};
  if (!HAK_SECURE || freed_count == 0) return;
  char *p = freed[input_below(freed_count)];
  if (!is_freed_block(p)) return;
  block_info_t info = block_inspect(p);
  p[input_word() % (info.size + CLASS_CANARY)] = 1;
  over = true;
  for (unsigned n = 0; n < 300; n++) {
    if (!attempt(&take, (void *)info.size)) continue;
    FUZZ_CHECK(strncmp(fake_os_captured(), "hakmem: use after free: malloc(", 31) == 0);
    return;
  }
}

/* --- a run ------------------------------------------------------------------------------- */

static void (*const ops[])(void) = {
    op_malloc, op_malloc,     op_malloc, op_malloc, op_free,       op_free,    op_wrong,    op_wrong, op_wrong,        op_wrong,
    op_wrong,  op_wrong_size, op_run_as, op_run_as, op_end_thread, op_collect, op_describe, op_wrong, op_write_behind, op_write_freed,
};
enum { OPS = sizeof ops / sizeof ops[0] };

static void start(void) {
  unsigned byte = input_byte();
  if ((byte & 1) != 0) fake_os_set_address_limit((uint64_t)1 << 46);
  library_start();
  if ((byte & 6) != 6) return;
  FUZZ_CHECK(option_set(OPTION_guard, 1) && option_set(OPTION_guard_every, 2) && option_set(OPTION_guard_slots, 5));
  library_watch();
}

void fuzz_target(void) {
  start();
  while (!input_ends() && !over) ops[input_byte() % OPS]();
  if (over) return;
  shadow_check_all();
  shadow_census();
  for (unsigned i = 0; i < SHADOWS; i++) {
    if (shadows[i].block != NULL) drop(i);
  }
  for (unsigned n = 0; n < THREADS; n++) {
    thread_run_as(n);
    thread_end_running(END_ELSEWHERE);
  }
  shadow_nothing_is_lost(false);
}
