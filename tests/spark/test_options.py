"""Options are the connector's; what is not served is one sentence."""

from pathlib import Path
from typing import Final

import pytest

from odradek.client.spark.option_names import (
    READ_KAFKA_NAMES,
    READ_NAMES,
    READ_WITHOUT_EFFECT,
    WRITE_KAFKA_NAMES,
    WRITE_NAMES,
    WRITE_WITHOUT_EFFECT,
)
from odradek.client.spark.options import (
    BATCH_MAX_BYTES,
    OptionError,
    read_options,
    write_options,
)
from odradek.client.types import EARLIEST, LATEST, TopicPartition
from odradek.protocol.batch import Codec

PAGE: Final = Path(__file__).parents[2] / "docs" / "coming-from-spark.md"
SASL: Final = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
}
READ = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
WRITE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def as_spark_gives_them(options: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def test_defaults_are_the_connectors() -> None:
    batch = read_options(READ, "batch")
    assert (batch.starting_offsets, batch.ending_offsets) == (EARLIEST, LATEST)
    stream = read_options(READ, "stream")
    assert stream.starting_offsets == LATEST
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.consumer == {}
    write = write_options(WRITE, "stream")
    assert (write.topic, write.codec, write.batch_max_bytes) == (None, Codec.NONE, BATCH_MAX_BYTES)
    assert write.task_max_bytes == 32 << 20
    assert write.relay_max_bytes == 256 << 20


def test_what_is_given_is_taken_whatever_the_case_of_its_name() -> None:
    options = READ | {
        "startingOffsets": '{"orders":{"0":23,"1":-2}}',
        "failOnDataLoss": "FALSE",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "500",
        "kafka.isolation.level": "read_uncommitted",
        "kafka.max.partition.fetch.bytes": "2000000",
        "checkpointLocation": "somewhere",
    }
    parsed = read_options(as_spark_gives_them(options), "stream")
    assert parsed == read_options(options, "stream")
    assert parsed.starting_offsets == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): EARLIEST,
    }
    assert parsed.max_offsets_per_trigger == 500
    assert not parsed.fail_on_data_loss
    assert parsed.include_headers
    assert parsed.consumer == {
        "isolation_level": "read_uncommitted",
        "partition_fetch_bytes": 2_000_000,
    }


def test_topics_are_named_in_one_of_three_ways() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    assigned = read_options(servers | {"assign": '{"b":[1,0],"a":[2]}'}, "batch")
    assert assigned.topics.assigned == (("a", 2), ("b", 0), ("b", 1))
    subscribed = read_options(servers | {"subscribe": "b, a,b"}, "batch")
    assert subscribed.topics.subscribed == ("b", "a")
    matched = read_options(servers | {"subscribePattern": "ord.*"}, "batch")
    assert matched.topics.pattern is not None
    assert matched.topics.pattern.fullmatch("orders")


def test_a_write_takes_the_producers_settings() -> None:
    parsed = write_options(
        WRITE
        | {
            "topic": "out",
            "kafka.acks": "all",
            "kafka.compression.type": "zstd",
            "kafka.max.request.size": "500000",
            "kafka.transaction.timeout.ms": "10000",
            "kafka.client.id": "nightly-job",
            "kafka.batch.size": "65536",
            "kafka.buffer.memory": "67108864",
            "kafka.max.block.ms": "30000",
            "kafka.retry.backoff.ms": "50",
            "relay.max.task.bytes": "1000",
            "transactionalIdPrefix": "billing",
            "txnAppId": "nightly",
            "txnVersion": "7",
        },
        "batch",
    )
    assert (parsed.topic, parsed.codec, parsed.batch_max_bytes) == ("out", Codec.ZSTD, 500_000)
    assert (parsed.task_max_bytes, parsed.prefix) == (1000, "billing")
    assert parsed.client == {
        "client_id": "nightly-job",
        "first_connect_ms": None,
        "max_block_ms": 30_000,
        "retry_backoff_ms": 50,
    }
    assert parsed.producer == {"transaction_timeout_ms": 10_000, "buffer_bytes": 67_108_864}
    assert parsed.batch_full_bytes == 65_536
    assert parsed.application is not None
    assert (parsed.application.application_id, parsed.application.version) == ("nightly", 7)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "a"}, "The option kafka.bootstrap.servers is missing"),
        (
            {"startingOffset": "earliest"},
            "startingOffset is not served here: did you mean startingOffsets\\?$",
        ),
        ({"maxOffsetPerTriggers": "5"}, "maxOffsetPerTriggers is not .* maxOffsetsPerTrigger"),
        ({"zzz": "1"}, "The option zzz is not served here: leave it out."),
        ({"startingTimestamp": "noon"}, "startingTimestamp is a whole number from 0 to"),
        (
            {"endingOffsetsByTimestamp": '{"a":{"0":-1}}'},
            r"JSON, in milliseconds since .*\(-1 is no time: it is below 0\)",
        ),
        ({"startingOffsetsByTimestampStrategy": "none"}, "Strategy is error or latest, not 'none'"),
        ({"minPartitions": "0"}, "minPartitions is a whole number above 0"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a number with a unit, as in 15m, 30s"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger is 9 and maxOffsetsPerTrigger 8: give the first a smaller",
        ),
        (
            {"kafka.fetch.max.wait.ms": "30000"},
            "clients: kafka.fetch.max.wait.ms must be less than kafka.request.timeout.ms.$",
        ),
        ({"kafka.fetch.max.bytes": "2147483648"}, r"max.bytes is a whole number from 1 to 2\^31-1"),
        (
            {"kafka.bootstrap.servers": "127.0.0.1"},
            "kafka.bootstrap.servers is HOST:PORT, or several .* not '127.0.0.1'.$",
        ),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets."),
        ({"kafka.value.deserializer": "x"}, "keys and values are bytes"),
        ({"path": "x"}, 'name topics by the option "topic"'),
        ({"topic": "x"}, "The option topic belongs to a write: leave it out."),
        ({"assign": '{"a":[0]}'}, "exactly one of the options .* not assign and subscribe"),
        ({"subscribe": " , "}, "subscribe is a topic, or several separated by commas, not ' , '"),
        ({"startingOffsets": "latest"}, "startingOffsets is earliest here, or offsets in JSON"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, r"-1 is not an offset; from 0, or -2 \(earliest\)"),
        ({"endingOffsets": "earliest"}, "endingOffsets is latest here"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, r"from 0, or -1 \(latest\)"),
        ({"endingOffsets": '{"a":[0]}'}, "a needs partitions"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is true or false, not 'no'"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number above 0"),
        ({"kafka.isolation.level": "1"}, "is read_committed or read_uncommitted"),
        (
            {"kafka.security.protocol": "TLS"},
            "The options of TLS and SASL are wrong: security.protocol is one of PLAINTEXT, SSL, .*",
        ),
        (
            {**SASL, "kafka.sasl.jaas.config": 'x.Module required password="secret;'},
            "sasl.jaas.config cannot be read: a text in it has no closing quote",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no/such"},
            "The options of TLS and SASL are wrong: /no/such cannot be read",
        ),
        (SASL, "SCRAM-SHA-256 needs sasl_username and sasl_password: set both"),
        ({"kafka.sasl.login.class": "x.Login"}, "The option kafka.sasl.login.class is not served"),
    ],
)
def test_a_wrong_option_of_a_batch_read_is_one_sentence(
    options: dict[str, str], sentence: str
) -> None:
    base = {} if sentence.endswith("is missing") else READ
    with pytest.raises(OptionError, match=sentence) as caught:
        read_options(as_spark_gives_them(base | options), "batch")
    assert "\n" not in str(caught.value)


def test_a_pattern_or_assignment_that_is_none_is_refused() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    with pytest.raises(OptionError, match="subscribePattern is a regular expression"):
        read_options(servers | {"subscribePattern": "("}, "stream")
    with pytest.raises(OptionError, match=r"assign is partitions in JSON, .* not 'orders'"):
        read_options(servers | {"assign": "orders"}, "stream")
    with pytest.raises(OptionError, match=r"as in .* \(a needs a list of partitions, not 0\), not"):
        read_options(servers | {"assign": '{"a":0}'}, "stream")
    with pytest.raises(OptionError, match="not none"):
        read_options(servers, "stream")


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        (
            "startingOffsets",
            "erliest",
            "The option startingOffsets is earliest or latest here, or offsets in JSON, as in "
            """{"orders":{"0":23}}, not 'erliest': did you mean earliest?""",
        ),
        (
            "startingOffsets",
            '{"a":}',
            "The option startingOffsets is earliest or latest here, or offsets in JSON, as in "
            """{"orders":{"0":23}} (Expecting value at character 6), not '{"a":}'.""",
        ),
        (
            "failOnDataLoss",
            "flase",
            "The option failOnDataLoss is true or false, not 'flase': did you mean false?",
        ),
        (
            "kafka.isolation.level",
            "read_commited",
            "The option kafka.isolation.level is read_committed or read_uncommitted, not "
            "'read_commited': did you mean read_committed?",
        ),
    ],
)
def test_a_misspelled_value_has_a_sentence_that_reads_well(
    option: str, value: str, sentence: str
) -> None:
    with pytest.raises(OptionError) as caught:
        read_options(as_spark_gives_them({**READ, option: value}), "stream")
    assert str(caught.value) == sentence


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="endingOffsets belongs to batch reads"):
        read_options(READ | {"endingOffsets": "latest"}, "stream")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.acks": "1"}, "kafka.acks is all or -1 here"),
        ({"kafka.enable.idempotence": "false"}, "is true here"),
        ({"kafka.batch.size": "many"}, "kafka.batch.size is a whole number from 1 to"),
        ({"kafka.buffer.memory": "10"}, "clients: kafka.buffer.memory is at least 65536, and 10"),
        (
            {"kafka.request.timeout.ms": "500"},
            "clients: the wait of a fetch, 500 ms, must be less",
        ),
        ({"kafka.transaction.timeout.ms": "2147483648"}, "timeout.ms is a whole number from 1 to"),
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers is HOST:PORT, or several separated"),
        ({"kafka.transactional.id": "x"}, "the sink makes its own"),
        ({"kafka.compression.type": "brotli"}, "is one of none, gzip, snappy, lz4, zstd"),
        ({"topic": "a/b"}, "topic is a name of 1 to 249 of the characters"),
        ({"transactionalIdPrefix": "a{b}"}, "transactionalIdPrefix is a name of 1 to 200 of the"),
        ({"txnAppId": "{a}", "txnVersion": "1"}, "txnAppId is a name of 1 to 200 of the char"),
        ({"txnAppId": "a"}, "txnAppId and txnVersion go together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, r"txnVersion is a whole number from 0 to 2\^63-1"),
        ({"startingOffsets": "latest"}, "startingOffsets belongs to a read: leave it out"),
        ({"maxOffsetPerTrigger": "5"}, "maxOffsetPerTrigger is not served here: leave it out"),
        ({"relay.max.bites": "1"}, "did you mean relay.max.bytes"),
    ],
)
def test_a_wrong_option_of_a_write_is_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        write_options(as_spark_gives_them(WRITE | options), "batch")


def test_application_versions_are_for_batch_writes() -> None:
    with pytest.raises(OptionError, match="txnAppId belongs to batch writes"):
        write_options(WRITE | {"txnAppId": "a", "txnVersion": "1"}, "stream")


def test_times_count_before_offsets_and_one_time_before_many() -> None:
    by_partition = '{"a":{"0":5,"1":6}}'
    options = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": by_partition}
    read = read_options({**READ, **options, "endingOffsetsByTimestamp": by_partition}, "batch")
    times = {TopicPartition("a", 0): 5, TopicPartition("a", 1): 6}
    assert (read.starting_times_ms, read.ending_times_ms) == (times, times)
    assert not read.is_latest_without_match
    everywhere = {"startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "LATEST"}
    read = read_options({**READ, **options, **everywhere}, "stream")
    assert (read.starting_times_ms, read.is_latest_without_match) == (7, True)
    with pytest.raises(OptionError, match="endingTimestamp belongs to batch reads: leave it out"):
        read_options({**READ, "endingTimestamp": "7"}, "stream")


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("2min", 120_000), ("30s", 30_000),
                     ("500ms", 500), ("500", 500), ("1h", 3_600_000), ("1d", 86_400_000)]
)  # fmt: skip
def test_a_time_span_is_read_as_spark_reads_it(text: str, ms: int) -> None:
    read = read_options({**READ, "maxTriggerDelay": text, "minOffsetsPerTrigger": "3"}, "stream")
    assert (read.max_trigger_delay_ms, read.min_offsets_per_trigger) == (ms, 3)


def test_options_without_effect_change_nothing() -> None:
    given = dict.fromkeys(READ_WITHOUT_EFFECT, "3")
    assert read_options({**READ, **given}, "stream") == read_options(READ, "stream")
    given = dict.fromkeys(WRITE_WITHOUT_EFFECT, "3")
    assert write_options({**WRITE, **given}, "batch") == write_options(WRITE, "batch")


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("## Reading", READ_NAMES + READ_KAFKA_NAMES),
        ("## Writing", WRITE_NAMES + WRITE_KAFKA_NAMES[1:]),  # the first is where to connect
    ],
)
def test_the_page_for_those_who_come_from_the_connector_has_every_option(
    section: str, names: tuple[str, ...]
) -> None:
    _, _, rest = PAGE.read_text().partition(section)
    text, _, _ = rest.partition("\n## ")
    missing = [
        name
        for name in names
        if f"`{name}`" not in text
        and f"`{name.removeprefix('kafka.')}`" not in text
        and not name.startswith(("kafka.ssl.", "kafka.sasl.", "kafka.https."))  # ssl.* and sasl.*
    ]
    assert missing == []


JAAS: Final = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="secret word";'
)


def test_the_settings_of_sasl_reach_the_clients_and_are_in_no_representation() -> None:
    given = {**SASL, "kafka.sasl.jaas.config": JAAS, "kafka.sasl.login.refresh.buffer.seconds": "9"}
    read = read_options(as_spark_gives_them(READ | given), "batch")
    write = write_options(as_spark_gives_them(WRITE | given), "batch")
    for options in (read, write):
        assert options.client == {
            "first_connect_ms": None,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
            "sasl_password": "secret word",
        }
        assert "secret word" not in repr(options)


def test_without_sasl_its_settings_do_not_count_as_with_the_connector() -> None:
    given = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": JAAS}
    read = read_options(as_spark_gives_them(READ | given), "batch")
    assert read.client == {"first_connect_ms": None}
