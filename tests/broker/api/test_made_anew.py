"""Topics that are deleted and made anew under their names while a transaction has them."""

import pytest

from odradek.protocol.apis.topics import DELETE_TOPICS, DeleteTopicsRequest
from odradek.protocol.apis.txn import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import until
from tests.broker.api.transactor import Transactor
from tests.broker.asks import make_topic, topic_metadata
from tests.broker.raw import RawClient

E = ErrorCode


def make_anew(client: RawClient, topic: str, partitions: int = 2) -> None:
    request = DeleteTopicsRequest(topic_names=(topic,), timeout_ms=60_000)
    assert client.ask(DELETE_TOPICS, 5, request).responses[0].error_code == E.NONE
    until(
        lambda: topic_metadata(client, topic).error_code,
        lambda code: code == E.UNKNOWN_TOPIC_OR_PARTITION,
    )
    make_topic(client, topic, partitions)


@pytest.mark.parametrize("version", [11, 12])
def test_an_id_is_free_although_its_topic_was_made_anew_with_fewer_partitions(
    either: RawClient, version: int
) -> None:
    transactor = Transactor(either)
    transactor.init()
    if version < 12:
        assert transactor.add((1,)) == [E.NONE]
    assert transactor.produce(b"a", version=version, partition=1).error_code == E.NONE
    make_anew(either, transactor.topic, partitions=1)
    assert transactor.end(version=5 if version == 12 else 4).error_code == E.NONE
    assert transactor.init().error_code == E.NONE


@pytest.mark.parametrize("committed", [True, False])
def test_a_topic_made_anew_gets_no_marker_of_the_one_before(
    client: RawClient, committed: bool
) -> None:
    transactor = Transactor(client)
    transactor.init()
    assert transactor.produce(b"a", version=12).error_code == E.NONE
    make_anew(client, transactor.topic)
    assert transactor.end(version=5, committed=committed).error_code == E.NONE
    assert transactor.init().error_code == E.NONE  # so the transaction is complete
    assert transactor.visible(isolation_level=0).high_watermark == 0


def test_records_for_a_topic_made_anew_in_a_transaction_get_their_marker(
    either: RawClient,
) -> None:
    transactor = Transactor(either)
    transactor.init()
    assert transactor.produce(b"old", version=12).error_code == E.NONE
    make_anew(either, transactor.topic)
    transactor.sequences.clear()
    assert transactor.produce(b"new", version=12).error_code == E.NONE
    assert transactor.visible().records == b""
    assert transactor.end(version=5).error_code == E.NONE
    transactor.wait_until_complete()
    found = transactor.visible()
    assert (found.last_stable_offset, found.aborted_transactions) == (2, ())


@pytest.mark.parametrize(
    ("version", "code"), [(9, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE)]
)
def test_what_a_client_added_before_is_not_in_a_topic_made_anew(
    client: RawClient, version: int, code: ErrorCode
) -> None:
    """It would get no marker. A client of version 2 need not add it, so there it is added anew."""
    transactor = Transactor(client)
    transactor.init()
    assert transactor.add((0,)) == [E.NONE]
    make_anew(client, transactor.topic)
    assert transactor.produce(b"a", version=version).error_code == code
    assert transactor.verify() == E.TRANSACTION_ABORTABLE
    assert transactor.add((0,)) == [E.NONE]
    assert transactor.produce(b"a", version=version).error_code == E.NONE
    assert transactor.end(version=4).error_code == E.NONE
    transactor.wait_until_complete()
    assert transactor.visible().last_stable_offset == 2


def test_a_leader_takes_no_marker_for_another_topic_of_the_name(client: RawClient) -> None:
    transactor = Transactor(client)
    transactor.init()
    before = topic_metadata(client, transactor.topic).topic_id
    make_anew(client, transactor.topic)
    now = topic_metadata(client, transactor.topic).topic_id
    for topic_id, code in ((before, E.UNKNOWN_TOPIC_ID), (now, E.NONE)):
        topic = WritableTxnMarkerTopic(
            name=transactor.topic, partition_indexes=(0,), topic_id=topic_id
        )
        marker = WritableTxnMarker(
            producer_id=transactor.producer[0],
            producer_epoch=transactor.producer[1],
            transaction_result=False,
            topics=(topic,),
            coordinator_epoch=0,
        )
        answer = client.ask(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=(marker,)))
        assert answer.markers[0].topics[0].partitions[0].error_code == code
    assert transactor.visible(isolation_level=0).high_watermark == 1
