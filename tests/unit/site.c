/* site.c - the tree of stacks: each stack has one number, and is found quickly among very many. */
#include "kit/site.c"

#include <pthread.h>

#include "fake_os.h"
#include "unit.h"

enum { MANY = 40000, FEW_CALLS = 4000, CHAIN_MOST = 32, THREADS = 2 };

/* A tree in which each call has three callees. */
static uint32_t parent_of(const uint32_t *numbers, uint32_t i) { return i == 0 ? SITE_NONE : numbers[(i - 1) / 3]; }
static uintptr_t address_of(uint32_t i) { return 0x400000 + (uintptr_t)i * 37; }

static void enter_many(uint32_t *numbers, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) numbers[i] = site_enter(parent_of(numbers, i), address_of(i));
}

static uint32_t longest_of(_Atomic uint32_t *buckets, uint32_t count) {
  uint32_t longest = 0;
  for (uint32_t i = 0; buckets != NULL && i < count; i++) {
    uint32_t length = 0;
    for (uint32_t number = load_relaxed(&buckets[i]); number != SITE_NONE; number = node_at(number)->next) length++;
    if (length > longest) longest = length;
  }
  return longest;
}

static uint32_t longest(void) {
  uint32_t few = longest_of(site_buckets, 1 << FEW_SHIFT), many = longest_of(load_relaxed(&site_buckets_many), 1 << MANY_SHIFT);
  return few > many ? few : many;
}

TEST(each_of_many_sites_has_its_number) {
  static uint32_t numbers[MANY], again[MANY];
  enter_many(numbers, MANY);
  CHECK_EQ(site_figures().sites, MANY);
  enter_many(again, MANY);
  CHECK_EQ(site_figures().sites, MANY);
  for (uint32_t i = 0; i < MANY; i++) {
    const site_t *site = site_at(numbers[i]);
    CHECK(again[i] == numbers[i] && site->address == address_of(i) && site->parent == parent_of(numbers, i));
  }
}

TEST(none_is_passed_by_many_others) {
  static uint32_t numbers[MANY];
  enter_many(numbers, MANY);
  CHECK(longest() > 1 && longest() <= CHAIN_MOST);
}

TEST(few_sites_take_one_page_of_buckets) {
  static uint32_t numbers[FEW_CALLS];
  enter_many(numbers, FEW_CALLS);
  CHECK(load_relaxed(&site_buckets_many) == NULL);
}

/* Without memory for the larger table, the first one holds the sites; later the larger one does. */
TEST(without_the_larger_table_all_are_found) {
  static uint32_t numbers[MANY];
  uint32_t spell = FEW_SITES + SITE_CHUNK / 2;
  enter_many(numbers, FEW_SITES - 1);
  for (uint32_t i = FEW_SITES - 1; i < spell; i++) {
    fake_os_fail(FAKE_ONLY(FAKE_MAP), 1, 1);
    numbers[i] = site_enter(parent_of(numbers, i), address_of(i));
  }
  CHECK_EQ(fake_os_injected(), spell - (FEW_SITES - 1));
  CHECK_EQ(site_figures().sites, spell);
  CHECK(load_relaxed(&site_buckets_many) == NULL);
  fake_os_fail_none();
  enter_many(numbers, MANY);
  CHECK(load_relaxed(&site_buckets_many) != NULL);
  CHECK_EQ(site_figures().sites, MANY);
}

/* A walk enters all of its calls, most of which are known: known calls request no memory, which matters when memory is short. */
TEST(who_finds_all_asks_for_no_memory) {
  static uint32_t numbers[MANY];
  enter_many(numbers, FEW_SITES - 1);
  fake_os_fail(FAKE_ONLY(FAKE_MAP), 1, MANY);
  enter_many(numbers, FEW_SITES - 1);
  CHECK_EQ(fake_os_injected(), 0);
  CHECK_EQ(site_enter(SITE_NONE, address_of(MANY)), SITE_NONE);
  CHECK(fake_os_injected() > 0);
}

static pthread_barrier_t together;

static void *enter_beside(void *numbers) {
  pthread_barrier_wait(&together);
  for (uint32_t i = 0; i < MANY; i++) ((uint32_t *)numbers)[i] = site_enter(SITE_NONE, address_of(i));
  return NULL;
}

/* Except for the site that each thread is entering when the larger table comes. */
TEST(threads_give_a_site_one_number) {
  static uint32_t numbers[THREADS][MANY];
  pthread_t threads[THREADS];
  REQUIRE(pthread_barrier_init(&together, NULL, THREADS) == 0);
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, enter_beside, numbers[i]) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  uint32_t differ = 0;
  for (uint32_t i = 0; i < MANY; i++) {
    CHECK_EQ(site_at(numbers[0][i])->address, address_of(i));
    CHECK_EQ(site_at(numbers[1][i])->address, address_of(i));
    if (numbers[0][i] != numbers[1][i]) differ++;
  }
  CHECK(differ <= THREADS);
}
