"""The records of `__transaction_state`: this broker and Kafka can read what is written."""

from dataclasses import replace
from uuid import UUID

import pytest

from odradek.broker.txn import loading, store
from odradek.broker.txn.transaction import BumpCause, EpochBump, State, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol import wire
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import TransactionLogKey, TransactionLogValue, encode_key
from tests.broker.txn.world import CLIENT, ID, P0, P1, refused
from tests.drawing import given, st
from tests.fakes.state_partition import FakeStatePartition

epochs = st.integers(-1, 32_767)
ids = st.integers(-1, 2**63 - 1)
times = st.integers(-1, 2**53)
names = st.text(st.characters(codec="utf-8"), max_size=20)
indexes = st.integers(0, 2**31 - 1)
topic_ids = st.just(ZERO_UUID) | st.uuids()
transactions = st.builds(
    TransactionMetadata,
    producer_id=ids,
    producer_epoch=epochs,
    last_producer_epoch=epochs,
    previous_producer_id=ids,
    next_producer_id=ids,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([s for s in State if s.is_stored and s is not State.EMPTY]),
    partitions=st.frozensets(st.builds(TopicIdPartition.of, names, indexes, topic_ids)),
    started_ms=times,
    updated_ms=times,
    transaction_version=st.integers(0, 2),
    client=st.none() | st.builds(ClientIdentity, client_id=names, host=names),
    bump=st.none() | st.builds(EpochBump, cause=st.sampled_from(BumpCause), at_ms=times),
)
ONE = TransactionMetadata(
    producer_id=7,
    producer_epoch=5,
    timeout_ms=60_000,
    state=State.ONGOING,
    partitions=frozenset({P1, P0, TopicIdPartition.of("__consumer_offsets", 3, UUID(int=5))}),
    started_ms=20,
    updated_ms=30,
    transaction_version=2,
    client=CLIENT,
)


@given(transactions)
def test_what_is_stored_comes_back(transaction: TransactionMetadata) -> None:
    record = store.encode(ID, transaction)
    assert record.value is not None
    assert store.decode(record.value) == transaction
    assert record.timestamp_ms == transaction.updated_ms


def test_an_empty_transaction_stores_no_partitions_rather_than_none_of_them() -> None:
    empty = replace(ONE, state=State.EMPTY, partitions=frozenset())
    value = store.encode(ID, empty).value
    assert value is not None
    assert wire.parse(TransactionLogValue, 1, True, value[2:]).transaction_partitions is None
    complete = store.encode(ID, replace(empty, state=State.COMPLETE_COMMIT)).value
    assert complete is not None
    assert wire.parse(TransactionLogValue, 1, True, complete[2:]).transaction_partitions == ()


def test_a_record_byte_by_byte() -> None:
    """Kafka's format, checked by hand; our fields are tagged 10,000 and up, behind Kafka's."""

    def topic_id(number: int) -> bytes:
        return b"\1" + b"\x90\x4e" + b"\x10" + UUID(int=number).bytes  # one tagged field, 10,000

    record = store.encode(ID, replace(ONE, client=None))
    assert record.key == b"\0\0" + b"\0\x09refunds-2"
    assert record.value == (
        b"\0\1"  # version 1
        + (7).to_bytes(8)
        + (5).to_bytes(2)
        + (60_000).to_bytes(4)
        + b"\1"  # Ongoing
        + b"\3"  # two topics
        + (b"\x13__consumer_offsets" + b"\2" + (3).to_bytes(4) + topic_id(5))
        + (b"\x08refunds" + b"\3" + (0).to_bytes(4) + (1).to_bytes(4) + topic_id(77))
        + (30).to_bytes(8)
        + (20).to_bytes(8)
        + b"\1"  # one tagged field
        + (b"\2" + b"\2" + b"\0\2")  # client transaction version
    )


def test_a_record_of_version_0_is_read() -> None:
    stored = TransactionLogValue(
        producer_id=7,
        producer_epoch=5,
        transaction_timeout_ms=60_000,
        transaction_status=4,
        transaction_partitions=(),
        transaction_last_update_timestamp_ms=30,
        transaction_start_timestamp_ms=20,
    )
    found = store.decode(b"\0\0" + b"".join(wire.build(stored, 0, False).finish()))
    assert found.state is State.COMPLETE_COMMIT
    assert (found.transaction_version, found.client, found.bump) == (0, None, None)


def test_a_cause_that_only_a_newer_broker_knows_is_no_cause() -> None:
    bump = EpochBump(cause=BumpCause.TIMEOUT, at_ms=1)
    value = store.encode(ID, replace(ONE, bump=bump)).value
    assert value is not None
    assert store.decode(value.replace(b"timeout", b"tiredof")).bump is None


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\2abc", b"\0\1abc", b"\xff\xffabc"])
def test_nonsense_is_refused(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        store.decode(value)


def test_an_unknown_state_is_refused() -> None:
    value = bytearray(store.encode(ID, ONE).value or b"")
    value[16] = 9
    with pytest.raises(ProtocolError, match="state 9"):
        store.decode(bytes(value))


async def loaded(*batches: bytearray) -> dict[str, TransactionMetadata]:
    partition = FakeStatePartition()
    partition.replace_batches(batches)
    return await loading.load(partition)


def batch(base_offset: int, *records: Record) -> bytearray:
    return encode_batch(records, base_offset=base_offset)


async def test_the_newest_record_of_an_id_counts() -> None:
    old, new = replace(ONE, producer_epoch=1), replace(ONE, producer_epoch=2)
    found = await loaded(
        batch(0, store.encode("a", old), store.encode("b", old)),
        batch(2, store.encode("a", new)),
    )
    assert found == {"a": new, "b": old}


async def test_a_tombstone_removes_and_a_later_record_brings_back() -> None:
    records = [store.encode("a", ONE), store.tombstone("a", 1), store.encode("b", ONE)]
    assert await loaded(batch(0, *records)) == {"b": ONE}
    assert await loaded(batch(0, *records, store.encode("a", ONE))) == {"b": ONE, "a": ONE}


async def test_a_log_whose_tail_was_compacted_away_ends() -> None:
    """KAFKA-9065: the last batches are gone, offsets have gaps; reading must not wait for them."""
    assert await loaded() == {}
    assert await loaded(batch(5, store.encode("a", ONE)), batch(90, store.encode("b", ONE))) == {
        "a": ONE,
        "b": ONE,
    }


async def test_records_of_unknown_kinds_and_control_batches_are_left_alone() -> None:
    unknown = Record(key=b"\0\x07whatever", value=b"?")
    control = encode_batch(
        [Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")],
        base_offset=2,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    assert await loaded(batch(0, unknown, store.encode("a", ONE)), control) == {"a": ONE}


async def test_a_record_that_cannot_be_read_is_not_skipped() -> None:
    """An older decision must not come back to life because the newer one is damaged."""
    broken = Record(key=encode_key(TransactionLogKey(transactional_id="a")), value=b"\0\1?")
    with refused(ErrorCode.CORRUPT_MESSAGE):
        await loaded(batch(0, store.encode("a", ONE), broken))


@pytest.mark.parametrize("state", [State.DEAD, State.PREPARE_EPOCH_FENCE])
def test_a_state_that_is_never_stored_is_refused(state: State) -> None:
    """The table knows nothing of them that would lead on: it would end the broker."""
    record = store.encode("x", TransactionMetadata(producer_id=1, timeout_ms=1, state=state))
    assert record.value is not None
    with pytest.raises(ProtocolError, match=f"state {state.value}"):
        store.decode(record.value)
    with pytest.raises(ProtocolError, match=f"state {state.value}"):
        loading.Decoder().decode(record.value)


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_two_identities_without_a_transaction_are_refused(state: State) -> None:
    kept = TransactionMetadata(
        producer_id=1, timeout_ms=1, state=state, next_producer_id=2, next_producer_epoch=0
    )
    record = store.encode("x", kept)
    assert record.value is not None
    with pytest.raises(ProtocolError, match="keeps a transaction that is not open"):
        loading.Decoder().decode(record.value)


def test_a_kept_transaction_is_read_by_both_decoders_alike() -> None:
    kept = TransactionMetadata(
        producer_id=1,
        producer_epoch=4,
        timeout_ms=1,
        state=State.ONGOING,
        next_producer_id=2,
        next_producer_epoch=0,
    )
    record = store.encode("x", kept)
    assert record.value is not None
    assert store.decode(record.value) == loading.Decoder().decode(record.value) == kept
