"""The start of a log inside a segment: the file `log-start`, beside the one in the checkpoint.

Records that DeleteRecords has deleted stay in their segment until retention removes it, and only
the log start offset hides them. If the checkpoint alone had it, a flipped bit there would bring
deleted records back. So it is kept twice. The log begins at the larger of the two: an older
checkpoint that was put back does not undo a deletion either.

The file is there only while the log begins inside its first segment. It is written, or removed,
before the checkpoint with the same log start offset. A crash between the two leaves a deletion that
was not acknowledged yet, which may count.

- A log that is cut may begin at a lower offset afterwards. The file is removed before the
  checkpoint with `is_cut`, and written again before the one that follows it (`cut.py`).
- A file that is damaged, or of another partition, does not count. Nor does one beside a checkpoint
  of an earlier version, which did not know it. Recovery then writes it again.
"""

from typing import Final
from uuid import UUID

from odradek.broker.environment.env import Disk
from odradek.broker.storage import small_file
from odradek.broker.values.topic_partition import TopicPartition

LOG_START: Final = "log-start"
BESIDE: Final = LOG_START + small_file.BESIDE
WRONG: Final = -1
"""The log start offset of a file that does not count."""


def encode_log_start(where: TopicPartition | None, topic_id: UUID, offset: int) -> bytes:
    assert offset >= 0, (where, offset)
    named = {} if where is None else where._asdict()
    return small_file.encode({**named, "topic_id": topic_id.bytes, "log_start_offset": offset})


def decode_log_start(
    data: bytes | bytearray, where: TopicPartition | None, topic_id: UUID | None
) -> int:
    """Return the log start offset in a file's bytes.

    Return `WRONG` if the file is damaged, of a newer version or of another partition.
    """
    content = small_file.decode(data)
    if content is None:
        return WRONG
    is_ours = where is None or (content.get("topic"), content.get("partition")) == where
    is_ours = is_ours and (topic_id is None or content["topic_id"] == topic_id.bytes)
    offset: int = content["log_start_offset"]
    return offset if is_ours else WRONG


async def read_log_start(
    disk: Disk, directory: str, where: TopicPartition | None, topic_id: UUID | None
) -> int | None:
    """Return what `decode_log_start` returns, None if there is no file. Raises OSError."""
    data = await small_file.read_bytes(disk, f"{directory}/{LOG_START}")
    return None if data is None else decode_log_start(data, where, topic_id)


async def remove_log_start(disk: Disk, directory: str) -> None:
    """Remove the file, durably. Raises OSError."""
    path = f"{directory}/{LOG_START}"
    if disk.exists(path):
        disk.remove(path)
    await disk.fsync_dir(directory)
