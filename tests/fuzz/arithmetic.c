/* arithmetic.c - text, bits and size classes, against the plainest ways to compute the same. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/format.h"
#include "fuzz.h"
#include "kit/random.h"
#include "slab/class.h"
#include "space/region.h"

/* --- text, against printf, cut where the buffer ends ---------------------------------------- */

static void check_format(void) {
  char text[64], want[512];
  size_t size = 1 + input_below(sizeof text), used = 0;
  format_t f;
  memset(text, '#', sizeof text);
  format_init(&f, text, size);
  for (unsigned n = input_below(6); n > 0; n--) {
    unsigned kind = input_below(5);
    uint64_t value = input_number() >> input_below(64);
    int length = 0;
    char *at = want + used;
    size_t room = sizeof want - used;
    switch (kind) {
      case 0: format_unsigned(&f, value), length = snprintf(at, room, "%" PRIu64, value); break;
      case 1: format_signed(&f, (int64_t)value), length = snprintf(at, room, "%" PRId64, (int64_t)value); break;
      case 2: format_hex(&f, value), length = snprintf(at, room, "0x%" PRIx64, value); break;
      case 3: format_char(&f, (char)('a' + value % 26)), length = snprintf(at, room, "%c", (char)('a' + value % 26)); break;
      default: format_text(&f, "class "), length = snprintf(at, room, "class ");
    }
    used += (size_t)length;
  }
  size_t kept = used < size - 1 ? used : size - 1;
  FUZZ_EQ(f.used, kept);
  FUZZ_CHECK(memcmp(text, want, kept) == 0 && text[kept] == '\0');
  for (size_t i = kept + 1; i < sizeof text; i++) FUZZ_CHECK(text[i] == '#');
}

/* --- bits, one by one ----------------------------------------------------------------------- */

static void check_bits(void) {
  uint64_t x = input_number(), left = x;
  unsigned count = 0, lowest = 64, highest = 64;
  for (unsigned i = 0; i < 64; i++) {
    if ((x >> i & 1) == 0) continue;
    count++;
    if (lowest == 64) lowest = i;
    highest = i;
  }
  FUZZ_EQ(bits_count64(x), count);
  FUZZ_EQ(bits_is_pow2(x), count == 1);
  if (x != 0) FUZZ_CHECK(bits_lowest64(x) == lowest && bits_highest64(x) == highest);
  if ((uint32_t)x != 0) FUZZ_EQ(bits_lowest32((uint32_t)x), lowest);
  FUZZ_EQ(bits_count32((uint32_t)x) + bits_count32((uint32_t)(x >> 32)), count);
  unsigned n = input_byte();
  FUZZ_EQ(bits_test_and_clear64(&left, n), x >> n % 64 & 1);
  FUZZ_EQ(left, x & ~((uint64_t)1 << n % 64));
  unsigned start = n % 32, ones = 1 + (n >> 5) % (32 - start);
  uint32_t mask = bits_mask32(start, ones);
  for (unsigned i = 0; i < 32; i++) FUZZ_EQ(mask >> i & 1, i >= start && i < start + ones);
  size_t power = (size_t)1 << n % 32, number = (size_t)(x >> 16);
  FUZZ_EQ(bits_round_up(number, power), (number + power - 1) / power * power);
  FUZZ_EQ(bits_round_down(number, power), number / power * power);
  unsigned turn = 1 + n % 63;
  for (unsigned i = 0; i < 64; i++) FUZZ_EQ(bits_rotr(x, turn) >> i & 1, x >> (i + turn) % 64 & 1);
}

/* --- classes, by search ---------------------------------------------------------------------- */

static unsigned class_searched(size_t size, size_t align) {
  unsigned c = 0;
  while (c < CLASS_ZERO && (class_info[c].size < size || class_info[c].size % align != 0)) c++;
  return c;
}

static void check_class(void) {
  size_t size = 1 + ((size_t)input_word() >> input_below(12)) % HAK_SMALL_MAX, align = (size_t)1 << input_below(16);
  FUZZ_EQ(class_of(size), class_searched(size, 1));
  unsigned c = class_of_aligned(size, align), want = class_searched(size, align);
  FUZZ_EQ(c, want);
  if (c == CLASS_ZERO) return;
  const class_info_t *info = &class_info[c];
  size_t offset = (size_t)(input_word() % info->blocks) * info->size + (input_below(2) == 0 ? 0 : info->size - 1);
  FUZZ_EQ(class_block_at(c, offset), offset / info->size);
  FUZZ_EQ(info->blocks, info->units * HAK_UNIT / info->size);
}

static void check_random(void) {
  uint64_t state = input_number(), again = state;
  uint32_t bound = 1 + input_word();
  FUZZ_CHECK(random_below(&state, bound) < bound && state != again);
}

/* There is no region, so every address is foreign. */
static void check_place(void) {
  const void *p = (const void *)(uintptr_t)input_number();
  FUZZ_CHECK(region_unit(p) >= load_relaxed(&region.units) && region_index(p) >= region.limit);
}

void fuzz_target(void) {
  static void (*const checks[])(void) = {check_format, check_bits, check_class, check_random, check_place};
  while (!input_ends()) checks[input_below(5)]();
}
