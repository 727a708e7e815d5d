#include "slab/class.h"

#define CLASS(size, units) {(size), (units), (uint32_t)((units) * HAK_UNIT / (size)), (((uint64_t)1 << 40) + (size) - 1) / (size)}

const class_info_t class_info[CLASS_COUNT] = {CLASS_SIZES};
