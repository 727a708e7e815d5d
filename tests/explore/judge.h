/* judge.h - what must hold when all actors have ended, whatever they did in which order. */
#ifndef TESTS_EXPLORE_JUDGE_H
#define TESTS_EXPLORE_JUDGE_H

/* Every block is in one place, every count is right, nothing waits unannounced that may not (a mark may, after a stale read, until
 * somebody looks), no lock is held. */
void judge_state(void);
/* Every unit is free. */
void judge_nothing_used(void);
/* The state is right; it stays so while all is freed and all threads end; then nothing is left. */
void judge_end(void);
/* The same; and no block is live that the program does not hold, as no helper has been at work. */
void judge_end_live(void);
/* In a fork's child: the state is right but for blocks that were on their way, and stays so while all is freed. */
void judge_forked(void);

#endif
