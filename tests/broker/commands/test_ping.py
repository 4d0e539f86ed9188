"""`odradek ping`: the health check."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main


def ping(*arguments: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(main, ["ping", *arguments])
    return ended.exit_code, ended.stdout, ended.stderr


def test_a_broker_that_answers_is_well(odradek_address: str) -> None:
    status, said, _ = ping("--bootstrap", odradek_address)
    assert status == 0
    assert said.startswith(f"{odradek_address} answers, in ")
    status, said, _ = ping("--bootstrap", f"{odradek_address},{odradek_address}", "--json")
    assert status == 0
    for line in said.splitlines():
        facts = json.loads(line)
        assert (facts["address"], facts["answers"], facts["error"]) == (odradek_address, True, None)


def test_one_broker_of_several_that_is_down_is_named(odradek_address: str) -> None:
    status, said, error = ping("--bootstrap", f"{odradek_address},127.0.0.1:1")
    assert status == 1
    assert odradek_address in said
    assert error == "Error: 127.0.0.1:1 cannot be reached: Connection refused.\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "is no Kafka broker: it answered b'HTTP/1.1 4'"),
        (b"\0\0\0\x0a\0\0\0\x01\0\x23\0\0\0\0", "answered with UNSUPPORTED_VERSION"),
        (b"", "closed the connection unanswered"),
        (b"\x15\x03\x01\0\x02\x02\x46", "is a TLS server: give --command-config a file with"),
    ],
)
def test_what_is_no_broker_is_told_from_one(answer: bytes, expected: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        status, _, error = ping("--bootstrap", f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert status == 1
    assert expected in error


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_name_that_no_machine_can_have_is_no_traceback(host: str) -> None:
    status, _, error = ping("--bootstrap", f"{host}:9092")
    assert (status, error) == (
        1,
        f"Error: {host}:9092 has no address: it is not the name of a machine.\n",
    )
    assert ping("--bootstrap", "localhost:\u00b2")[0] == 2


def test_the_broker_that_a_file_of_settings_names_is_asked(tmp_path: Path) -> None:
    """It asked 127.0.0.1:9092, and called the broker well that listens there."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    words = ("--command-config", str(file))
    refused = "cannot be reached: Connection refused.\n"
    assert ping(*words)[::2] == (1, f"Error: 127.0.0.1:1 {refused}")
    assert ping(*words, "--bootstrap", "127.0.0.1:2")[2] == f"Error: 127.0.0.1:2 {refused}"
    twice = ping(*words, "--profile", "p")[2]
    assert "--command-config and --profile both name a file of settings: give one" in twice


def test_a_silent_broker_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        status, said, _ = ping("--bootstrap", address, "--timeout", "0.05", "--json")
    assert status == 1
    assert json.loads(said)["error"] == "does not answer in time"


def test_it_starts_without_what_it_does_not_need() -> None:
    """`cluster describe` took half a second of processor time every ten seconds."""
    code = (
        "import sys\n"
        "from odradek.broker.cli import main\n"
        "main(['ping', '--bootstrap', '127.0.0.1:1'], standalone_mode=False)\n"
        "print('loaded', *sorted(sys.modules))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    loaded = said.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded", said
    ours = {name for name in loaded if name.startswith("odradek.")}
    modules = ("broker", "broker.cli", "broker.commands", "broker.commands.ping")
    assert ours == {f"odradek.{module}" for module in modules}
    assert not {"trio", "construct", "asyncio", "rich", "msgpack"} & set(loaded)


def test_its_time_limit_may_be_a_duration(odradek_address: str) -> None:
    assert ping("--bootstrap", odradek_address, "--timeout", "1m")[0] == 0
    status, _, error = ping("--bootstrap", odradek_address, "--timeout", "1y")
    assert status == 2
    assert "'1y' is no duration" in error
    error = ping("--timeout", "soon")[2]
    assert "it is no number of seconds, nor a duration such as 500ms." in error
