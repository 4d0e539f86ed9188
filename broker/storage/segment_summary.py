"""A segment as a checkpoint describes it, so that opening the log need not read it."""

from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSummary:
    """A segment as a checkpoint describes it, so that opening the log need not read it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp: int
    largest_timestamp_offset: int
    first_timestamp: int
    first_append_ms: int
    bytes_since_entry: int
    index_bytes: int
    time_index_bytes: int
    aborted_bytes: int
    # CRC-32C of those bytes of each index, because Kafka's index formats have no checksum. The
    # checkpoint of an older version has none either: then it is None.
    index_crc: int | None = None
    time_index_crc: int | None = None
    aborted_crc: int | None = None
    end_crc: int | None = None
    """CRC-32C of the last bytes of the segment; None if it is empty, or of an older version."""
