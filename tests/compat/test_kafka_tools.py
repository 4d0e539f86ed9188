"""Kafka's own DumpLogSegments reads our data directory: logs, indexes, snapshots, state topics."""

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker.testing import run_broker
from tests.broker.group.wire import WireClient
from tests.compat.confluent import consumer, deliver, producer, transactional
from tests.compat.conftest import DEADLINE_SECONDS
from tests.compat.kafka_tool import KafkaTools

pytestmark = pytest.mark.peers

SIGNS_OF_TROUBLE = (  # in lower case: the tool goes on and exits with 0
    "mismatch",
    "out of order",
    "non-consecutive",
    "could not",
    "exception",
    "isvalid: false",
    "corrupt",
)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a stopped broker left: codecs, rolled segments, transactions, offsets of a group."""
    directory = tmp_path_factory.mktemp("odradek-data")
    with run_broker(data_dir=directory) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        topic = NewTopic("dumped", 1, 1, config={"segment.bytes": "1048576"})
        admin.create_topics([topic])["dumped"].result(DEADLINE_SECONDS)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            sender = producer(broker.address, compression_type=codec, linger_ms=5)
            deliver(sender, "dumped", [b"%d" % number for number in range(500)], key=b"key")
        sender = transactional(broker.address, "dump")
        with consumer(broker.address, "dump-group") as receiver:
            for number in range(30):
                sender.begin_transaction()
                deliver(sender, "dumped", [b"%d" % number * 50_000])
                sender.send_offsets_to_transaction(
                    [TopicPartition("dumped", 0, number)],
                    receiver.consumer_group_metadata(),
                    DEADLINE_SECONDS,
                )
                if number % 3:
                    sender.commit_transaction(DEADLINE_SECONDS)
                else:
                    sender.abort_transaction(DEADLINE_SECONDS)
        with WireClient(broker.address) as client:
            joined = client.heartbeat_of_consumer("dump-consumers", "m", regex="dump.*")
            assert len(joined.assignment.topic_partitions) == 1
    return directory


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex", "snapshot"])
def test_every_file_of_a_partition_is_read_without_complaint(
    kafka_tools: KafkaTools, data_dir: Path, kind: str
) -> None:
    (partition,) = data_dir.glob("**/dumped-0")
    files = sorted(partition.glob(f"*.{kind}"))
    assert files, f"no .{kind} in {sorted(path.name for path in partition.iterdir())}"
    if kind != "snapshot":
        assert len(files) > 1, "the log was not rolled"

    said = kafka_tools.dump(files, "--deep-iteration")

    assert no_trouble(said)
    if kind == "log":
        assert said.count("isTransactional: true isControl: true") == 30
        assert said.count("endTxnMarker: COMMIT") == 20
        assert said.count("endTxnMarker: ABORT") == 10
        assert all(f"compresscodec: {codec}" in said for codec in ("gzip", "snappy", "lz4", "zstd"))
    if kind == "txnindex":
        assert said.count("producerId:") == 10


@pytest.mark.parametrize(
    ("topic", "decoder", "expected"),
    [
        ("__transaction_state", "--transaction-log-decoder", '"transactionalId":"dump"'),
        ("__consumer_offsets", "--offsets-decoder", '"group":"dump-group"'),
        ("__consumer_offsets", "--offsets-decoder", '"subscribedTopicRegex":"dump.*"'),
        ("__consumer_offsets", "--offsets-decoder", '"assignmentEpochs":[2]'),
        ("__consumer_offsets", "--offsets-decoder", '"regularExpression":"dump.*"'),
    ],
)
def test_the_state_topics_are_decoded(
    kafka_tools: KafkaTools, data_dir: Path, topic: str, decoder: str, expected: str
) -> None:
    files = [path for path in data_dir.glob(f"**/{topic}-*/*.log") if path.stat().st_size > 0]
    assert files

    said = kafka_tools.dump(sorted(files), decoder)

    assert no_trouble(said)
    assert expected in said


def no_trouble(said: str) -> bool:
    lines = said.splitlines()
    found = [line for line in lines if any(sign in line.lower() for sign in SIGNS_OF_TROUBLE)]
    assert not found, "\n".join(found[:20])
    return len(lines) > 1
