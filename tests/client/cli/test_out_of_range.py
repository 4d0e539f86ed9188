"""Numbers that no request has room for, and those that are none: a sentence, never a traceback."""

import pytest

from odradek.client import Admin, Refused, TopicPartition
from tests.client.live import Run, name_of

NOBODY_LISTENS = "127.0.0.1:1"
PLACE = ("--topic", "t", "--partition", "0")


@pytest.mark.parametrize(
    "arguments",
    [
        ("txn", "list", "--timeout", "inf"),
        ("txn", "list", "--timeout", "nan"),
        ("txn", "list", "--older-than", "1e300"),
        ("txn", "list", "--producer-id", str(2**63)),
        ("txn", "hanging", "--max-timeout", "inf"),
        ("txn", "hanging", "--max-timeout", "nan"),
        ("txn", "watch", "--interval", "nan"),
        ("txn", "abort", *PLACE, "--producer-id", "1", "--producer-epoch", "32768"),
        ("txn", "abort", *PLACE, "--start-offset", str(2**63)),
        ("txn", "abort", *PLACE, "--start-offset", "0", "--coordinator-epoch", str(2**31)),
        ("topic", "create", "t", "--partitions", str(2**31)),
        ("topic", "create", "t", "--replication-factor", "32768"),
        ("txn", "list", "--timeout", "9" * 400 + "d"),
        ("group", "reset", "g", "--to-time", str(2**63)),
        ("group", "reset", "g", "--to-time", "9999-12-31T23:59:59-01:00"),
    ],
    ids=" ".join,
)
def test_a_number_out_of_range_is_named_before_anybody_is_asked(arguments: tuple[str, ...]) -> None:
    result = Run(NOBODY_LISTENS)(*arguments)
    assert result.exit_code == 2
    assert f"Invalid value for '{arguments[-2]}'" in result.stderr


async def test_a_program_is_refused_in_words_and_may_go_on(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        with pytest.raises(Refused, match="ListTransactions is out of range"):
            await admin.list_transactions(producer_ids=[2**63])
        with pytest.raises(Refused, match="ListTransactions is out of range"):
            await admin.list_transactions(older_than_ms=2**63)
        topic = name_of("out-of-range")
        await admin.create_topic(topic, partitions=1)
        with pytest.raises(Refused, match="WriteTxnMarkers is out of range"):
            await admin.abort_transaction(
                TopicPartition(topic, 0), producer_id=0, producer_epoch=2**15
            )
        assert await admin.list_transactions(producer_ids=[2**62]) == []
