/* litmus.c - small programs with known outcomes, which the memory model must allow or forbid.
 *
 * They are compiled as the allocator is. An allowed outcome must be seen with few preemptions and
 * one or two stale reads; a forbidden one must not be seen with more of both. */
#include <stdatomic.h>
#include <stdbool.h>

#include "explore.h"
#include "product.h"
#include "target.h"

static _Atomic uint32_t x, y, z;
static uint32_t plain;
static uint32_t r[4];

#define load(p, order) atomic_load_explicit(p, memory_order_##order)
#define store(p, v, order) atomic_store_explicit(p, v, memory_order_##order)
#define fence(order) atomic_thread_fence(memory_order_##order)

static void allowed(void) { explore_expect(); }
static void forbidden(void) {}
static void judge_never(void) {}

#define NO_RACE_CHECK __attribute__((no_sanitize_thread))
NO_RACE_CHECK static void note(unsigned i, uint32_t value) { r[i] = value; }
NO_RACE_CHECK static void shown(bool is) {
  if (is) explore_show();
}

/* --- message passing: data, then a flag ------------------------------------------------------ */

static void data_relaxed(void) { store(&x, 1, relaxed), store(&y, 1, relaxed); }
static void data_release(void) { store(&x, 1, relaxed), store(&y, 1, release); }
static void data_fence(void) { store(&x, 1, relaxed), fence(release), store(&y, 1, relaxed); }
static void flag_relaxed(void) { note(0, load(&y, relaxed)), note(1, load(&x, relaxed)); }
static void flag_acquire(void) { note(0, load(&y, acquire)), note(1, load(&x, relaxed)); }
static void flag_fence(void) { note(0, load(&y, relaxed)), fence(acquire), note(1, load(&x, relaxed)); }
NO_RACE_CHECK static void judge_passing(void) { shown(r[0] == 1 && r[1] == 0); }

static void plain_release(void) { plain = 1, store(&y, 1, release); }
static void plain_acquire(void) {
  if (load(&y, acquire) == 1) plain = 2;
}

/* A read-modify-write by a third actor continues the release sequence; a later plain store of the releasing actor does not. */
static void data_release_and_more(void) { data_release(), store(&y, 2, relaxed); }
static void flag_changed(void) { (void)atomic_fetch_add_explicit(&y, 1, memory_order_relaxed); }
NO_RACE_CHECK static void judge_second(void) { shown(r[0] == 2 && r[1] == 0); }
static void data_to_second(void) { store(&x, 1, relaxed), store(&z, 1, release); }
static void hand_on(void) {
  if (load(&z, acquire) == 1) store(&y, 1, release);
}
static void hand_on_relaxed(void) {
  if (load(&z, relaxed) == 1) store(&y, 1, release);
}

/* --- store buffering: each writes one and reads the other -------------------------------------- */

#define BOTH(name, order_store, order_load, between)                                                \
  static void name##_x(void) { store(&x, 1, order_store), between, note(0, load(&y, order_load)); } \
  static void name##_y(void) { store(&y, 1, order_store), between, note(1, load(&x, order_load)); }
BOTH(sb_weak, release, acquire, (void)0)
BOTH(sb_strong, seq_cst, seq_cst, (void)0)
BOTH(sb_fence, relaxed, relaxed, fence(seq_cst))
BOTH(sb_half, relaxed, relaxed, fence(acq_rel))
static void sb_change_x(void) { (void)atomic_exchange(&x, 1), note(0, atomic_load(&y)); }
static void sb_change_y(void) { (void)atomic_exchange(&y, 1), note(1, atomic_load(&x)); }
/* As lock_try does: a failed exchange is a load. */
static void sb_try_y(void) {
  uint32_t none = 0;
  store(&y, 1, seq_cst);
  bool taken = atomic_compare_exchange_strong(&x, &none, 5);
  note(1, taken ? 0 : 1);
}
static void sb_try_weak_y(void) {
  uint32_t none = 0;
  store(&y, 1, release);
  bool taken = atomic_compare_exchange_strong_explicit(&x, &none, 5, memory_order_acq_rel, memory_order_acquire);
  note(1, taken ? 0 : 1);
}
NO_RACE_CHECK static void judge_buffering(void) { shown(r[0] == 0 && r[1] == 0); }
/* x is 1 while the lock is held. */
NO_RACE_CHECK static void judge_tried(void) { shown(r[0] == 0 && r[1] == 1); }
NO_RACE_CHECK static void allowed_held(void) { allowed(), x = 1; }
NO_RACE_CHECK static void forbidden_held(void) { x = 1; }
static void unlock_strong(void) { (void)atomic_exchange(&x, 0), note(0, atomic_load(&y)); }
static void unlock_weak(void) { store(&x, 0, release), note(0, load(&y, acquire)); }

/* --- coherence, causes, four of them -------------------------------------------------------------- */

static void write_x(void) { store(&x, 1, relaxed), store(&x, 2, relaxed); }
static void read_twice(void) { note(0, load(&x, relaxed)), note(1, load(&x, relaxed)); }
NO_RACE_CHECK static void judge_back(void) { shown(r[0] > r[1]); }

static void iriw_x(void) { store(&x, 1, release); }
static void iriw_y(void) { store(&y, 1, release); }
static void iriw_xy(void) { note(0, load(&x, acquire)), note(1, load(&y, acquire)); }
static void iriw_yx(void) { note(2, load(&y, acquire)), note(3, load(&x, acquire)); }
static void iriw_x_strong(void) { store(&x, 1, seq_cst); }
static void iriw_y_strong(void) { store(&y, 1, seq_cst); }
static void iriw_xy_strong(void) { note(0, load(&x, seq_cst)), note(1, load(&y, seq_cst)); }
static void iriw_yx_strong(void) { note(2, load(&y, seq_cst)), note(3, load(&x, seq_cst)); }
static void iriw_xy_fence(void) { note(0, load(&x, relaxed)), fence(seq_cst), note(1, load(&y, relaxed)); }
static void iriw_yx_fence(void) { note(2, load(&y, relaxed)), fence(seq_cst), note(3, load(&x, relaxed)); }
NO_RACE_CHECK static void judge_disagree(void) { shown(r[0] == 1 && r[1] == 0 && r[2] == 1 && r[3] == 0); }

/* --- not modelled: reads of what is yet to be written, stores put in before others ------------------ */

static void lb_x(void) { note(0, load(&x, relaxed)), store(&y, 1, relaxed); }
static void lb_y(void) { note(1, load(&y, relaxed)), store(&x, 1, relaxed); }
NO_RACE_CHECK static void judge_from_nothing(void) { shown(r[0] == 1 && r[1] == 1); }
static void w22_x(void) { store(&x, 1, relaxed), store(&y, 2, relaxed); }
static void w22_y(void) { store(&y, 1, relaxed), store(&x, 2, relaxed); }
NO_RACE_CHECK static void judge_crossed(void) { shown(x == 1 && y == 1); }

const scenario_t scenarios[] = {
    {"mp.relaxed", allowed, {data_relaxed, flag_relaxed}, judge_passing, NULL, 1, 1},
    {"mp.release_alone", allowed, {data_release, flag_relaxed}, judge_passing, NULL, 1, 1},
    {"mp.acquire_alone", allowed, {data_relaxed, flag_acquire}, judge_passing, NULL, 1, 1},
    {"mp.release_acquire", forbidden, {data_release, flag_acquire}, judge_passing, NULL, 3, 3},
    {"mp.fences", forbidden, {data_fence, flag_fence}, judge_passing, NULL, 3, 3},
    {"mp.fence_acquire", forbidden, {data_fence, flag_acquire}, judge_passing, NULL, 3, 3},
    {"mp.plain", forbidden, {plain_release, plain_acquire}, judge_never, NULL, 3, 3},
    {"mp.changed_by_third", forbidden, {data_release, flag_changed, flag_acquire}, judge_second, NULL, 3, 3},
    {"mp.stored_again", allowed, {data_release_and_more, flag_acquire}, judge_second, NULL, 1, 1},
    {"mp.handed_on", forbidden, {data_to_second, hand_on, flag_acquire}, judge_passing, NULL, 3, 3},
    {"mp.handed_on_relaxed", allowed, {data_to_second, hand_on_relaxed, flag_acquire}, judge_passing, NULL, 1, 1},
    {"sb.release_acquire", allowed, {sb_weak_x, sb_weak_y}, judge_buffering, NULL, 1, 1},
    {"sb.seq_cst", forbidden, {sb_strong_x, sb_strong_y}, judge_buffering, NULL, 3, 3},
    {"sb.fences", forbidden, {sb_fence_x, sb_fence_y}, judge_buffering, NULL, 3, 3},
    {"sb.weak_fences", allowed, {sb_half_x, sb_half_y}, judge_buffering, NULL, 1, 1},
    {"sb.one_fence", allowed, {sb_fence_x, sb_weak_y}, judge_buffering, NULL, 1, 1},
    {"sb.mixed", allowed, {sb_strong_x, sb_weak_y}, judge_buffering, NULL, 1, 1},
    {"sb.changes", forbidden, {sb_change_x, sb_change_y}, judge_buffering, NULL, 3, 3},
    {"sb.try", forbidden_held, {unlock_strong, sb_try_y}, judge_tried, NULL, 3, 3},
    {"sb.try_weak", allowed_held, {unlock_weak, sb_try_weak_y}, judge_tried, NULL, 1, 1},
    {"coherence", forbidden, {write_x, read_twice}, judge_back, NULL, 3, 3},
    {"iriw.acquire", allowed, {iriw_x, iriw_y, iriw_xy, iriw_yx}, judge_disagree, NULL, 1, 1},
    {"iriw.seq_cst", forbidden, {iriw_x_strong, iriw_y_strong, iriw_xy_strong, iriw_yx_strong}, judge_disagree, NULL, 3, 3},
    {"iriw.fences", forbidden, {iriw_x, iriw_y, iriw_xy_fence, iriw_yx_fence}, judge_disagree, NULL, 3, 3},
    {"not_modelled.load_buffering", forbidden, {lb_x, lb_y}, judge_from_nothing, NULL, 3, 3},
    {"not_modelled.stores_put_in_between", forbidden, {w22_x, w22_y}, judge_crossed, NULL, 3, 3},
};
const size_t scenario_count = sizeof scenarios / sizeof scenarios[0];

/* --- in place of product.c and target.c ------------------------------------------------------------ */

const scenario_t *product_cell(size_t i) { return (void)i, NULL; }
size_t product_count(void) { return 0; }
uintptr_t explore_self;
void target_run_as(unsigned identity) { (void)identity; }
void target_run_again(void) {}
