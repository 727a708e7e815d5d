/* base.c - bits and formatting, checked against the plainest implementation. */
#include "base/bits.h"
#include "base/config.h"
#include "base/format.h"
#include "base/thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "unit.h"

/* ---- bits ---- */

TEST(every_single_bit_is_found) {
  for (unsigned n = 0; n < 64; n++) {
    uint64_t bit = (uint64_t)1 << n;
    CHECK_EQ(bits_lowest64(bit), n);
    CHECK_EQ(bits_highest64(bit), n);
    CHECK_EQ(bits_lowest64(~(bit - 1)), n);
    CHECK_EQ(bits_highest64(bit | (bit - 1)), n);
    if (n < 32) CHECK_EQ(bits_lowest32((uint32_t)bit), n);
  }
}

TEST(counts_match_a_loop) {
  uint64_t state = unit_seed();
  for (int i = 0; i < 10000; i++) {
    uint64_t x = (uint64_t)unit_random(&state) << 32 | unit_random(&state);
    unsigned low = 0, all = 0;
    for (unsigned n = 0; n < 64; n++) {
      low += n < 32 && (x >> n & 1) != 0;
      all += (x >> n & 1) != 0;
    }
    CHECK_EQ(bits_count64(x), all);
    CHECK_EQ(bits_count32((uint32_t)x), low);
  }
}

TEST(masks_cover_just_their_bits) {
  for (unsigned start = 0; start < 32; start++) {
    for (unsigned n = 1; start + n <= 32; n++) {
      uint32_t want = 0;
      for (unsigned i = start; i < start + n; i++) want |= (uint32_t)1 << i;
      CHECK_EQ(bits_mask32(start, n), want);
    }
  }
}

TEST(rounding_keeps_multiples_and_moves_the_rest) {
  for (size_t unit = 1; unit <= 1 << 21; unit *= 2) {
    for (size_t x = 0; x < 3 * unit; x += unit / 4 + 1) {
      size_t up = bits_round_up(x, unit), down = bits_round_down(x, unit);
      CHECK(up % unit == 0 && up >= x && up - x < unit);
      CHECK(down % unit == 0 && down <= x && x - down < unit);
    }
  }
}

TEST(powers_of_two_are_known) {
  CHECK(!bits_is_pow2(0));
  for (unsigned n = 0; n < 64; n++) {
    size_t bit = (size_t)1 << n;
    CHECK(bits_is_pow2(bit));
    if (n > 1) CHECK(!bits_is_pow2(bit - 1) && !bits_is_pow2(bit + 1));
  }
}

TEST(rotation_makes_misaligned_offsets_huge) {
  for (uintptr_t offset = 0; offset < 4096; offset++) {
    uintptr_t place = bits_rotr(offset, HAK_GRANULE_SHIFT);
    if (offset % HAK_GRANULE == 0) CHECK_EQ(place, offset / HAK_GRANULE);
    else CHECK(place > HAK_REGION_MAX);
  }
}

TEST(test_and_clear_takes_the_bit_number_modulo_64) {
  for (uint64_t n = 0; n < 256; n++) {
    uint64_t bit = (uint64_t)1 << n % 64;
    uint64_t word = UINT64_MAX;
    CHECK(bits_test_and_clear64(&word, n));
    CHECK(word == (UINT64_MAX & ~bit));
    CHECK(!bits_test_and_clear64(&word, n));
    CHECK(word == (UINT64_MAX & ~bit));
  }
}

/* ---- format ---- */

static const char *formatted_signed(char *text, size_t size, int64_t value) {
  format_t f;
  format_init(&f, text, size);
  format_signed(&f, value);
  return text;
}

TEST(numbers_read_as_printf_writes_them) {
  static const int64_t values[] = {0, 1, -1, 9, 10, -10, 4294967296, INT64_MAX, INT64_MIN, INT64_MIN + 1};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    char got[64], want[64];
    snprintf(want, sizeof want, "%" PRId64, values[i]);
    CHECK(strcmp(formatted_signed(got, sizeof got, values[i]), want) == 0);

    format_t f;
    format_init(&f, got, sizeof got);
    format_unsigned(&f, (uint64_t)values[i]);
    format_char(&f, ' ');
    format_hex(&f, (uint64_t)values[i]);
    int length = snprintf(want, sizeof want, "%" PRIu64 " 0x%" PRIx64, (uint64_t)values[i], (uint64_t)values[i]);
    CHECK(strcmp(got, want) == 0);
    CHECK_EQ(f.used, length);
  }
}

TEST(text_is_cut_at_the_end_of_the_buffer) {
  static const char text[] = "0x123456789abcdef";
  for (size_t size = 1; size < 24; size++) {
    char buffer[32];
    memset(buffer, '#', sizeof buffer);
    format_t f;
    format_init(&f, buffer, size);
    format_hex(&f, 0x123456789abcdef);
    size_t want = size - 1 < sizeof text - 1 ? size - 1 : sizeof text - 1;
    CHECK_EQ(f.used, want);
    CHECK(memcmp(buffer, text, want) == 0);
    CHECK_EQ(buffer[want], '\0');
    CHECK_EQ(buffer[size], '#');
  }
}

/* ---- thread ---- */

static void *self_of_thread(void *result) {
  *(uintptr_t *)result = thread_self();
  return NULL;
}

TEST(threads_have_identities_of_their_own) {
  pthread_t thread;
  uintptr_t other = 0;
  REQUIRE(pthread_create(&thread, NULL, self_of_thread, &other) == 0);
  pthread_join(thread, NULL);
  CHECK(thread_self() != 0 && other != 0);
  CHECK(thread_self() != other);
  CHECK(thread_self() == thread_self());
}
