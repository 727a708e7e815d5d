#include "front/inspect.h"

#include "os/os.h"
#include "front/secure.h"
#include "kit/fault.h"
#include "slab/large.h"
#include "slab/slab.h"
#include "slab/slots.h"

/* --- kinds of spans ---------------------------------------------------------------------- */

/* How pointers into a kind of span are classified; `span` is the record of the span's first unit. */
typedef struct kind {
  void (*place)(block_info_t *info, const unit_t *span, const void *p); /* sets state and size; NULL: such a span has no blocks */
  size_t (*fault_class)(const unit_t *span);
  void (*describe)(format_t *f, const unit_t *span, const void *p); /* NULL: `words` */
  const char *words;
} kind_t;

static char *span_start(const unit_t *span) { return region_address(unit_number(span)); }
static size_t span_offset(const unit_t *span, const void *p) { return (size_t)((const char *)p - span_start(span)); }

static block_state_t state_of(bool is_start, bool is_live) {
  if (!is_start) return BLOCK_INTERIOR;
  return is_live ? BLOCK_LIVE : BLOCK_FREED;
}

static void slab_place(block_info_t *info, const unit_t *span, const void *p) {
  unsigned c = load_relaxed(&span->size_class);
  if (HAK_UNLIKELY(c >= CLASS_COUNT)) { /* by now another span's, which has no class */
    info->state = BLOCK_FREED;
    return;
  }
  size_t offset = span_offset(span, p);
  uint32_t block = class_block_at(c, offset);
  bool is_start = (size_t)block * class_info[c].size == offset && block < class_info[c].blocks;
  info->state = state_of(is_start, is_start && slab_block_is_live(p));
  info->size = class_usable(c);
}
static size_t slab_fault_class(const unit_t *span) { return slab_class(span)->size; }

static void large_place(block_info_t *info, const unit_t *span, const void *p) {
  info->state = state_of(span_offset(span, p) == 0, region_is_live(p));
  info->size = large_usable(span);
}
static size_t large_fault_class(const unit_t *span) { return (void)span, FAULT_LARGE; }

static void slots_place(block_info_t *info, const unit_t *span, const void *p) {
  (void)span;
  info->state = state_of(slot_start(p) == p, region_is_live(p));
  info->size = slot_usable(p);
}
static size_t slots_fault_class(const unit_t *span) { return (void)span, FAULT_GUARDED; }
static void slots_describe(format_t *f, const unit_t *span, const void *p) { (void)span, slot_describe(f, p); }

static void describe_block(format_t *f, const char *start, size_t size, bool live, const char *p) {
  format_text(f, live ? "live block " : "freed block ");
  format_hex(f, (uint64_t)(uintptr_t)start);
  format_text(f, " of ");
  format_bytes(f, size);
  format_text(f, ", at byte ");
  format_unsigned(f, (uint64_t)(p - start));
}

static void slab_describe(format_t *f, const unit_t *span, const void *p) {
  unsigned c = load_relaxed(&span->size_class);
  if (c >= CLASS_COUNT) { /* since the kind was read */
    format_text(f, "a slab that another thread has given back");
    return;
  }
  const class_info_t *info = &class_info[c];
  bool nothing = c == CLASS_ZERO;
  char *start = span_start(span);
  uint32_t block = class_block_at(c, span_offset(span, p));
  if (block >= info->blocks) {
    format_text(f, "the unused end of a slab");
  } else {
    start += (size_t)block * info->size;
    describe_block(f, start, nothing ? 0 : info->size, slab_block_is_live(start), p);
  }
  if (nothing) {
    format_text(f, ", from malloc(0)");
    return;
  }
  format_text(f, ", class ");
  format_unsigned(f, info->size);
}

static void large_describe(format_t *f, const unit_t *span, const void *p) {
  const char *start = span_start(span);
  describe_block(f, start, load_relaxed(&span->bytes), region_is_live(start), p);
  format_text(f, ", class large");
}

static const kind_t kinds[] = {
    [UNIT_FREE] = {.words = "freed memory in no block"},
    [UNIT_SLAB] = {slab_place, slab_fault_class, slab_describe, NULL},
    [UNIT_INSIDE] = {.words = "freed memory in no block"},
    [UNIT_LARGE] = {large_place, large_fault_class, large_describe, NULL},
    [UNIT_SLOTS] = {slots_place, slots_fault_class, slots_describe, NULL},
    [UNIT_META] = {.words = "hakmem's own memory"},
    [UNIT_GUARD] = {.words = "guard or quarantined memory"},
    [UNIT_CACHED] = {.words = "freed memory in no block"},
};

static const kind_t *kind_of(const unit_t *span) { return &kinds[load_acquire(&span->kind)]; }

/* --- pointers ---------------------------------------------------------------------------- */

/* The record of the span that p may lie in; NULL where nothing is mapped or was ever used. The records there can be read too, since the
 * zones extend beyond the blocks, but they mean nothing. */
static unit_t *span_at(const void *p) {
  size_t unit = region_unit(p);
  if (unit >= load_acquire(&region.units)) return NULL;
  superslab_t *superslab = &region.superslabs[unit / HAK_UNITS_PER_SUPERSLAB];
  if ((load_relaxed(&superslab->mapped) >> unit % HAK_UNITS_PER_SUPERSLAB & 1) == 0) return NULL;
  return unit_head((uint32_t)unit);
}

/* The record may become another span's meanwhile: the result then holds for the moment before or after. */
block_info_t block_locate(const void *p) {
  block_info_t info = {BLOCK_FOREIGN, NULL, 0};
  unit_t *span = span_at(p);
  if (span == NULL) return info;
  bool misaligned = (uintptr_t)p % HAK_GRANULE != 0;
  const kind_t *kind = kind_of(span);
  if (kind->place == NULL || region_unit(p) - unit_number(span) >= load_relaxed(&span->units)) {
    info.state = misaligned ? BLOCK_MISALIGNED : BLOCK_FREED;
    return info;
  }
  info.span = span;
  kind->place(&info, span, p);
  if (misaligned) info.state = BLOCK_MISALIGNED;
  return info;
}

/* If the record becomes another span's meanwhile, the caller frees a block that it does not hold, and any result ends the process. */
block_info_t block_inspect(const void *p) {
  block_info_t info = block_locate(p);
  if (!HAK_SECURE || info.state != BLOCK_LIVE || load_relaxed(&info.span->kind) != UNIT_SLAB) return info;
  unsigned c = load_relaxed(&info.span->size_class);
  if (c < CLASS_COUNT) info.size = secure_size(p, c, NULL);
  return info;
}

/* --- faults ------------------------------------------------------------------------------ */

size_t block_fault_class(const block_info_t *info) {
  size_t (*fault_class)(const unit_t *) = info->span == NULL ? NULL : kind_of(info->span)->fault_class;
  return fault_class == NULL ? 0 : fault_class(info->span);
}

HAK_COLD _Noreturn void block_fault(const block_info_t *info, const void *p, const char *function) {
  static const struct {
    const char *fault, *detail;
  } texts[] = {
      [BLOCK_LIVE] = {"bug", "block is live"},
      [BLOCK_FREED] = {"double free", "block is already free"},
      [BLOCK_INTERIOR] = {"interior pointer", "not the start of a block"},
      [BLOCK_MISALIGNED] = {"misaligned pointer", "no block starts at this address"},
      [BLOCK_FOREIGN] = {"foreign pointer", "not from this allocator"},
  };
  const char *detail = info->span == NULL && info->state == BLOCK_FREED ? "no block there" : texts[info->state].detail;
  if (info->state == BLOCK_FOREIGN && load_relaxed(&fault_foreign) != NULL) detail = load_relaxed(&fault_foreign);
  fault_line(texts[info->state].fault, function, p, detail, block_fault_class(info));
  if (slots_hold(p)) slot_print(p);
  os_abort();
}

HAK_COLD _Noreturn void block_fault_size(const block_info_t *info, const void *p, const char *function, const char *detail) {
  fault_line("size mismatch", function, p, detail, block_fault_class(info));
  if (slots_hold(p)) slot_abort(p);
  os_abort();
}

/* --- in words ---------------------------------------------------------------------------- */

HAK_COLD void block_describe(format_t *f, const void *p) {
  const unit_t *span = span_at(p);
  if (span == NULL) {
    format_text(f, (uintptr_t)p < 65536 ? "near NULL, not hakmem's" : "foreign, not hakmem's");
    return;
  }
  const kind_t *kind = kind_of(span);
  if (kind->describe != NULL) kind->describe(f, span, p);
  else format_text(f, kind->words);
}
