"""Validation of the single records of a client's batch, and the records that are named if it fails.

A batch for a compacted log is read before it is appended, as each record must have a key. Other
batches are read only after their header has been refused for a timestamp, to name the records. Both
may take long, so neither is part of the append.

Kafka names every record; here it is the first `NAMED_MAX` of a batch. A client takes the others for
good ones that were refused because of those.
"""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from odradek.broker.environment.turns import Turns
from odradek.broker.storage.compaction.raw_records import RawRecord
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.validation import invalid, is_in_time
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.batch import BatchHeader, TimestampType
from odradek.protocol.errors import ErrorCode, KafkaError

COMPACTED_RECORDS_MAX: Final = 1_000_000
"""The largest batch.num.messages of librdkafka. Other clients make far smaller batches."""
NAMED_MAX: Final = 1_000
"""The most records of a batch that an answer names."""
SHOWN_MAX: Final = 3
"""The records that the sentence about the whole batch repeats, as in Kafka."""
WITHOUT_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record by its place in the batch, and a sentence."""

    index: int
    why: str

    def __str__(self) -> str:
        return f"RecordError(batchIndex={self.index}, message={self.why!r})"


class RefusedRecords(KafkaError):
    """A batch that is refused for some of its records."""

    def __init__(self, code: ErrorCode, records: Sequence[RefusedRecord], count: int) -> None:
        """`count` is the number of all such records, `records` are the first of them."""
        because = "invalid timestamp"
        if code is not ErrorCode.INVALID_TIMESTAMP:
            shown = ", ".join(map(str, records[:SHOWN_MAX]))
            because = (
                f"{count} record errors in total, and only showing the first three errors at most: "
                f"[{shown}]"
            )
        super().__init__(code, f"One or more records have been rejected due to {because}")
        self.records = tuple(records)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRules:
    """The rules of a partition for its records, at one moment."""

    where: TopicPartition
    config: LogConfig
    now_ms: int

    def judge(self, header: BatchHeader, record: RawRecord) -> tuple[ErrorCode, str] | None:
        """Return the code and the sentence for a record; None for a good one."""
        if record.key is None and self.config.is_compacted:
            return (
                ErrorCode.INVALID_RECORD,
                f"Compacted topic cannot accept message without key in topic partition "
                f"{self.where}",
            )
        if self.config.message_timestamp_type is not TimestampType.CREATE_TIME:
            return None
        timestamp_ms = header.base_timestamp + record.timestamp_delta
        if is_in_time(timestamp_ms, self.config, self.now_ms):
            return None
        earliest_ms = self.now_ms - self.config.message_timestamp_before_max_ms
        latest_ms = self.now_ms + self.config.message_timestamp_after_max_ms
        return (
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {timestamp_ms} of message with offset {record.offset_delta} is out of "
            f"range. The timestamp should be within [{earliest_ms}, {latest_ms}]",
        )


async def check_records(
    header: BatchHeader,
    batch: memoryview,
    rules: RecordRules,
    decompressor: Decompressor,
    turns: Turns,
) -> None:
    """Check each record of a batch with a good header.

    Raises `RefusedRecords`, with INVALID_TIMESTAMP if any record has that, else INVALID_RECORD.
    Raises KafkaError INVALID_RECORD if the records cannot be read.
    """
    if rules.config.is_compacted and header.record_count > COMPACTED_RECORDS_MAX:
        raise invalid(
            f"it has {header.record_count} records, but a batch for a compacted topic may have "
            f"at most {COMPACTED_RECORDS_MAX}"
        )
    refused: list[RefusedRecord] = []
    index, count, code = -1, 0, ErrorCode.INVALID_RECORD
    try:
        async with aclosing(decompressor.records(header, batch, turns)) as records:
            async for record in records:
                index += 1
                verdict = rules.judge(header, record)
                if verdict is None:
                    continue
                count += 1
                if verdict[0] is ErrorCode.INVALID_TIMESTAMP:
                    code = ErrorCode.INVALID_TIMESTAMP
                if len(refused) < NAMED_MAX:
                    refused.append(RefusedRecord(index, verdict[1]))
    except KafkaError as error:
        raise invalid(f"its records cannot be read: {error.message}") from None
    if refused:
        raise RefusedRecords(code, refused, count)
