/* class.c - the size classes, checked by trying every size and every offset. */
#include "slab/class.h"

#include "unit.h"

static unsigned smallest_class(size_t size) {
  unsigned c = 0;
  while (class_info[c].size < size) c++;
  return c;
}

TEST(classes_ascend_and_are_whole_granules) {
  CHECK_EQ(class_info[0].size, HAK_GRANULE);
  CHECK_EQ(class_info[CLASS_ZERO - 1].size, HAK_SMALL_MAX);
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    CHECK_EQ(class_info[c].size % HAK_GRANULE, 0);
    if (c > 0) CHECK(class_info[c].size > class_info[c - 1].size);
  }
}

TEST(every_size_maps_to_the_smallest_class_that_holds_it) {
  for (size_t size = 1; size <= HAK_SMALL_MAX; size++) CHECK_EQ(class_of(size), smallest_class(size));
}

TEST(steps_waste_at_most_a_fifth_above_128_bytes) {
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    if (class_info[c].size <= 128) CHECK_EQ(class_info[c].size, 16 * (c + 1));
    else CHECK((class_info[c].size - class_info[c - 1].size) * 5 <= class_info[c].size);
  }
}

TEST(a_slab_holds_as_many_blocks_as_fit_and_wastes_little) {
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    const class_info_t *info = &class_info[c];
    size_t bytes = info->units * HAK_UNIT, used = (size_t)info->blocks * info->size;
    CHECK(used <= bytes && bytes - used < info->size);
    CHECK((bytes - used) * 8 <= bytes);
    CHECK(info->blocks >= 4 && info->blocks <= 4096);
  }
}

TEST(the_inverse_is_exact_for_every_offset) {
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    const class_info_t *info = &class_info[c];
    uint32_t block = 0, left = info->size;
    for (size_t offset = 0; offset < info->units * HAK_UNIT; offset++) {
      if (class_block_at(c, offset) != block) {
        check_fail(__FILE__, __LINE__, "class %u, offset %zu: block %u, not %u", info->size, offset, class_block_at(c, offset), block);
        break;
      }
      if (--left == 0) {
        block++;
        left = info->size;
      }
    }
  }
}

TEST(aligned_sizes_map_to_the_smallest_class_that_keeps_the_alignment) {
  for (size_t align = HAK_GRANULE; align <= HAK_SMALL_MAX; align *= 2) {
    for (size_t size = 1; size <= HAK_SMALL_MAX; size += size < 2048 ? 1 : 61) {
      unsigned want = smallest_class(size);
      while (want < CLASS_ZERO && class_info[want].size % align != 0) want++;
      CHECK_EQ(class_of_aligned(size, align), want);
    }
  }
}

TEST(every_power_of_two_has_a_class_for_itself) {
  for (size_t align = HAK_GRANULE; align <= HAK_SMALL_MAX; align *= 2) CHECK_EQ(class_info[class_of_aligned(align, align)].size, align);
}
