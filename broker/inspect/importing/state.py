"""The facts in Kafka's state topics that an import must know before it decides anything."""

from collections.abc import Iterable
from dataclasses import field
from typing import Final

from odradek.broker.inspect.importing.kafka_directory import KafkaLog
from odradek.broker.inspect.importing.kafka_metadata import whole_batches
from odradek.broker.inspect.refusal import CannotCopy
from odradek.late import dataclass
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.record import Record
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TransactionLogKey,
    UnknownKey,
    decode_consumer_offsets_key,
    decode_transaction_state_key,
    tag_of,
)

SHARE_GROUP: Final = 11
STREAMS_GROUP: Final = 17
"""The versions of the keys of share groups and of streams groups in `__consumer_offsets`."""
_GROUP_AT: Final = 4
"""A key is its version, the length of the group's id, both of two bytes, and the id."""


@dataclass(slots=True)
class StateFound:
    tagged: set[str] = field(default_factory=set)
    """Transactional ids with a tag, which transaction groups would keep elsewhere."""
    share_groups: set[str] = field(default_factory=set)
    streams_groups: set[str] = field(default_factory=set)


def read_state(logs: Iterable[KafkaLog]) -> StateFound:
    """Read the logs of the state topics. Raises `CannotCopy`, OSError."""
    found = StateFound()
    notes = {TRANSACTION_STATE_TOPIC: _note_transaction, CONSUMER_OFFSETS_TOPIC: _note_group}
    for log in logs:
        note = notes.get(log.where.topic)
        if note is None:
            continue
        for path in log.segments:
            for batch in whole_batches(path, is_last=path == log.segments[-1]):
                try:
                    for record in [] if batch.header.is_control else batch.records():
                        note(found, record)
                except (KafkaError, ProtocolError) as error:
                    raise CannotCopy([f"{path}, byte {batch.position}: {error}."]) from None
    return found


def _note_transaction(found: StateFound, record: Record) -> None:
    key = decode_transaction_state_key(record.key)
    if isinstance(key, TransactionLogKey) and tag_of(key.transactional_id) is not None:
        found.tagged.add(key.transactional_id)


def _note_group(found: StateFound, record: Record) -> None:
    key = decode_consumer_offsets_key(record.key)
    if not isinstance(key, UnknownKey) or record.key is None:
        return
    groups = {SHARE_GROUP: found.share_groups, STREAMS_GROUP: found.streams_groups}.get(key.version)
    if groups is not None:
        change = groups.discard if record.value is None else groups.add
        change(bytes(record.key[_GROUP_AT:]).decode("utf-8", "replace"))
