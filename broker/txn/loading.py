"""Reading a partition of `__transaction_state` when a broker begins to coordinate it.

After a restart every transactional client waits for this, so the module is written for speed. It
goes through the whole log and decodes only the newest value of each id. `Decoder` decodes exactly
what `store.encode` writes: 4 us a value, a quarter of what the declared format takes. A test
compares it with the declaration. Any value that it does not expect (another version, a tag of a
newer broker, damaged bytes) goes to `store.decode`, which knows the whole format and raises the
errors.

There is a checkpoint every few milliseconds. What many ids have in common (client, partitions,
topic names) is kept in memory once.
"""

import struct
from contextlib import aclosing
from typing import Final
from uuid import UUID

import trio

from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.txn import store
from odradek.broker.txn.transaction import BumpCause, EpochBump, State, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import NO_ID, TopicIdPartition
from odradek.protocol.batch import CONTROL_BIT
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.state_records import iter_state_records
from odradek.protocol.state_topics import UnknownKey, decode_transaction_state_key

DECODED_PER_CHECKPOINT: Final = 1_000
"""The number of values that are decoded between two checkpoints, about 5 ms."""

_PREFIX: Final = struct.Struct(">hqhib")
"""Version, producer id, producer epoch, time-out, state."""
_TIMES: Final = struct.Struct(">qq")
_INT64: Final = struct.Struct(">q")
_INT16: Final = struct.Struct(">h")
_VERSION: Final = 1
_TOPIC_ID_HEAD: Final = b"\x01\x90\x4e\x10"
"""One tagged field, with tag 10,000 and 16 bytes: the id of a topic."""
_ID_BYTES: Final = 16
_STATES: Final = tuple(state for state in State if state.is_stored)
_CAUSES: Final = {cause.value.encode(): cause for cause in BumpCause}
_NOWHERE: Final[frozenset[TopicIdPartition]] = frozenset()

TAG_PREVIOUS_PRODUCER_ID: Final = 0
TAG_NEXT_PRODUCER_ID: Final = 1
TAG_TRANSACTION_VERSION: Final = 2
TAG_BUMP_CAUSE: Final = 10_000
TAG_CLIENT_ID: Final = 10_001
TAG_CLIENT_HOST: Final = 10_002
TAG_BUMP_TIMESTAMP: Final = 10_003
TAG_LAST_PRODUCER_EPOCH: Final = 10_004
TAG_DECISION_ID: Final = 10_005


class Unusual(Exception):
    """A value is not in the form that `store.encode` writes."""


_NOT_HERE: Final = (Unusual, IndexError, struct.error, ValueError)


async def load(partition: StatePartition) -> dict[str, TransactionMetadata]:
    """Return the newest metadata of every transactional id in the log.

    Raises KafkaError: what the partition raises, or CORRUPT_MESSAGE for a record that cannot be
    read.
    """
    newest: dict[bytes | None, bytes | None] = {}
    async with aclosing(partition.runs()) as runs:
        async for run in runs:
            for _, attributes, _, key, value in iter_state_records(bytes(run)):
                if not attributes & CONTROL_BIT:
                    newest[key] = value
            await trio.lowlevel.checkpoint()
    decoder = Decoder()
    found: dict[str, TransactionMetadata] = {}
    try:
        for count, (data, value) in enumerate(newest.items(), 1):
            if value is not None and (transactional_id := _id_of(data)) is not None:
                found[transactional_id] = decoder.decode(value)
            if count % DECODED_PER_CHECKPOINT == 0:
                await trio.lowlevel.checkpoint()
    except ProtocolError as error:
        # Without this record an older one would count, and a decided transaction could be decided
        # again, the other way. It is better that the partition is not coordinated.
        message = f"a record of the transaction log cannot be read: {error}"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, message) from error
    return found


def _id_of(key: bytes | None) -> str | None:
    """Return the transactional id in a key; None for another kind of key.

    Raises ProtocolError for a key that cannot be read.
    """
    if key is not None and key[:2] == b"\0\0" and int.from_bytes(key[2:4]) == len(key) - 4:
        try:
            return str(key[4:], "utf-8")
        except UnicodeDecodeError:
            pass  # the decoder below raises the error
    found = decode_transaction_state_key(key)
    return None if isinstance(found, UnknownKey) else found.transactional_id


class Decoder:
    """A decoder of many values that keeps once what they have in common."""

    def __init__(self) -> None:
        self._partitions: dict[bytes, frozenset[TopicIdPartition]] = {}
        self._topics: dict[bytes, str] = {}
        self._clients: dict[tuple[bytes, bytes], ClientIdentity] = {}
        self._timeouts: dict[int, int] = {}

    def decode(self, value: bytes) -> TransactionMetadata:
        """Return what `store.decode` returns. Raises ProtocolError as that does."""
        try:
            return self._decode(value)
        except _NOT_HERE:
            return store.decode(value)

    def _decode(self, value: bytes) -> TransactionMetadata:
        """Decode a value in the form that `store.encode` writes. Raises one of `_NOT_HERE`."""
        # One long function: a call for each varint and tag, five a value, would double the time.
        version, producer_id, epoch, timeout_ms, status = _PREFIX.unpack_from(value)
        if version != _VERSION or not 0 <= status < len(_STATES):
            raise Unusual
        at = _PREFIX.size + 1
        partitions = _NOWHERE
        if value[at - 1] > 1:
            at = _end_of_partitions(value, at - 1)
            packed = value[_PREFIX.size : at]
            partitions = self._partitions.get(packed) or self._partitions_of(packed)
        updated_ms, started_ms = _TIMES.unpack_from(value, at)
        at += _TIMES.size + 1
        previous_id = next_id = last_epoch = -1
        generation, last_tag = 0, -1
        client_id = host = cause = bumped_at = decision_id = None
        for _ in range(value[at - 1]):
            tag, size = value[at], value[at + 1]
            at += 2
            if tag > 0x7F:
                tag, size = tag + (size << 7) - 0x80, value[at]
                at += 1
            field = value[at : at + size]
            at += size
            if tag <= last_tag or size > 0x7F or at > len(value):
                raise Unusual
            last_tag = tag
            if tag == TAG_CLIENT_ID:
                client_id = field
            elif tag == TAG_CLIENT_HOST:
                host = field
            elif tag == TAG_PREVIOUS_PRODUCER_ID:
                (previous_id,) = _INT64.unpack(field)
            elif tag == TAG_TRANSACTION_VERSION:
                (generation,) = _INT16.unpack(field)
            elif tag == TAG_LAST_PRODUCER_EPOCH:
                (last_epoch,) = _INT16.unpack(field)
            elif tag == TAG_BUMP_CAUSE:
                cause = field
            elif tag == TAG_BUMP_TIMESTAMP:
                bumped_at = field
            elif tag == TAG_DECISION_ID:
                decision_id = UUID(bytes=field)
            elif tag == TAG_NEXT_PRODUCER_ID:
                (next_id,) = _INT64.unpack(field)
            else:
                raise Unusual
        return TransactionMetadata(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            previous_producer_id=producer_id if previous_id == producer_id else previous_id,
            next_producer_id=next_id,
            timeout_ms=self._timeouts.setdefault(timeout_ms, timeout_ms),
            state=_STATES[status],
            partitions=partitions,
            started_ms=started_ms,
            updated_ms=updated_ms,
            transaction_version=generation,
            client=None if client_id is None or host is None else self._client_of(client_id, host),
            bump=None if cause is None else _bump_of(cause, bumped_at),
            decision_id=decision_id,
        )

    def _client_of(self, client_id: bytes, host: bytes) -> ClientIdentity:
        known = self._clients.get((client_id, host))
        if known is None:
            known = ClientIdentity(client_id=_text(client_id), host=_text(host))
            self._clients[client_id, host] = known
        return known

    def _partitions_of(self, packed: bytes) -> frozenset[TopicIdPartition]:
        """Decode an array of topics and partitions whose end `_end_of_partitions` has found."""
        found: list[TopicIdPartition] = []
        topics, at = _varint(packed, 0)
        for _ in range(topics - 1):
            size, at = _varint(packed, at)
            data = packed[at : at + size - 1]
            at += size - 1
            topic = self._topics.get(data)
            if topic is None:
                topic = self._topics[data] = str(data, "utf-8")
            count, at = _varint(packed, at)
            indexes = struct.unpack_from(f">{count - 1}i", packed, at)
            at += 4 * (count - 1)
            id_bytes = NO_ID
            if packed[at] != 0:
                at += len(_TOPIC_ID_HEAD)
                id_bytes = packed[at : at + _ID_BYTES]
                at += _ID_BYTES
            else:
                at += 1
            found += [TopicIdPartition(topic, index, id_bytes) for index in indexes]
        partitions = self._partitions[packed] = frozenset(found)
        return partitions


def _end_of_partitions(value: bytes, at: int) -> int:
    """Return the end of the array of topics and partitions that begins at `at`."""
    topics, at = _varint(value, at)
    for _ in range(topics - 1):
        size, at = _varint(value, at)
        at += size - 1
        count, at = _varint(value, at)
        at += 4 * (count - 1)
        if size == 0 or count == 0:
            raise Unusual  # null
        if value[at] == 0:
            at += 1  # without an id, as an earlier version wrote it
        elif value.startswith(_TOPIC_ID_HEAD, at):
            at += len(_TOPIC_ID_HEAD) + _ID_BYTES
        else:
            raise Unusual  # other tagged fields
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned varint of at most two bytes, and its end."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    more = data[at + 1]
    if more > 0x7F:
        raise Unusual
    return byte + (more << 7) - 0x80, at + 2


def _text(field: bytes) -> str:
    """Decode a compact string that fills a tagged field."""
    if field[0] != len(field) or field[0] > 0x7F:
        raise Unusual
    return str(field[1:], "utf-8")


def _bump_of(cause: bytes, at_ms: bytes | None) -> EpochBump:
    known = _CAUSES.get(cause[1:])
    if known is None or cause[0] != len(cause):
        raise Unusual
    return EpochBump(cause=known, at_ms=-1 if at_ms is None else _INT64.unpack(at_ms)[0])
