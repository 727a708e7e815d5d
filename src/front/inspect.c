#include "front/inspect.h"

#include "os/os.h"
#include "kit/fault.h"
#include "slab/large.h"
#include "slab/slots.h"

static uint8_t kind_of(const unit_t *slab) { return load_relaxed(&slab->kind); }

/* Where in its span the pointer is; the span is in use. */
static block_state_t block_place(const unit_t *slab, const void *p) {
  if (kind_of(slab) == UNIT_SLOTS) return slot_start(p) != p ? BLOCK_INTERIOR : block_is_live(p) ? BLOCK_LIVE : BLOCK_FREED;
  size_t offset = (size_t)((const char *)p - (const char *)region_address(unit_number(slab)));
  if (kind_of(slab) == UNIT_LARGE) return offset != 0 ? BLOCK_INTERIOR : block_is_live(p) ? BLOCK_LIVE : BLOCK_FREED;
  unsigned c = load_relaxed(&slab->size_class);
  uint32_t block = class_block_at(c, offset);
  if ((size_t)block * class_info[c].size != offset || block >= class_info[c].blocks) return BLOCK_INTERIOR;
  return block_is_live(p) ? BLOCK_LIVE : BLOCK_FREED;
}

static size_t usable(const unit_t *slab, const void *p, bool live) {
  switch (kind_of(slab)) {
    case UNIT_LARGE: return large_usable(slab);
    case UNIT_SLOTS: return slot_usable(p);
    default: break;
  }
  unsigned c = load_relaxed(&slab->size_class);
  return HAK_SECURE && live ? secure_size(p, c, NULL) : class_usable(c);
}

/* NULL where nothing is mapped or was ever used. */
static unit_t *span_at(const void *p) {
  size_t unit = region_unit(p);
  if (unit >= load_acquire(&region.units)) return NULL;
  superslab_t *superslab = &region.superslabs[unit / HAK_UNITS_PER_SUPERSLAB];
  if ((load_relaxed(&superslab->mapped) >> unit % HAK_UNITS_PER_SUPERSLAB & 1) == 0) return NULL;
  return unit_head((uint32_t)unit);
}

block_info_t block_inspect(const void *p) {
  block_info_t info = {BLOCK_FOREIGN, NULL, 0};
  unit_t *slab = span_at(p);
  if (slab == NULL) return info;
  bool misaligned = (uintptr_t)p % HAK_GRANULE != 0;
  uint8_t kind = load_acquire(&slab->kind);
  bool holds_blocks = kind == UNIT_SLAB || kind == UNIT_LARGE || kind == UNIT_SLOTS;
  if (!holds_blocks || region_unit(p) - unit_number(slab) >= load_relaxed(&slab->units)) {
    info.state = misaligned ? BLOCK_MISALIGNED : BLOCK_FREED;
    return info;
  }
  info.slab = slab;
  info.state = misaligned ? BLOCK_MISALIGNED : block_place(slab, p);
  info.size = usable(slab, p, info.state == BLOCK_LIVE);
  return info;
}

/* --- faults ------------------------------------------------------------------------------ */

size_t block_fault_class(const block_info_t *info) {
  if (info->slab == NULL) return 0;
  switch (kind_of(info->slab)) {
    case UNIT_LARGE: return FAULT_LARGE;
    case UNIT_SLOTS: return FAULT_GUARDED;
    default: return slab_class(info->slab)->size;
  }
}

_Noreturn void block_fault(const block_info_t *info, const void *p, const char *function) {
  static const struct {
    const char *fault, *detail;
  } texts[] = {
      [BLOCK_LIVE] = {"bug", "block is live"},
      [BLOCK_FREED] = {"double free", "block is already free"},
      [BLOCK_INTERIOR] = {"interior pointer", "not the start of a block"},
      [BLOCK_MISALIGNED] = {"misaligned pointer", "no block starts at this address"},
      [BLOCK_FOREIGN] = {"foreign pointer", "not from this allocator"},
  };
  const char *detail = info->slab == NULL && info->state == BLOCK_FREED ? "no block there" : texts[info->state].detail;
  if (info->state == BLOCK_FOREIGN && load_relaxed(&fault_foreign) != NULL) detail = load_relaxed(&fault_foreign);
  fault_line(texts[info->state].fault, function, p, detail, block_fault_class(info));
  if (info->slab != NULL && kind_of(info->slab) == UNIT_SLOTS) slot_print(p);
  os_abort();
}

_Noreturn void block_fault_size(const block_info_t *info, const void *p, const char *function, const char *detail) {
  fault_line("size mismatch", function, p, detail, block_fault_class(info));
  if (kind_of(info->slab) == UNIT_SLOTS) slot_abort(p);
  os_abort();
}

/* --- descriptions ------------------------------------------------------------------------ */

static void describe_block(format_t *f, const char *start, size_t size, bool live, const char *p) {
  format_text(f, live ? "live block " : "freed block ");
  format_hex(f, (uint64_t)(uintptr_t)start);
  format_text(f, " of ");
  format_bytes(f, size);
  format_text(f, ", at byte ");
  format_unsigned(f, (uint64_t)(p - start));
}

static void describe_slab(format_t *f, const unit_t *slab, const char *p) {
  unsigned c = load_relaxed(&slab->size_class);
  const class_info_t *info = &class_info[c];
  bool nothing = c == CLASS_ZERO;
  char *start = region_address(unit_number(slab));
  uint32_t block = class_block_at(c, (size_t)(p - start));
  if (block >= info->blocks) {
    format_text(f, "the unused end of a slab");
  } else {
    start += (size_t)block * info->size;
    describe_block(f, start, nothing ? 0 : info->size, block_is_live(start), p);
  }
  if (nothing) {
    format_text(f, ", from malloc(0)");
    return;
  }
  format_text(f, ", class ");
  format_unsigned(f, info->size);
}

void block_describe(format_t *f, const void *p) {
  unit_t *slab = span_at(p);
  uint8_t kind = slab == NULL ? UNIT_FREE : load_acquire(&slab->kind);
  if (slab == NULL) {
    format_text(f, (uintptr_t)p < 65536 ? "near NULL, not hakmem's" : "foreign, not hakmem's");
  } else if (kind == UNIT_SLAB) {
    describe_slab(f, slab, p);
  } else if (kind == UNIT_LARGE) {
    const char *start = region_address(unit_number(slab));
    describe_block(f, start, load_relaxed(&slab->bytes), block_is_live(start), p);
    format_text(f, ", class large");
  } else if (kind == UNIT_SLOTS) {
    slot_describe(f, p);
  } else if (kind == UNIT_META) {
    format_text(f, "hakmem's own memory");
  } else if (kind == UNIT_GUARD) {
    format_text(f, "guard or quarantined memory");
  } else {
    format_text(f, "freed memory in no block");
  }
}
