"""The commands, on a real broker: ours, and with --peers Apache Kafka."""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.client.blocking import Admin, TopicPartition
from odradek.client.spark.decisions import DECISION_PARTITIONS
from tests.client.live import WAIT_MS, Run, name_of


def test_topics(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "2", "--config", "retention.ms=3600000")
    assert topic in run.said("topic", "list", "--names").splitlines()
    (described,) = run.said("topic", "describe", topic, "--json").splitlines()
    description = json.loads(described)
    assert description["settings"]["retention.ms"] == "3600000"
    assert [partition["partition"] for partition in description["partitions"]] == [0, 1]
    head, settings, columns, *rows = run.said("topic", "describe", topic).splitlines()
    assert head.split()[0] == topic
    assert "retention.ms=3600000" in settings
    assert "last stable offset" in columns
    assert [row.split()[0] for row in rows] == ["0", "1"]
    run.said("topic", "delete", topic)
    assert topic not in run.said("topic", "list", "--names").splitlines()


def test_sizes_are_shown(run: Run) -> None:
    """Nothing said how much a topic takes on disk."""
    topic = name_of("topic")
    said = run.said("topic", "create", topic, "-p", "2")
    assert said == f"Created {topic}: 2 partitions, 1 replica of each.\n"
    run.said("produce", topic, "--partition", "1", given="x" * 5_000 + "\n")
    (row,) = (
        json.loads(line)
        for line in run.said("topic", "list", "--json").splitlines()
        if json.loads(line)["topic"] == topic
    )
    assert (row["partitions"], row["replicas"], row["internal"]) == (2, 1, False)
    assert row["bytes"] > 5_000
    (described,) = run.said("topic", "describe", topic, "--json").splitlines()
    first, second = json.loads(described)["partitions"]
    assert first["bytes"] == 0
    assert second["bytes"] == row["bytes"]
    (line,) = (line for line in run.said("topic", "list").splitlines() if line.split()[0] == topic)
    assert line.split() == [topic, "2", "1", str(row["bytes"])]
    assert run.said("topic", "create", topic, "--if-not-exists").startswith(f"{topic} was there")
    assert run.said("topic", "delete", topic) == f"Deleted {topic}.\n"


TERMINAL = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
"""What a command sees of `sys` if a person has started it."""


def test_a_person_is_asked_before_anything_is_deleted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics went with their records at once."""
    topic, group = name_of("topic"), name_of("group")
    run.said("topic", "create", topic, "-p", "1")
    run.said("produce", topic, given="a\n")
    run.said("consume", topic, "--group", group)
    for module in ("topics", "group", "cluster"):
        monkeypatch.setattr(f"odradek.client.cli.{module}.sys", TERMINAL)
    deletions = [
        (("group", "delete", group), f"Delete {group} and all offsets?"),
        (("topic", "delete-records", topic, "--all"), f"Delete all records of {topic} for good?"),
        (("topic", "delete", topic), f"Delete {topic} and all records in it?"),
    ]
    for words, question in (*deletions, (("cluster", "forget", "9"), "Forget broker 9?")):
        for answer in ("n\n", ""):
            refused = run(*words, given=answer)
            assert refused.exit_code == 1, words
            assert refused.stderr.startswith(f"{question} [y/N]:")
            assert refused.stderr.endswith("Error: Nothing was done.\n")
    assert run.said("consume", topic) == "a\n"
    assert group in run.said("group", "list")
    for words, _ in deletions:
        assert run(*words, given="y\n").exit_code == 0, words
    assert topic not in run.said("topic", "list", "--names").splitlines()


def test_the_lag_of_a_group_is_summed_up_and_watched(run: Run) -> None:
    topic, group = name_of("topic"), name_of("group")
    run.said("topic", "create", topic, "-p", "2")
    run.said("produce", topic, given="a\nb\n")
    run.said("consume", topic, "--group", group)
    run.said("produce", topic, given="c\nd\ne\n")
    listed = {
        row["group"]: row
        for row in map(json.loads, run.said("group", "list", "--json").splitlines())
    }
    assert listed[group]["lag"] == 3
    assert "3 records behind" in run.said("group", "describe", group).splitlines()[0]
    assert run("group", "describe", group, "--fail-above", "3").exit_code == 0
    ended = run("group", "list", "--fail-above", "2", "--watch", "--interval", "0.1")
    assert ended.exit_code == 3
    assert f"The lag of {group} is 3, above 2." in ended.stderr


def test_durations_and_sizes_may_have_units(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--config", "retention.ms=1d")
    becomes(lambda: of_topic(run, topic), {"retention.ms": ("86400000", "topic")})
    said = run.said("config", "set", "--topic", topic, "segment.bytes=512MiB")
    assert said == f"Set segment.bytes=536870912 for topic {topic}.\n"
    becomes(lambda: of_topic(run, topic).get("segment.bytes"), ("536870912", "topic"))
    ended = run("config", "set", "--topic", topic, "retention.ms=1y")
    assert ended.exit_code == 2
    assert "'1y' is no duration" in ended.stderr
    run.said("topic", "list", "--timeout", "1m")
    for wrong in ("x", "nan"):
        said = run("txn", "list", "--older-than", wrong).stderr
        assert f"{wrong!r} is no number of seconds, nor a duration such as 5m." in said


def test_benchmarks_run_against_any_broker_and_leave_nothing(run: Run) -> None:
    few = ("--records", "50", "--size", "1KiB", "-p", "1", "--json")
    sent = json.loads(run.said("bench", "produce", *few))
    assert (sent["records"], sent["record_bytes"]) == (50, 1024)
    assert sent["latency_ms"]["p50"] <= sent["latency_ms"]["p99"] <= sent["latency_ms"]["max"]
    assert json.loads(run.said("bench", "consume", *few))["records"] == 50
    committed = json.loads(run.said("bench", "txn", "-x", "3", "--producers", "2", *few))
    assert (committed["transactions"], committed["records"]) == (3, 150)
    assert "odradek-bench-" not in run.said("topic", "list", "--names")
    topic = name_of("topic")
    run.said("produce", topic, given="a\nb\n")
    said = run.said("bench", "consume", "--topic", topic)
    assert said.startswith("2 records of 1 bytes in ")
    assert topic in run.said("topic", "list", "--names")


def test_a_topic_that_the_first_record_creates_is_told(run: Run) -> None:
    """A slip in the name was a new topic, and nothing was said."""
    topic = name_of("tpoic")
    result = run("produce", topic, given="a\n")
    assert result.exit_code == 0
    assert f"The topic '{topic}' did not exist: it was created, " in result.stderr
    assert "did not exist" not in run("produce", topic, given="b\n").stderr


def changed(run: Run, *whose: str) -> dict[str, tuple[str, str]]:
    """The settings that were changed, with their sources."""
    settings = json.loads(run.said("config", "get", *whose, "--json"))["settings"]
    return {name: (entry["value"], entry["source"]) for name, entry in settings.items()}


def of_topic(run: Run, topic: str) -> dict[str, tuple[str, str]]:
    """The settings of a topic's own. A new Kafka has min.insync.replicas for all brokers, too."""
    found = changed(run, "--topic", topic)
    return {name: entry for name, entry in found.items() if entry[1] == "topic"}


def becomes(look: Callable[[], object], expected: object) -> None:
    """A real Kafka answers before a change counts."""
    give_up = time.monotonic() + WAIT_MS / 1000
    while (found := look()) != expected:
        assert time.monotonic() < give_up, found
        time.sleep(0.01)  # between two looks, not for luck


def test_settings_of_a_topic(run: Run) -> None:
    topic = name_of("topic")
    whose = ("--topic", topic)
    run.said("topic", "create", topic)
    run.said("topic", "alter", topic, "--set", "retention.ms=5000", "--set", "segment.ms=7000")
    expected = {"retention.ms": ("5000", "topic"), "segment.ms": ("7000", "topic")}
    becomes(lambda: of_topic(run, topic), expected)
    run.said("config", "set", *whose, "retention.ms=6000", "--dry-run")
    assert of_topic(run, topic) == expected
    run.said("config", "set", *whose, "retention.ms=6000")
    run.said("config", "unset", *whose, "segment.ms")
    becomes(lambda: of_topic(run, topic), {"retention.ms": ("6000", "topic")})
    head, *rows = run.said("config", "get", *whose).splitlines()
    assert head.split() == ["setting", "value", "source"]
    assert rows[-1].split() == ["retention.ms", "6000", "topic"]
    (row,) = run.said("config", "get", *whose, "segment.bytes").splitlines()[1:]
    assert row.split() == ["segment.bytes", "1073741824", "default"]
    assert len(run.said("config", "get", *whose, "--all").splitlines()) > 10
    run.said("topic", "alter", topic, "--unset", "retention.ms")
    becomes(lambda: of_topic(run, topic), {})


def test_settings_of_brokers(run: Run) -> None:
    name, one, every = "log.cleaner.backoff.ms", ("--broker", "1"), ("--all-brokers",)
    run.said("config", "set", *every, f"{name}=9000")
    becomes(lambda: changed(run, *one).get(name), ("9000", "all brokers"))
    run.said("config", "set", *one, f"{name}=8000")
    becomes(lambda: changed(run, *one).get(name), ("8000", "broker"))
    assert changed(run, *every)[name] == ("9000", "all brokers")
    for whose in (one, every):
        run.said("config", "unset", *whose, name)
    becomes(lambda: changed(run, *one).get(name), None)
    (row,) = run.said("config", "get", *one, "node.id").splitlines()[1:]
    assert row.endswith("read-only")


def test_a_setting_that_was_not_changed_for_all_brokers_is_shown_as_the_brokers_have_it(
    run: Run,
) -> None:
    name, words = "log.cleaner.min.cleanable.ratio", ("config", "get", "--all-brokers")
    (row,) = run.said(*words, name).splitlines()[1:]
    assert row.split() == [name, "0.5", "default"]
    assert json.loads(run.said(*words, name, "--json"))["settings"] == {
        name: {"value": "0.5", "source": "default", "read_only": False, "sensitive": False}
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("config", "get"), "Name one of --topic, --group, --broker and --all-brokers."),
        (("config", "get", "--topic", "nobody"), "there is no such topic."),
        (("config", "set", "--topic", "nobody", "retention.ms=1"), "there is no such topic."),
        (("config", "set", "--broker", "1", "node.id=7"), "Cannot update these configs dynamical"),
        (("config", "set", "--broker", "1", "log.roll.ms=x"), "Invalid value x for configuratio"),
        (("config", "set", "--broker", "1", "log.roll.ms"), "'log.roll.ms' is not NAME=VALUE"),
        (("config", "get", "--all-brokers", "nosuch"), "There is no setting 'nosuch'; --all sho"),
        (
            ("config", "set", "--broker", "1", "log.roll.ms=1", "log.roll.ms=2"),
            "log.roll.ms is giv",
        ),
        (("topic", "create", "x", "--config", "a=1", "--config", "a=2"), "a is given twice"),
        (("config", "get", "--broker", "1", "nosuch"), "There is no setting 'nosuch'; --all sho"),
        (("topic", "alter", "nobody"), "Nothing to change: name settings by --set or --unset."),
        (("topic", "alter", "t", "--set", "a=1", "--unset", "a"), "a cannot be set and unset."),
    ],
)
def test_what_is_wrong_with_settings_is_said_in_a_sentence(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    result = run(*words)
    assert result.exit_code != 0
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_topic_grows(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "2")
    run.said("topic", "add-partitions", topic, "--total", "3")

    def count() -> int:
        return len(json.loads(run.said("topic", "describe", topic, "--json"))["partitions"])

    becomes(count, 3)
    result = run("topic", "add-partitions", topic, "--total", "2")
    assert result.exit_code == 1
    assert "INVALID_PARTITIONS" in result.stderr
    assert "currently has 3 partition" in result.stderr
    assert f"Giving the topic '{topic}' 2 partitions:" in result.stderr
    less = run("topic", "add-partitions", topic, "--total", "1").stderr
    assert f"Giving the topic '{topic}' 1 partition:" in less


def test_a_topic_that_does_not_exist_hides_no_other_that_is_described_with_it(run: Run) -> None:
    topic, absent = name_of("topic"), name_of("topic")
    run.said("topic", "create", topic)
    result = run("topic", "describe", absent, topic)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{topic}  ")
    assert result.stderr == f"Error: There is no topic '{absent}'.\n"


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--group", "g"), ("--follow",), ("--partition", "0")])
def test_a_topic_that_does_not_exist_is_not_waited_for_by_a_reader(
    run: Run, how: tuple[str, ...]
) -> None:
    """The command asked for it again until its time was over."""
    topic = name_of("topic")
    result = run("consume", topic, *how)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: There is no topic '{topic}'.\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", [("get",), ("set", "log.retention.ms=5"), ("unset", "a.b")])
def test_a_broker_that_does_not_exist_is_not_waited_for(run: Run, words: tuple[str, ...]) -> None:
    result = run("config", *words, "--broker", "7")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: There is no broker 7: the cluster has broker 1 now.\n"


def test_lines_go_in_and_come_out(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "1")
    run.said("produce", topic, given="one\ntwo\nthree")
    assert run.said("consume", topic) == "one\ntwo\nthree\n"
    assert run.said("consume", topic, "--max-records", "2") == "one\ntwo\n"
    assert run.said("consume", topic, "--offset", "-1") == "three\n"
    assert run.said("consume", topic, "--offset", "1", "--format", r"%o\t%v %%") == (
        "1\ttwo %\n2\tthree %\n"
    )


def test_an_offset_that_a_partition_does_not_have_is_said_to_be_missing(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "1")
    run.said("produce", topic, given="one\ntwo")
    result = run("consume", topic, "--offset", "7")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{topic}-0 ends at offset 2: there is nothing at 7 yet.\n"
    assert run("consume", topic, "--offset", "2").stderr == ""


@pytest.mark.parametrize(
    ("template", "line"),
    [("%v", "x\n"), (r"%v\n", "x\n"), (r"%v\n\n", "x\n\n"), (r"\\n%v\t", "\\nx\t\n")],
)
def test_a_record_ends_its_line_once_whether_its_format_says_so_or_not(
    run: Run, template: str, line: str
) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "1")
    run.said("produce", topic, given="x")
    assert run.said("consume", topic, "--format", template) == line


def test_keys_and_headers(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "1")
    run.said("produce", topic, "-K", ":", "-H", "from=here", given="k1:v1\nk2:v:2\n")
    assert run.said("consume", topic, "--format", "%k=%v [%h]") == (
        "k1=v1 [from=here]\nk2=v:2 [from=here]\n"
    )
    record = json.loads(run.said("consume", topic, "--json", "-n", "1"))
    assert (record["key"], record["value"], record["offset"]) == ("k1", "v1", 0)
    assert record["headers"] == [["from", "here"]]


def test_bytes_that_are_no_text_survive_json(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "1")
    run.said("produce", topic, given=b"\xff\xfe\n")
    assert json.loads(run.said("consume", topic, "--json"))["value"] == {"base64": "//4="}


def test_json_is_a_line_a_record_whatever_the_record_says(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "1")
    values = ["one\u2028line", "one\x85more", "\x9b31m", "flüge"]
    run.said("produce", topic, given="".join(f"{value}\n" for value in values).encode())
    lines = run.said("consume", topic, "--json").splitlines()
    assert [json.loads(line)["value"] for line in lines] == values
    assert "flüge" in lines[-1]


def test_a_transaction_is_all_or_nothing(run: Run) -> None:
    topic, transactional_id = name_of("topic"), name_of("id")
    run.said("topic", "create", topic, "--partitions", "1")
    arguments = ("produce", topic, "-K", ":", "--transactional-id", transactional_id)
    failed = run(*arguments, given="a:1\nb:2\nno key\n")
    assert failed.exit_code == 1
    assert "line 3" in failed.stderr.lower()
    run.said(*arguments, given="a:1\n")
    # A commit is answered when it is decided; the markers, and so the record, may be a moment late.
    assert run.said("consume", topic, "--follow", "--from-beginning", "-n", "1") == "1\n"


def test_isolation(run: Run, tmp_path: Path) -> None:
    topic, lines = name_of("topic"), tmp_path / "lines"
    run.said("topic", "create", topic, "--partitions", "1")
    arguments = ("produce", topic, "-K", ":", "--transactional-id", name_of("id"), "-f", str(lines))
    os.mkfifo(lines)
    with ThreadPoolExecutor() as threads:
        ended = threads.submit(run, *arguments)
        with lines.open("wb", buffering=0) as typed:
            typed.write(b"k:0\nk:1\n")
            wait_until_stored(run.bootstrap, TopicPartition(topic, 0), 2)
            typed.write(b"no key\n")
        assert ended.result().exit_code == 1
    assert run.said("consume", topic) == ""
    assert run.said("consume", topic, "--isolation", "read_uncommitted") == "0\n1\n"


def wait_until_stored(bootstrap: str, place: TopicPartition, end: int) -> None:
    """Wait until the partition has records up to `end`, committed or not."""
    deadline = time.monotonic() + WAIT_MS / 1000
    with Admin(bootstrap) as admin:

        def stored() -> int:
            found = admin.list_offsets({place: "latest"}, isolation_level="read_uncommitted")
            return found[place].offset

        while stored() < end:
            assert time.monotonic() < deadline, f"{place} has no {end} records"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("topic", "delete", "absent-topic"), 1, "no such topic"),
        (("topic", "create", "a/b"), 1, "name"),
        (("topic", "create", "x", "--config", "nonsense"), 2, "NAME=VALUE"),
        (("consume", "absent-topic", "--timeout", "0.3"), 1, "absent-topic"),
        (("consume", "t", "--format", "%q"), 2, "%q"),
        (("consume", "t", "--isolation", "serializable"), 2, "read_committed"),
        (("consume", "t", "--from-beginning", "--offset", "3"), 2, "exclude"),
        (("consume", "t", "--group", "g", "--offset", "3"), 2, "odradek group reset"),
        (("produce", "t", "-K", ":", "-k", "x"), 2, "exclude"),
        (("topic", "list", "--bootstrap", "nowhere"), 1, "HOST:PORT"),
        (("topic", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "0.3"), 1, "127.0.0.1:1"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    run: Run, arguments: tuple[str, ...], status: int, said: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == status, result.output
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_records_are_deleted_up_to_an_offset_and_all(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "2")
    run.said("produce", topic, "--partition", "1", given="one\ntwo\nthree")
    said = run.said("topic", "delete-records", topic, "-p", "1", "--before", "1", "--yes")
    assert said.split() == ["partition", "first", "offset", "1", "1"]
    assert run.said("consume", topic, "--partition", "1") == "two\nthree\n"
    said = run.said("topic", "delete-records", topic, "--all", "--yes", "--json")
    assert [json.loads(line)["first_offset"] for line in said.splitlines()] == [0, 3]
    assert run.said("consume", topic) == ""
    refused = run("topic", "delete-records", topic, "-p", "1", "--before", "9", "--yes")
    assert refused.exit_code == 1
    assert f"{topic}-1" in refused.stderr
    assert "OFFSET_OUT_OF_RANGE" in refused.stderr
    assert "-1 " not in refused.stderr  # it is what Kafka's tool takes, and --before does not
    assert "give an earlier one, or --all" in refused.stderr
    assert "--before" in run("topic", "delete-records", topic).stderr


def test_a_topic_that_is_marked_as_internal_is_listed_only_if_it_is_asked_for(
    odradek_address: str,
) -> None:
    run = Run(odradek_address)  # no other broker knows the setting
    run.said("topic", "create", "marked-as-own", "--config", "odradek.internal=true")
    assert "marked-as-own" not in run.said("topic", "list", "--names").splitlines()
    assert "marked-as-own" in run.said("topic", "list", "--internal", "--names").splitlines()


def test_the_decisions_of_spark_queries_are_listed_with_what_is_internal(run: Run) -> None:
    # Queries of other tests use it on the same broker, so it is made as they make it.
    topic = ("odradek-spark-decisions", "--partitions", str(DECISION_PARTITIONS))
    run.said("topic", "create", *topic, "--if-not-exists")
    assert "odradek-spark-decisions" not in run.said("topic", "list", "--names").splitlines()
    assert (
        "odradek-spark-decisions" in run.said("topic", "list", "--internal", "--names").splitlines()
    )
