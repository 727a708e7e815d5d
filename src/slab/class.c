#include "slab/class.h"

#define CLASS(size, units) {(size), (units), (uint32_t)((units) * HAK_UNIT / (size)), (((uint64_t)1 << 40) + (size) - 1) / (size)}
#define CLASS_DOUBLING(from, units) \
  CLASS((from) / 4 * 5, units), CLASS((from) / 4 * 6, units), CLASS((from) / 4 * 7, units), CLASS((from) / 4 * 8, units)

const class_info_t class_info[CLASS_COUNT] = {
    CLASS(16, 1),
    CLASS(32, 1),
    CLASS(48, 1),
    CLASS(64, 1),
    CLASS(80, 1),
    CLASS(96, 1),
    CLASS(112, 1),
    CLASS(128, 1),
    CLASS_DOUBLING(128, 1),
    CLASS_DOUBLING(256, 1),
    CLASS_DOUBLING(512, 1),
    CLASS_DOUBLING(1024, 1),
    CLASS_DOUBLING(2048, 1),
    CLASS_DOUBLING(4096, 1),
    CLASS_DOUBLING(8192, 2),
    CLASS_DOUBLING(16384, 4),
    CLASS(16, 1), /* CLASS_ZERO */
};
