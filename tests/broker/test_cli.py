"""The command `odradek serve`: what it says, what it refuses, how it stops."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from odradek.broker.cli import INTERRUPTED, Commands, main
from odradek.broker.config.addresses import parse_address
from odradek.broker.config.broker import broker_settings
from odradek.broker.config.settings import INT32_MAX, INT64_MAX, ConfigError, ConfigType
from odradek.broker.testing import BrokerDidNotStart, RunningBroker, run_broker
from odradek.protocol.errors import ErrorCode
from tests.broker.asks import batch, create_topic, produce
from tests.broker.raw import PATIENCE_SECONDS, RawClient

pytestmark = pytest.mark.slow

LARGEST = {ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX, ConfigType.DOUBLE: 1}
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def odradek(*arguments: str) -> tuple[int, str]:
    """Exit status and everything that was said."""
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "num.partition=3"], "Did you mean num.partitions?"),
        (["--set", "num.partitions=none"], "num.partitions is a whole number, not 'none'."),
        (["--set", "num.partitions"], "--set takes NAME=VALUE, not 'num.partitions'."),
        (["--set", "=3"], "--set takes NAME=VALUE, not '=3'."),
        (["--listen", "9092"], "--listen is HOST:PORT, such as 127.0.0.1:9092, not '9092'."),
        (["--listen", "a:b"], "--listen is HOST:PORT, such as 127.0.0.1:9092, not 'a:b'."),
        (["--advertise", "x:70000"], "--advertise is HOST:PORT"),
        (["--ephemeral", "--data-dir", "x"], "contradict each other"),
        (["--data-dir", ""], "--data-dir is empty; name a directory, or leave the option out."),
        (["--set", "log.dirs="], "log.dirs is empty; give it a value, or leave it out."),
        (["--set", "log.dirs=/a,/b"], "log.dirs has one directory here, not '/a,/b'."),
        (["--config", "nowhere"], "'nowhere' does not exist"),
        (["--data-dir", "/proc/none"], "The data directory /proc/none cannot be made"),
        (
            ["--data-dir", __file__],
            "cannot be the data directory: it, or what it is in, is a file.",
        ),
        (["--set", "listeners=SSL://:9092"], "Listener SSL has TLS and no certificate"),
        (["--set", "listeners=PLAINTEXT://a:1,PLAINTEXT://b:2"], "has PLAINTEXT twice"),
        (["--nonsense"], "No such option"),
    ],
)
def test_a_mistake_is_one_sentence_and_no_traceback(arguments: list[str], sentence: str) -> None:
    status, said = odradek("serve", *arguments)
    assert status != 0
    assert sentence in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("interrupt", "status", "said"),
    [(False, 1, "Error: Nothing was done."), (True, INTERRUPTED, "")],
)
def test_a_question_without_a_yes_ends_a_command_in_words(
    interrupt: bool, status: int, said: str
) -> None:
    """`odradek storage import` printed "Aborted!", as if a transaction were meant."""

    @click.command()
    def ask() -> None:
        try:
            if interrupt:
                raise KeyboardInterrupt
            click.confirm("Import the rest?", abort=True)
        except KeyboardInterrupt:  # as click does
            raise click.Abort from None

    commands = Commands(commands={"ask": ask})
    ended = CliRunner().invoke(commands, ["ask"], input="n\n")
    assert (ended.exit_code, ended.stderr.strip()) == (status, said)


def test_without_an_output_nothing_is_said_and_nothing_breaks() -> None:
    script = 'exec "$0" -m odradek.broker txn watch --bootstrap 127.0.0.1:1 --timeout 0.1 >&-'
    result = subprocess.run(
        ["sh", "-c", script, sys.executable], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    assert result.stderr.startswith("Error: Listing transactions: not done within")
    assert result.stderr.count("\n") == result.returncode == 1


def test_a_unit_that_does_not_exist_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=7d\nlog.segment.bytes=512MiB\nlog.roll.ms=1y\n")
    status, said = odradek("serve", "--config", str(file))
    assert status == 1
    assert "line 3: '1y' is no duration: the units are ms, s, m" in said


def test_a_config_file_with_a_mistake_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# Kafka's\nnum.partitions=3\nnum.partitions\n")
    status, said = odradek("serve", "--config", str(file))
    assert status == 1
    assert "line 3" in said


def test_kafkas_own_file_serves_with_one_line_about_what_is_ignored(tmp_path: Path) -> None:
    stock = Path(__file__).parent / "config" / "stock.properties"
    where = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    with serve(*where, "--config", str(stock), "--ignore-unknown") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("odradek serves 127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    ignored, *_ = err.splitlines()
    assert ignored.startswith("Ignored, for the broker has none such: process.roles, controller.")
    assert len([line for line in err.splitlines() if "none such" in line]) == 1


def test_the_listener_of_a_controller_is_left_out_with_the_rest_and_no_other() -> None:
    both = "listeners=INTERNAL://:9092,CONTROLLER://:9093"
    names = "controller.listener.names=CONTROLLER"
    protocols = "listener.security.protocol.map=CONTROLLER:PLAINTEXT"
    ignoring = ("serve", "--ignore-unknown", "--set", both, "--set", protocols)
    assert "for listener INTERNAL: add" in odradek(*ignoring, "--set", names)[1]
    assert "for listener INTERNAL: add" in odradek(*ignoring)[1]
    alone = ("serve", "--ignore-unknown", "--set", "listeners=CONTROLLER://:9093")
    assert "for listener CONTROLLER: add" in odradek(*alone)[1]


def test_a_broker_serves_with_the_largest_number_in_every_setting() -> None:
    largest = {
        name: max(
            setting.choices, key=int, default=str(limit if setting.high is None else setting.high)
        )
        for name, setting in broker_settings().items()
        if (limit := LARGEST.get(setting.type)) is not None
        and not name.endswith("replication.factor")
    }
    for name in ("heartbeat.interval", "min.heartbeat.interval"):  # less than a session's time
        largest[f"group.consumer.{name}.ms"] = str((1 << 31) - 2)
    with run_broker(config=largest) as broker, RawClient(broker) as client:
        create_topic(client, "t")
        answer = produce(client, "t", batch(b"x"))
    assert answer.error_code == ErrorCode.NONE


def test_help_is_there_in_both_spellings() -> None:
    assert odradek("-h") == odradek("--help")
    assert "--ephemeral" in odradek("serve", "-h")[1]


def test_the_version_is_said() -> None:
    status, said = odradek("--version")
    assert status == 0
    assert re.search(r"\d+\.\d+", said)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:1", ("::1", 1)),
        (":5", ("::", 5)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, "--listen") == address


@pytest.mark.parametrize(
    "text", ["", "x", "x:", "x:-1", "x:65536", "x:1.5", "x:٣", "x:" + "1" * 5000]
)
def test_other_texts_are_no_address(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(text, "--listen")


# real processes


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with run_broker(data_dir=tmp_path / "data") as broker:
        yield broker


@contextmanager
def serve(*arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """The command as a process, which does not outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek.broker", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_the_first_line_says_where_what_and_how(tmp_path: Path) -> None:
    with serve(
        "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--set", "log.flush=os"
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.fullmatch(
            rf"odradek serves 127\.0\.0\.1:\d+, data in {tmp_path}, log\.flush=os, "
            r"nothing to recover in \d+\.\d\d s\n",
            line,
        ), line
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0
        assert out == ""
        assert "stopping, as SIGINT asks for it" in err
        assert "Traceback" not in err


def test_it_stops_although_a_client_is_connected(broker: RunningBroker) -> None:
    with socket.create_connection((broker.host, broker.port)):
        assert broker.stop() == 0  # not killed, as one that waits for ever
    assert "Traceback" not in broker.log


def test_a_second_broker_on_the_same_directory_is_refused(broker: RunningBroker) -> None:
    with pytest.raises(BrokerDidNotStart) as refused, run_broker(data_dir=broker.data_dir):
        pass
    assert str(refused.value) == (
        f"Error: Another broker uses {broker.data_dir}; stop it, or choose another --data-dir.\n"
    )


def test_a_second_broker_on_the_same_port_is_refused(broker: RunningBroker) -> None:
    with pytest.raises(BrokerDidNotStart) as refused, run_broker(port=broker.port):
        pass
    assert str(refused.value) == (
        f"Error: {broker.address} cannot be listened on: Address already in use; "
        "choose another --listen.\n"
    )


def test_an_ephemeral_directory_goes_away() -> None:
    with serve("--listen", "127.0.0.1:0", "--ephemeral") as process:
        assert process.stdout is not None
        said = re.search(r"data in (\S+) \(goes away\)", process.stdout.readline())
        assert said is not None
        assert (Path(said[1]) / "cluster.meta").exists()
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)
        assert not Path(said[1]).exists()


def test_an_address_that_others_reach_is_warned_about(tmp_path: Path) -> None:
    with serve("--listen", "0.0.0.0:0", "--data-dir", str(tmp_path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert "there is no authentication" in err


def test_a_damaged_directory_is_refused_in_words(broker: RunningBroker) -> None:
    broker.stop()
    for name in ("cluster.meta", "cluster.meta.copy"):
        file = broker.data_dir / name
        data = file.read_bytes()
        file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(BrokerDidNotStart) as refused:
        broker.start()
    assert "cannot be read from byte 0 on" in str(refused.value)
    assert "odradek storage rebuild" in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_it_starts_again_on_the_same_port(broker: RunningBroker) -> None:
    port = broker.port
    broker.restart()
    assert broker.port == port
    broker.kill()
    broker.start()
    assert broker.port == port


def test_a_log_that_cannot_be_opened_keeps_no_other_from_being_served(
    broker: RunningBroker,
) -> None:
    with RawClient(broker) as client:
        create_topic(client, "t")
        produce(client, "t", batch(b"x"))
    broker.kill()
    shutil.rmtree(broker.data_dir / "t-0")
    (broker.data_dir / "t-0").write_text("not a directory")
    broker.start()
    with RawClient(broker) as client:
        refused = produce(client, "t", batch(b"x"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        create_topic(client, "u")
        assert produce(client, "u", batch(b"x")).error_code == ErrorCode.NONE
    assert "t-0 is offline" in broker.log
    assert "Traceback" not in broker.log
    assert (broker.data_dir / "t-0").read_text() == "not a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_refused_in_words(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BrokerDidNotStart) as refused, run_broker(data_dir=tmp_path):
        pass
    assert "cannot be written: Permission denied" in str(refused.value)
