/* pinned.c - which code keeps pages in use: one block stays in each slab, from three places in the code, 60, 30 and 10 % of the blocks.
 *
 * - the pages that a snapshot counts are those that the kernel has there, within 1 %
 * - for each place, the estimate from the tracked slabs is within five standard errors: one run in 200,000 fails
 * - when a place frees its blocks, the resident set falls by what only this place was reported to keep, and by its blocks
 *
 * The memory is written to, and then given back except for the pages of the blocks that stay.  With HAKMEM_TRACK=1 the estimates are exact.
 *
 * Arguments: --slabs=16K, --seed.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

enum { SIZE = 64, SLAB = 64 * 1024, PLACES = 3, SITES_MOST = 1 << 18, DEEPEST = 64, HANG_SECONDS = 600, SLABS_LEAST = 2048 };

static const unsigned percent[PLACES] = {60, 30, 10};

/* ---- places ---- */

#define PLACE_BYTES 64 /* the maximum of code bytes */
/* A call at the end of a function would become a jump, and leave no frame on the stack. */
#define PLACE(name)                                                         \
  static __attribute__((noinline, aligned(PLACE_BYTES))) void *name(void) { \
    void *block = malloc(SIZE);                                             \
    __asm__ volatile("" : "+r"(block) : : "memory");                        \
    return block;                                                           \
  }
PLACE(place_60)
PLACE(place_30)
PLACE(place_10)
static void *(*const places[PLACES])(void) = {place_60, place_30, place_10};

typedef struct block {
  struct block *next;
  uint32_t place;
} block_t;
static block_t *left[PLACES];
static uint64_t left_count[PLACES], left_all;
static uintptr_t lowest = UINTPTR_MAX, highest;

/* One block of each slab, wherever the slab lies. */
static bool stays(const block_t *block) {
  uint64_t number = (uintptr_t)block % SLAB / SIZE;
  return rng_mix((uintptr_t)block / SLAB + stress_seed()) % (SLAB / SIZE) == number;
}

static void fill(rng_t *rng, uint64_t slabs) {
  block_t *all = NULL;
  for (uint64_t i = 0; i < slabs * (SLAB / SIZE); i++) {
    uint32_t draw = rng_below(rng, 100), place = draw < percent[0] ? 0 : draw < percent[0] + percent[1] ? 1 : 2;
    block_t *block = places[place]();
    if (block == NULL) stress_fail("no block of %d bytes", SIZE);
    *block = (block_t){all, place};
    all = block;
    if ((uintptr_t)block < lowest) lowest = (uintptr_t)block;
    if ((uintptr_t)block > highest) highest = (uintptr_t)block;
  }
  for (block_t *block = all, *next; block != NULL; block = next) {
    next = block->next;
    if (!stays(block)) {
      free(block);
      continue;
    }
    block->next = left[block->place];
    left[block->place] = block;
    left_count[block->place]++;
    left_all++;
  }
  (void)stress_trim();
}

static void let_go(unsigned place) {
  for (block_t *block = left[place], *next; block != NULL; block = next) {
    next = block->next;
    free(block);
  }
  left[place] = NULL;
  (void)stress_trim();
}

/* The bytes of resident pages between the lowest and the highest slab, according to the kernel. */
static uint64_t resident_there(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint64_t entries[512], pages = 0, first = lowest / SLAB * (SLAB / page), end = (highest / SLAB + 1) * (SLAB / page);
  int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) stress_fail("no /proc/self/pagemap");
  while (first < end) {
    size_t wanted = end - first < 512 ? end - first : 512;
    ssize_t got = pread(fd, entries, wanted * sizeof *entries, (off_t)(first * sizeof *entries));
    if (got <= 0) stress_fail("/proc/self/pagemap ends");
    for (size_t i = 0; i < (size_t)got / sizeof *entries; i++) pages += entries[i] >> 62 != 0; /* present, or swapped out */
    first += (size_t)got / sizeof *entries;
  }
  close(fd);
  return pages * page;
}

/* ---- a snapshot ---- */

typedef struct site {
  uint32_t parent;
  uintptr_t address;
} site_t;
static site_t *sites;

static struct {
  uint64_t slabs, tracked, pages, waste, page, listed;
  uint64_t of_place[PLACES + 1]; /* tracked slabs, by the place of the block that is left; the last entry: other places */
} told;

static unsigned place_of(uint32_t site) {
  for (unsigned i = 0; i < DEEPEST && site != 0 && site < SITES_MOST; i++, site = sites[site].parent) {
    for (unsigned place = 0; place < PLACES; place++) {
      if (sites[site].address - (uintptr_t)places[place] < PLACE_BYTES) return place;
    }
  }
  return PLACES;
}

static void see_site(const char *line) {
  uint32_t number, parent;
  uintptr_t address;
  if (sscanf(line, "site %" SCNu32 " %" SCNu32 " %" SCNxPTR, &number, &parent, &address) != 3) return;
  if (number >= SITES_MOST) stress_fail("site %u", number);
  sites[number] = (site_t){parent, address};
}

static void see_page(const char *line) {
  static bool of_ours; /* the last `tracked` line was of a slab of this test */
  uint64_t size, quarter, slabs, tracked, pages, waste, number;
  uint32_t site;
  (void)sscanf(line, "page_bytes %" SCNu64, &told.page);
  if (sscanf(line, "pinned %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &size, &quarter, &slabs, &tracked, &pages,
             &waste) == 6 &&
      size == SIZE) {
    told.slabs += slabs;
    told.tracked += tracked;
    told.pages += pages;
    told.waste += waste;
  }
  if (sscanf(line, "tracked %*x %" SCNu64 " %*u %" SCNu64, &size, &number) == 2) of_ours = size == SIZE && number == 1;
  if (of_ours && sscanf(line, "survivor %*u %" SCNu32, &site) == 1) {
    told.of_place[place_of(site)]++;
    told.listed++;
  }
}

/* Reads the snapshot twice, since sites follow the blocks that refer to them. */
static void look(bool (*write_to)(int fd)) {
  int fd = memfd_create("snapshot", MFD_CLOEXEC);
  if (fd < 0 || !write_to(fd)) stress_fail("no snapshot");
  off_t bytes = lseek(fd, 0, SEEK_END);
  char *text = mmap(NULL, (size_t)bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (text == MAP_FAILED) stress_fail("no memory for the snapshot");
  memset(&told, 0, sizeof told);
  for (int turn = 0; turn < 2; turn++) {
    for (char *line = text, *end; line < text + bytes; line = end + 1) {
      end = memchr(line, turn == 0 ? '\n' : '\0', (size_t)(text + bytes - line));
      if (end == NULL) break;
      *end = '\0';
      if (turn == 0) see_site(line);
      else see_page(line);
    }
  }
  munmap(text, (size_t)bytes + 1);
  close(fd);
}

/* ---- checks ---- */

static bool near(double got, double want, double share) { return fabs(got - want) <= share * want; }

/* Each place has a share of the bytes that the tracked slabs' pages waste; all slabs waste the same, so the error is that of a share. */
static void check_place(unsigned place) {
  double share = (double)told.of_place[place] / (double)told.listed, true_share = (double)left_count[place] / (double)left_all;
  double not_tracked = 1 - (double)told.listed / (double)left_all;
  double error = sqrt(true_share * (1 - true_share) / (double)told.listed * (not_tracked > 0 ? not_tracked : 0));
  uint64_t before = resident_there(), live = left_count[place] * SIZE;
  let_go(place);
  double fallen = (double)(before - resident_there()), sole = share * (double)told.waste;
  stress_say("place %u: told to keep %.0f bytes alone, ± %.0f; the resident set fell by %.0f, of them %" PRIu64 " its blocks", place, sole,
             error * (double)told.waste, fallen, live);
  stress_expect(fabs(share - true_share) <= 5 * error + 1e-9, "place %u has a share of %.4f, not %.4f; the error is %.4f", place, share,
                true_share, error);
  stress_expect(fabs(sole + (double)live - fallen) <= 5 * error * (double)told.waste + 0.01 * fallen, "place %u keeps %.0f, not %.0f",
                place, sole + (double)live, fallen);
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  stress_watch(HANG_SECONDS, "pinned");
  uint64_t slabs = stress_count("slabs", 16 * 1024);
  if (slabs < SLABS_LEAST) slabs = SLABS_LEAST; /* also on a slow machine: with fewer slabs, perhaps none is tracked */
  bool (*write_to)(int) = (bool (*)(int))stress_symbol("hak_profile_write");
  if (!stress_on_hakmem() || write_to == NULL) {
    stress_say("stress_pinned: not on hakmem");
    return stress_finish();
  }
  rng_t rng = rng_make(0);
  sites = pages_take(SITES_MOST * sizeof *sites);
  fill(&rng, slabs);
  look(write_to);
  uint64_t resident = resident_there();
  stress_say("%" PRIu64 " slabs, %" PRIu64 " tracked; %" PRIu64 " pages of %" PRIu64 " bytes, of that %" PRIu64 " free; resident %" PRIu64,
             told.slabs, told.tracked, told.pages, told.page, told.waste, resident);
  stress_expect(told.slabs >= left_all && told.slabs <= left_all + 2, "%" PRIu64 " slabs, not %" PRIu64, told.slabs, left_all);
  stress_expect(near((double)told.pages * (double)told.page, (double)resident, 0.01), "the kernel has %" PRIu64 " bytes there", resident);
  stress_expect(near((double)told.waste, (double)(left_all * (told.page - SIZE)), 0.001), "what is free on the pages was not counted");
  stress_expect(told.of_place[PLACES] <= 2, "%" PRIu64 " blocks are told to be of no place", told.of_place[PLACES]);
  for (unsigned place = PLACES; place-- > 0;) check_place(place);
  return stress_finish();
}
