/* entries.c - see entries.h. */
#include <malloc.h>
#include <stdlib.h>

#include "harness.h"
#include "entries.h"

#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name) /* as in names.h */
#define LOOK(member, name) member = (__typeof__(member))stress_symbol(name)

static void libc_extras_find(api_t *api) {
#ifndef STRESS_HAK_NAMES
  LOOK(api->recallocarray, "recallocarray"), LOOK(api->reallocf, "reallocf"), LOOK(api->cfree, "cfree");
  LOOK(api->free_sized, "free_sized"), LOOK(api->free_aligned_sized, "free_aligned_sized"), LOOK(api->sdallocx, "sdallocx");
#else
  (void)api;
#endif
}

static void hak_find(api_t *api) {
  LOOK(api->malloc, "hak_malloc"), LOOK(api->calloc, "hak_calloc"), LOOK(api->realloc, "hak_realloc");
  LOOK(api->reallocarray, "hak_reallocarray"), LOOK(api->recallocarray, "hak_recallocarray");
  LOOK(api->reallocf, "hak_reallocf"), LOOK(api->aligned_alloc, "hak_aligned_alloc");
  LOOK(api->memalign, "hak_memalign"), LOOK(api->posix_memalign, "hak_posix_memalign");
  LOOK(api->valloc, "hak_valloc"), LOOK(api->pvalloc, "hak_pvalloc"), LOOK(api->free, "hak_free");
  LOOK(api->cfree, "hak_cfree"), LOOK(api->free_sized, "hak_free_sized");
  LOOK(api->free_aligned_sized, "hak_free_aligned_sized"), LOOK(api->sdallocx, "hak_sdallocx");
}

void entries_find(entries_t *entries) {
  *entries = (entries_t){.count = 1, .on_hakmem = stress_on_hakmem()};
  entries->apis[0] = (api_t){.malloc = malloc,
                             .calloc = calloc,
                             .realloc = realloc,
                             .reallocarray = reallocarray,
                             .aligned_alloc = aligned_alloc,
                             .memalign = memalign,
                             .posix_memalign = posix_memalign,
                             .valloc = valloc,
                             .free = free};
  LOOK(entries->apis[0].pvalloc, NAME_OF(pvalloc)); /* musl has no such function */
  if (!entries->on_hakmem) return;
  libc_extras_find(&entries->apis[0]);
  hak_find(&entries->apis[entries->count++]);
  LOOK(entries->good_size, "hak_malloc_good_size");
  LOOK(entries->alloc_at_least, "hak_alloc_at_least"), LOOK(entries->expand, "hak_expand");
  LOOK(entries->malloc_batch, "hak_malloc_batch"), LOOK(entries->free_batch, "hak_free_batch");
  LOOK(entries->collect, "hak_collect");
}
