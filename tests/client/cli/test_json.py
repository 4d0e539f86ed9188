"""A law of all commands: each has `--json`, which prints objects, and errors as well."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.cluster.store_embedded import COPY, FILE
from odradek.broker.reference.commands import commands
from odradek.broker.testing import RunningBroker, run_broker
from tests.client.live import Run

ROOT = Path(__file__).parents[3]
WITHOUT = {
    "odradek serve": "it runs until it is stopped; what it prints is its log",
    "odradek completion": "it prints a script",
    "odradek web": "it runs until it is stopped; it prints the link of its page",
}
ELSEWHERE = {
    **dict.fromkeys(
        ("odradek acl add", "odradek acl list", "odradek acl remove", "odradek acl why"),
        "tests/client/cli/test_acl.py",
    ),
    **dict.fromkeys(
        ("odradek quota list", "odradek quota remove", "odradek quota set"),
        "tests/client/cli/test_quota.py",
    ),
    **dict.fromkeys(
        ("odradek user create", "odradek user delete", "odradek user hash", "odradek user list"),
        "tests/broker/commands/test_user.py",
    ),
    **dict.fromkeys(
        ("odradek security export", "odradek security import"),
        "tests/broker/commands/test_security_command.py",
    ),
    "odradek ping": "tests/broker/commands/test_ping.py",
    "odradek cluster adopt": "tests/cluster/test_adopt.py",
    "odradek cluster elect": "tests/client/cli/test_cluster.py",
    "odradek cluster forget": "tests/client/cli/test_forget.py",
    "odradek storage backup": "tests/broker/test_backup.py",
    "odradek storage import": "tests/broker/inspect/importing/test_import.py",
    "odradek txn watch": "tests/client/cli/test_txn_watch_live.py",
}
STORY = [
    ("topic", "create", "t", "--partitions", "2"),
    ("topic", "list"),
    ("topic", "describe", "t"),
    ("topic", "alter", "t", "--set", "retention.ms=7d"),
    ("topic", "add-partitions", "t", "--total", "3"),
    ("produce", "t"),
    ("consume", "t", "--group", "g"),
    ("group", "list"),
    ("group", "describe", "g"),
    ("group", "reset", "g", "--to-earliest"),
    ("config", "set", "--topic", "t", "segment.bytes=512MiB"),
    ("config", "get", "--topic", "t"),
    ("config", "unset", "--topic", "t", "segment.bytes"),
    ("txn", "list"),
    ("txn", "describe", "x"),
    ("txn", "abort", "x"),
    ("txn", "who-pins", "t"),
    ("txn", "hanging"),
    ("txn", "groups"),
    ("spark", "list"),
    ("spark", "clean", "q", "--running"),
    ("cluster", "describe"),
    ("cluster", "move"),
    ("cluster", "drain", "1", "--dry-run"),
    ("cluster", "rebalance"),
    ("bench", "produce", "--records", "10"),
    ("bench", "consume", "--records", "10"),
    ("bench", "txn", "--transactions", "2"),
    ("group", "delete", "g"),
    ("topic", "delete-records", "t", "--all"),
    ("topic", "delete", "t"),
]
PRINT_NOTHING = {"txn who-pins", "txn hanging", "txn groups", "spark list", "cluster move"} | {
    "cluster drain",
    "cluster rebalance",
}
REFUSED = {"cluster drain": 1, "spark describe": 1}


def leaves() -> Iterator[tuple[str, click.Command]]:
    for name, context in commands():
        if not isinstance(context.command, click.Group):
            yield name, context.command


@pytest.mark.parametrize(("name", "command"), list(leaves()))
def test_every_command_prints_json(name: str, command: click.Command) -> None:
    has_it = any("--json" in parameter.opts for parameter in command.params)
    assert has_it != (name in WITHOUT), f"{name} has no --json"


@pytest.mark.parametrize(("name", "command"), list(leaves()))
def test_the_keys_are_in_the_help(name: str, command: click.Command) -> None:
    """A program that reads them must know what stays."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and "--json" in parameter.opts:
            shape = f"{command.help} {parameter.help}"
            assert re.search(r"[Kk]eys of --json|Objects of --json|object.*:", shape), shape


def test_the_story_below_has_every_command() -> None:
    told = {f"odradek {' '.join(words[:2])}" for words in STORY}
    told |= {f"odradek {words[0]}" for words in STORY}
    missing = [name for name, _ in leaves() if name not in {*told, *WITHOUT, *ELSEWHERE, *LATER}]
    assert missing == []


LATER = {
    *("odradek spark describe", "odradek log dump", "odradek log repair"),
    *("odradek storage settings", "odradek storage rebuild"),
}
"""Commands of the tests further below."""


@pytest.mark.parametrize(("name", "file"), ELSEWHERE.items())
def test_a_command_of_another_test_prints_json_there(name: str, file: str) -> None:
    """Of some commands no test had ever read the JSON."""
    assert "--json" in (ROOT / file).read_text(), name


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


@pytest.mark.slow
def test_each_command_prints_objects_and_nothing_else(broker: RunningBroker) -> None:
    run = Run(broker.address)
    run.said("produce", "t", "--transactional-id", "x", given="a\n")
    run.said("topic", "delete", "t")
    for words in STORY:
        ended = run(*words, "--json", given="b\n" if words[0] == "produce" else "")
        name = " ".join(words[:2])
        assert ended.exit_code == REFUSED.get(name, 0), (words, ended.output)
        lines = ended.stdout.splitlines()
        assert all(isinstance(json.loads(line), dict) for line in lines), (words, lines)
        assert lines or name in PRINT_NOTHING, words


def test_an_error_is_an_object_too(broker: RunningBroker) -> None:
    run = Run(broker.address)
    ended = run("topic", "describe", "there-is-none", "--json")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert json.loads(ended.stderr) == {
        "error": "There is no topic 'there-is-none'.",
        "code": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    ended = run("spark", "describe", "q", "--json")
    assert json.loads(ended.stderr)["code"] is None


def test_files_are_described_as_objects(broker: RunningBroker, tmp_path: Path) -> None:
    dumped = CliRunner().invoke(main, ["log", "dump", str(broker.data_dir), "--json"])
    assert all(json.loads(line)["type"] for line in dumped.stdout.splitlines())
    repaired = CliRunner().invoke(main, ["log", "repair", str(tmp_path), "--json"])
    assert repaired.exit_code == 1


@pytest.mark.slow
def test_repairs_are_described_as_objects(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path) as stopped:
        for value in ("first", "second"):
            Run(stopped.address).said("produce", "t", "--partition", "0", given=value)

    def facts_of(*words: str) -> tuple[int, dict[str, Any]]:
        ended = CliRunner().invoke(main, [*words, str(tmp_path), "--json"])
        return ended.exit_code, json.loads(ended.stdout)

    path = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1  # of the first record
    path.write_bytes(data)
    status, found = facts_of("log", "repair")
    assert (status, found["lost"], found["repaired"]) == (1, False, False)
    (damage,) = found["damages"]
    assert (damage["file"], damage["offset"], damage["next_offset"]) == (str(path), 0, 1)
    status, found = facts_of("log", "repair", "--leave-out")
    assert (status, found["repaired"]) == (0, True)
    for name in (FILE, COPY):
        (tmp_path / name).unlink()
    status, found = facts_of("storage", "rebuild")
    assert (status, found["written"], found["kept"]) == (0, True, [])
    assert "t" in [topic["topic"] for topic in found["topics"]]
