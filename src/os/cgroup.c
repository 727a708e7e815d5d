#include "os/cgroup.h"

#include <string.h>

#include "os/file.h"
#include "os/os.h"

/* The usual mount points of the controllers.  In a container without a cgroup namespace, paths are those of the host but the mount is the
 * container's own group: then no folder of the path exists below the mount, and the search ends at the mount itself. */
static const char usual_v2[] = "/sys/fs/cgroup";
static const char usual_v1[] = "/sys/fs/cgroup/memory";

const char *cgroup_file_name(cgroup_version_t version, cgroup_file_t file) {
  switch (file) {
    case CGROUP_FILE_MAX: return version == CGROUP_V1 ? "memory.limit_in_bytes" : "memory.max";
    case CGROUP_FILE_HIGH: return "memory.high";
    case CGROUP_FILE_STAT: return "memory.stat";
    case CGROUP_FILE_PRESSURE: return "memory.pressure";
    default: return version == CGROUP_V1 ? "memory.usage_in_bytes" : "memory.current";
  }
}

uint64_t cgroup_number(const char *text) {
  uint64_t number = 0;
  if (*text < '0' || *text > '9') return CGROUP_NONE;
  for (; *text >= '0' && *text <= '9'; text++) {
    if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number)) return CGROUP_NONE;
  }
  return number >= CGROUP_NO_LIMIT_V1 ? CGROUP_NONE : number;
}

bool cgroup_path(const cgroup_t *group, cgroup_file_t file, char path[CGROUP_PATH]) {
  const char *name = cgroup_file_name(group->version, file);
  size_t folder = strlen(group->path), length = strlen(name);
  if (folder + 1 + length >= CGROUP_PATH) return false;
  memcpy(path, group->path, folder);
  path[folder] = '/';
  memcpy(path + folder + 1, name, length + 1);
  return true;
}

HAK_COLD void cgroup_open(const cgroup_t *group, cgroup_open_files_t *files) {
  char path[CGROUP_PATH];
  for (cgroup_file_t file = CGROUP_FILE_MAX; file < CGROUP_FILES; file++) {
    bool there = group->version == CGROUP_V2 || (file != CGROUP_FILE_HIGH && file != CGROUP_FILE_PRESSURE);
    files->of[file] = there && cgroup_path(group, file, path) ? file_open(path) : -1;
  }
}

/* Returns the length of the text, or -1. */
static long group_read(const cgroup_t *group, cgroup_file_t file, char *text, size_t size) {
  char path[CGROUP_PATH];
  if (group->files == NULL) return cgroup_path(group, file, path) ? os_read_file(path, text, size) : -1;
  long bytes = file_pread(group->files->of[file], text, size - 1, 0);
  text[bytes > 0 ? bytes : 0] = '\0';
  return bytes;
}

static uint64_t group_number(const cgroup_t *group, cgroup_file_t file) {
  char text[32];
  return group_read(group, file, text, sizeof text) > 0 ? cgroup_number(text) : CGROUP_NONE;
}

/* Takes the lower of the two limits. */
static void limit_choose(cgroup_t *group, bool high) {
  group->by = CGROUP_FILE_MAX;
  uint64_t most = group_number(group, CGROUP_FILE_MAX);
  uint64_t slow = high && group->version == CGROUP_V2 ? group_number(group, CGROUP_FILE_HIGH) : CGROUP_NONE;
  if (slow < most) group->by = CGROUP_FILE_HIGH;
  group->limit = slow < most ? slow : most;
}

bool cgroup_look(cgroup_t *group) {
  if (group->files != NULL) limit_choose(group, true);
  else group->limit = group_number(group, group->by);
  group->use = group_number(group, CGROUP_FILE_CURRENT);
  return group->use != CGROUP_NONE;
}

static uint64_t room_of(const cgroup_t *group) {
  if (group->limit == CGROUP_NONE || group->use == CGROUP_NONE) return CGROUP_NONE;
  return group->use < group->limit ? group->limit - group->use : 0;
}

/* Finds the group's path in the text of /proc/self/cgroup; NULL if there is none.  In version 1 it follows the names of controllers. */
static const char *own_path(const char *text, cgroup_version_t version) {
  for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
    const char *names = strchr(line, ':');
    const char *path = names != NULL ? strchr(names + 1, ':') : NULL;
    if (path == NULL) return NULL;
    if (version == CGROUP_V2) {
      if (strncmp(line, "0::/", 4) == 0) return path + 1;
      continue;
    }
    for (const char *name = names + 1; name < path; name++) {
      size_t length = strcspn(name, ",:");
      if (length == 6 && memcmp(name, "memory", 6) == 0) return path + 1;
      name += length;
    }
  }
  return NULL;
}

/* Looks at the group and its ancestors up to the mount.  The outermost has a limit only if the mount is a container's own group. */
static bool find_below(cgroup_t *best, const char *mount, const char *own, bool high) {
  cgroup_t group = {.version = best->version};
  size_t base = strlen(mount), length = strcspn(own, "\n");
  uint64_t least = CGROUP_NONE;
  bool found = false;
  if (base + length >= CGROUP_PATH) length = 0;
  memcpy(group.path, mount, base);
  memcpy(group.path + base, own, length);
  for (size_t end = base + length;; end--) {
    if (end > base && group.path[end] != '/' && group.path[end] != '\0') continue;
    bool root = end == base + 1 && group.path[base] == '/'; /* the mount itself, which is next */
    group.path[end] = '\0';
    if (!root && group.path[end - 1] != '/') {
      limit_choose(&group, high);
      if (group.limit != CGROUP_NONE || !found) group.use = group_number(&group, CGROUP_FILE_CURRENT);
      bool there = group.use != CGROUP_NONE;
      if (there && (!found || room_of(&group) < least)) {
        least = room_of(&group);
        *best = group;
        found = true;
      }
    }
    if (end == base) return found;
  }
}

bool cgroup_find_in(cgroup_t *group, const char *text, const char *mount_v1, const char *mount_v2, bool high) {
  for (cgroup_version_t version = CGROUP_V1; version <= CGROUP_V2; version++) { /* only one of them has the controller */
    const char *own = own_path(text, version);
    group->version = version;
    if (own != NULL && find_below(group, version == CGROUP_V1 ? mount_v1 : mount_v2, own, high)) return true;
  }
  group->version = CGROUP_ABSENT;
  return false;
}

bool cgroup_find(cgroup_t *group, bool high, cgroup_text_t *room) {
  if (os_read_file("/proc/self/cgroup", room->bytes, sizeof room->bytes) <= 0) return false;
  return cgroup_find_in(group, room->bytes, usual_v1, usual_v2, high);
}

/* Returns the number after `name` at the start of a line; 0 if there is none.  `name` includes the separator. */
static uint64_t number_behind(const char *text, const char *name) {
  size_t length = strlen(name);
  for (const char *line = text; line != NULL; line = strchr(line, '\n'), line += line != NULL) {
    if (strncmp(line, name, length) != 0) continue;
    uint64_t number = cgroup_number(line + length);
    return number == CGROUP_NONE ? 0 : number;
  }
  return 0;
}

uint64_t cgroup_reclaimable(const cgroup_t *group, cgroup_text_t *room) {
  if (group_read(group, CGROUP_FILE_STAT, room->bytes, sizeof room->bytes) <= 0) return 0;
  return number_behind(room->bytes, group->version == CGROUP_V1 ? "total_inactive_file " : "inactive_file ");
}

uint64_t cgroup_stalled_us(const cgroup_t *group) {
  char text[256];
  if (group->version != CGROUP_V2 || group_read(group, CGROUP_FILE_PRESSURE, text, sizeof text) <= 0) return 0;
  const char *total = strstr(text, "total="); /* of the first line, "some" */
  uint64_t number = total != NULL ? cgroup_number(total + 6) : 0;
  return number == CGROUP_NONE ? 0 : number;
}
