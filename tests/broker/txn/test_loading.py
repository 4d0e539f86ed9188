"""Loading: the fast decoder returns the same as the declared format for every stored value."""

from dataclasses import replace
from typing import Final
from uuid import UUID

import pytest
import trio

from odradek.broker.txn import loading, store
from odradek.broker.txn.transaction import BumpCause, EpochBump, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record import encode_batch
from odradek.protocol.state_topics import (
    PartitionsSchema,
    TransactionLogValue,
    encode_value,
)
from tests.broker.txn.test_store import ONE, transactions
from tests.broker.txn.world import CLIENT, refused
from tests.drawing import given, st
from tests.fakes.state_partition import FakeStatePartition
from tests.protocol.messages import messages

many_partitions: Final = st.builds(
    lambda topics, count: tuple(
        PartitionsSchema(topic=f"t{topic}", partition_ids=tuple(range(count)))
        for topic in range(topics)
    ),
    st.sampled_from([1, 2, 126, 127, 128, 200]),
    st.sampled_from([0, 1, 126, 127, 128, 300]),
)


def outcome(decode: object, value: bytes) -> TransactionMetadata | str:
    assert callable(decode)
    try:
        found = decode(value)
    except ProtocolError as error:
        return str(error)
    assert isinstance(found, TransactionMetadata)
    return found


def same(value: bytes) -> None:
    assert outcome(loading.Decoder().decode, value) == outcome(store.decode, value)


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_with_any_tags_is_decoded_as_declared(version: int) -> None:
    @given(stored=messages(TransactionLogValue, version))
    def check(stored: TransactionLogValue) -> None:
        same(encode_value(stored, version))

    check()


@given(transactions)
def test_what_we_write_takes_the_fast_way(transaction: TransactionMetadata) -> None:
    value = store.encode("id", transaction).value
    assert value is not None
    assert loading.Decoder()._decode(value) == transaction


@given(many_partitions)
def test_many_topics_and_partitions_are_counted_in_more_than_a_byte(
    partitions: tuple[PartitionsSchema, ...],
) -> None:
    stored = TransactionLogValue(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=1,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=4,
        transaction_start_timestamp_ms=5,
        client_transaction_version=2,
    )
    same(encode_value(stored))


FULL: Final = replace(
    ONE,
    previous_producer_id=3,
    next_producer_id=4,
    last_producer_epoch=2,
    bump=EpochBump(cause=BumpCause.TIMEOUT, at_ms=9),
)


def full_value() -> bytes:
    value = store.encode("id", FULL).value
    assert value is not None
    return value


def test_whatever_is_damaged_is_refused_in_the_same_words() -> None:
    value = full_value()
    for at in range(len(value)):
        same(value[:at])
        for byte in (0, 1, 2, 0x7F, 0x80, 0x81, 0xFF, value[at] ^ 1):
            same(value[:at] + bytes([byte]) + value[at + 1 :])


@given(st.data())
def test_any_bytes_in_any_place_are_refused_or_read_alike(data: st.DataObject) -> None:
    value = full_value()
    start = data.draw(st.integers(17, len(value)))
    end = data.draw(st.integers(start, min(start + 12, len(value))))
    same(value[:start] + data.draw(st.binary(max_size=12)) + value[end:])


def test_a_tag_of_a_newer_broker_is_passed_over() -> None:
    value = bytearray(store.encode("id", replace(ONE, client=None)).value or b"")
    tags_at = len(value) - 5  # one tagged field: the transaction version
    value[tags_at] = 2
    value += b"\xa0\x4e" + b"\x03abc"  # 10,016
    assert loading.Decoder().decode(bytes(value)) == replace(ONE, client=None)


def test_what_ids_have_in_common_is_there_once() -> None:
    decoder = loading.Decoder()
    first, second = decoder.decode(full_value()), decoder.decode(full_value())
    assert first.client == CLIENT
    assert first.client is second.client
    assert first.partitions is second.partitions


def test_the_same_topic_in_other_partitions_is_there_once() -> None:
    decoder = loading.Decoder()
    found: list[TopicIdPartition] = []
    for number in (1, 2):
        place = TopicIdPartition.of("departures", number, UUID(int=5))
        value = store.encode("id", replace(ONE, partitions=frozenset({place}))).value
        assert value is not None
        found += decoder.decode(value).partitions
    assert found[0].topic is found[1].topic


def test_what_ids_do_not_have_in_common_is_each_ones_own() -> None:
    """The same client from two hosts, the same partition of two topics, and the like."""
    decoder = loading.Decoder()
    kinds = [
        replace(
            FULL,
            client=ClientIdentity(client_id=name, host=host),
            partitions=frozenset({TopicIdPartition.of(topic, partition, UUID(int=5))}),
            timeout_ms=timeout_ms,
        )
        for name in ("worker-7", "worker-8")
        for host in ("10.0.0.7", "10.0.0.8")
        for topic in ("ab", "ba")
        for partition in (0, 1)
        for timeout_ms in (1, 2)
    ]
    for transaction in (*kinds, *reversed(kinds)):
        value = store.encode("id", transaction).value
        assert value is not None
        assert decoder.decode(value) == transaction


async def test_an_empty_value_is_no_tombstone() -> None:
    """It is damaged: without it an older decision would come back to life, or the id be gone."""
    record = store.encode("a", ONE)
    partition = FakeStatePartition()
    partition.replace_batches([encode_batch([record, record._replace(value=b"")])])
    with refused(ErrorCode.CORRUPT_MESSAGE):
        await loading.load(partition)


def test_every_state_has_its_place() -> None:
    for state in store.STORED:
        value = store.encode("id", replace(ONE, state=state, partitions=frozenset())).value
        assert value is not None
        assert loading.Decoder()._decode(value).state is state


async def test_others_have_their_turn_while_a_long_log_is_loaded() -> None:
    partition = FakeStatePartition()
    count = 3 * loading.DECODED_PER_CHECKPOINT
    partition.replace_batches(
        [encode_batch([store.encode(f"id-{number}", ONE) for number in range(count)])]
    )
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        assert len(await loading.load(partition)) == count
        nursery.cancel_scope.cancel()
    assert turns >= 3


async def test_a_batch_whose_crc_is_wrong_ends_the_load() -> None:
    batch = encode_batch([store.encode("a", ONE)])
    batch[-1] ^= 1
    partition = FakeStatePartition()
    partition.replace_batches([batch])
    with refused(ErrorCode.CORRUPT_MESSAGE):
        await loading.load(partition)
