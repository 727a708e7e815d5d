#!/usr/bin/env python3
"""Seeds one fault at a time into the sources, and expects the target to find each with only its kept inputs.

  faults.py --source SRC --work DIR --objects A.o,B.o... [--jobs N] [--only NAME | TARGET] [--check] -- COMPILER FLAGS...

A fault replaces a text that occurs once in a source.  Exit status 0 if every entry fits the sources and every fault is found.
"""
import collections
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import seeding  # noqa: E402

# target, name, source, text, replacement
FAULTS = [
    ("program", "overlapping blocks", "slab/batch.c", "if (left != before) store_relaxed(bits, left);", ""),
    ("program", "malloc does not set the live bit", "front/bin.h", "    owner_store(&live[index], word);\n",
     "    (void)word;\n"),
    ("program", "a freed block stays live", "front/block.h", "owner_store(&live[index], word);", "(void)word;"),
    ("program", "calloc of reused memory is not cleared", "slab/large.c",
     "if (use == SPAN_ZEROED && !zero) large_clear(unit, bytes);", ""),
    ("program", "realloc copies one byte too few", "front/resize.c", "size_t bytes = size < old ? size : old;",
     "size_t bytes = (size < old ? size : old) - 1;"),
    ("program", "pages move, and the rest is not copied", "slab/large.c",
     "memcpy((char *)to + done, (char *)region_address(start) + done, bytes - done);", "if (done == 0) memcpy(to, region_address(start), bytes);"),
    ("program", "an alignment of more than a unit is ignored", "slab/large.c",
     "uint64_t align_units = units_of_align(align);", "uint64_t align_units = 1 + 0 * align;"),
    ("program", "the bins of an ended thread go while slabs refer to them", "front/supply.c",
     "has_slabs ? UINT32_MAX : ORPHANS_KEPT", "0"),
    ("program", "an orphan's bins still name its thread", "front/heap.c",
     "racy_store(&bin->shared.thread, thread);", "if (thread != 0) racy_store(&bin->shared.thread, thread);"),
    ("program", "a bin keeps the blocks that it has given back", "front/bin.c",
     "  owner_move(&entries[bottom], &entries[bottom + count], (size_t)(top - bottom - count));\n", ""),
    ("program", "in a fork's child heaps still belong to threads that are gone", "front/repair.c",
     "    heap->owner.orphan = true;\n    heap_set_thread(heap, 0);\n", "    heap->owner.orphan = true;\n"),
    ("program", "a guard slot holds two blocks", "slab/slots.c",
     "if (state != SLOT_UNUSED && state != SLOT_FREED) continue;", "if (state == SLOT_CHANGING) continue;"),
    ("program", "a bin that shrinks loses blocks", "front/bin.c",
     "    while (surplus > 0) surplus -= bin_give(bin, owner, surplus);\n", "    while (surplus > 1) surplus -= bin_give(bin, owner, surplus - 1);\n"),
    ("program", "out of memory without errno", "front/alloc.c", "  errno = ENOMEM;\n  return NULL;", "  return NULL;"),
    ("program_secure", "a freed block is not cleared", "front/secure.c",
     "  memset(block, 0, size);\n  __asm__", "  __asm__"),
    ("program_secure", "a canary lies inside the block", "front/secure.c", "{ return (uint64_t *)(void *)((char *)block + size - CLASS_CANARY); }",
     "{ return (uint64_t *)(void *)((char *)block + size - CLASS_CANARY - 8); }"),
    ("program_secure", "a block waits in quarantine and in a bin", "front/quarantine.c",
     "  return old;\n", "  return old != NULL ? block : NULL;\n"),
    ("program_secure", "the guard behind a large block stays forever", "slab/large_secure.c", "  units_unguard(unit + units, 1); /* from the ends: opened first, its middle would take mappings */\n", ""),
    ("misuse", "a double free passes", "front/inspect.c",
     "  return is_live ? BLOCK_LIVE : BLOCK_FREED;\n", "  return is_live || true ? BLOCK_LIVE : BLOCK_FREED;\n"),
    ("misuse", "the end of a slab is a block", "front/inspect.c", "class_info[c].size == offset && block < class_info[c].blocks;", "class_info[c].size == offset;"),
    ("misuse", "a larger size passes", "front/block.h", "if (HAK_UNLIKELY(size > bin->shared.block_size)) goto miss;", ""),
    ("misuse", "a misaligned pointer is called interior", "front/inspect.c",
     "  if (misaligned) info.state = BLOCK_MISALIGNED;\n", "  if (misaligned) info.state = BLOCK_INTERIOR;\n"),
    ("misuse_secure", "a canary is not checked", "front/secure.c",
     "  return behind == want;", "  return behind == want || true;"),
    ("misuse_secure", "a write after free is not checked for", "front/secure.c",
     "|| (!fresh && !is_zero(block, size)))) written_to", "|| (!fresh && false))) written_to"),
    ("space", "a unit is lost", "space/span.c", "  ledger_note_free(units, dirty);\n  units_release(start, units);",
     "  ledger_note_free(units, dirty);\n  units_release(start, units - (units > 40));"),
    ("space", "memory that the kernel has not taken back counts as zero", "space/purge.c",
     "if (done) atomic_fetch_and_explicit(&superslab->dirty", "if (true) atomic_fetch_and_explicit(&superslab->dirty"),
    ("space", "moved pages count as zero", "space/move.c",
     "uint32_t before = atomic_exchange_explicit(&target->dirty, UINT32_MAX, memory_order_relaxed);", "uint32_t before = 0;"),
    ("space", "a unit is lost when the region grows", "space/region.c", "atomic_fetch_or(&region.superslabs[s].free, mask) | mask",
     "atomic_fetch_or(&region.superslabs[s].free, mask == UINT32_MAX ? mask : mask & (mask - 1))"),
    ("slab", "remote frees are taken twice", "slab/remote.c", "  if (bits != 0) store_relaxed(seen, marks);\n", ""),
    ("slab", "a free block lies below the first word that is searched", "slab/slab.c",
     "if (word < slab->first_word) slab->first_word = (uint16_t)word;", ""),
    ("slab", "the blocks of a hole do not come back", "slab/hole.c", "*there = blocks_return(owner, slab, hole.first, hole.last);",
     "if (hole.pages != 3) *there = blocks_return(owner, slab, hole.first, hole.last);"),
    ("slab", "an orphan's remote frees wait forever", "slab/remote.c", 
     "if (atomic_load(&owner->pending_classes) == 0 || !lock_try(&owner->lock)) return;", "return;"),
    ("slab", "a large block that shrinks keeps its units", "slab/large.c", "    span_free(start + want, have - want);\n", ""),
    ("options", "a number of 19 digits is read", "kit/options.c", "digits > 18) return false;", "digits > 19) return false;"),
    ("options", "a bad value leaves the value before it", "kit/options.c",
     "    store_relaxed(&option_values.number[option], option_info[option].fallback);\n", ""),
    ("options", "a path is not terminated", "kit/options.c", "    option_values.path[i][length] = '\\0';\n", ""),
    ("options", "unprintable text is printed", "kit/options.c", "bool printable = text[i] >= ' ' && text[i] <= '~';",
     "bool printable = text[i] != 'x';"),
    ("arithmetic", "text is cut a byte late", "base/format.c", "if (f->used + 1 >= f->size) return;", "if (f->used >= f->size) return;"),
    ("arithmetic", "a size is given the class below", "slab/class.h", "if (size <= 128) return (unsigned)((size + 15) >> 4) - 1;",
     "if (size <= 128) return (unsigned)((size + 14) >> 4) - (size > 1);"),
    ("arithmetic", "a block's index is rounded wrongly", "slab/class.c", "(((uint64_t)1 << 40) + (size) - 1) / (size)}",
     "((uint64_t)1 << 40) / (size)}"),
    ("unwind", "a record of a table extends beyond it", "os/cfi.c",
     "if (all->bad || length == 0 || length > (size_t)(all->end - all->at)) return", "if (all->bad || length == 0) return"),
    ("unwind", "a search table's claimed length is believed", "os/cfi.c", "if (c.bad || high > (size_t)(c.end - c.at) / (2 * bytes)) return false;",
     "if (c.bad) return false;"),
    ("unwind", "more rows are saved than there is room for", "os/cfi.c", "if (in ? x->nested == NESTED_MOST : x->nested == 0) x->bad = true;",
     "if (!in && x->nested == 0) x->bad = true;"),
    ("unwind", "a rule for a register that does not exist", "os/cfi.c", "  if (reg >= CFI_REGS) return;\n", ""),
    ("unwind", "the stack is read without a check that it is readable", "os/unwind.c", "&& !prove(w, address)) return false;", "&& false) return false;"),
    ("unwind", "an expression takes values that it does not have", "os/unwind.c", "  if (s->depth < 2) return false;\n", ""),
]

SOURCES = {"program": ["program.c", "shadow.c"], "misuse": ["misuse.c", "shadow.c"]}

Fault = collections.namedtuple("Fault", "target name file text instead")


def build(fault, place, settings):
    """Builds the target's replay with the fault; returns its path."""
    seeding.overlay(place, fault.file, seeding.changed(fault, settings.source))
    plain = fault.target.removesuffix("_secure")
    sources = ["library.c", "fuzz.c", "replay.c", *SOURCES.get(plain, [f"{plain}.c"])]
    compiler, *flags = settings.command
    subprocess.run([compiler, f"-I{place}", *flags, f"-DHAK_SECURE={int(fault.target != plain)}", "-w", "-O1",
                    *(HERE / name for name in sources), *settings.objects, "-o", place / "replay"], check=True)
    return place / "replay"


def attempt(fault, place, settings):
    """How many inputs fail, and what the first one prints; None if none fails."""
    program = build(fault, place, settings)
    run = subprocess.run([program, HERE / "corpus" / fault.target], capture_output=True, text=True, timeout=300)
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAIL")]
    said = [line for line in run.stderr.splitlines() if line]
    return f"{fault.target}, {len(failed)} inputs; {said[0] if said else ''}" if run.returncode != 0 and failed else None


if __name__ == "__main__":
    sys.exit(seeding.main(__doc__, [Fault(*row) for row in FAULTS], attempt))
