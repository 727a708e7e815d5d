/* profile.h - the parts of a snapshot, for who writes one of its own: docs/insight.md tells the format. */
#ifndef ENTRY_PROFILE_H
#define ENTRY_PROFILE_H

#include "entry/reading.h"
#include "entry/writer.h"
#include "kit/site.h"

void profile_begin(writer_t *w, uint64_t process);
/* The size classes and the large blocks; *stats has the sums. */
void profile_census(writer_t *w, hak_stats_t *stats);
/* The names of named heaps, as many as leave so much of the writer's room. */
void profile_heaps(writer_t *w, size_t room);
void profile_sample(writer_t *w, const reading_t *r);
/* How many sites there are, which is returned; and one of them. */
site_figures_t profile_sites(writer_t *w);
void profile_site(writer_t *w, uint32_t number);
/* As many as leave so much of the writer's room. */
void profile_mappings(writer_t *w, mappings_t *all, size_t room);
/* False if not all of it could be written. */
HAK_CHECKED bool profile_end(writer_t *w);

#endif
