/* soak.c - mixed load for an hour: at its end the resident size is the same as early on.
 *
 * Workers allocate, resize and free blocks of their own and of each other; every byte is written, and checked before
 * the block is freed. Volume and sizes follow the same phases in each of a sample's four cycles, so that samples can be compared: up by
 * half with small blocks, down to a quarter, up with large ones, down, and back to --live with all sizes, which is
 * then held. A worker's thread ends after a random time, and its successor takes over its blocks. --forks times in a
 * sample the process forks, alternately with all workers at rest, when the child checks every block, and in the middle of
 * their calls, when it checks only the main thread's blocks; either child frees and allocates, while the parent goes on. --users times
 * in a sample the process becomes another user and root again, as servers do for a client, and half-way through the run it gives up
 * root for good; each time every thread of the process, known to libc or not, must have changed. A process that is not root at the
 * start skips this, and says so.
 *
 * Each sample writes one line of a table, to --log or standard output. Resident is the mean over the last sixth of each of its
 * cycles, highest is the maximum in the sample, both beyond what the program itself held at the start; live is what
 * the model holds. Judged: a straight line through the resident sizes of the last three quarters rises by at most
 * --growth=0.5 percent an hour; there were never --mappings=5000 mappings; no child failed; and on hakmem no block is
 * live after the end that was not live before.
 *
 * Arguments: --seconds=3600, --sample=60 (seconds), --live=256M, --threads=4, --duty=100 (percent of the time that each
 * thread works), --forks=3, --users=3, --growth, --mappings, --log=PATH, --seed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "harness.h"
#include "series.h"

enum {
  WORKERS_MAX = 64,
  EXCHANGES = 1024,
  CYCLES = 4,
  TICKS = 60,
  READINGS = TICKS / 6,
  SLICE_STEPS = 16,
  SLICE_NS = 5000000,
  HANG_SECONDS = 300,
  SMALL_MEAN = 128,
  OWN_STEPS = 1000,
  OWN_SHARE = 64,
  CHILD_BLOCKS = 2000,
  CHILD_SHARE = 8,
  SAMPLES_LEAST = 4,
  LIVE_SLACK = 64 * 1024 /* the C library keeps some blocks for cached stacks */
};

typedef struct block {
  unsigned char *start; /* NULL: no block */
  size_t usable;
  uint64_t id;
} block_t;

/* A worker's blocks outlive its threads. The last entry is the main thread's; it has no thread of its own. */
typedef struct worker {
  pthread_mutex_t lock; /* held while it works: a thread that holds all of these locks has the program at rest */
  rng_t rng;
  pthread_t handle;
  uint64_t ends;        /* when its thread is to end */
  atomic_bool ended;
  size_t share;         /* of --live, in bytes */
  size_t count, bytes;
  atomic_bool settled;  /* has reached the phase's target */
  block_t *blocks;      /* `capacity` of them, `count` used */
  atomic_uint_fast64_t calls;
  uint64_t calls_before; /* at the start of the phase */
} worker_t;

/* A phase lasts to this percent of a cycle, and leads to this percent of --live, with sizes below this power of two. It lasts
 * longer if a busy machine keeps a worker from its target, or from this many calls: samples must have the same past. */
static const struct phase {
  unsigned until, target, bits, calls;
} phases[] = {{20, 150, 10, 100000}, {30, 25, 10, 10000},   {50, 120, 20, 2000},
              {60, 25, 15, 10000},   {83, 100, 15, 200000}, {100, 100, 15, 0}};

static worker_t workers[WORKERS_MAX + 1];
static unsigned worker_count, duty;
static size_t capacity; /* number of blocks */
static atomic_uint phase;
static atomic_bool resting, stopping;
static uint64_t sample_ns, threads_started, forks;
static unsigned samples_taken;

static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;
static block_t exchanges[EXCHANGES];

/* ---- Blocks ---- */

static void block_check(const block_t *block, const unsigned char *start, size_t length, const char *when) {
  size_t offset = content_differs(start, 0, length, block->id);
  if (offset != CONTENT_SAME)
    stress_fail("%s: block %p of %zu bytes, was at %p, changed at offset %zu", when, (const void *)start, block->usable,
                (void *)block->start, offset);
}

static block_t block_make(rng_t *rng, void *start, size_t size) {
  if (start == NULL) stress_fail("no block of %zu bytes", size);
  block_t block = {.start = start, .usable = malloc_usable_size(start), .id = rng_next(rng)};
  content_write(block.start, 0, block.usable, block.id);
  return block;
}

static void *zeroed_take(size_t size) {
  unsigned char *start = calloc(1, size);
  for (size_t i = 0; start != NULL && i < size; i++)
    if (start[i] != 0) stress_fail("calloc gave block %p of %zu bytes with byte %02x at offset %zu", (void *)start, size, start[i], i);
  return start;
}

static block_t block_take(rng_t *rng, unsigned bits) {
  size_t size = rng_size(rng, bits);
  switch (rng_below(rng, 8)) {
    case 0: return block_make(rng, zeroed_take(size), size);
    case 1: return block_make(rng, memalign((size_t)16 << rng_below(rng, 9), size), size);
    default: return block_make(rng, malloc(size), size);
  }
}

static void block_drop(const block_t *block) {
  block_check(block, block->start, block->usable, "before free");
  free(block->start);
}

static block_t block_resize(rng_t *rng, const block_t *block, size_t size) {
  unsigned char *start = realloc(block->start, size);
  if (start != NULL) block_check(block, start, size < block->usable ? size : block->usable, "after realloc");
  return block_make(rng, start, size);
}

/* ---- Workers ---- */

static void worker_put(worker_t *worker, block_t block) {
  worker->blocks[worker->count++] = block;
  worker->bytes += block.usable;
}

static block_t worker_pick(worker_t *worker) {
  block_t *block = &worker->blocks[rng_below(&worker->rng, (uint32_t)worker->count)], picked = *block;
  *block = worker->blocks[--worker->count];
  worker->bytes -= picked.usable;
  return picked;
}

static void worker_exchange(worker_t *worker) {
  block_t *exchange = &exchanges[rng_below(&worker->rng, EXCHANGES)], block = worker_pick(worker);
  pthread_mutex_lock(&exchange_lock);
  block_t other = *exchange;
  *exchange = block;
  pthread_mutex_unlock(&exchange_lock);
  if (other.start != NULL) worker_put(worker, other);
}

static void worker_step(worker_t *worker) {
  const struct phase *now = &phases[atomic_load_explicit(&phase, memory_order_relaxed)];
  size_t target = worker->share / 100 * now->target;
  uint32_t kind = rng_below(&worker->rng, 16);
  if (worker->count != 0 && kind == 0) {
    worker_exchange(worker);
    return;
  }
  atomic_fetch_add_explicit(&worker->calls, 1, memory_order_relaxed);
  if (worker->count == 0 || (worker->bytes < target && kind > 2 && worker->count < capacity)) {
    worker_put(worker, block_take(&worker->rng, now->bits));
    return;
  }
  block_t block = worker_pick(worker);
  if (worker->bytes < target && kind <= 2) worker_put(worker, block_resize(&worker->rng, &block, 1 + rng_size(&worker->rng, now->bits)));
  else block_drop(&block);
}

static uint64_t cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_ns(uint64_t ns) {
  struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
  nanosleep(&pause, NULL);
}

static void worker_slice(worker_t *worker, unsigned steps) {
  pthread_mutex_lock(&worker->lock);
  for (unsigned i = 0; i < steps; i++) worker_step(worker);
  size_t target = worker->share / 100 * phases[atomic_load(&phase)].target;
  size_t off = worker->bytes > target ? worker->bytes - target : target - worker->bytes;
  atomic_store(&worker->settled, off <= target / 16 || worker->count >= capacity - steps);
  pthread_mutex_unlock(&worker->lock);
}

static void *worker_run(void *argument) {
  worker_t *worker = argument;
  uint64_t begin = cpu_ns();
  while (clock_ns() < worker->ends && !atomic_load(&stopping)) {
    while (atomic_load(&resting)) sleep_ns(SLICE_NS / 10);
    worker_slice(worker, SLICE_STEPS);
    uint64_t worked = cpu_ns() - begin;
    if (duty < 100 && worked > SLICE_NS) {
      sleep_ns(worked * (100 - duty) / duty);
      begin = cpu_ns();
    }
  }
  atomic_store(&worker->ended, true);
  return NULL;
}

static void worker_start(worker_t *worker) {
  atomic_store(&worker->ended, false);
  worker->ends = clock_ns() + sample_ns / 1024 * rng_below(&worker->rng, 1024);
  if (pthread_create(&worker->handle, NULL, worker_run, worker) != 0) stress_fail("no thread");
  threads_started++;
}

static void workers_renew(void) {
  for (unsigned i = 0; i < worker_count; i++)
    if (atomic_load(&workers[i].ended)) {
      pthread_join(workers[i].handle, NULL);
      worker_start(&workers[i]);
    }
}

/* The tables are resident before the start, so that they do not count. */
static void workers_prepare(size_t live) {
  capacity = live / worker_count / SMALL_MEAN + 1;
  for (unsigned i = 0; i <= worker_count; i++) {
    workers[i].rng = rng_make(i);
    workers[i].share = live / worker_count / (i < worker_count ? 1 : OWN_SHARE);
    workers[i].blocks = pages_take(capacity * sizeof(block_t));
    memset(workers[i].blocks, 1, capacity * sizeof(block_t));
    pthread_mutex_init(&workers[i].lock, NULL);
  }
}

static void workers_end(void) {
  atomic_store(&stopping, true);
  for (unsigned i = 0; i <= worker_count; i++) {
    if (i < worker_count) pthread_join(workers[i].handle, NULL);
    while (workers[i].count != 0) {
      block_t block = worker_pick(&workers[i]);
      block_drop(&block);
    }
  }
  for (unsigned i = 0; i < EXCHANGES; i++)
    if (exchanges[i].start != NULL) block_drop(&exchanges[i]);
}

/* ---- Forks ---- */

static void worker_check(worker_t *worker) {
  for (size_t i = 0; i < worker->count; i++)
    block_check(&worker->blocks[i], worker->blocks[i].start, worker->blocks[i].usable, "in a child");
}

static _Noreturn void child_run(bool at_rest) {
  worker_t *own = &workers[worker_count];
  stress_watch(HANG_SECONDS, "a child of soak");
  for (unsigned i = at_rest ? 0 : worker_count; i <= worker_count; i++) {
    worker_check(&workers[i]);
    for (size_t drops = workers[i].count / CHILD_SHARE; drops > 0; drops--) {
      block_t block = worker_pick(&workers[i]);
      block_drop(&block);
    }
  }
  for (unsigned i = 0; i < CHILD_BLOCKS && own->count < capacity; i++) worker_put(own, block_take(&own->rng, phases[0].bits));
  worker_check(own);
  _exit(0);
}

static void fork_once(void) {
  bool at_rest = forks++ % 2 == 0;
  int status = 1;
  atomic_store(&resting, at_rest);
  for (unsigned i = 0; at_rest && i < worker_count; i++) pthread_mutex_lock(&workers[i].lock);
  pid_t pid = fork();
  if (pid == 0) child_run(at_rest);
  for (unsigned i = 0; at_rest && i < worker_count; i++) pthread_mutex_unlock(&workers[i].lock);
  atomic_store(&resting, false);
  if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
    stress_fail("fork %llu: child %d ended with status 0x%x", (unsigned long long)forks, (int)pid, (unsigned)status);
}

/* ---- Users ---- */

enum { ROOT = 0, NOBODY = 65534 };
static bool is_root;

/* Returns false if the thread has ended. */
static bool task_ids(const char *task, unsigned ids[4], unsigned long long *capabilities) {
  char path[300], text[4096];
  snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
  if (fd >= 0) close(fd);
  if (length <= 0) return false;
  text[length] = '\0';
  const char *uids = strstr(text, "\nUid:"), *permitted = strstr(text, "\nCapPrm:");
  if (uids == NULL || permitted == NULL || sscanf(uids, "\nUid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4 ||
      sscanf(permitted, "\nCapPrm: %llx", capabilities) != 1)
    stress_fail("no ids in %s", path);
  return true;
}

/* Every thread must have the effective user; after root was given up also all other user ids, and no capability. */
static void tasks_check(unsigned user) {
  unsigned ids[4];
  unsigned long long capabilities;
  DIR *tasks = opendir("/proc/self/task");
  if (tasks == NULL) stress_fail("no list of threads");
  for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
    if (task->d_name[0] == '.' || !task_ids(task->d_name, ids, &capabilities)) continue;
    bool left = !is_root && (ids[0] != user || ids[2] != user || ids[3] != user || capabilities != 0);
    if (ids[1] != user || left)
      stress_fail("thread %s is user %u/%u/%u/%u with capabilities %llx, not %u", task->d_name, ids[0], ids[1], ids[2], ids[3],
                  capabilities, user);
  }
  closedir(tasks);
}

static void user_visit(void) {
  if (!is_root) {
    tasks_check(geteuid());
    return;
  }
  if (setegid(NOBODY) != 0 || seteuid(NOBODY) != 0) stress_fail("cannot become another user");
  tasks_check(NOBODY);
  if (seteuid(ROOT) != 0 || setegid(ROOT) != 0) stress_fail("cannot become root again");
  tasks_check(ROOT);
}

static void root_end(void) {
  if (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)
    stress_fail("cannot stop being root");
  is_root = false;
  tasks_check(NOBODY);
  stress_say("no longer root after sample %u", samples_taken);
}

/* ---- Samples ---- */

static size_t mappings_now(void) {
  static char text[65536];
  size_t lines = 0;
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  for (ssize_t length; (length = read(fd, text, sizeof text)) > 0;)
    for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
  close(fd);
  return lines;
}

static void totals_take(sample_t *sample) {
  sample->threads = threads_started, sample->forks = forks;
  for (unsigned i = 0; i <= worker_count; i++) {
    pthread_mutex_lock(&workers[i].lock);
    sample->calls += atomic_load(&workers[i].calls);
    sample->live += workers[i].bytes;
    pthread_mutex_unlock(&workers[i].lock);
  }
  pthread_mutex_lock(&exchange_lock);
  for (unsigned i = 0; i < EXCHANGES; i++) sample->live += exchanges[i].usable;
  pthread_mutex_unlock(&exchange_lock);
}

static bool phase_done(void) {
  for (unsigned i = 0; i < worker_count; i++)
    if (!atomic_load(&workers[i].settled) || atomic_load(&workers[i].calls) - workers[i].calls_before < phases[atomic_load(&phase)].calls)
      return false;
  return true;
}

/* Sets the phase of the tick that begins. */
static void phase_set(unsigned tick) {
  unsigned now = 0;
  while (tick * 100 / TICKS >= phases[now].until) now++;
  if (now == atomic_load(&phase)) return;
  for (; !phase_done(); workers_renew()) sleep_ns(sample_ns / TICKS / CYCLES);
  for (unsigned i = 0; i < worker_count; i++) workers[i].calls_before = atomic_load(&workers[i].calls);
  atomic_store(&phase, now);
}

/* Takes one reading of the figures; those of a cycle's last sixth make up the resident size. */
static void reading_take(sample_t *sample, unsigned tick, size_t start) {
  size_t now = process_resident(), resident = now > start ? now - start : 0, mappings = mappings_now();
  sample->highest = resident > sample->highest ? resident : sample->highest;
  sample->mappings = mappings > sample->mappings ? mappings : sample->mappings;
  if (tick >= TICKS - READINGS) sample->resident += resident / READINGS / CYCLES;
}

/* Waits until one tick after the last was due, or one tick from now if that time has passed. */
static void tick_wait(void) {
  static uint64_t due;
  uint64_t now = clock_ns(), length = sample_ns / TICKS / CYCLES;
  due = due + length > now ? due + length : now + length;
  stress_watch(HANG_SECONDS + (unsigned)(sample_ns / 1000000000u), "soak");
  sleep_ns(due - now);
}

/* Whether one of `count` equal parts of a sample ends with this tick. */
static bool part_ends(unsigned tick, unsigned count) { return (tick + 1) * count / TICKS / CYCLES != tick * count / TICKS / CYCLES; }

static sample_t sample_run(unsigned fork_count, unsigned user_count, size_t start) {
  sample_t sample = {0};
  for (unsigned tick = 0; tick < TICKS * CYCLES; tick++) {
    phase_set(tick % TICKS);
    tick_wait();
    workers_renew();
    worker_slice(&workers[worker_count], OWN_STEPS);
    reading_take(&sample, tick % TICKS, start);
    if (part_ends(tick, fork_count)) fork_once();
    if (part_ends(tick, user_count)) user_visit();
  }
  totals_take(&sample);
  return sample;
}

static uint64_t live_stats(void) {
  hak_stats_t stats;
  return stress_stats(&stats) ? stats.live : 0;
}

static void soak_run(double seconds, size_t start) {
  unsigned fork_count = (unsigned)stress_option("forks", 3), user_count = (unsigned)stress_option("users", 3);
  is_root = geteuid() == ROOT && user_count != 0;
  if (!is_root) stress_say("users are not changed");
  uint64_t begin = clock_ns();
  for (unsigned i = 0; i < worker_count; i++) worker_start(&workers[i]);
  double passed = 0;
  for (; samples_taken < SAMPLES_LEAST || passed < seconds; samples_taken++) {
    if (is_root && samples_taken >= SAMPLES_LEAST / 2 && passed >= seconds / 2) root_end();
    sample_t sample = sample_run(fork_count, user_count, start);
    passed = sample.seconds = (double)(clock_ns() - begin) / 1e9;
    series_add(&sample);
  }
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  worker_count = (unsigned)stress_option("threads", 4);
  duty = (unsigned)stress_option("duty", 100);
  sample_ns = stress_option("sample", 60) * 1000000000u;
  if (worker_count == 0 || worker_count > WORKERS_MAX || duty == 0 || duty > 100 || sample_ns == 0)
    stress_fail("1 to %d threads, a duty of 1 to 100 percent, samples of a second or more", WORKERS_MAX);
  workers_prepare(stress_option("live", 256 * MIB));
  series_open(stress_word("log", NULL));
  free(malloc(1));
  uint64_t live_start = live_stats();
  soak_run((double)stress_option("seconds", 3600), process_resident());
  workers_end();
  series_judge(strtod(stress_word("growth", "0.5"), NULL), stress_option("mappings", 5000));
  uint64_t live_end = live_stats();
  stress_expect(live_end <= live_start + LIVE_SLACK, "%llu bytes live after the end, %llu before", (unsigned long long)live_end,
                (unsigned long long)live_start);
  return stress_finish();
}
