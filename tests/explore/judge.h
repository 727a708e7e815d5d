/* judge.h - what must hold when all actors have ended, in whatever order they ran. */
#ifndef TESTS_EXPLORE_JUDGE_H
#define TESTS_EXPLORE_JUDGE_H

/* Every block is in one place, every count is right, no lock is held, and no remote free waits unannounced. Only a mark may do so,
 * after a stale read, until its slab is checked. */
void judge_state(void);
/* Every unit is free. */
void judge_nothing_used(void);
/* The state is right, stays right while all blocks are freed and all threads end, and in the end no unit is used. */
void judge_end(void);
/* The same; also, exactly the blocks that the program holds are live. Not for scenarios where the owner may undo a helper's change. */
void judge_end_live(void);
/* In a fork's child: the state is right except for blocks in transit at the fork, and stays so while all blocks are freed. */
void judge_forked(void);

#endif
