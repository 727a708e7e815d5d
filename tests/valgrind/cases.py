"""What memcheck must report for each fault in faults.c: exactly this, and nothing else.

A report is one line: its kind, then each of memcheck's texts, with the stack that follows it, as the functions of faults.c except
main, innermost first.  Addresses are left out.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    faults: str            # names of faults, run in one process
    reports: str           # a line each
    signal: str = ""       # how the process ends
    said: str = ""         # the beginning of hakmem's line after "hakmem: ", if there is one
    options: tuple = ()    # HAKMEM_... variables


def freed(name, access, offset, size, by, taken="take"):
    """A use of a freed block."""
    return (f"{access} at {name} | Address is {offset} bytes inside a block of size {size} free'd at {by} | "
            f"Block was alloc'd at {taken} < {name}")


def beside(name, access, where, size, taken="take"):
    """A use of bytes beside a live block."""
    return f"{access} at {name} | Address is {where} a block of size {size} alloc'd at {taken} < {name}"


def unset(name, taken="take"):
    """A branch on a byte that was never written."""
    return f"UninitCondition at {name} | Uninitialised value was created by a heap allocation at {taken} < {name}"


def lost(size, stack):
    return f"Leak_DefinitelyLost {size} bytes in 1 blocks at {stack}"


# In the order in which they run, which matters: memcheck may name an earlier block at the same place.
SURVIVED = {
    "write_far_past_end": "InvalidWrite at write_far_past_end | Address is in a rw- anonymous segment",
    "read_after_free": freed("read_after_free", "InvalidRead", 8, 40, "drop < read_after_free"),
    "read_after_free_elsewhere": freed("read_after_free_elsewhere", "InvalidRead", 8, 88, "drop < drop_there"),
    "read_after_move": freed("read_after_move", "InvalidRead", 0, 120, "resize < read_after_move"),
    "write_into_free_neighbour": freed("write_into_free_neighbour", "InvalidWrite", 3, 40, "drop < write_into_free_neighbour"),
    "write_after_free": freed("write_after_free", "InvalidWrite", "3,999", "4,000", "drop < write_after_free"),
    "write_after_free_of_large":
        freed("write_after_free_of_large", "InvalidWrite", "5,000", "100,000", "drop < write_after_free_of_large"),
    "branch_on_new": unset("branch_on_new"),
    "branch_on_new_large": unset("branch_on_new_large"),
    "branch_on_new_aligned": unset("branch_on_new_aligned", "take_aligned"),
    "branch_on_reused": unset("branch_on_reused"),
    "branch_on_reused_large": unset("branch_on_reused_large"),
    "branch_on_grown": unset("branch_on_grown", "resize"),
    "write_past_end": beside("write_past_end", "InvalidWrite", "0 bytes after", 40),
    "write_past_whole_class": beside("write_past_whole_class", "InvalidWrite", "0 bytes after", 48),
    "read_past_zeroed": beside("read_past_zeroed", "InvalidRead", "0 bytes after", 45, "take_zeroed"),
    "read_before_start": beside("read_before_start", "InvalidRead", "1 bytes before", 40),
    "write_past_large": beside("write_past_large", "InvalidWrite", "0 bytes after", "100,000"),
    "write_past_pages": beside("write_past_pages", "InvalidWrite", "0 bytes after", "1,048,576"),
    "write_past_aligned": beside("write_past_aligned", "InvalidWrite", "0 bytes after", 300, "take_aligned"),
    "write_past_shrunk": beside("write_past_shrunk", "InvalidWrite", "0 bytes after", 44),
    "write_past_grown": beside("write_past_grown", "InvalidWrite", "0 bytes after", 44),
    "write_past_moved": beside("write_past_moved", "InvalidWrite", "0 bytes after", "4,000", "resize"),
    "write_past_usable": beside("write_past_usable", "InvalidWrite", "0 bytes after", 41),
    "leak": lost(56, "take < leak"),
    "leak_zeroed": lost("1,000", "take_zeroed < leak_zeroed"),
    "leak_aligned": lost("5,000", "take_aligned < leak_aligned"),
    "leak_large": lost("200,000", "take < leak_large"),
    "leak_moved": lost("3,000", "resize < leak_moved"),
    "leak_grown": lost(92, "take < leak_grown"),
    "leak_in_thread": lost(24, "take < leak_there"),
}

GUARD = (("HAKMEM_GUARD", "1"), ("HAKMEM_GUARD_EVERY", "1"))


def refused(name, said, reports, options=()):
    """A call for which hakmem ends the process, after memcheck's report."""
    return Case(name, reports, "SIGABRT", said, options)


ALL = Case(" ".join(SURVIVED), "\n".join(SURVIVED.values()))
DOUBLE_FREE = refused(
    "free_twice", "double free: free(",
    "InvalidFree at drop < free_twice | Address is 0 bytes inside a block of size 40 free'd at drop < free_twice | "
    "Block was alloc'd at take < free_twice")
# ALL and DOUBLE_FREE run with the library brought in each way; these only with the preloaded library.
MORE = [
    refused("free_large_twice", "double free: free(",
            "InvalidFree at drop < free_large_twice | Address is 0 bytes inside a block of size 100,000 free'd at "
            "drop < free_large_twice | Block was alloc'd at take < free_large_twice"),
    refused("free_inside", "interior pointer: free(",
            "InvalidFree at drop < free_inside | Address is 16 bytes inside a block of size 200 alloc'd at take < free_inside"),
    refused("free_local", "foreign pointer: free(",
            "InvalidFree at drop < free_local | Address is on thread 1's stack | in frame #N, created by free_local"),
    refused("realloc_freed", "double free: realloc(",
            "InvalidFree at resize < realloc_freed | Address is 0 bytes inside a block of size 40 free'd at drop < realloc_freed | "
            "Block was alloc'd at take < realloc_freed"),
    Case("leak", SURVIVED["leak"]),  # the first block of the process
    Case("write_past_end", SURVIVED["write_past_end"], options=GUARD),
    Case("leak", SURVIVED["leak"], options=GUARD),
    Case("read_after_free", SURVIVED["read_after_free"], "SIGSEGV", "SIGSEGV at ", GUARD),
]

# Prefixes of the names of checks in tests/api.
API = ("malloc_", "calloc_", "free_", "realloc_", "reallocarray_", "recallocarray_", "aligned_alloc_", "usable_size_")
# These take seconds because they move much data, through paths that other checks use as well.
API_LEFT_OUT = (
    "aligned_alloc_does_not_leak", "free_in_another_thread", "free_makes_room_for_the_next", "free_sized_does_not_leak",
    "malloc_gives_100000_blocks_of_64", "malloc_gives_200000_blocks_of_16", "malloc_reuses_what_was_freed",
    "malloc_trim_returns_small_blocks", "realloc_doubles_to_64_mib", "realloc_from_every_size_to_every_size",
    "realloc_grows_large_blocks_beside_each_other", "realloc_halves_from_64_mib", "realloc_to_0_frees", "usable_size_is_all_writable",
    "recallocarray_clears_what_it_releases",  # reads the uninitialised content of a new block
)
