"""The broker's settings of reading and of compression, with Kafka's bounds."""

from typing import Final

from odradek.broker.config.broker_groups import ConsumerGroupSettings, groups_last
from odradek.broker.config.settings import Setting, int32, settings_of, string
from odradek.late import dataclass

PRODUCER: Final = "producer"
COMPRESSION_TYPES: Final = (PRODUCER, "uncompressed", "zstd", "lz4", "snappy", "gzip")
GZIP_LEVELS: Final = ("-1", *map(str, range(1, 10)))
LZ4_DEFAULT: Final = 9
"""For the default of lz4, Kafka's clients use its fast compressor, whatever the number says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings(ConsumerGroupSettings):
    """A part of `BrokerConfig`."""

    compression_type: str = string(
        PRODUCER,
        choices=COMPRESSION_TYPES,
        about="How batches are compressed in the log; `producer` keeps what the producer chose.",
    )
    compression_gzip_level: int = int32(
        -1,
        choices=GZIP_LEVELS,
        about="The level of gzip where `compression.type` is gzip; -1 is 6.",
    )
    compression_lz4_level: int = int32(
        LZ4_DEFAULT, low=1, high=17, about="The level of lz4 where `compression.type` is lz4."
    )
    compression_zstd_level: int = int32(
        3, low=-131_072, high=22, about="The level of zstd where `compression.type` is zstd."
    )
    max_incremental_fetch_session_cache_slots: int = int32(
        1000, low=0, about="The most fetch sessions of clients that are kept at once."
    )


def inherited_last(settings: dict[str, Setting]) -> dict[str, Setting]:
    """Return settings in the order of the reference: those of this module, then of groups."""
    records = settings_of(RecordSettings)
    return groups_last({name: it for name, it in settings.items() if name not in records} | records)
