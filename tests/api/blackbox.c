/* blackbox.c - HAKMEM_BLACKBOX: what the file contains after a process was killed, which process owns it, and what the process survives.
 *
 * The subject is another run of this program, with the option. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "leak.h"

enum { BOX_BYTES = 1 << 20, MIB = 1 << 20, PATIENCE_MS = 60000 };

/* ---- the subject ---- */

/* Leaks until it is killed, or up to a limit. */
static void grow(void) {
  for (int i = 0; i < 300; i++) {
    leak(MIB);
    usleep(1000);
  }
  for (;;) pause();
}

/* The child first prints its process number; each letter that it then reads is an order to leak more. */
static void have_child(void) {
  char letter;
  pid_t child = fork();
  if (child != 0) {
    for (;;) pause();
  }
  printf("%d\n", (int)getpid());
  fflush(stdout);
  while (read(0, &letter, 1) == 1) {
    leak((size_t)20 * MIB);
    printf("done\n");
    fflush(stdout);
  }
  _exit(0);
}

static int subject(const char *mode) {
  if (strcmp(mode, "many") == 0) { /* 2 GiB of blocks without pages: more samples than an entry has room for, at a moderate rate */
    for (int i = 0; i < 80000; i++) {
      void **block = malloc(27000);
      if (block != NULL) *block = kept;
      kept = block;
      if (i % 250 == 0) usleep(15000);
    }
  }
  leak((size_t)20 * MIB);
  if (strcmp(mode, "child") == 0) have_child();
  printf("ready\n");
  fflush(stdout);
  if (strcmp(mode, "grow") == 0) grow();
  for (char letter; read(0, &letter, 1) == 1;) {
    leak((size_t)20 * MIB);
    printf("done\n");
    fflush(stdout);
  }
  return 0;
}

typedef struct process {
  pid_t id;
  int to;
  FILE *from;
  char first[64]; /* the first line of its output */
} process_t;

static char folder[] = "/tmp/hakmem-box-XXXXXX";
static bool folder_made;
static char box_path[128];

static void remove_folder(void) {
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  if (system(command) != 0) perror(command);
}

static void begin(process_t *p, const char *mode, const char *name) {
  int to[2], from[2];
  if (!folder_made) { /* XXXXXX may have been replaced by a name that ends in X, so the name does not show whether the folder was made */
    REQUIRE(mkdtemp(folder) != NULL);
    folder_made = true;
    atexit(remove_folder);
  }
  snprintf(box_path, sizeof box_path, "%s/%s", folder, name);
  REQUIRE(pipe(to) == 0 && pipe(from) == 0);
  pid_t id = fork();
  REQUIRE(id >= 0);
  if (id == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    for (int fd = 3; fd < 64; fd++) close(fd);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("HAKMEM_BLACKBOX", box_path, 1);
    execl(check_self(), check_self(), "subject", mode, (char *)NULL);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  *p = (process_t){id, to[1], fdopen(from[0], "r"), ""};
  REQUIRE(fgets(p->first, sizeof p->first, p->from) != NULL);
}

static void order(process_t *p) {
  char line[64];
  REQUIRE(write(p->to, "x", 1) == 1);
  REQUIRE(fgets(line, sizeof line, p->from) != NULL);
  CHECK(strcmp(line, "done\n") == 0);
}

static void finish(process_t *p) {
  int status;
  kill(p->id, SIGKILL);
  CHECK_EQ(waitpid(p->id, &status, 0), p->id);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  close(p->to);
  fclose(p->from);
}

/* ---- the reader ---- */

static uint32_t crc_32(const unsigned char *text, size_t bytes) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < bytes; i++) {
    crc ^= text[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

typedef struct entry {
  int number; /* -1: none */
  unsigned long bytes, resident;
  unsigned sum;
  const char *text;
} entry_t;

static struct {
  char bytes[BOX_BYTES + 1];
  int process, whole, torn;
  entry_t newest;
} box;

/* Returns false if there is no box yet. */
static bool box_read(const char *path) {
  int fd = open(path, O_RDONLY), head_bytes, slots, slot_bytes;
  memset(&box, 0, sizeof box);
  box.newest.number = -1;
  if (fd < 0) return false;
  ssize_t got = read(fd, box.bytes, BOX_BYTES);
  close(fd);
  if (got <= 0 || sscanf(box.bytes, "hakmem-blackbox 1\nprocess %d\nhead_bytes %d\nslots %d\nslot_bytes %d\n", &box.process, &head_bytes,
                         &slots, &slot_bytes) != 4)
    return false;
  CHECK(got == BOX_BYTES && slots >= 2 && head_bytes + slots * slot_bytes <= BOX_BYTES);
  for (int i = 0; i < slots; i++) {
    const char *slot = box.bytes + head_bytes + (size_t)i * (size_t)slot_bytes;
    entry_t entry = {.text = slot + head_bytes};
    if (sscanf(slot, "entry %d %lu %u %*u %lu", &entry.number, &entry.bytes, &entry.sum, &entry.resident) != 4) continue;
    if (entry.bytes > (unsigned long)(slot_bytes - head_bytes) || crc_32((const unsigned char *)entry.text, entry.bytes) != entry.sum) {
      box.torn++;
      continue;
    }
    box.whole++;
    if (entry.number > box.newest.number) box.newest = entry;
  }
  return true;
}

/* Waits until the newest entry reports this many resident bytes. */
static bool wait_until(const char *path, unsigned long resident) {
  for (int ms = 0; ms < PATIENCE_MS; ms += 20) {
    if (box_read(path) && box.newest.number >= 0 && box.newest.resident >= resident) return true;
    usleep(20000);
  }
  check_fail(__FILE__, __LINE__, "no entry with %lu MiB resident; the newest is %d with %lu", resident / MIB, box.newest.number,
             box.newest.resident);
  return false;
}
#define WAIT_FOR(path, resident) REQUIRE(wait_until((path), (resident)))

static int lines_of(const char *kind) {
  int count = 0;
  const char *end = box.newest.text + box.newest.bytes;
  for (const char *line = box.newest.text; line < end; line = memchr(line, '\n', (size_t)(end - line)) + 1) {
    count += strncmp(line, kind, strlen(kind)) == 0;
  }
  return count;
}

static unsigned long number_of(const char *kind) {
  const char *at = strstr(box.newest.text, kind);
  return at == NULL ? 0 : strtoul(at + strlen(kind), NULL, 10);
}

static void check_entry(pid_t process) {
  const entry_t *e = &box.newest;
  REQUIRE(e->number >= 0 && e->bytes > 100);
  CHECK_EQ(box.process, process);
  CHECK(strncmp(e->text, "hakmem-snapshot 1\n", 18) == 0 && memcmp(e->text + e->bytes - 5, "\nend\n", 5) == 0);
  CHECK_EQ(number_of("\nprocess "), process);
  CHECK_EQ(number_of("\nresident "), e->resident);
  CHECK(lines_of("mapping ") > 3 && lines_of("class ") > 0);
}

/* ---- checks ---- */

TEST(what_was_held_is_there_after_a_kill) {
  process_t p;
  begin(&p, "hold", "box");
  WAIT_FOR(box_path, (unsigned long)20 * MIB);
  order(&p);
  WAIT_FOR(box_path, (unsigned long)40 * MIB);
  finish(&p);
  REQUIRE(box_read(box_path));
  check_entry(p.id);
  CHECK(lines_of("sample ") > 160 && lines_of("sample ") < 640 && lines_of("site ") > 0 && lines_of("thinned ") == 0);
  CHECK(box.whole >= 2); /* one entry can be read while another is being written, also at the moment of the kill */
}

TEST(other_users_cannot_read_it) {
  struct stat facts;
  process_t p;
  begin(&p, "hold", "box");
  WAIT_FOR(box_path, (unsigned long)20 * MIB);
  CHECK(stat(box_path, &facts) == 0 && (facts.st_mode & 0777) == 0600);
  finish(&p);
}

TEST(a_torn_entry_is_passed_over) {
  process_t p;
  begin(&p, "hold", "box");
  WAIT_FOR(box_path, (unsigned long)20 * MIB);
  order(&p);
  WAIT_FOR(box_path, (unsigned long)40 * MIB);
  finish(&p);
  int newest = box.newest.number, fd = open(box_path, O_WRONLY);
  long middle = box.newest.text - box.bytes + (long)box.newest.bytes / 2;
  REQUIRE(fd >= 0 && pwrite(fd, "\n", 1, box.bytes[middle] == '\n' ? middle + 1 : middle) == 1);
  close(fd);
  REQUIRE(box_read(box_path));
  CHECK_EQ(box.torn, 1);
  CHECK_EQ(box.newest.number, newest - 1);
  check_entry(p.id);
}

/* A kill may come at any moment while entries follow each other. */
TEST(a_kill_leaves_a_whole_one) {
  for (int turn = 0; turn < 20; turn++) {
    process_t p;
    begin(&p, "grow", "box");
    WAIT_FOR(box_path, (unsigned long)20 * MIB);
    usleep((useconds_t)(turn * 9000));
    finish(&p);
    REQUIRE(box_read(box_path));
    check_entry(p.id);
  }
}

/* The bytes that the samples of blocks of this size stand for. */
static double bytes_told(unsigned long size) {
  double sum = 0;
  const char *end = box.newest.text + box.newest.bytes;
  for (const char *line = box.newest.text; line < end; line = memchr(line, '\n', (size_t)(end - line)) + 1) {
    unsigned long bytes, chance;
    if (sscanf(line, "sample %*x %lu %*u %lu", &bytes, &chance) != 2 || bytes != size) continue;
    sum += chance == 0 ? (double)bytes : (double)bytes * 4294967296.0 / (double)chance;
  }
  return sum;
}

TEST(more_samples_than_there_is_room_for_are_thinned) {
  process_t p;
  begin(&p, "many", "box");
  WAIT_FOR(box_path, (unsigned long)20 * MIB);
  for (int turn = 0; turn < 10 && lines_of("thinned ") == 0; turn++) {
    order(&p); /* so that a new entry is written */
    usleep(200000);
    (void)box_read(box_path);
  }
  finish(&p);
  REQUIRE(box_read(box_path));
  check_entry(p.id);
  CHECK_EQ(lines_of("thinned "), 1);
  unsigned long rate = number_of("\nsample_bytes "), from = number_of("\nthinned ");
  REQUIRE(from > 0 && rate >= 2 * from);
  double live = 80000 * 28672.0, told = bytes_told(28672); /* the block size of the class */
  if (told < 0.9 * live || told > 1.1 * live) check_fail(__FILE__, __LINE__, "%.0f MiB told, %.0f live", told / MIB, live / MIB);
}

static void have_child_grow(const char *name, bool parent_is_there) {
  process_t p;
  begin(&p, "child", name);
  pid_t child = (pid_t)strtol(p.first, NULL, 10);
  char own[160];
  const char *mark = strstr(box_path, "%p");
  int before = mark == NULL ? (int)strlen(box_path) : (int)(mark - box_path);
  snprintf(own, sizeof own, "%.*s%.0d", before, box_path, mark == NULL ? 0 : (int)p.id);
  WAIT_FOR(own, (unsigned long)20 * MIB);
  check_entry(p.id);
  static char still[BOX_BYTES];
  kill(p.id, parent_is_there ? SIGSTOP : SIGKILL);
  usleep(50000);
  REQUIRE(box_read(own));
  memcpy(still, box.bytes, sizeof still);
  order(&p);
  if (mark != NULL) {
    char childs[160];
    snprintf(childs, sizeof childs, "%.*s%d", before, box_path, (int)child);
    WAIT_FOR(childs, (unsigned long)40 * MIB);
    check_entry(child);
  } else {
    usleep(500000);
    order(&p);
  }
  REQUIRE(box_read(own));
  CHECK(memcmp(still, box.bytes, sizeof still) == 0);
  kill(child, SIGKILL);
  finish(&p);
}

TEST(a_child_has_its_own_where_the_name_has_the_number) { have_child_grow("box.%p", true); }
TEST(a_child_has_none_else) { have_child_grow("box", true); }
TEST(a_child_does_not_take_that_of_a_parent_that_is_gone) { have_child_grow("box", false); }

TEST(two_programs_do_not_share_one) {
  process_t first;
  begin(&first, "hold", "box");
  WAIT_FOR(box_path, (unsigned long)20 * MIB);
  process_t second;
  begin(&second, "hold", "box");
  order(&second);
  usleep(500000);
  finish(&second);
  order(&first);
  WAIT_FOR(box_path, (unsigned long)40 * MIB);
  check_entry(first.id);
  finish(&first);
  process_t third;
  begin(&third, "hold", "box"); /* now the file is free */
  WAIT_FOR(box_path, (unsigned long)20 * MIB);
  for (int ms = 0; ms < PATIENCE_MS && box.process != third.id; ms += 20) {
    usleep(20000);
    (void)box_read(box_path);
  }
  CHECK_EQ(box.process, third.id);
  finish(&third);
}

/* The kernel closes a killed process's files in the background: a process that starts immediately finds them locked. */
TEST(the_file_of_one_that_is_gone_is_waited_for) {
  process_t p;
  begin(&p, "hold", "box"); /* for the folder */
  finish(&p);
  int fd = open(box_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  dprintf(fd, "hakmem-blackbox 1\nprocess %d\n", p.id);
  REQUIRE(flock(fd, LOCK_EX) == 0);
  pid_t holder = fork();
  if (holder == 0) {
    usleep(200000);
    _exit(0);
  }
  close(fd);
  begin(&p, "hold", "box");
  WAIT_FOR(box_path, (unsigned long)20 * MIB);
  check_entry(p.id);
  finish(&p);
  CHECK_EQ(waitpid(holder, NULL, 0), holder);
}

TEST(a_file_that_is_cut_is_no_end) {
  process_t p;
  begin(&p, "hold", "box");
  WAIT_FOR(box_path, (unsigned long)20 * MIB);
  CHECK(truncate(box_path, 0) == 0);
  for (int i = 0; i < 3; i++) {
    order(&p);
    usleep(300000);
  }
  CHECK_EQ(waitpid(p.id, NULL, WNOHANG), 0);
  finish(&p);
}

/* The keeper, which opens it, has no other line to say. */
TEST(what_cannot_be_written_is_no_end_but_said) {
  process_t p;
  char said[200] = "";
  int ends[2], errors = dup(2);
  REQUIRE(errors >= 0 && pipe(ends) == 0 && dup2(ends[1], 2) == 2);
  begin(&p, "hold", "none/box");
  dup2(errors, 2);
  close(errors);
  close(ends[1]);
  struct pollfd end = {.fd = ends[0], .events = POLLIN};
  CHECK(poll(&end, 1, PATIENCE_MS) == 1 && read(ends[0], said, sizeof said - 1) > 0);
  close(ends[0]);
  CHECK(strcmp(said, "hakmem: HAKMEM_BLACKBOX: the file cannot be written\n") == 0);
  order(&p);
  finish(&p);
  CHECK(!box_read(box_path));
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "subject") == 0) return subject(argv[2]);
  return check_main(argc, argv);
}
