"""`odradek storage rebuild`: lost metadata is rebuilt, and nothing else changes."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.inspect.rebuild import (
    PRODUCER_ID_GAP,
)
from odradek.broker.storage.identity import IDENTITY, decode_identity
from odradek.broker.testing import BrokerDidNotStart, RunningBroker, run_broker
from odradek.client import OffsetAndMetadata, TopicPartition, TransactionDescription
from odradek.client.blocking import Admin, Consumer, Producer, Refused
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.broker.api.producing import until
from tests.secured_broker import ANONYMOUS, KINDS, secured_broker

pytestmark = pytest.mark.slow
STATE_PARTITIONS: Final = {
    "transaction.state.log.num.partitions": "7",
    "offsets.topic.num.partitions": "5",
}
"""Not the defaults: a rebuild with the defaults would hash ids to other partitions."""
SETTINGS: Final = {"retention.ms": "864000000", "segment.bytes": "1048576"}
COPIES: Final = ("cluster.meta", "cluster.meta.copy")


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker that was killed after transactions of three ids over two topics."""
    with run_broker(config=STATE_PARTITIONS) as broker:
        fill(broker.address)
        broker.restart()  # so that leader epochs are above 0
        fill(broker.address)
        yield broker


def test_the_metadata_of_a_broker_of_a_cluster_is_not_rebuilt_in_its_directory(
    tmp_path: Path,
) -> None:
    """A `cluster.meta` there would look like an adoption that was interrupted."""
    for name in ("node.meta", "cluster.meta.adopted"):
        (tmp_path / name).touch()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").touch()
    result = CliRunner().invoke(main, ["storage", "rebuild", str(tmp_path)])
    assert result.exit_code == 1
    assert "is that of a broker of a cluster, whose metadata is in etcd" in result.output
    assert not (tmp_path / "cluster.meta").exists()


def fill(address: str) -> None:
    with Admin(address) as admin:
        admin.create_topic("orders", partitions=3, configs=SETTINGS, if_not_exists=True)
        admin.create_topic("gone", partitions=1, if_not_exists=True)
    for number in range(3):
        offsets = {TopicPartition("orders", 0): OffsetAndMetadata(number + 1)}
        with (
            Producer(address, transactional_id=f"shop-{number}") as producer,
            producer.transaction() as txn,
        ):
            for partition in range(3):
                txn.send("orders", b"order %d" % number, partition=partition)
            txn.send_offsets(offsets, f"group-{number}")
    with Producer(address) as producer:
        producer.send("gone", b"deleted")
        producer.flush()
    with Admin(address) as admin:
        admin.delete_topics("gone")


def seen(address: str) -> dict[str, Any]:
    """Return everything acknowledged that a user can see."""
    with Admin(address) as admin:
        names = admin.list_topics(internal=True)
        (configs,) = admin.describe_topic_configs("orders").values()
        ids = [f"shop-{number}" for number in range(3)]
        said: dict[str, Any] = {
            "cluster": admin.describe_cluster().cluster_id,
            "topics": {
                topic.name: (topic.topic_id, len(topic.partitions))
                for topic in admin.describe_topics(*names)
            },
            "configs": {name: entry.value for name, entry in configs.items()},
            "offsets": [
                admin.committed(f"group-{number}", [TopicPartition("orders", 0)])
                for number in range(3)
            ],
            "transactions": [
                (
                    transaction.transactional_id,
                    transaction.state,
                    transaction.producer_id,
                    transaction.producer_epoch,
                )
                for transaction in map(admin.describe_transaction, ids)
            ],
        }
    said["records"] = records(address)
    return said


def records(address: str) -> list[tuple[int, int, bytes | None]]:
    """Return the committed records, once the marker of each transaction is there."""
    places = [TopicPartition("orders", partition) for partition in range(3)]
    with Consumer(address, isolation_level="read_uncommitted") as consumer:
        ends = consumer.end_offsets(places)
    with Consumer(address) as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        found = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [
                (record.partition, record.offset, record.value) for record in consumer.poll(500)
            ]
    return sorted(found)


def odradek(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def lose(directory: Path, how: str) -> None:
    for name in COPIES:
        if how == "missing":
            (directory / name).unlink()
        elif how == "empty":
            (directory / name).write_bytes(b"")
        else:  # the first record, so that nothing can be read
            data = bytearray((directory / name).read_bytes())
            data[9] ^= 1
            (directory / name).write_bytes(data)


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("how", ["missing", "empty", "damaged"])
def test_lost_metadata_is_refused_and_made_anew_and_nothing_is_lost(
    broker: RunningBroker, how: str
) -> None:
    """The broker started with a warning, and the first new topic erased a log."""
    before = seen(broker.address)
    assert before["topics"][TRANSACTION_STATE_TOPIC][1] == 7
    assert before["topics"][CONSUMER_OFFSETS_TOPIC][1] == 5
    assert len(before["records"]) == 18
    broker.kill()
    lose(broker.data_dir, how)
    files = tree(broker.data_dir)
    with pytest.raises(BrokerDidNotStart) as refused:
        broker.start()
    assert f"odradek storage rebuild {broker.data_dir}" in str(refused.value)
    assert "Traceback" not in str(refused.value)
    status, said = odradek("storage", "rebuild", broker.data_dir, "--dry-run")
    assert status == 0, said
    assert "Nothing was written" in said
    assert tree(broker.data_dir) == files
    status, said = odradek("storage", "rebuild", broker.data_dir)
    assert status == 0, said
    assert "retention.ms=864000000" in said
    assert "unknown" not in said
    assert "gone" not in said
    after = tree(broker.data_dir)
    for name in COPIES:
        if files.get(name):
            assert after[f"{name}.damaged"] == files[name]
    broker.config = {}  # the state topics keep the partitions that they were made with
    broker.start()
    assert seen(broker.address) == before
    goes_on(broker.address, before)


def goes_on(address: str, before: dict[str, Any]) -> None:
    """Check that a known transactional id continues, and that a new one has a new producer id."""
    with Producer(address, transactional_id="shop-1") as producer:
        with producer.transaction() as txn:
            txn.send("orders", b"after", partition=0)
        known = {name: (number, epoch) for name, _, number, epoch in before["transactions"]}
        assert producer.producer_id == known["shop-1"][0]
        assert producer.producer_epoch > known["shop-1"][1]
    with Producer(address, transactional_id="new") as producer:
        with producer.transaction() as txn:
            txn.send("orders", b"new", partition=0)
        assert producer.producer_id >= PRODUCER_ID_GAP
    assert len(records(address)) == len(before["records"]) + 2


def test_directories_of_an_earlier_version_are_rebuilt_without_retention(
    broker: RunningBroker,
) -> None:
    before = seen(broker.address)
    broker.stop()
    for path in broker.data_dir.rglob(IDENTITY):
        path.unlink()
    lose(broker.data_dir, "missing")
    status, said = odradek("storage", "rebuild", broker.data_dir)
    assert status == 0, said
    assert "settings are unknown, so retention and compaction are off" in said
    assert "compare it with your settings" in said
    assert "new: no directory names it" in said
    broker.start()
    after = seen(broker.address)
    assert after["configs"]["retention.ms"] == after["configs"]["retention.bytes"] == "-1"
    assert {**after, "configs": 0, "cluster": 0} == {**before, "configs": 0, "cluster": 0}
    goes_on(broker.address, before)
    # now they say whose they are
    assert len(list(broker.data_dir.rglob(IDENTITY))) == 15


def test_settings_can_be_given_to_a_topic_that_does_not_know_them(broker: RunningBroker) -> None:
    broker.stop()
    for path in broker.data_dir.rglob(IDENTITY):
        path.unlink()
    lose(broker.data_dir, "missing")
    directory = broker.data_dir
    for wrong, sentence in (
        (("orders", "retention"), "NAME=VALUE"),
        (("orders", "retention.mss=1"), "retention.ms"),
        (("nosuch", "retention.ms=1"), "no directory of a topic 'nosuch'"),
    ):
        status, said = odradek("storage", "rebuild", directory, "--topic-config", *wrong)
        assert status == 1
        assert sentence in said
    assert not (directory / COPIES[0]).exists()
    given = ("--topic-config", "orders", "retention.ms=864000000")
    status, said = odradek("storage", "rebuild", directory, *given)
    assert status == 0, said
    broker.start()
    with Admin(broker.address) as admin:
        configs = admin.describe_topic_configs("orders")["orders"]
    assert (configs["retention.ms"].value, configs["retention.bytes"].value) == ("864000000", "-1")


def test_what_can_be_read_of_damaged_metadata_is_used(broker: RunningBroker) -> None:
    """Directories of an earlier version, and a store that is damaged in its last record."""
    before = seen(broker.address)
    broker.stop()
    for path in broker.data_dir.rglob(IDENTITY):
        path.unlink()
    for name in COPIES:
        data = bytearray((broker.data_dir / name).read_bytes())
        data[-1] ^= 1
        (broker.data_dir / name).write_bytes(data)
    status, said = odradek("storage", "rebuild", broker.data_dir)
    assert status == 0, said
    assert "of the damaged metadata could be read" in said
    broker.start()
    assert seen(broker.address) == before
    goes_on(broker.address, before)


def test_settings_that_were_changed_while_the_broker_ran_are_rebuilt(broker: RunningBroker) -> None:
    """The files were written at each start only, so that a rebuild took the change back."""
    with Admin(broker.address) as admin:
        admin.alter_topic_configs("orders", {"retention.ms": "777000000", "segment.bytes": None})
    files = [broker.data_dir / f"orders-{index}" / IDENTITY for index in range(3)]
    until(
        lambda: [decode_identity(file.read_bytes()) for file in files],
        lambda said: all(it and it.configs == {"retention.ms": "777000000"} for it in said),
    )
    before = seen(broker.address)
    broker.kill()
    lose(broker.data_dir, "missing")
    status, said = odradek("storage", "rebuild", broker.data_dir)
    assert status == 0, said
    assert "retention.ms=777000000" in said
    broker.start()
    assert seen(broker.address) == before


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_after_a_loss_of_its_entries_a_broker_is_closed_and_not_open(
    tmp_path: Path, how: str
) -> None:
    opens = {"allow.everyone.if.no.acl.found": "true"}
    with secured_broker(tmp_path, **opens) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=1)
        broker.stop()
        lose(broker.data_dir, how)
        status, said = odradek("storage", "rebuild", broker.data_dir)
        assert status == 0, said
        broker.start()
        with Admin(broker.address) as admin:
            assert admin.list_topics() == []
            with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
                admin.create_topic("u")
        broker.config = {**broker.config, "super.users": ANONYMOUS}
        broker.restart()
        with Admin(broker.address) as admin:
            closing = admin.delete_acls(principal="User:*", permission="deny")
            assert {acl.resource for acl in closing} == set(KINDS)
            assert {acl.operation for acl in closing} == {"all"}
        broker.config = {**broker.config, "super.users": "User:nobody"}
        broker.restart()
        with Admin(broker.address) as admin:
            assert admin.list_topics() == ["t"]


def test_ids_with_a_tag_are_found_again_where_their_tag_hashes_to(broker: RunningBroker) -> None:
    """They were looked for in the partition of the whole id, and their state seemed to be gone."""
    ids = [f"{{orders}}.task-{number}" for number in range(8)]
    with Admin(broker.address) as admin:
        for transactional_id in ids:
            with (
                Producer(broker.address, transactional_id=transactional_id) as producer,
                producer.transaction() as txn,
            ):
                txn.send("orders", b"x", partition=0)
        # A transaction is complete a moment after its commit was answered.
        before = until(
            lambda: states(admin, ids),
            lambda found: {state for _, state in found} == {"CompleteCommit"},
        )
    broker.kill()
    lose(broker.data_dir, "missing")
    status, said = odradek("storage", "rebuild", broker.data_dir)
    assert status == 0, said
    broker.start()
    with Admin(broker.address) as admin:
        assert states(admin, ids) == before


def states(admin: Admin, ids: list[str]) -> list[tuple[int, str]]:
    """Return producer id and state of each transactional id."""
    found = []
    for description in admin.describe_transactions(*ids).values():
        assert isinstance(description, TransactionDescription), description
        found.append((description.producer_id, description.state))
    return found


def test_a_rebuild_is_refused_where_it_is_not_called_for(
    broker: RunningBroker, tmp_path: Path
) -> None:
    status, said = odradek("storage", "rebuild", broker.data_dir)
    assert (status, said) == (1, f"Error: A broker uses {broker.data_dir}; stop it first.\n")
    broker.stop()
    files = tree(broker.data_dir)
    status, said = odradek("storage", "rebuild", broker.data_dir)
    assert status == 1
    assert "is in order" in said
    lose(broker.data_dir, "missing")
    shutil.rmtree(broker.data_dir / "orders-1")
    status, said = odradek("storage", "rebuild", broker.data_dir)
    assert status == 1
    assert "orders has 3 partitions, and there is no directory for: 1" in said
    for name in COPIES:
        del files[name]
    kept = {name: data for name, data in files.items() if not name.startswith("orders-1/")}
    assert tree(broker.data_dir) == kept
    status, said = odradek("storage", "rebuild", broker.data_dir, "--make-missing")
    assert status == 0, said
    assert "Created empty" in said
    broker.start()
    assert {partition for partition, _, _ in records(broker.address)} == {0, 2}
    status, said = odradek("storage", "rebuild", tmp_path)
    assert status == 1
    assert "no directory of a partition" in said


def test_a_rebuild_that_dies_anywhere_can_be_repeated(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = seen(broker.address)
    broker.stop()
    lose(broker.data_dir, "damaged")

    class Died(BaseException):
        pass

    real = os.replace
    for survived in range(4):
        left = [survived]

        def replace(source: str, target: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Died
            real(source, target)

        monkeypatch.setattr("os.replace", replace)
        with pytest.raises(Died):
            CliRunner().invoke(main, ["storage", "rebuild", str(broker.data_dir)])
    monkeypatch.setattr("os.replace", real)
    status, said = odradek("storage", "rebuild", broker.data_dir)
    assert status == 0, said
    broker.start()
    assert seen(broker.address) == before


def test_a_directory_of_apache_kafka_is_not_made_into_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(b"")
    status, said = odradek("storage", "rebuild", tmp_path)
    assert status == 1
    assert "another broker, Apache Kafka" in said
    status, said = odradek("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path)
    assert status == 1
    assert "another broker, Apache Kafka" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".lock", "meta.properties", "orders-0",
    ]  # fmt: skip
