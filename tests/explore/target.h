/* target.h - the allocator as scenarios and their judges see it, with what its files keep to themselves. */
#ifndef TESTS_EXPLORE_TARGET_H
#define TESTS_EXPLORE_TARGET_H

#include "explore.h"
#include "front/block.h"
#include "slab/remote.h"

enum { TARGET_IDENTITIES = EXPLORE_ACTORS + 1, OUTSIDER = EXPLORE_ACTORS };

/* malloc and free, by a program that writes to its blocks: what one owner of a block did must come before what the next does. */
void *target_take(size_t size);
void target_give(void *block);
/* free alone, of a block that another thread may have freed. */
void target_free(void *block);
/* The program writes to what it has. */
void target_write(void *at);
/* What runs when the calling thread ends. */
void target_end_thread(void);
/* As if so many heaps were left that one without slabs gives up its bins. */
void target_many_orphans(void);
/* What malloc_trim and a malloc without memory do: for the thread itself, and for all others. */
void target_trim(void);
void target_trim_others(void);
/* What the keeper does with large blocks that threads keep, twice. */
void target_age_kept(void);
/* One look at what threads that have ended have left in their bins; the second one empties them. */
void target_age_handovers(void);
/* Whether the bytes of what is left add up to what is known of them. */
bool target_handovers_counted(void);
/* What the running thread has taken last was barred when it was on its way; and what a drain does from there on. */
void target_bar_above(size_t size);
void target_take_barred(void);
void target_purge_holes(void);
/* The running thread is the only one of a fork's child. */
void target_fork(void);
/* The process is a child that nobody has repaired, of one whose thread was on a slow path, with its heap's lock and half of its lists. */
void target_left_behind(unsigned identity);
/* The running thread's variables are those of a new one. */
void target_forget_thread(void);
/* A thread's heap, or NULL. */
heap_t *target_heap_of(unsigned identity);
uintptr_t target_self_of(unsigned identity);

/* free, where the fast path has not taken the block. */
void target_free_missed(void *block);
/* A named heap, of which there is one: made, taken from, ended. */
void target_named_new(void);
void *target_named_take(size_t size);
void target_named_end(void);
/* What a free does from when it has claimed its block on; nothing if another has claimed it. */
void target_free_if_live(void *block);
/* What the statistics look at. */
void target_look(void);
/* There are to be so many guard slots; a block in one, or NULL. */
void target_guard_slots(int64_t count);
void *target_guarded(size_t size);

typedef enum remote_state { STATE_CLOSED, STATE_OPEN, STATE_QUEUED } remote_state_t;
uint32_t target_remote_state(uint32_t unit);
/* The next in a pending stack: unit + 1, or 0. */
uint32_t target_remote_next(uint32_t unit);
/* As if the thread had been the first to free into the slab, not as its owner. */
void target_marked_by(uint32_t slab, unsigned identity);
/* As if so many slabs had been queued that `more` further ones make others help. */
void target_nearly_idle(slab_owner_t *owner, uint32_t more);
bool target_grow_locked(void);
/* Figures that only decide when pages go back, which is off here. */
void target_ignore_figures(void);

#endif
