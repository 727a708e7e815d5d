/* program.h - malloc and free as an actor does them, with account of what the program holds. */
#ifndef TESTS_EXPLORE_PROGRAM_H
#define TESTS_EXPLORE_PROGRAM_H

#include <stddef.h>

enum { HELD_MOST = 160 };
extern void *held[HELD_MOST]; /* NULL: none */

/* Frees under way; those of threads that a fork's child has not stay so. */
extern unsigned giving;

/* Fails if there is no memory, or the block is held already. */
void *take(size_t size);
void give(void *block);
/* Of a block that is another actor's to free as well. */
void give_wrongly(void *block);
/* First in every preparation: settings under which nothing happens by the clock. */
void start(void);
void start_sampled(void); /* or this, where blocks are sampled */

#endif
