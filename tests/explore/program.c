#include "program.h"

#include <unistd.h>

#include "slab/sample.h"
#include "target.h"

void *held[HELD_MOST];
unsigned giving;

void *take(size_t size) {
  void *block = target_take(size);
  if (block == NULL) explore_fail("no memory for %zu bytes", size);
  unsigned room = HELD_MOST;
  for (unsigned i = 0; i < HELD_MOST; i++) {
    if (held[i] == block) explore_fail("%p is given out twice", block);
    if (held[i] == NULL) room = i;
  }
  if (room == HELD_MOST) explore_fail("the program holds too much");
  if (!slab_block_is_live(block)) explore_fail("%p is given out and not live", block);
  held[room] = block;
  return block;
}

static void forget(const void *block) {
  for (unsigned i = 0; i < HELD_MOST; i++) {
    if (held[i] == block) held[i] = NULL;
  }
}

void give(void *block) {
  forget(block);
  giving++;
  target_give(block);
  giving--;
}

void give_wrongly(void *block) {
  forget(block);
  target_free(block);
}

static void start_with(char *insight) {
  static char *settings[] = {"HAKMEM_DECAY_MS=-1", "HAKMEM_REGION_MB=1024", "HAKMEM_KEEPER=0", NULL, NULL, NULL};
  settings[3] = explore_tracked ? "HAKMEM_INSIGHT=1" : insight;
  settings[4] = explore_tracked ? "HAKMEM_TRACK=1" : "HAKMEM_TRACK=0";
  environ = settings;
  target_ignore_figures();
}

void start(void) { start_with("HAKMEM_INSIGHT=0"); }
void start_sampled(void) { start_with("HAKMEM_INSIGHT=1"); }
