"""A checksum of the end of a segment: the checkpoint's proof that a file has the batches it means.

Two logs of one topic may have files of the same size, and a backup can put one in the place of the
other. Sizes and file names then show nothing, and each batch has a good CRC. So the checkpoint has,
for each segment, the CRC-32C of the last bytes that it covers. A start-up checks it with one small
read for each segment. An append costs nothing: the bytes are read when a checkpoint is written.
"""

from typing import Final

from crc32c import crc32c

from odradek.broker.environment.env import File

END_BYTES: Final = 4096
"""More than the markers of a transaction, which may be the same in all of its partitions."""


async def end_crc_of(file: File, size_bytes: int) -> int:
    """Return the CRC of the last bytes in front of `size_bytes` in a file. Raises OSError."""
    start = max(0, size_bytes - END_BYTES)
    return crc32c(await file.pread(start, size_bytes - start))
