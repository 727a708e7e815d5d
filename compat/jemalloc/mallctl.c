/* mallctl.c - the names and MIBs of nodes, and the passing of values; nodes.c defines the nodes.
 *
 * A MIB has one element for each part of a name; programs may replace the elements that are numbers in the name.  The first element
 * identifies the node, the others are 0 unless they are numbers. */
#include "jemalloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* One call at a time, as with jemalloc: a node may read an arena that another thread is about to end.  A hook that a node calls may
 * itself call mallctl, or fork. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned depth;
static __thread int cancel_state;

static void enter(void) {
  if (depth++ != 0) return;
  (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state); /* nodes use files: a thread cancelled there would keep the lock */
  (void)pthread_mutex_lock(&lock);
}
static void leave(void) {
  if (--depth != 0) return;
  int ignored;
  (void)pthread_mutex_unlock(&lock);
  (void)pthread_setcancelstate(cancel_state, &ignored);
}

static __attribute__((constructor)) void start(void) { (void)pthread_atfork(enter, leave, leave); }

static size_t type_size(ctl_type_t type) {
  static const size_t sizes[] = {[CTL_VOID] = 0,
                                 [CTL_BOOL] = sizeof(bool),
                                 [CTL_UNSIGNED] = sizeof(unsigned),
                                 [CTL_SIZE] = sizeof(size_t),
                                 [CTL_SSIZE] = sizeof(ssize_t),
                                 [CTL_U64] = sizeof(uint64_t),
                                 [CTL_TEXT] = sizeof(const char *)};
  return sizes[type];
}

static uint64_t value_load(ctl_type_t type, const void *from) {
  uint64_t value = 0;
  memcpy(&value, from, type_size(type)); /* little endian, like all processors that hakmem runs on */
  return value;
}

static size_t part_length(const char *name) { return strcspn(name, "."); }

/* Parses a part that is a number; false if it is not. */
static bool part_number(const char *part, size_t length, size_t *number) {
  *number = 0;
  for (size_t i = 0; i < length; i++) {
    if (part[i] < '0' || part[i] > '9' || *number > SIZE_MAX / 16) return false;
    *number = *number * 10 + (size_t)(part[i] - '0');
  }
  return length > 0;
}

/* Compares a name with a node's as far as the name goes; returns how many parts match, or 0 if one does not. */
static size_t name_match(const char *name, const char *node, size_t *index) {
  for (size_t parts = 1;; parts++) {
    size_t length = part_length(name), wanted = part_length(node);
    index[parts - 1] = 0;
    if (*node == '*') {
      if (!part_number(name, length, &index[parts - 1])) return 0;
    } else if (length != wanted || memcmp(name, node, length) != 0) {
      return 0;
    }
    if (name[length] == '\0') return parts;
    if (node[wanted] == '\0') return 0;
    name += length + 1;
    node += wanted + 1;
  }
}

static size_t node_parts(const ctl_node_t *node) {
  size_t parts = 1;
  for (const char *c = node->name; *c != '\0'; c++) parts += *c == '.';
  return parts;
}

/* The node of the name, or the first node below it; any number matches. */
static const ctl_node_t *node_find(const char *name, size_t *index, size_t *parts) {
  for (size_t i = 0; i < ctl_node_count; i++) {
    *parts = name_match(name, ctl_nodes[i].name, index);
    if (*parts > 0) return &ctl_nodes[i];
  }
  return NULL;
}

static int value_read(const ctl_node_t *node, const ctl_at_t *at, void *old, size_t *old_size) {
  uint64_t value = 0;
  int error = node->read(at, &value);
  if (error != 0) return error;
  size_t size = type_size(node->type);
  if (*old_size != size) { /* as much as fits */
    size_t fits = *old_size < size ? *old_size : size;
    memcpy(old, &value, fits);
    *old_size = fits;
    return EINVAL;
  }
  memcpy(old, &value, size);
  return 0;
}

/* Changes nothing if the old value cannot be returned.  A node's read and write both check that `at` exists. */
static int node_do(const ctl_node_t *node, const size_t *index, void *old, size_t *old_size, const void *fresh, size_t fresh_size) {
  ctl_at_t at = {index, node->of};
  bool reads = old != NULL && old_size != NULL, writes = fresh != NULL || fresh_size != 0;
  if (node->raw != NULL) return node->raw(&at, old, old_size, fresh, fresh_size);
  if (node->type == CTL_VOID) return reads || writes ? EPERM : node->write(&at, 0);
  if ((reads && node->read == NULL) || (writes && node->write == NULL)) return EPERM;
  if (writes && fresh_size != type_size(node->type)) return EINVAL;
  if (writes && fresh == NULL) return EINVAL;
  int error = reads ? value_read(node, &at, old, old_size) : 0;
  if (error != 0) return error;
  if (writes) return node->write(&at, value_load(node->type, fresh));
  uint64_t ignored; /* a node that does not exist is an error in any case */
  if (reads) return 0;
  return node->read != NULL ? node->read(&at, &ignored) : EINVAL; /* EINVAL: the node wants a value */
}

static int node_call(const ctl_node_t *node, const size_t *index, void *old, size_t *old_size, const void *fresh, size_t fresh_size) {
  enter();
  int error = ctl_numbers_known(node, index, node_parts(node)) ? node_do(node, index, old, old_size, fresh, fresh_size) : ENOENT;
  leave();
  return error;
}

static bool numbers_known(const ctl_node_t *node, const size_t *index, size_t parts) {
  enter();
  bool known = ctl_numbers_known(node, index, parts);
  leave();
  return known;
}

COMPAT(int, mallctl, (const char *name, void *old, size_t *old_size, void *fresh, size_t fresh_size)) {
  size_t index[CTL_DEPTH], parts;
  const ctl_node_t *node = node_find(name, index, &parts);
  if (node == NULL || parts != node_parts(node)) return ENOENT;
  return node_call(node, index, old, old_size, fresh, fresh_size);
}

COMPAT(int, mallctlnametomib, (const char *name, size_t *mib, size_t *mib_length)) {
  size_t index[CTL_DEPTH], parts;
  const ctl_node_t *node = node_find(name, index, &parts);
  if (node == NULL || !numbers_known(node, index, parts)) return ENOENT;
  if (*mib_length > parts) *mib_length = parts;
  index[0] = (size_t)(node - ctl_nodes);
  memcpy(mib, index, *mib_length * sizeof *mib);
  return 0;
}

COMPAT(int, mallctlbymib, (const size_t *mib, size_t mib_length, void *old, size_t *old_size, void *fresh, size_t fresh_size)) {
  if (mib_length == 0 || mib[0] >= ctl_node_count) return ENOENT;
  const ctl_node_t *node = &ctl_nodes[mib[0]];
  if (mib_length != node_parts(node)) return ENOENT;
  return node_call(node, mib, old, old_size, fresh, fresh_size);
}
