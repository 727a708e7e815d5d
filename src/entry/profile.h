/* profile.h - the parts of a snapshot, for other writers of snapshots: docs/insight.md describes the format. */
#ifndef ENTRY_PROFILE_H
#define ENTRY_PROFILE_H

#include "entry/reading.h"
#include "entry/writer.h"
#include "kit/site.h"

void profile_begin(writer_t *w, uint64_t process);
/* Writes the size classes and the large blocks; *stats gets the sums. */
void profile_census(writer_t *w, hak_stats_t *stats);
/* Writes the names of named heaps while the writer has at least `room` left. */
void profile_heaps(writer_t *w, size_t room);
void profile_sample(writer_t *w, const reading_t *r);
/* Writes and returns how many sites there are; writes one site. */
site_figures_t profile_sites(writer_t *w);
void profile_site(writer_t *w, uint32_t number);
/* Writes mappings while the writer has at least `room` left. */
void profile_mappings(writer_t *w, mappings_t *all, size_t room);
/* Ends the snapshot; false if not all of it could be written. */
HAK_CHECKED bool profile_end(writer_t *w);

#endif
