"""`odradek txn abort` of a transaction that is decided, and whose markers are not taken."""

from typing import Any, cast

import pytest

from odradek.client import ProducerIdAndEpoch, Refused, TopicPartition, TransactionDescription
from odradek.client.blocking import Admin
from odradek.client.cli.txn_abort import abort_id

DECIDED = TransactionDescription(
    transactional_id="refunds-2",
    coordinator_id=1,
    state="PrepareCommit",
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    started_ms=1,
    partitions=(TopicPartition("refunds", 1),),
    described_at_ms=2,
)


class Described:
    """An `Admin` of one decided transaction. `freed` has how its id was freed."""

    def __init__(self) -> None:
        self.freed: list[dict[str, Any]] = []

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        return DECIDED

    def force_terminate_transaction(self, transactional_id: str, **how: Any) -> ProducerIdAndEpoch:
        self.freed.append(how)
        return ProducerIdAndEpoch(producer_id=7, producer_epoch=4)


def test_a_decided_transaction_is_refused_with_the_way_out() -> None:
    admin = Described()
    with pytest.raises(Refused, match="--without-markers gives them up"):
        abort_id(cast(Admin, admin), "refunds-2", True)
    assert admin.freed == []


def test_markers_that_are_given_up_are_named_with_the_command_that_ends_them_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = Described()
    abort_id(cast(Admin, admin), "refunds-2", True, without_markers=True)
    assert admin.freed == [{"without_markers": True}]
    said = capsys.readouterr().out
    assert "'refunds-2' is free (it is epoch 4 now), without the markers of" in said
    by_hand = "--topic refunds --partition 1 --producer-id 7 --producer-epoch 3"
    assert f"'odradek txn abort {by_hand}' aborts what is open in it" in said
