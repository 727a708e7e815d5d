/* program.h - malloc and free for actors, with a record of the blocks that the program holds. */
#ifndef TESTS_EXPLORE_PROGRAM_H
#define TESTS_EXPLORE_PROGRAM_H

#include <stddef.h>

enum { HELD_MOST = 160 };
extern void *held[HELD_MOST]; /* NULL: none */

/* Unfinished frees; in a fork's child this includes those of threads that it does not have. */
extern unsigned giving;

/* Fails the execution if there is no memory, or if the block is already held. */
void *take(size_t size);
void give(void *block);
/* Frees a block that another actor frees too. */
void give_wrongly(void *block);
/* Begins every preparation: settings under which nothing depends on the clock. */
void start(void);
void start_sampled(void); /* the same, with sampled blocks */

#endif
