// tcmalloc.cpp - libtcmalloc_minimal.so.4: the C names of gperftools, and the object that programs in C++ call.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "support/check.h"

extern "C" {
const char *tc_version(int *major, int *minor, const char **patch);
void *tc_malloc(size_t size);
void *tc_calloc(size_t count, size_t size);
void *tc_realloc(void *block, size_t size);
void *tc_memalign(size_t alignment, size_t size);
int tc_posix_memalign(void **result, size_t alignment, size_t size);
void tc_free(void *block);
void tc_free_sized(void *block, size_t size);
size_t tc_malloc_size(void *block);
size_t tc_nallocx(size_t size, int flags);
void *tc_new(size_t size);
void *tc_new_nothrow(size_t size, const std::nothrow_t &tag);
void *tc_newarray_aligned(size_t size, size_t alignment);
void tc_delete(void *block);
void tc_deletearray_sized_aligned(void *block, size_t size, size_t alignment);
int tc_set_new_mode(int mode);
int tc_query_new_mode(void);
int MallocExtension_GetNumericProperty(const char *name, size_t *value);
int MallocExtension_SetNumericProperty(const char *name, size_t value);
int MallocExtension_GetOwnership(const void *block);
int MallocExtension_VerifyMallocMemory(const void *block);
int MallocExtension_MallocMemoryStats(int *blocks, size_t *total, int histogram[64]);
void MallocExtension_GetStats(char *buffer, int length);
void MallocExtension_ReleaseFreeMemory(void);
void MallocExtension_ReleaseToSystem(size_t bytes);
size_t MallocExtension_GetAllocatedSize(const void *block);
size_t MallocExtension_GetEstimatedAllocatedSize(size_t size);
int MallocHook_AddNewHook(void (*hook)(const void *, size_t));
}

// The class as gperftools' header lays it out: the order is what matters.
class MallocExtension {
public:
  virtual ~MallocExtension();
  virtual bool VerifyAllMemory();
  virtual bool VerifyNewMemory(const void *block);
  virtual bool VerifyArrayNewMemory(const void *block);
  virtual bool VerifyMallocMemory(const void *block);
  virtual bool MallocMemoryStats(int *blocks, size_t *total, int histogram[64]);
  virtual void GetStats(char *buffer, int length);
  virtual void GetHeapSample(std::string *to);
  virtual void GetHeapGrowthStacks(std::string *to);
  virtual void Ranges(void *to, void (*each)(void *, const void *));
  virtual bool GetNumericProperty(const char *name, size_t *value);
  virtual bool SetNumericProperty(const char *name, size_t value);
  virtual void MarkThreadIdle();
  virtual void MarkThreadBusy();
  virtual void *GetSystemAllocator();
  virtual void SetSystemAllocator(void *allocator);
  virtual void ReleaseToSystem(size_t bytes);
  virtual void ReleaseFreeMemory();
  virtual void SetMemoryReleaseRate(double rate);
  virtual double GetMemoryReleaseRate();
  virtual size_t GetEstimatedAllocatedSize(size_t size);
  virtual size_t GetAllocatedSize(const void *block);
  virtual int GetOwnership(const void *block);
  virtual void GetFreeListSizes(std::vector<int> *lists);
  virtual void **ReadStackTraces(int *period);
  virtual void **ReadHeapGrowthStackTraces();
  virtual size_t GetThreadCacheSize();
  virtual void MarkThreadTemporarilyIdle();
  static MallocExtension *instance();
};

static size_t property(const char *name) {
  size_t value = 0;
  CHECK_EQ(MallocExtension_GetNumericProperty(name, &value), 1);
  return value;
}

TEST(functions) {
  int major = 0;
  CHECK(strncmp(tc_version(&major, nullptr, nullptr), "gperftools", 10) == 0 && major == 2);
  char *block = static_cast<char *>(tc_calloc(10, 10));
  CHECK(block[99] == 0 && tc_malloc_size(block) >= 100 && tc_malloc_size(block) == tc_nallocx(100, 0));
  block = static_cast<char *>(tc_realloc(block, 100000));
  CHECK_EQ(MallocExtension_GetAllocatedSize(block), MallocExtension_GetEstimatedAllocatedSize(100000));
  tc_free_sized(block, 100000);
  void *aligned = nullptr;
  CHECK(tc_posix_memalign(&aligned, 4096, 10) == 0 && reinterpret_cast<uintptr_t>(aligned) % 4096 == 0);
  free(aligned); // one heap
  tc_free(malloc(10));
  tc_free(tc_memalign(64, 10));
  aligned = tc_newarray_aligned(100, 256);
  CHECK_EQ(reinterpret_cast<uintptr_t>(aligned) % 256, 0);
  tc_deletearray_sized_aligned(aligned, 100, 256);
  CHECK(tc_set_new_mode(1) == 0 && tc_query_new_mode() == 1);
  CHECK_EQ(MallocHook_AddNewHook(nullptr), 0);
}

static int asked;
static void make_no_room() {
  if (++asked == 3) std::set_new_handler(nullptr);
}

TEST(new_asks_the_handler_and_throws) {
  std::set_new_handler(make_no_room);
  bool thrown = false;
  try {
    tc_delete(tc_new(PTRDIFF_MAX));
  } catch (const std::bad_alloc &) {
    thrown = true;
  }
  CHECK(thrown && asked == 3);
  CHECK(tc_new_nothrow(PTRDIFF_MAX, std::nothrow) == nullptr);
  tc_delete(tc_new(100));
}

static void throw_it() { throw std::bad_alloc(); }

TEST(a_handler_that_throws_ends_in_null) {
  std::set_new_handler(throw_it);
  CHECK(tc_new_nothrow(PTRDIFF_MAX, std::nothrow) == nullptr);
}

TEST(properties) {
  size_t before = property("generic.current_allocated_bytes");
  void *block = memset(malloc(10 << 20), 1, 10 << 20);
  size_t grown = property("generic.current_allocated_bytes") - before;
  CHECK(grown >= 10 << 20 && grown < 11 << 20);
  CHECK(property("generic.heap_size") >= property("generic.current_allocated_bytes"));
  free(block);
  size_t value;
  CHECK_EQ(MallocExtension_GetNumericProperty("tcmalloc.nothing", &value), 0);
  CHECK_EQ(MallocExtension_SetNumericProperty("generic.heap_size", 1), 0);
  CHECK_EQ(MallocExtension_SetNumericProperty("tcmalloc.aggressive_memory_decommit", 1), 1);
  CHECK_EQ(property("tcmalloc.aggressive_memory_decommit"), 1);
  CHECK_EQ(MallocExtension_SetNumericProperty("tcmalloc.max_total_thread_cache_bytes", 8 << 20), 1);
  CHECK_EQ(property("tcmalloc.max_total_thread_cache_bytes"), 8 << 20);
}

/* Also where the secure library is preloaded, which ends a process for a wrong pointer. */
TEST(foreign_addresses_are_nobodys) {
  static char mine[64];
  char here[64], *block = static_cast<char *>(malloc(100));
  CHECK(MallocExtension_GetOwnership(here) == 2 && MallocExtension_GetOwnership(mine) == 2);
  CHECK_EQ(MallocExtension_GetOwnership(block), 1);
  CHECK(MallocExtension_VerifyMallocMemory(block) == 1 && MallocExtension_VerifyMallocMemory(block + 16) == 0);
  free(block);
}

TEST(what_a_pointer_is) {
  char *block = static_cast<char *>(malloc(1000)), local;
  CHECK_EQ(MallocExtension_GetOwnership(block), 1);
  CHECK_EQ(MallocExtension_GetOwnership(block + 10), 1);
  CHECK_EQ(MallocExtension_GetOwnership(&local), 2);
  CHECK(MallocExtension_VerifyMallocMemory(block) == 1 && MallocExtension_VerifyMallocMemory(block + 10) == 0);
  free(block);
  CHECK_EQ(MallocExtension_GetOwnership(block), 2);
}

TEST(statistics) {
  int blocks = 0, histogram[64] = {0}, before;
  size_t total = 0;
  CHECK_EQ(MallocExtension_MallocMemoryStats(&before, &total, histogram), 1);
  int of_1024 = histogram[10];
  for (int i = 0; i < 500; i++) CHECK(malloc(1024) != nullptr);
  CHECK_EQ(MallocExtension_MallocMemoryStats(&blocks, &total, histogram), 1);
  CHECK(blocks - before >= 500 && blocks - before < 510 && histogram[10] - of_1024 == 500 && total >= 500 * 1024);
  char text[100];
  memset(text, 1, sizeof text);
  MallocExtension_GetStats(text, 50);
  CHECK(strlen(text) == 49 && text[50] == 1);
}

// hakmem's own, which gperftools' headers know nothing of.
static int64_t decay_ms() {
  int64_t value = -2;
  auto *get = reinterpret_cast<bool (*)(const char *, int64_t *)>(dlsym(RTLD_DEFAULT, "hak_option_get"));
  return get != nullptr && get("decay_ms", &value) ? value : -2;
}

TEST(the_object_does_the_same) {
  MallocExtension *it = MallocExtension::instance();
  size_t value = 0;
  int blocks, histogram[64];
  CHECK(it->GetNumericProperty("generic.current_allocated_bytes", &value) && value == property("generic.current_allocated_bytes"));
  CHECK(!it->GetNumericProperty("no.such", &value) && it->SetNumericProperty("tcmalloc.aggressive_memory_decommit", 1));
  char *block = static_cast<char *>(malloc(1000));
  CHECK(it->VerifyAllMemory() && it->VerifyNewMemory(block) && it->VerifyArrayNewMemory(block) && it->VerifyMallocMemory(block));
  CHECK(!it->VerifyMallocMemory(block + 1) && it->GetOwnership(block) == 1 && it->GetOwnership(&value) == 2);
  CHECK(it->GetAllocatedSize(block) == it->GetEstimatedAllocatedSize(1000));
  CHECK(it->MallocMemoryStats(&blocks, &value, histogram) && blocks > 0);
  char text[20];
  it->GetStats(text, sizeof text);
  CHECK_EQ(strlen(text), 19);
  std::string sample;
  it->GetHeapSample(&sample);
  it->GetHeapGrowthStacks(&sample);
  CHECK(sample.empty());
  std::vector<int> lists;
  it->GetFreeListSizes(&lists);
  it->Ranges(nullptr, nullptr);
  CHECK(lists.empty() && it->GetSystemAllocator() == nullptr && it->ReadHeapGrowthStackTraces() == nullptr);
  blocks = 1;
  CHECK(it->ReadStackTraces(&blocks) == nullptr && blocks == 0 && it->GetThreadCacheSize() == 0);
  it->SetMemoryReleaseRate(2);
  CHECK(it->GetMemoryReleaseRate() == 2);
  // The end of the aggressive kind brings back what was set; a rate as small as can be is a day.
  CHECK(it->SetNumericProperty("tcmalloc.aggressive_memory_decommit", 0) && decay_ms() == 500);
  it->SetMemoryReleaseRate(1e-300);
  CHECK_EQ(decay_ms(), 86400000);
  it->SetMemoryReleaseRate(2);
  it->MarkThreadIdle(), it->MarkThreadBusy(), it->MarkThreadTemporarilyIdle();
}

static void fill_and_free() {
  void *block = memset(malloc(64 << 20), 1, 64 << 20);
  free(block);
}

// With what CMakeLists.txt sets.
TEST(environment) {
  if (getenv("TCMALLOC_RELEASE_RATE") == nullptr) check_skip("for compat.tcmalloc.environment");
  CHECK(MallocExtension::instance()->GetMemoryReleaseRate() == 4);
  CHECK_EQ(property("tcmalloc.aggressive_memory_decommit"), 1);
  CHECK_EQ(property("tcmalloc.max_total_thread_cache_bytes"), 1 << 20);
}

TEST(giving_back) {
  MallocExtension::instance()->SetMemoryReleaseRate(0); // kept for good
  fill_and_free();
  size_t full = check_resident();
  MallocExtension_ReleaseToSystem(0);
  MallocExtension::instance()->ReleaseToSystem(0);
  CHECK(check_resident() + (60 << 20) > full);
  MallocExtension_ReleaseToSystem(1);
  CHECK(check_resident() + (60 << 20) < full);
  fill_and_free();
  MallocExtension_ReleaseFreeMemory();
  CHECK(check_resident() + (60 << 20) < full);
  fill_and_free();
  MallocExtension::instance()->ReleaseFreeMemory();
  CHECK(check_resident() + (60 << 20) < full);
}

int main(int argc, char **argv) { return check_main(argc, argv); }
