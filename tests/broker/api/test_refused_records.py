"""A batch that is refused for some of its records: the answer names those, as Kafka's does."""

import time
from collections.abc import Sequence
from typing import Any, Final

import pytest

from odradek.broker.storage.record_check import NAMED_MAX
from odradek.protocol.batch import Codec
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.record import Record, encode_batch
from tests.broker.api.altering import TOPIC, described
from tests.broker.api.producing import Writer, settled
from tests.broker.asks import batch, create_topic, produce
from tests.broker.raw import RawClient
from tests.client.live import name_of

HOUR_MS: Final = 60 * 60 * 1000
COMPACTED: Final = {"cleanup.policy": "compact"}
YOUNG: Final = {"message.timestamp.before.max.ms": str(HOUR_MS)}
KEY: Final = b"key"
NOW: Final = 0
"""Hours ago."""
OLD: Final = 2
codecs = pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])


def topic(client: RawClient, configs: dict[str, str]) -> str:
    name = name_of("refused")
    assert create_topic(client, name, configs=configs).error_code == 0
    described(client, TOPIC, name)
    return name


def refused(
    client: RawClient,
    where: str,
    *records: tuple[bytes | None, int],
    codec: Codec = Codec.NONE,
    version: int = 12,
) -> Any:
    """The answer for a batch of records with these keys and ages in hours."""
    now_ms = int(time.time() * 1000)
    made = [
        Record(key=key, value=b"v", timestamp_ms=now_ms - age * HOUR_MS) for key, age in records
    ]
    return settled(lambda: produce(client, where, encode_batch(made, codec=codec), version=version))


def named(answer: Any) -> Sequence[tuple[int, str]]:
    return [(e.batch_index, e.batch_index_error_message) for e in answer.record_errors]


@codecs
def test_records_without_a_key_are_named_and_the_good_ones_are_not(
    either: RawClient, codec: Codec
) -> None:
    """librdkafka reported 100 bad records where 10 are bad."""
    where = topic(either, COMPACTED)
    keys: list[bytes | None] = [None if number % 10 == 3 else KEY for number in range(100)]
    answer = refused(either, where, *((key, NOW) for key in keys), codec=codec)
    assert (answer.error_code, answer.base_offset) == (E.INVALID_RECORD, -1)
    why = f"Compacted topic cannot accept message without key in topic partition {where}-0"
    assert named(answer) == [(number, why) for number in range(3, 100, 10)]
    assert "One or more records have been rejected due to 10 record errors in total, and only" in (
        answer.error_message
    )
    assert refused(either, where, (KEY, NOW)).error_code == 0


@codecs
def test_records_of_a_wrong_time_are_named(either: RawClient, codec: Codec) -> None:
    where = topic(either, YOUNG)
    answer = refused(either, where, (None, OLD), (None, NOW), (None, -OLD), codec=codec)
    assert answer.error_code == E.INVALID_TIMESTAMP
    assert [index for index, _ in named(answer)] == [0, 2]
    for index, why in named(answer):
        assert why.startswith("Timestamp ")
        assert f" of message with offset {index} is out of range. The timestamp should be" in why
    assert "One or more records have been rejected due to invalid timestamp" in (
        answer.error_message
    )


@codecs
def test_both_kinds_of_bad_records_are_named_together(either: RawClient, codec: Codec) -> None:
    where = topic(either, COMPACTED | YOUNG)
    records = ((None, NOW), (KEY, OLD), (None, OLD), (KEY, NOW))
    answer = refused(either, where, *records, codec=codec)
    assert answer.error_code == E.INVALID_TIMESTAMP
    assert [(index, why[:9]) for index, why in named(answer)] == [
        (0, "Compacted"),
        (1, "Timestamp"),
        (2, "Compacted"),
    ]


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
def test_records_are_named_from_version_8_on(either: RawClient, version: int) -> None:
    for configs in (COMPACTED, YOUNG):
        where = topic(either, configs)
        answer = refused(either, where, (KEY, NOW), (None, -OLD), version=version)
        assert answer.error_code in (E.INVALID_RECORD, E.INVALID_TIMESTAMP)
        assert [index for index, _ in named(answer)] == ([1] if version >= 8 else [])


@pytest.mark.parametrize("configs", [COMPACTED, YOUNG])
def test_records_of_a_transaction_are_named_too(either: RawClient, configs: dict[str, str]) -> None:
    where, writer = topic(either, configs), Writer(either)
    ahead_ms = int(time.time() * 1000) + OLD * HOUR_MS
    records = batch(
        b"v",
        b"v",
        producer=writer.producer,
        base_sequence=0,
        is_transactional=True,
        timestamp_ms=ahead_ms if configs is YOUNG else -1,
    )
    answer = settled(lambda: produce(either, where, records, transactional_id=writer.id))
    assert answer.error_code in (E.INVALID_RECORD, E.INVALID_TIMESTAMP)
    assert [index for index, _ in named(answer)] == [0, 1]


# ours only


def test_a_huge_batch_names_only_its_first_bad_records(client: RawClient) -> None:
    where = topic(client, COMPACTED)
    answer = refused(client, where, *[(None, NOW)] * (NAMED_MAX + 5))
    assert [index for index, _ in named(answer)] == list(range(NAMED_MAX))
    assert f"due to {NAMED_MAX + 5} record errors in total" in answer.error_message
