"""A heap whose owners are all known, sampled as hakmem samples: what estimates are held against."""

from __future__ import annotations

import random
from collections import Counter

from hakmem.snapshots import Mapping, Sample, SizeClass, Snapshot, Stratum, Survivor, TrackedSlab

RATE = 128 << 10
UNIT = 64 << 10
PAGE = 4096
BASE = 0x7F00_0000_0000
CODE = 0x40_0000


class Heap:
    """`owners` has for each block size the sites of all blocks, side by side; 0 is free. `large` are sites and bytes."""

    def __init__(self, owners: dict[int, list[int]], large: list[tuple[int, int]] = (), rate: int = RATE) -> None:
        self.owners = owners
        self.large = list(large)
        self.rate = rate

    def held(self) -> Counter[int]:
        """The bytes of each site, in truth."""
        counts: Counter[int] = Counter()
        for size, sites in self.owners.items():
            for site, blocks in Counter(sites).items():
                counts[site] += size * blocks
        for site, size in self.large:
            counts[site] += size
        del counts[0]
        return counts

    def marks(self, seed: int) -> list[tuple[int, int, int]]:
        """In each unit one block or none, whoever has it: sizes, places among the blocks of the size, addresses."""
        draw = random.Random(seed).random
        marks = []
        start = BASE
        for size, sites in self.owners.items():
            each = UNIT // size
            for first in range(0, len(sites), each):
                blocks = min(each, len(sites) - first)
                if draw() < blocks * size / self.rate:
                    index = int(draw() * blocks)
                    marks.append((size, first + index, start + index * size))
                start += UNIT
        return marks

    def snapshot(self, marks: list[tuple[int, int, int]], seed: int = 0, process: int = 77) -> Snapshot:
        taken = Snapshot(file="heap.77", process=process, time=1_800_000_000, rate=self.rate, checked=40, wrong=1)
        for size, sites in self.owners.items():
            live = len(sites) - sites.count(0)
            taken.classes.append(SizeClass(size, UNIT, -(-len(sites) * size // UNIT), live, 0, len(sites) - live, 0))
        for size, index, address in marks:
            site = self.owners[size][index]
            if site:
                taken.samples.append(Sample(address, size, size - 8, size / self.rate, site, site % 3, 60.0, False))
        draw = random.Random(seed).random
        for number, (site, size) in enumerate(self.large):
            chance = min(1.0, size / self.rate)
            if draw() < chance:
                address = BASE + (1 << 40) + number * (1 << 30)
                taken.samples.append(Sample(address, size, size, chance, site, site % 3, 5.0, False, True))
        taken.large_blocks, taken.large_bytes = len(self.large), sum(size for _, size in self.large)
        most = max((sample.site for sample in taken.samples), default=1)
        # Site n is called from main, which is site 1.
        taken.sites = {number: (number > 1, CODE + 16 * number) for number in range(1, most + 1)}
        return taken

    def sampled(self, seed: int, process: int = 77) -> Snapshot:
        return self.snapshot(self.marks(seed), seed, process)


def slabs_of(heap: Heap) -> list[tuple[int, int, list[int]]]:
    """Sizes, addresses, and the sites of all blocks; the addresses are those that marks have."""
    slabs, start = [], BASE
    for size, sites in heap.owners.items():
        each = UNIT // size
        for first in range(0, len(sites), each):
            slabs.append((size, start, (sites[first : first + each] + [0] * each)[:each]))
            start += UNIT
    return slabs


def pages_of(size: int, sites: list[int]) -> list[tuple[int, set[int]]]:
    """Of each page of a slab, byte by byte in a way: how many are live, and of which sites."""
    pages = [(0, set()) for _ in range(UNIT // PAGE)]
    for number, site in enumerate(sites):
        for at in range(number * size, (number + 1) * size, 16) if site else ():
            live, of = pages[at // PAGE]
            pages[at // PAGE] = (live + 16, of | {site})
    return pages


def pin(taken: Snapshot, heap: Heap, every: int, seed: int = 0) -> Snapshot:
    """Adds what hakmem tells of pages, with one slab in so many tracked."""
    draw = random.Random(seed).randrange
    strata: dict[tuple[int, int], Stratum] = {}
    for size, address, sites in slabs_of(heap):
        live = sum(site != 0 for site in sites)
        if not live:
            continue
        pages = pages_of(size, sites)
        quarter = (4 * live - 1) // (UNIT // size)
        waste = sum(PAGE - held for held, _ in pages if held)
        stratum = strata.setdefault((size, quarter), Stratum(size, quarter, 0, 0, 0, 0, 0))
        stratum.slabs += 1
        stratum.pages += sum(held > 0 for held, _ in pages)
        stratum.waste += waste
        stratum.idle += sum(PAGE for held, _ in pages if not held)
        if draw(every):
            continue
        stratum.tracked += 1
        mask = sum(1 << number for number, (held, _) in enumerate(pages) if 0 < held < PAGE)
        slab = TrackedSlab(address, size, quarter, live, waste, mask)
        for number, site in enumerate(sites):
            touched = range(number * size // PAGE, ((number + 1) * size - 1) // PAGE + 1)
            if site and any(mask >> page & 1 for page in touched):
                slab.survivors.append(Survivor(number, site, float(site), site % 7 == 0))
        taken.tracked.append(slab)
    taken.page_size, taken.strata = PAGE, list(strata.values())
    most = max((each.site for slab in taken.tracked for each in slab.survivors), default=1)
    taken.sites = {number: (number > 1, CODE + 16 * number) for number in range(1, max(most, len(taken.sites)) + 1)}
    return taken


def mixed(blocks: dict[int, int], free: int = 0, seed: int = 1) -> list[int]:
    """So many blocks of each site, and free ones, in any order."""
    sites = [site for site, count in (blocks | {0: free}).items() for _ in range(count)]
    random.Random(seed).shuffle(sites)
    return sites


def text_of(snapshot: Snapshot) -> str:
    """The file that hakmem would write."""
    lines = [f"process {snapshot.process}", f"time {snapshot.time}", f"sample_bytes {snapshot.rate}"]
    for each in snapshot.classes:
        words = (each.block_size, each.slab_size, each.slabs, each.live, each.cached, each.free, each.remote)
        lines.append("class " + " ".join(map(str, words)))
    lines.append(f"large {snapshot.large_blocks} {snapshot.large_bytes}")
    for each in snapshot.samples:
        chance = round(each.chance * 2**32) % 2**32
        lines.append(
            f"sample {each.address:#x} {each.size} {each.asked} {chance} {each.site} {each.tag} "
            f"{round(10 * each.age)} {each.quiet:d} {each.large:d}"
        )
    if taken := snapshot.page_size:
        lines.append(f"page_bytes {taken}")
    for each in snapshot.tracked:
        words = f"{each.block_size} {each.quarter} {each.live} {each.waste} {each.pages:#x}"
        lines.append(f"tracked {each.address:#x} {words}")
        lines += [f"survivor {s.block} {s.site} {round(10 * s.age)} {s.quiet:d}" for s in each.survivors]
        lines += [f"freed {f.page} {f.site} {f.blocks}" for f in each.freed]
    for each in snapshot.strata:
        words = (each.block_size, each.quarter, each.slabs, each.tracked, each.pages, each.waste, each.idle)
        lines.append("pinned " + " ".join(map(str, words)))
    lines.append(f"sites {len(snapshot.sites)} {snapshot.checked} {snapshot.wrong}")
    lines += [f"site {number} {parent:d} {address:#x}" for number, (parent, address) in snapshot.sites.items()]
    for each in snapshot.mappings:
        span = f"{each.start:08x}-{each.end:08x} r-xp {each.offset:08x} fe:00 4711"
        lines.append(f"mapping {each.build_id or '-'} {span:<72} {each.path}".rstrip())
    return "\n".join(["hakmem-snapshot 1", *lines, "end", ""])


def of_code(path: str, build_id: str = "", start: int = CODE, size: int = 1 << 20, offset: int = 0) -> Mapping:
    return Mapping(start, start + size, offset, path, build_id)
