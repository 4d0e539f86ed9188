"""How a command ends, and what it can say on any terminal."""

import json
from typing import cast

import click
import pytest
import trio
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.client.blocking import Admin, BrokerDescription, ClusterDescription
from odradek.client.cli import common
from odradek.client.cli.common import (
    check_broker,
    json_line,
    reports_errors,
    sentence,
    show_table,
)
from odradek.client.cli.tables import PADDED_MAX, laid_out
from odradek.client.errors import Refused
from tests.client.live import Run


def end_with(error: Exception) -> str:
    """Return the standard error of a command that raises."""

    @click.command()
    @reports_errors
    def command() -> None:
        raise error

    result = CliRunner().invoke(command)
    assert result.exit_code == 1
    return result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("there is none", "There is none."),
        ("it is gone.", "It is gone."),
        ("listing: it failed", "Listing: it failed."),
        ("refunds-1 has no leader", "refunds-1 has no leader."),
        ("'t' is no topic", "'t' is no topic."),
        ("max_block_ms is at least 1", "max_block_ms is at least 1."),
    ],
)
def test_a_sentence_leaves_names_as_they_are(text: str, expected: str) -> None:
    assert sentence(text) == expected
    assert end_with(Refused(text)) == f"Error: {expected}\n"


def test_what_is_not_utf8_is_refused_in_words() -> None:
    given = "\udcff"  # how Python reads the byte 0xff of an argument
    with pytest.raises(UnicodeEncodeError) as raised:
        given.encode()
    assert end_with(raised.value) == r"Error: '\udcff' is not UTF-8." + "\n"


class Growing:
    """An administrator's client of a cluster to which broker 2 comes at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    def describe_cluster(self) -> ClusterDescription:
        self.looks += 1
        nodes = (1, 2) if self.looks == 3 else (1,)
        brokers = tuple(BrokerDescription(node, "h", 9092, None) for node in nodes)
        return ClusterDescription("cluster", 1, brokers)


def test_a_broker_that_comes_just_now_is_waited_for_and_another_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(common, "APPEARS_S", 60)  # however slow the machine is
    monkeypatch.setattr(common, "LOOK_S", 0)
    growing = Growing()
    check_broker(cast(Admin, growing), 2)
    assert growing.looks == 3
    monkeypatch.setattr(common, "APPEARS_S", 0)
    with pytest.raises(Refused, match="no broker 2: the cluster has broker 1 now"):
        check_broker(cast(Admin, Growing()), 2)


def test_a_long_name_moves_only_its_own_row(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * (PADDED_MAX + 40)
    show_table(["id", "state"], [[long, "Empty"], ["short", "Ongoing"]])
    head, first, second = capsys.readouterr().out.splitlines()
    assert first == f"{long}  Empty"
    assert head.index("state") == second.index("Ongoing") == PADDED_MAX + 2


def test_no_word_is_broken_on_a_narrow_terminal() -> None:
    """rich broke the names of settings, and txn list left the clients out."""
    name = "transaction.partition.verification.enable.for.every.batch"
    rows = [[name, "1.7976931348623157e308", "default", "read-only"]]
    rows += [["short", "1", "file", ""]] * 4
    columns = ["setting", "value", "source", ""]
    lines = list(laid_out(columns, rows, [], 80))
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).replace(",", "").split()
    for row in rows:
        assert set(row) - {""} <= set(words)
    assert lines[1:3] == [name, "    value: 1.7976931348623157e308, source: default, read-only"]
    assert lines[3].split() == ["short", "1", "file"]


def test_headings_of_numbers_take_several_lines_before_a_column_leaves_its_line() -> None:
    columns = ["topic", "last stable offset", "end offset"]
    assert list(laid_out(columns, [["t", "12", "34"]], columns[1:], 22)) == [
        "         last",
        "       stable     end",
        "topic  offset  offset",
        "t          12      34",
    ]
    assert list(laid_out(columns, [["t", "12", "34"]], columns[1:], 16)) == [
        "         last",
        "       stable",
        "topic  offset",
        "t          12",
        "    end offset:",
        "    34",
    ]


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x7f", "\x9b", "\u202e", "\ud800"])
def test_json_is_one_printable_line_whatever_a_name_has_in_it(odd: str) -> None:
    line = json_line({"transactional_id": f"a{odd}b"})
    assert line.splitlines() == [line]
    assert line.isprintable()
    assert json.loads(line) == {"transactional_id": f"a{odd}b"}


def test_json_leaves_what_people_can_read() -> None:
    assert json_line({"client_id": "flüge"}) == '{"client_id": "flüge"}'


async def test_a_server_that_does_not_answer_is_named(nursery: trio.Nursery) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")  # accepts, and is silent
    host, port = listener.socket.getsockname()
    run = Run(f"{host}:{port}")
    result = await trio.to_thread.run_sync(lambda: run("txn", "list", "--timeout", "0.3"))
    await listener.aclose()
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: Listing transactions: not done within 300 ms ({host}:{port} has taken the "
        "connection and does not answer; see whether it is a Kafka broker).\n"
    )


COMMANDS = [
    ("topic", "list"),
    ("topic", "create", "t"),
    ("topic", "describe", "t"),
    ("topic", "delete", "t", "--yes"),
    ("produce", "t"),
    ("produce", "t", "--transactional-id", "x"),
    ("consume", "t"),
    ("consume", "t", "--partition", "0", "--follow"),
    ("txn", "list"),
    ("txn", "describe", "x"),
    ("txn", "who-pins", "t"),
    ("txn", "hanging"),
    ("txn", "abort", "x"),
    ("txn", "watch"),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_broker_that_is_down_is_told_long_before_the_time_out(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "FIRST_CONNECT_S", 0.5)
    where = {"ODRADEK_BOOTSTRAP": "127.0.0.1:1"}
    result = CliRunner().invoke(main, command, input="x", env=where)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "127.0.0.1:1 (Connection refused); see whether a broker listens there" in result.stderr


def test_who_gives_a_time_out_waits_that_long_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "FIRST_CONNECT_S", 0.01)
    result = Run("127.0.0.1:1")("topic", "list", "--timeout", "0.2")
    assert "not done within 200 ms" in result.stderr
