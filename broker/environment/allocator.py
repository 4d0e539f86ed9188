"""The memory allocator of the C library: it keeps what a large answer has freed.

An answer to a Fetch has tens of MiB. glibc gives so much back to the system as soon as it is freed,
and the next answer gets new pages for it, each by a page fault in which the system clears it. Of
the processor time of large answers this was two thirds: 950 us a MiB with it and 350 without, in
answers of 4 partitions with 5 MiB each.

glibc raises both limits by itself, but only as far as it has seen single buffers: to twice the size
of the largest, whereas an answer has a buffer for each partition.
"""

from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 64 * 1024 * 1024
"""The freed memory at the end of the heap that is kept: an answer of the largest size. It is the
most that glibc would come to by itself."""
OWN_MAPPING_BYTES: Final = 32 * 1024 * 1024
"""From this size on a buffer is a mapping of its own, which goes back when it is freed. glibc takes
no larger value."""


def keep_freed_memory() -> None:
    """Set the limits of glibc. Other C libraries have no such limits, and are left as they are."""
    import ctypes  # a start is over before it needs this

    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_MMAP_THRESHOLD, OWN_MAPPING_BYTES)
        set_option(M_TRIM_THRESHOLD, KEPT_BYTES)
