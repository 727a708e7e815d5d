/* hakmem.c - the release build: every source in one translation unit, lowest layer first, but for entry/change.c and
 * entry/identity.c, which are objects of their own since not every program wants their names. */
#ifndef HAK_SHARED
#define HAK_SHARED (!HAK_ARCHIVE)
#endif

#include "base/format.c"

#include "os/memcheck.c"
#include "os/os_linux.c"
#include "os/fork.c"
#include "os/line.c"
#include "os/file.c"
#include "os/cgroup.c"
#include "os/lock.c"
#include "os/probe.c"
#include "os/stack.c"
#include "os/module.c"
#include "os/cfi.c"
#include "os/unwind.c"
#include "os/trace.c"
#include "os/thread.c"

#include "kit/fault.c"
#include "kit/meta.c"
#include "kit/options.c"
#include "kit/secret.c"
#include "kit/site.c"
#include "kit/closed.c"
#include "kit/event.c"
#include "kit/request.c"
#include "kit/pressure.c"

#include "space/room.c"
#include "space/region.c"
#include "space/ledger.c"
#include "space/huge.c"
#include "space/split.c"
#include "space/move.c"
#include "space/purge.c"
#include "space/span.c"
#if HAK_AUDIT
#include "space/audit.c"
#endif

#include "slab/class.c"
#include "slab/unit.c"
#include "slab/kept.c"
#include "slab/track.c"
#include "slab/sample.c"
#include "slab/slab.c"
#include "slab/remote.c"
#include "slab/batch.c"
#include "slab/hole.c"
#include "slab/pinned.c"
#include "slab/large_secure.c"
#include "slab/large.c"
#include "slab/slots.c"
#if HAK_AUDIT
#include "slab/audit.c"
#endif

#include "front/bin.c"
#include "front/heap.c"
#include "front/quarantine.c"
#include "front/heaps.c"
#include "front/drain.c"
#include "front/keeper.c"
#include "front/repair.c"
#include "front/watch.c"
#include "front/shared.c"
#include "front/supply.c"
#include "front/limits.c"
#if HAK_AUDIT
#include "front/audit.c"
#endif
#include "front/thread.c"
#include "front/secure.c"
#include "front/boot.c"
#include "front/inspect.c"
#include "front/memcheck.c"
#include "front/plea.c"
#include "front/named.c"
#include "front/alloc.c"
#include "front/free.c"
#include "front/block_secure.c"
#include "front/block.c"
#include "front/resize.c"
#include "front/census.c"

#include "entry/writer.c"
#include "entry/api.c"
#include "entry/heap.c"
#include "entry/deepbind.c"
#if !HAK_ARCHIVE
#include "entry/cxx.c" /* a member of its own there */
#endif
#include "entry/unload.c"
#include "entry/crash.c"
#include "entry/report.c"
#include "entry/pinned.c"
#include "entry/reading.c"
#include "entry/profile.c"
#include "entry/blackbox.c"
#include "entry/pprof.c"
#include "entry/pressure.c"
#include "entry/descriptor.c"
#include "entry/process.c"
