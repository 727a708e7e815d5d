/* api.c - finds the functions under test: at run time when the library is
 * preloaded, by the linker otherwise (HAK_LINKED). */
#include "api.h"

#include <malloc.h>
#include <pthread.h>

#include "symbol.h"

struct api api;
struct hak hak;
family_t api_family;

#ifdef HAK_LINKED

/* Not declared by the headers of every libc. */
void *pvalloc(size_t);
int malloc_trim(size_t);
int mallopt(int, int);
int malloc_info(int, FILE *);
void malloc_stats(void);
void *recallocarray(void *, size_t, size_t, size_t);
void *reallocf(void *, size_t);
void cfree(void *);
void free_sized(void *, size_t);
void free_aligned_sized(void *, size_t, size_t);
size_t malloc_good_size(size_t);
size_t nallocx(size_t, int);
void sdallocx(void *, size_t, int);
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *__libc_memalign(size_t, size_t);
void *__libc_valloc(size_t);
void *__libc_pvalloc(size_t);

/* The libc prototype takes a plain pointer. */
static size_t usable_size(void *block) { return hak_malloc_usable_size(block); }
#define hak_malloc_usable_size usable_size

static const struct api hak_functions = {
#define X(name, result, arguments) .name = hak_##name,
    API_FUNCTIONS(X)
#undef X
};

#ifdef HAK_ONLY /* a build that leaves the libc names alone */
#define libc_functions hak_functions
static void use_internal(void) {}
#else
static const struct api libc_functions = {
#define X(name, result, arguments) .name = name,
    API_FUNCTIONS(X)
#undef X
};

static void use_internal(void) {
  api.malloc = __libc_malloc;
  api.calloc = __libc_calloc;
  api.realloc = __libc_realloc;
  api.free = __libc_free;
  api.memalign = __libc_memalign;
  api.valloc = __libc_valloc;
  api.pvalloc = __libc_pvalloc;
}
#endif

static const struct hak hak_more = {
#define X(name, result, arguments) .name = hak_##name,
    HAK_FUNCTIONS(X)
#undef X
};

static void find(family_t family) {
  hak = hak_more;
  api = family == FAMILY_HAK ? hak_functions : libc_functions;
  if (family == FAMILY_INTERNAL) use_internal();
}

bool api_is_hakmem(void) { return true; }

#else

/* Copies a data pointer into a function pointer byte by byte. */
static void bind(void *function, const char *prefix, const char *name) {
  char whole[64];
  snprintf(whole, sizeof whole, "%s%s", prefix, name);
  void *found = symbol_find(whole);
  memcpy(function, &found, sizeof found);
}

static void find(family_t family) {
  const char *prefix = family == FAMILY_HAK ? "hak_" : "";
#define X(name, result, arguments) bind(&api.name, prefix, #name);
  API_FUNCTIONS(X)
#undef X
#define X(name, result, arguments) bind(&hak.name, "hak_", #name);
  HAK_FUNCTIONS(X)
#undef X
  if (family != FAMILY_INTERNAL) return;
  bind(&api.malloc, "__libc_", "malloc");
  bind(&api.calloc, "__libc_", "calloc");
  bind(&api.realloc, "__libc_", "realloc");
  bind(&api.free, "__libc_", "free");
  bind(&api.memalign, "__libc_", "memalign");
  bind(&api.valloc, "__libc_", "valloc");
  bind(&api.pvalloc, "__libc_", "pvalloc");
}

/* What CMake states must hold even if the preloading failed. */
bool api_is_hakmem(void) { return getenv("TEST_EXPECTS_HAKMEM") || symbol_find("hak_version"); }

#endif

bool is_secure(void) { return getenv("TEST_SECURE") != NULL; }

static void need_memory(const void *block, size_t size) {
  if (block) return;
  check_fail(__FILE__, __LINE__, "no block of %zu bytes", size);
  check_skip("the check cannot go on"); /* counts as a failure, because one was reported */
}

void *new_bytes(size_t size, int byte) {
  void *block = api.malloc(size);
  need_memory(block, size);
  return memset(block, byte, size);
}

/* The pattern is a ramp of 256 bytes; each following ramp starts one higher. */
static unsigned char ramp[512];

static void make_ramp(void) {
  for (size_t i = 0; i < sizeof ramp; i++) ramp[i] = (unsigned char)i;
}

static const unsigned char *ramp_at(size_t offset, unsigned seed) { return ramp + (unsigned char)(seed + offset / 256); }

void *fill(void *block, size_t size, unsigned seed) {
  need_memory(block, size);
  for (size_t at = 0; at < size; at += 256) memcpy((char *)block + at, ramp_at(at, seed), size - at < 256 ? size - at : 256);
  return block;
}

bool filled(const void *block, size_t size, unsigned seed) {
  need_memory(block, size);
  for (size_t at = 0; at < size; at += 256)
    if (memcmp((const char *)block + at, ramp_at(at, seed), size - at < 256 ? size - at : 256) != 0) return false;
  return true;
}

bool all_bytes(const void *block, size_t size, unsigned char byte) {
  const unsigned char *bytes = block;
  return size == 0 || (bytes[0] == byte && memcmp(bytes, bytes + 1, size - 1) == 0);
}

void check_setup(const char *variant) {
  make_ramp();
  api_family = strcmp(variant, "hak") == 0 ? FAMILY_HAK : strcmp(variant, "internal") == 0 ? FAMILY_INTERNAL : FAMILY_LIBC;
  find(api_family);
  if (api.malloc && api.free) return;
  if (api_is_hakmem()) check_fail(__FILE__, __LINE__, "no malloc in family %s", variant);
  check_skip("no such family");
}

int main(int argc, char **argv) { return check_main(argc, argv); }

const size_t sizes[] = {
    1,      2,      3,      7,       8,       9,       15,      16,      17,      24,      31,      32,      33,
    47,     48,     49,     63,      64,      65,      80,      96,      100,     112,     127,     128,     129,
    144,    160,    192,    193,     200,     255,     256,     257,     320,     400,     511,     512,     513,
    640,    777,    1000,   1023,    1024,    1025,    1280,    1500,    2000,    2047,    2048,    2049,    3000,
    4095,   4096,   4097,   5000,    8000,    8191,    8192,    8193,    10000,   16383,   16384,   16385,   20000,
    30000,  32767,  32768,  32769,   40000,   65535,   65536,   65537,   100000,  131072,  131073,  200000,  262143,
    262144, 262145, 500000, 1000000, 1048575, 1048576, 1048577, 2097151, 2097152, 2097153, 3000000, 4194304, 4194305,
};
const size_t size_count = sizeof sizes / sizeof sizes[0];

const size_t impossible[] = {
    SIZE_MAX,
    SIZE_MAX - 1,
    SIZE_MAX - 15,
    SIZE_MAX - 16,
    SIZE_MAX - 4095,
    SIZE_MAX - 4096,
    SIZE_MAX - 65535,
    SIZE_MAX - (2u << 20),
    (size_t)PTRDIFF_MAX + 1,
    (size_t)PTRDIFF_MAX + 2,
    (size_t)PTRDIFF_MAX + 4097,
    SIZE_MAX / 2 + SIZE_MAX / 4,
};
const size_t impossible_count = sizeof impossible / sizeof impossible[0];

bool aligned(const void *block, size_t alignment) { return ((uintptr_t)block & (alignment - 1)) == 0; }

void dirty(size_t size) {
  void *blocks[8];
  size_t count = size > 100000 ? 2 : 8;
  for (size_t i = 0; i < count; i++)
    if ((blocks[i] = api.malloc(size)) != NULL) memset(blocks[i], 0xa5, size);
  for (size_t i = 0; i < count; i++) api.free(blocks[i]);
}

void in_thread(void *(*body)(void *), void *argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, body, argument) == 0) pthread_join(thread, NULL);
  else check_fail(__FILE__, __LINE__, "pthread_create");
}
