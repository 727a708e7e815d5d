#include "slab/pinned.h"

#include <string.h>

#include "os/os.h"
#include "slab/remote.h"

/* --- blocks ------------------------------------------------------------------------------ */

static void block_set(pinned_t *pinned, uint32_t block) { pinned->live[block / 64] |= (uint64_t)1 << block % 64; }
static bool block_has(const pinned_t *pinned, uint32_t block) { return (pinned->live[block / 64] >> block % 64 & 1) != 0; }

/* A live bit may be one that a plain store has brought back: it says nothing of a block that is free or waits to be collected. */
static void live_by_bit(pinned_t *pinned, uint32_t unit, unsigned c) {
  const uint64_t *words = region_live_word(region_address(unit));
  for (uint32_t word = 0; word < class_info[c].units * (HAK_UNIT / 1024); word++) {
    for (uint64_t bits = racy_load(&words[word]); bits != 0; bits &= bits - 1) {
      uint32_t block = class_block_at(c, (word * 64 + bits_lowest64(bits)) * HAK_GRANULE);
      if (block < class_info[c].blocks) block_set(pinned, block);
    }
  }
  for (uint32_t word = 0; word * 64 < class_info[c].blocks; word++) {
    pinned->live[word] &= ~(load_relaxed(region_bits(region.free_bits, unit, word)) | remote_word(unit, word));
  }
}

static void live_by_record(pinned_t *pinned, const unit_t *slab, unsigned c) {
  uint32_t unit = unit_number(slab);
  uintptr_t tracked = load_acquire(&slab->tracked);
  for (uint32_t i = 0; tracked != 0 && i < class_info[c].blocks; i++) {
    if (track_state(load_relaxed(track_at(tracked, i))) == TRACK_LIVE) block_set(pinned, i);
  }
  for (uint32_t i = 0; HAK_SAMPLED && sample_rate != 0 && i < class_info[c].units; i++) {
    const sample_t *sample = sample_of(unit + i);
    if (sample_state(sample) != SAMPLE_LIVE) continue;
    uint32_t block = class_block_at(c, i * HAK_UNIT + load_relaxed(&sample->place) * HAK_GRANULE);
    if (block < class_info[c].blocks) block_set(pinned, block);
  }
}

/* --- pages ------------------------------------------------------------------------------- */

/* Bytes of live blocks in [from, to) of the slab. */
static size_t live_bytes(const pinned_t *pinned, unsigned c, size_t from, size_t to) {
  size_t size = class_info[c].size, bytes = 0;
  uint32_t first = class_block_at(c, from), last = class_block_at(c, to - 1);
  if (last >= class_info[c].blocks) last = class_info[c].blocks - 1;
  for (uint32_t word = first / 64; word <= last / 64; word++)
    bytes += size * bits_count64(pinned->live[word] & bits_range64(word, first, last));
  if (block_has(pinned, first)) bytes -= from - first * size;
  if (block_has(pinned, last) && (last + 1) * size > to) bytes -= (last + 1) * size - to;
  return bytes;
}

static void pages_look(const unit_t *slab, pinned_t *pinned, unsigned c) {
  size_t page = os_page_size(), end = (size_t)class_info[c].blocks * class_info[c].size;
  uint64_t holes = load_relaxed(&slab->holes);
  for (size_t i = 0; i * page < end; i++) {
    size_t live = live_bytes(pinned, c, i * page, (i + 1) * page);
    if (live != 0) {
      pinned->pages++;
      pinned->waste += page - live;
      if (live < page) pinned->wasteful |= (uint64_t)1 << i;
    } else if ((holes >> i & 1) == 0) {
      pinned->idle += page;
    }
  }
}

bool pinned_look(const unit_t *slab, pinned_t *pinned) {
  unsigned c = load_relaxed(&slab->size_class);
  memset(pinned, 0, sizeof *pinned);
  if (!HAK_CHECKS || load_acquire(&slab->kind) != UNIT_SLAB || c >= CLASS_ZERO) return false;
  live_by_bit(pinned, unit_number(slab), c);
  live_by_record(pinned, slab, c);
  for (uint32_t word = 0; word * 64 < class_info[c].blocks; word++) pinned->blocks += bits_count64(pinned->live[word]);
  if (pinned->blocks == 0) return false;
  pages_look(slab, pinned, c);
  return true;
}

bool pinned_wastes(const pinned_t *pinned, unsigned size_class, uint32_t block) {
  size_t page = os_page_size(), size = class_info[size_class].size, start = block * size, end = start + size;
  uint64_t pages = (UINT64_MAX << start / page) & (UINT64_MAX >> (63 - (end - 1) / page));
  return (pinned->wasteful & pages) != 0;
}
