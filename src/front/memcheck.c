#include "front/memcheck.h"

#include "slab/large.h"

size_t memcheck_room(size_t size, size_t align) {
  if (size > PTRDIFF_MAX - MEMCHECK_TAIL) return SIZE_MAX;
  size += MEMCHECK_TAIL;
  unsigned c = class_of_request_aligned(size, align);
  size_t room = c != CLASS_NONE ? class_usable(c) : large_good_size(large_request(size));
  return room != 0 ? room : SIZE_MAX;
}

/* Shrinking in place gives no memory back: another block could have it before memcheck knows. */
size_t memcheck_room_in_place(const block_info_t *info, const void *block, size_t size) {
  size_t old = memcheck_size(block, info->size), room = memcheck_room(size, 1);
  if (room == SIZE_MAX || (size < old && room != info->size)) return 0;
  if (room <= info->size) return info->size;
  return load_relaxed(&info->span->kind) == UNIT_LARGE ? room : 0;
}
