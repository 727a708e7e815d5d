/* target.h - the allocator for scenarios and judges, with access to what is private to its files. */
#ifndef TESTS_EXPLORE_TARGET_H
#define TESTS_EXPLORE_TARGET_H

#include "explore.h"
#include "front/block.h"
#include "slab/remote.h"

enum { TARGET_IDENTITIES = EXPLORE_ACTORS + 1, OUTSIDER = EXPLORE_ACTORS };

/* malloc and free, with a write to the block: the writes of one holder of a block must happen before those of the next. */
void *target_take(size_t size);
void target_give(void *block);
/* free without the write: for a block that another thread may have freed. */
void target_free(void *block);
/* A write by the program to memory that it holds. */
void target_write(void *at);
/* Ends the calling thread, as far as the allocator notices. */
void target_end_thread(void);
/* Pretends that there are so many orphans that a further one without slabs gives up its bins. */
void target_many_orphans(void);
/* What malloc_trim does, and malloc when it finds no memory: for the thread itself, and for all others. */
void target_trim(void);
void target_trim_others(void);
/* What the keeper does with the large blocks that threads cache, twice. */
void target_age_large_caches(void);
/* One check of the parked bins; a second check empties them. */
void target_age_parked(void);
/* Returns whether the bytes of the parked heaps add up to the count of them. */
bool target_parked_counted(void);
/* Bars the entry above the bin's top, which the running thread has popped meanwhile; then does the rest of a drain. */
void target_bar_above(size_t size);
void target_take_barred(void);
void target_purge_holes(void);
/* Makes the running thread the only one, in a fork's child. */
void target_fork(void);
/* Makes the process an unrepaired child; at the fork this thread was on a slow path, held its heap's lock, and had half-changed lists. */
void target_left_behind(unsigned identity);
/* Resets the running thread's variables to those of a new thread. */
void target_forget_thread(void);
/* A thread's heap, or NULL. */
heap_t *target_heap_of(unsigned identity);
uintptr_t target_self_of(unsigned identity);

/* The slow path of free. */
void target_free_missed(void *block);
/* Makes the only named heap, takes a block from it, ends it. */
void target_named_new(void);
void *target_named_take(size_t size);
void target_named_end(void);
/* Claims the block and frees it; does nothing if another thread has claimed it. */
void target_free_if_live(void *block);
/* Reads what the statistics read. */
void target_look(void);
/* Sets the number of guard slots; returns a block in one, or NULL. */
void target_guard_slots(int64_t count);
void *target_guarded(size_t size);

typedef enum remote_state { STATE_CLOSED, STATE_OPEN, STATE_QUEUED } remote_state_t;
uint32_t target_remote_state(uint32_t unit);
/* The next slab in a pending stack: unit + 1, or 0. */
uint32_t target_remote_next(uint32_t unit);
/* Makes the thread the slab's marker, as if it had been the first to free remotely into it. */
void target_marked_by(uint32_t slab, unsigned identity);
/* Pretends that so many slabs are queued that `more` further ones make other threads help. */
void target_nearly_idle(slab_owner_t *owner, uint32_t more);
bool target_grow_locked(void);
/* Ignores counters that do not matter for what is judged, such as those that only decide when pages go back (that is off here). */
void target_ignore_figures(void);

#endif
