"""The results of an append to a partition and of a read from one."""

from odradek.broker.environment.env import Buffer
from odradek.broker.storage.aborted import AbortedTxn
from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The offsets of an appended batch, both ends included.

    `log_append_time_ms` is -1 unless the broker's time is what counts (LogAppendTime), or the batch
    repeats an earlier one: then it is that one's timestamp, as Kafka answers.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    leader_epoch: int
    """The epoch in which this broker leads the partition."""
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The result of one read. Its offsets, records and aborted transactions belong together."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Buffer
    aborted: tuple[AbortedTxn, ...]
    """The transactions in `records` that a read_committed reader leaves out, by first offset."""
