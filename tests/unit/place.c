/* place.c - the region on the real kernel: how many mappings it takes, and where it was randomly placed. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/os.h"
#include "space.h"
#include "unit.h"

enum { RANGES = 9, STARTS = 48, BLOCK_BITS = 23, ZONE_BITS = 27 };

/* Whether the range holds blocks or zones. */
static bool is_ours(uintptr_t start, uintptr_t end) {
  const char *const zones[] = {
      (char *)region_bin(region.live, 0), (char *)region.live, region.free_bits, region.unit_records, region.remotes, region.samples,
      (char *)region.superslabs,          (char *)region.rooms};
  for (size_t i = 0; i < sizeof zones / sizeof zones[0]; i++) {
    if ((uintptr_t)zones[i] >= start && (uintptr_t)zones[i] < end) return true;
  }
  return start >= region.base && start < (uintptr_t)region_address(load_relaxed(&region.units));
}

typedef struct mappings {
  unsigned count, huge; /* `huge`: mappings that could have a huge page, although the kernel was told not to make one */
  uint64_t bytes;
} mappings_t;

static mappings_t mappings(void) {
  mappings_t found = {0, 0, 0};
  char line[512];
  unsigned long start = 0, end = 0, from, to;
  FILE *file = fopen("/proc/self/smaps", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    char next;
    if (sscanf(line, "%lx-%lx%c", &from, &to, &next) == 3 && next == ' ') {
      start = from, end = to;
      found.count += is_ours(start, end);
      found.bytes += is_ours(start, end) ? end - start : 0;
    }
    bool room = bits_round_up(start, HAK_SUPERSLAB) + HAK_SUPERSLAB <= end;
    if (strncmp(line, "VmFlags:", 8) == 0 && is_ours(start, end) && room && strstr(line, " nh") == NULL) found.huge++;
  }
  if (file != NULL) fclose(file);
  return found;
}

static void grow_to(uint64_t bytes) {
  while ((uint64_t)load_relaxed(&region.units) << HAK_UNIT_SHIFT < bytes) {
    for (uint32_t s = 0; s < region_superslabs(); s++) store_relaxed(&region.superslabs[s].free, 0);
    REQUIRE(grow(1));
  }
}

static void check_mappings(void) {
  mappings_t found = mappings();
  CHECK(found.count >= RANGES - 1 && found.count <= RANGES); /* two may be adjacent */
  CHECK_EQ(found.bytes, region_census().mapped);
  if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0) CHECK_EQ(found.huge, 0);
}

TEST(a_range_is_one_mapping_however_far_it_grows) {
  REQUIRE(region_init(0));
  check_mappings();
  for (uint64_t bytes = (uint64_t)4 << 20; bytes <= (uint64_t)1 << 30; bytes *= 4) {
    grow_to(bytes);
    check_mappings();
  }
}

TEST(what_is_stepped_over_parts_the_blocks_alone) {
  REQUIRE(region_init(0));
  char *page = (char *)region_address(load_relaxed(&region.units) + 9);
  REQUIRE(os_map_at(page, os_page_size()) == OS_MAPPED);
  page[0] = 1;
  grow_to((uint64_t)256 << 20);
  mappings_t found = mappings();
  CHECK(found.count <= RANGES + 2);
  CHECK_EQ(page[0], 1);
  if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0) CHECK_EQ(found.huge, 0);
}

/* The region grows to 1 GiB. */
TEST(growing_takes_few_system_calls) {
  REQUIRE(region_init(0));
  uint64_t before = os_counts.mmap + os_counts.munmap + os_counts.mprotect + os_counts.madvise;
  grow_to((uint64_t)1 << 30);
  CHECK(os_counts.mmap + os_counts.munmap + os_counts.mprotect + os_counts.madvise - before <= 640); /* two for each step */
}

typedef struct addresses {
  uintptr_t base, live;
} addresses_t;

/* The addresses in a process that starts now; zeros if it has no region. */
static addresses_t addresses_anew(void) {
  addresses_t addresses = {0, 0};
  int ends[2], status = 0;
  if (pipe(ends) != 0) return addresses;
  pid_t child = fork();
  if (child == 0) {
    bool made = region_init(0);
    addresses = (addresses_t){region.base, (uintptr_t)region.live};
    _exit(!made || write(ends[1], &addresses, sizeof addresses) != sizeof addresses);
  }
  if (waitpid(child, &status, 0) != child || status != 0 || read(ends[0], &addresses, sizeof addresses) < 0) addresses.base = 0;
  close(ends[0]), close(ends[1]);
  return addresses;
}

/* The lowest `bits` bits of the random values are each 0 in some starts and 1 in others, and no bit depends on another. */
static void check_bits(const uint64_t *values, unsigned bits) {
  for (unsigned bit = 0; bit < bits; bit++) {
    uint64_t column = 0;
    for (unsigned i = 0; i < STARTS; i++) column |= (values[i] >> bit & 1) << i;
    CHECK(column != 0 && column != ((uint64_t)1 << STARTS) - 1);
    for (unsigned other = 0; other < bit; other++) {
      uint64_t second = 0;
      for (unsigned i = 0; i < STARTS; i++) second |= (values[i] >> other & 1) << i;
      CHECK(column != second && (column ^ second) != ((uint64_t)1 << STARTS) - 1);
    }
  }
}

TEST(each_start_has_places_of_its_own) {
  if (os_has_shadow()) check_skip("a sanitizer leaves few places");
  uint64_t blocks[STARTS], zones[STARTS];
  for (unsigned i = 0; i < STARTS; i++) {
    addresses_t addresses = addresses_anew();
    REQUIRE(addresses.base >= (uintptr_t)1 << 46 && addresses.live >= (uintptr_t)1 << 46);
    blocks[i] = addresses.base >> HAK_SUPERSLAB_SHIFT;
    zones[i] = addresses.live >> 16;
  }
  check_bits(blocks, BLOCK_BITS);
  check_bits(zones, ZONE_BITS);
}
