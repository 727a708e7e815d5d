#include "places.h"

#define PLACE_BYTES 64 /* the maximum of code bytes */
/* A call at the end of a function would become a jump, and leave no frame on the stack. */
#define PLACE(name)                                                                 \
  static __attribute__((noinline, aligned(PLACE_BYTES))) void *name(size_t bytes) { \
    void *block = api.malloc(bytes);                                                \
    __asm__ volatile("" : "+r"(block) : : "memory");                                \
    return block;                                                                   \
  }
PLACE(place_60)
PLACE(place_30)
PLACE(place_10)
static void *(*const places[PLACES])(size_t bytes) = {place_60, place_30, place_10};
static const unsigned percent[PLACES] = {60, 30, 10};

typedef struct held {
  struct held *next;
} held_t;
static held_t *held[PLACES];
uint64_t held_bytes[PLACES];

unsigned place_at(uintptr_t address) {
  unsigned place = 0;
  while (place < PLACES && address - (uintptr_t)places[place] >= PLACE_BYTES) place++;
  return place;
}

uint32_t below(uint32_t end) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)((state >> 32) * end >> 32);
}

static size_t some_size(void) { return below(50) == 0 ? 40000 + below(100000) : 16 + below(2000); }

void *allocate_at(unsigned place, size_t bytes) { return places[place](bytes); }

void hold(unsigned place) {
  size_t bytes = some_size();
  held_t *block = places[place](bytes);
  REQUIRE(block != NULL);
  block->next = held[place];
  held[place] = block;
  held_bytes[place] += api.malloc_usable_size(block);
}

void hold_all(void) {
  uint64_t sum = 0;
  while (sum < HELD) {
    uint32_t draw = below(100);
    unsigned place = draw < percent[0] ? 0 : draw < percent[0] + percent[1] ? 1 : 2;
    hold(place);
    for (unsigned i = 0; i < 3; i++) api.free(places[i](some_size()));
    sum = held_bytes[0] + held_bytes[1] + held_bytes[2];
  }
}

void let_go(unsigned place) {
  for (held_t *block = held[place], *next; block != NULL; block = next) {
    next = block->next;
    api.free(block);
  }
  held[place] = NULL;
  held_bytes[place] = 0;
}
