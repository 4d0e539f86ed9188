"""The records of `__transaction_state`: one per change of a transactional id, in Kafka's format.

The newest record of an id counts, and a record without a value removes the id. Beside Kafka's
fields there are fields of ours, as tagged fields: the client, and why an older producer was fenced,
so that the explanation survives a restart; the id of each topic, because another topic may have its
name when the transaction ends; the last epoch, without which a retried InitProducerId
would be refused after a restart (KAFKA-20357); and the decision of a transaction group, by which
its repeat is recognised, and whose markers travel together.
"""

from collections import defaultdict
from typing import Final
from uuid import UUID

from odradek.broker.txn.transaction import (
    NO_PRODUCER_EPOCH,
    BumpCause,
    EpochBump,
    State,
    TransactionMetadata,
)
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.record import Record
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    decode_value,
    encode_key,
    encode_value,
)

ID_MAX_BYTES: Final = 32_767
"""The longest string in a key."""

STORED: Final = frozenset(state for state in State if state.is_stored)


def encode(transactional_id: str, transaction: TransactionMetadata) -> Record:
    client, bump = transaction.client, transaction.bump
    is_empty = transaction.state is State.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        next_producer_epoch=transaction.next_producer_epoch,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if is_empty else _by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.transaction_version,
        epoch_bump_cause=bump.cause if bump else None,
        epoch_bump_timestamp_ms=bump.at_ms if bump else -1,
        client_id=client.client_id if client else None,
        client_host=client.host if client else None,
        last_producer_epoch=transaction.last_producer_epoch,
        decision_id=transaction.decision_id or ZERO_UUID,
    )
    return Record(
        key=encode_key(TransactionLogKey(transactional_id=transactional_id)),
        value=encode_value(value),
        timestamp_ms=transaction.updated_ms,
    )


def record_of(transactional_id: str, transaction: TransactionMetadata) -> Record:
    """Return the record of what an id has become: of a dead one a tombstone."""
    if transaction.state is State.DEAD:
        return tombstone(transactional_id, transaction.updated_ms)
    return encode(transactional_id, transaction)


def tombstone(transactional_id: str, now_ms: int) -> Record:
    key = encode_key(TransactionLogKey(transactional_id=transactional_id))
    return Record(key=key, value=None, timestamp_ms=now_ms)


def _by_topic(partitions: frozenset[TopicIdPartition]) -> tuple[PartitionsSchema, ...]:
    topics: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
    for topic, partition, id_bytes in partitions:
        topics[topic, id_bytes].append(partition)
    return tuple(
        PartitionsSchema(
            topic=topic, partition_ids=tuple(sorted(ids)), topic_id=UUID(bytes=id_bytes)
        )
        for (topic, id_bytes), ids in sorted(topics.items())
    )


def decode(value: bytes) -> TransactionMetadata:
    """Decode a record's value. Raises ProtocolError for an unknown version, state or form."""
    stored = decode_value(TransactionLogValue, value)
    if stored.transaction_status not in STORED:
        raise ProtocolError(f"a transaction has the unknown state {stored.transaction_status}")
    is_kept = stored.next_producer_epoch != NO_PRODUCER_EPOCH
    if is_kept and State(stored.transaction_status).may_expire:
        raise ProtocolError(
            f"producer id {stored.next_producer_id} keeps a transaction that is not open"
        )
    return TransactionMetadata(
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        last_producer_epoch=stored.last_producer_epoch,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        next_producer_epoch=stored.next_producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=State(stored.transaction_status),
        partitions=frozenset(
            TopicIdPartition.of(topic.topic, partition, topic.topic_id)
            for topic in stored.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        started_ms=stored.transaction_start_timestamp_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
        transaction_version=stored.client_transaction_version,
        client=_client_of(stored),
        bump=_bump_of(stored),
        decision_id=None if stored.decision_id == ZERO_UUID else stored.decision_id,
    )


def _client_of(stored: TransactionLogValue) -> ClientIdentity | None:
    if stored.client_id is None or stored.client_host is None:
        return None
    return ClientIdentity(client_id=stored.client_id, host=stored.client_host)


def _bump_of(stored: TransactionLogValue) -> EpochBump | None:
    if stored.epoch_bump_cause is None:
        return None
    try:
        cause = BumpCause(stored.epoch_bump_cause)
    except ValueError:  # a newer broker wrote it
        return None
    return EpochBump(cause=cause, at_ms=stored.epoch_bump_timestamp_ms)


def check_id(transactional_id: str) -> None:
    """Raise KafkaError for an empty id (KAFKA-5171), or an id too long for a record's key."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id may not be empty")
    size = len(transactional_id.encode(errors="surrogatepass"))
    if size > ID_MAX_BYTES:
        message = f"a transactional id has at most {ID_MAX_BYTES} bytes, not {size}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
