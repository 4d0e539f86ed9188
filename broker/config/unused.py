"""Kafka's settings of a broker that change nothing here: accepted, kept and described.

Tools set them on any broker: a tool that moves partitions gives replication a rate, an operator
the number of threads. A tool that is refused one setting often applies none of the others. They are
the defaults of topic settings that change nothing for a reader either (`topic.py`), and what Kafka
can change while it runs. A value that would be a promise (`unclean.leader.election.enable=true`) is
refused. What else only Kafka has is refused like a misspelling. The log says once for each setting
that it has no effect.
"""

import logging
from collections.abc import Iterable
from typing import Final

from odradek.broker.config.settings import (
    INT64_MAX,
    Setting,
    Value,
    boolean,
    double,
    int32,
    int64,
    settings_of,
)
from odradek.late import dataclass

LOGGER: Final = logging.getLogger(__name__)

FLUSHES: Final = "log.flush alone decides when records are on disk"
DELETES: Final = "files are removed as soon as their segment is deleted"
NOT_TIERED: Final = "there is no tiered storage"
GROWS: Final = "segments grow as they are written"
NO_JITTER: Final = "segments are closed without jitter"
NOT_THROTTLED: Final = "replication is not throttled"
NO_UNCLEAN: Final = "it would lose committed transactions"
NOT_CLEANED_SO: Final = "compaction has no such limits here"
NO_THREADS: Final = "the broker has no such threads"
DEADLINES: Final = "each transaction has its own deadline"

UNLIMITED: Final = 1.7976931348623157e308
"""Java's Double.MAX_VALUE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedSettings:
    """A part of `BrokerConfig`, with Kafka's defaults and bounds."""

    background_threads: int = int32(
        10, low=1, no_effect=NO_THREADS, about="Threads of background work."
    )
    follower_replication_throttled_rate: int = int64(
        INT64_MAX, low=0, no_effect=NOT_THROTTLED, about="Bytes that followers fetch per second."
    )
    leader_replication_throttled_rate: int = int64(
        INT64_MAX, low=0, no_effect=NOT_THROTTLED, about="Bytes for followers per second."
    )
    log_cleaner_io_buffer_load_factor: float = double(
        0.9, no_effect=NOT_CLEANED_SO, about="How full the memory of compaction may be."
    )
    log_cleaner_io_buffer_size: int = int32(
        512 * 1024, low=0, no_effect=NOT_CLEANED_SO, about="Memory for the I/O of compaction."
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        UNLIMITED, no_effect=NOT_CLEANED_SO, about="How fast compaction reads and writes."
    )
    log_cleaner_threads: int = int32(1, low=0, no_effect=NO_THREADS, about="Threads of compaction.")
    log_flush_interval_messages: int = int64(
        INT64_MAX, low=1, no_effect=FLUSHES, about="Records between two flushes of a log."
    )
    log_flush_interval_ms: int = int64(
        INT64_MAX, low=0, no_effect=FLUSHES, about="The time between two flushes of a log."
    )
    log_local_retention_bytes: int = int64(
        -2, low=-2, no_effect=NOT_TIERED, about="As log.retention.bytes, for what is also remote."
    )
    log_local_retention_ms: int = int64(
        -2, low=-2, no_effect=NOT_TIERED, about="As log.retention.ms, for what is also remote."
    )
    log_preallocate: bool = boolean(
        False,
        no_effect=GROWS,
        about="Give a segment's file its full size from the beginning.",
    )
    log_roll_jitter_ms: int = int64(
        0, low=0, no_effect=NO_JITTER, about="A random time by which segments are closed earlier."
    )
    log_segment_delete_delay_ms: int = int64(
        60_000, low=0, no_effect=DELETES, about="How long the files of a deleted segment stay."
    )
    num_io_threads: int = int32(
        8, low=1, no_effect=NO_THREADS, about="Threads that work on requests."
    )
    num_network_threads: int = int32(
        3, low=1, no_effect=NO_THREADS, about="Threads that read requests."
    )
    num_recovery_threads_per_data_dir: int = int32(
        2, low=1, no_effect=NO_THREADS, about="Threads that recover logs."
    )
    num_replica_fetchers: int = int32(
        1, low=1, no_effect=NO_THREADS, about="Threads that fetch from each leader."
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = int64(
        INT64_MAX,
        low=0,
        no_effect="a broker has one log directory",
        about="How fast replicas move between the log directories of a broker.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(
        10_000,
        low=1,
        no_effect=DEADLINES,
        about="The interval at which transactions that are over their time-out are aborted.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(
        3_600_000,
        low=1,
        no_effect=DEADLINES,
        about="The interval at which unused transactional ids are forgotten.",
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        choices=("false",),
        why=NO_UNCLEAN,
        about="Let a replica lead that lacks records.",
    )


UNUSED: Final = settings_of(UnusedSettings)
UNUSED_LIVE: Final = frozenset(UNUSED) - {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
}
"""Those that Kafka changes while it runs."""


def unused_last(settings: dict[str, Setting]) -> dict[str, Setting]:
    """Return settings in the order of the reference: those of this module come last."""
    return {**{name: it for name, it in settings.items() if name not in UNUSED}, **UNUSED}


class UnusedNotes:
    """Logs once for each setting that it has no effect here."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def note(self, given: Iterable[tuple[str, Setting, Value]]) -> None:
        """Log the settings among these that change nothing and have not been logged before."""
        for name, setting, value in given:
            if setting.no_effect and value != setting.default and name not in self._noted:
                self._noted.add(name)
                LOGGER.warning("%s is kept, and has no effect: %s", name, setting.no_effect)
