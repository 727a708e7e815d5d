#include "entry/pinned.h"

#include "os/os.h"
#include "slab/pinned.h"

/* Slabs of one class that are about equally full: what most of them do not record is estimated from those that are tracked. */
typedef struct stratum {
  uint64_t slabs, tracked, pages, waste, idle;
} stratum_t;
#define QUARTERS 4

static unsigned quarter_of(const pinned_t *pinned, unsigned c) { return (pinned->blocks * QUARTERS - 1) / class_info[c].blocks; }

static void write_stratum(writer_t *w, unsigned c, unsigned quarter, const stratum_t *s) {
  if (s->slabs == 0) return;
  format_t *f = writer(w);
  format_text(f, "pinned");
  word_number(f, class_info[c].size);
  word_number(f, quarter);
  word_number(f, s->slabs);
  word_number(f, s->tracked);
  word_number(f, s->pages);
  word_number(f, s->waste);
  word_number(f, s->idle);
  format_char(f, '\n');
}

/* The slab may end while lines are written, and its unit may join another span: so the class is the one that was examined. */
static void write_survivor(writer_t *w, const unit_t *slab, unsigned c, uint32_t number, uintptr_t tracked) {
  const void *block = (char *)region_address(unit_number(slab)) + (size_t)number * class_info[c].size;
  uint64_t word = load_acquire(track_at(tracked, number));
  const sample_t *sample = sample_find(block);
  format_t *f = writer(w);
  format_text(f, "survivor");
  word_number(f, number);
  word_number(f, sample != NULL ? load_relaxed(&sample->site) : track_site(word));
  word_number(f, sample_clock() - (sample != NULL ? load_relaxed(&sample->born) : track_born(word)));
  word_number(f, sample_block_state(block) == SAMPLE_QUIET);
  format_char(f, '\n');
}

/* The free blocks of a page that once were live, counted by site: the neighbours of the blocks that keep the page.  Sites beyond
 * FREED_SITES are left out, and so are blocks whose record may be an earlier block's. */
typedef struct freed {
  uint32_t site, count;
} freed_t;
#define FREED_SITES 64

static unsigned freed_add(freed_t *freed, unsigned sites, uint32_t site) {
  unsigned i = 0;
  while (i < sites && freed[i].site != site) i++;
  if (i == FREED_SITES) return sites;
  if (i == sites) freed[sites++] = (freed_t){site, 0};
  freed[i].count++;
  return sites;
}

static void write_freed(writer_t *w, unsigned c, uint32_t page, uintptr_t tracked) {
  freed_t freed[FREED_SITES];
  unsigned sites = 0;
  size_t size = class_info[c].size, bytes = os_page_size();
  for (uint32_t i = (uint32_t)(page * bytes / size); i < class_info[c].blocks && i * size < (page + 1) * bytes; i++) {
    uint64_t word = load_acquire(track_at(tracked, i));
    if (word != 0 && track_state(word) == TRACK_FREE) sites = freed_add(freed, sites, track_site(word));
  }
  for (unsigned i = 0; i < sites; i++) {
    format_t *f = writer(w);
    format_text(f, "freed");
    word_number(f, page);
    word_number(f, freed[i].site);
    word_number(f, freed[i].count);
    format_char(f, '\n');
  }
}

/* Writes the slab, its live blocks that lie on a page with waste, and the freed blocks of these pages. */
static void write_tracked(writer_t *w, const unit_t *slab, const pinned_t *pinned, unsigned c, uintptr_t tracked) {
  format_t *f = writer(w);
  format_text(f, "tracked");
  word_address(f, (uintptr_t)region_address(unit_number(slab)));
  word_number(f, class_info[c].size);
  word_number(f, quarter_of(pinned, c));
  word_number(f, pinned->blocks);
  word_number(f, pinned->waste);
  word_address(f, pinned->wasteful);
  format_char(f, '\n');
  for (uint32_t word = 0; word * 64 < class_info[c].blocks; word++) {
    for (uint64_t bits = pinned->live[word]; bits != 0; bits &= bits - 1) {
      uint32_t block = word * 64 + bits_lowest64(bits);
      if (pinned_wastes(pinned, c, block)) write_survivor(w, slab, c, block, tracked);
    }
  }
  for (uint64_t pages = pinned->wasteful; pages != 0; pages &= pages - 1) write_freed(w, c, bits_lowest64(pages), tracked);
}

static void write_slab(writer_t *w, const unit_t *slab, stratum_t (*strata)[QUARTERS]) {
  pinned_t pinned;
  uintptr_t tracked = load_acquire(&slab->tracked);
  unsigned c = load_relaxed(&slab->size_class);
  if (c >= CLASS_COUNT || !pinned_look(slab, &pinned) || load_relaxed(&slab->size_class) != c || pinned.blocks > class_info[c].blocks)
    return;
  stratum_t *s = &strata[c][quarter_of(&pinned, c)];
  s->slabs++;
  s->tracked += tracked != 0;
  s->pages += pinned.pages;
  s->waste += pinned.waste;
  s->idle += pinned.idle;
  if (tracked != 0) write_tracked(w, slab, &pinned, c, tracked);
}

void pinned_write(writer_t *w) {
  stratum_t strata[CLASS_COUNT][QUARTERS] = {{{0}}};
  uint32_t units = load_acquire(&region.units);
  line_number(w, "page_bytes", os_page_size());
  for (uint32_t unit = 0; unit < units; unit++) {
    if (load_acquire(&unit_at(unit)->kind) == UNIT_SLAB) write_slab(w, unit_at(unit), strata);
  }
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    for (unsigned quarter = 0; quarter < QUARTERS; quarter++) write_stratum(w, c, quarter, &strata[c][quarter]);
  }
}
