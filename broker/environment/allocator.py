"""The memory allocator of the C library: it keeps what a large answer has freed while it is needed.

An answer to a Fetch has tens of MiB. glibc gives so much back to the system as soon as it is freed,
and the next answer gets new pages for it, each by a page fault in which the system clears it. Of
the processor time of large answers this was two thirds: 950 us a MiB with it and 350 without, in
answers of 4 partitions with 5 MiB each.

glibc raises both limits by itself, but only as far as it has seen single buffers: to twice the size
of the largest, whereas an answer has a buffer for each partition.

A broker that has nothing to do needs none of this memory, and gives it back.
"""

import os
import time
from collections.abc import Callable
from typing import Final

import trio

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 64 * 1024 * 1024
"""The freed memory at the end of the heap that is kept: an answer of the largest size. It is the
most that glibc would come to by itself."""
OWN_MAPPING_BYTES: Final = 32 * 1024 * 1024
"""From this size on a buffer is a mapping of its own, which goes back when it is freed. glibc takes
no larger value."""
LOOK_SECONDS: Final = 5.0
QUIET_SHARE: Final = 0.05
"""A broker that has computed for less than this share of the time is quiet."""
WORTH_BYTES: Final = 8 * 1024 * 1024
"""Less memory than this is not worth a walk over the heap, which takes some milliseconds."""


async def keep_freed_memory() -> None:
    """Keep what is freed while the broker works, and give it back when it is quiet.

    Returns, and does nothing, if this is not glibc: other C libraries have no such limits, or take
    them and have no `malloc_trim`.
    """
    import ctypes  # a start is over before it needs this

    library = ctypes.CDLL(None)
    set_option = getattr(library, "mallopt", None)
    trim = getattr(library, "malloc_trim", None)
    if set_option is None or trim is None:
        return
    set_option(M_MMAP_THRESHOLD, OWN_MAPPING_BYTES)
    set_option(M_TRIM_THRESHOLD, KEPT_BYTES)
    # Opened once: later the broker may have no descriptor left.
    statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        await _give_back_when_quiet(trim, statm)
    finally:
        os.close(statm)


async def _give_back_when_quiet(trim: Callable[[int], object], statm: int) -> None:
    def resident_bytes() -> int:
        return int(os.pread(statm, 200, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")

    lowest = resident_bytes()
    while True:
        began = time.process_time()
        await trio.sleep(LOOK_SECONDS)
        is_quiet = time.process_time() - began < QUIET_SHARE * LOOK_SECONDS
        if is_quiet and resident_bytes() - lowest >= WORTH_BYTES:
            trim(0)
            lowest = resident_bytes()
        lowest = min(lowest, resident_bytes())
