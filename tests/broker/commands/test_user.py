"""`odradek user`: users are made by a broker or without one, and authenticate afterwards."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from odradek.broker.cli import main
from odradek.broker.security.plain import parse_hash
from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import Admin as TrioAdmin
from odradek.client.aio import Admin as AioAdmin
from odradek.client.blocking import Admin, AuthenticationFailed, Refused, ScramUser
from odradek.protocol.errors import ErrorCode
from tests.broker.test_hangup import Service
from tests.client.live import Run, name_of
from tests.cluster.test_network import wait_until

pytestmark = pytest.mark.slow
PASSWORD: Final = "secret, of ü"
BOTH: Final = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}


class SaslBroker(RunningBroker):
    """A broker whose only listener has SASL."""

    listener = "SASL_PLAINTEXT"


def options(user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": password,
    }


def odradek(*words: object, given: str = "", password: str = "") -> Result:
    environment = {"ODRADEK_USER_PASSWORD": password} if password else {}
    return CliRunner().invoke(main, [str(word) for word in words], input=given, env=environment)


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def run(odradek_address: str) -> Run:
    return Run(odradek_address)


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def first(tmp_path: Path, password_file: Path) -> Iterator[SaslBroker]:
    """A broker whose first user, alice, was made before it ever ran."""
    directory = tmp_path / "new" / "data"
    made = odradek(
        *("user", "create", "alice", "--data-dir", directory, "--password-file", password_file)
    )
    assert made.exit_code == 0, made.output
    assert made.output == "The user alice may authenticate by SCRAM-SHA-256 and SCRAM-SHA-512.\n"
    with run_broker(data_dir=directory, kind=SaslBroker) as broker:
        assert isinstance(broker, SaslBroker)
        yield broker


def test_the_first_user_is_made_before_the_broker_ever_runs(first: SaslBroker) -> None:
    for mechanism in BOTH:
        with Admin(first.address, **options("alice", PASSWORD, mechanism)) as admin:
            assert admin.describe_users() == [ScramUser("alice", BOTH)]
    with (
        pytest.raises(AuthenticationFailed),
        Admin(first.address, **options("alice", "other")) as admin,
    ):
        admin.describe_users()
    settings = {
        "bootstrap.servers": first.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    producer = confluent_kafka.Producer(settings)
    producer.produce("flights", b"1")
    assert producer.flush(60) == 0


def test_a_stopped_broker_gets_a_user_and_a_running_one_keeps_its_directory(
    first: SaslBroker,
) -> None:
    words = ("user", "create", "bob", "--data-dir", first.data_dir, "--json")
    held = odradek(*words, password="b")
    assert held.exit_code == 1
    assert "A broker uses" in held.output
    first.stop()
    assert lines(odradek(*words, password="b").output) == [{"user": "bob", "mechanisms": BOTH}]
    again = odradek(*words, password="c")
    assert again.exit_code == 1
    assert "There is a user 'bob'. --replace gives it the new password." in again.output
    file = first.data_dir.parent / "server.properties"
    file.write_text(f"log.dirs={first.data_dir}\n")
    other = ("user", "create", "bob", "--config", file, "--mechanism", "scram-sha-256")
    replaced = odradek(*other, "--replace", password="c")
    assert replaced.output == "The user bob may authenticate by SCRAM-SHA-256.\n"
    first.start()
    with Admin(first.address, **options("bob", "c", "SCRAM-SHA-256")) as admin:
        users = admin.describe_users()
    # Neither mechanism has the old password.
    assert users == [ScramUser("alice", BOTH), ScramUser("bob", {"SCRAM-SHA-256": 4096})]


def test_a_directory_that_is_no_brokers_gets_no_metadata(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("x")
    refused = odradek("user", "create", "alice", "--data-dir", tmp_path, password="a")
    assert refused.exit_code == 1
    assert "no broker has used it" in refused.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["letter.txt"]


def test_users_are_made_listed_changed_and_deleted_at_a_broker(run: Run) -> None:
    name = name_of("user")
    typed = f"{PASSWORD}\n{PASSWORD}\n"
    said = run.said("user", "create", name, "--json", given=typed)
    assert lines(said) == [{"user": name, "mechanisms": BOTH}]
    refused = run("user", "create", name, given=typed)
    assert refused.exit_code == 1
    assert f"There is a user '{name}'. --replace gives it the new password." in refused.output
    words = ("user", "create", name, "--replace", "--mechanism", "SCRAM-SHA-512")
    run.said(*words, "--iterations", "8192", "--password-file", "-", given="other\n")
    expected = {"user": name, "mechanisms": {"SCRAM-SHA-512": 8192}}
    assert lines(run.said("user", "list", name, "--json")) == [expected]
    table = run.said("user", "list", name).splitlines()
    assert [line.split() for line in table] == [
        ["user", "mechanism", "iterations"],
        [name, "SCRAM-SHA-512", "8192"],
    ]
    assert expected in lines(run.said("user", "list", "--json"))
    left = run.said("user", "delete", name, "--json")
    assert lines(left) == [{"user": name, "mechanisms": {}}]
    gone = run("user", "delete", name)
    assert gone.exit_code == 1
    assert "credential that does not exist" in gone.output
    missing = run("user", "list", name)
    assert missing.exit_code == 1
    assert f"There is no user '{name}'." in missing.output


def test_one_mechanism_of_a_user_is_deleted(run: Run) -> None:
    name = name_of("user")
    run.said("user", "create", name, given="a\na\n")
    said = run.said("user", "delete", name, "--mechanism", "SCRAM-SHA-256")
    assert said == f"The user {name} may still authenticate by SCRAM-SHA-512.\n"
    assert run.said("user", "delete", name) == f"The user {name} is deleted.\n"


@pytest.mark.parametrize(
    ("words", "given", "message"),
    [
        (("create", "", "--password-file", "-"), "a\n", "A name has 1 to 1024 characters."),
        (("create", "a", "--password-file", "-"), "", "it has not one line, with the password"),
        (("create", "a", "--password-file", "-"), "a\nb\n", "it has not one line"),
        (("create", "a", "--iterations", "4095"), "", "4095 is not in the range"),
        (("hash", "#a", "--password-file", "-"), "a\n", "A name in this file is one line"),
        (("hash", "a\nb", "--password-file", "-"), "a\n", "A name in this file is one line"),
        (("hash", "", "--password-file", "-"), "a\n", "A name in this file is one line"),
    ],
)
def test_a_slip_of_the_command_line_is_named(
    words: tuple[str, ...], given: str, message: str
) -> None:
    result = odradek("user", *words, given=given)
    assert result.exit_code == 2
    assert message in result.output


def test_files_of_secrets_that_every_user_can_read_have_a_line_of_warning(tmp_path: Path) -> None:
    file, users = tmp_path / "password", tmp_path / "users"
    file.write_text(PASSWORD)
    words = ("user", "hash", "alice", "--password-file", file)
    for mode, count in ((0o644, 1), (0o640, 0)):
        file.chmod(mode)
        result = odradek(*words)
        assert result.exit_code == 0
        said = f"Warning: {file} has a secret, and its mode lets every user of this machine read"
        assert result.stderr.count(said) == count
        users.write_text(result.stdout)
    config = {"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.users.file": str(users)}
    for mode, count in ((0o644, 1), (0o600, 0)):
        users.chmod(mode)
        with run_broker(config=config, kind=SaslBroker) as broker:
            assert broker.log.count(f"{users} has a secret, and its mode lets every user") == count


def test_a_password_is_not_asked_for_without_a_terminal() -> None:
    """getpass warned twice, of a line in itself, and took what came on standard input."""
    command = (sys.executable, "-m", "odradek.broker", "user", "hash", "alice")
    done = subprocess.run(
        command, input="a\na\n", capture_output=True, text=True, start_new_session=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "\nError: There is no terminal to ask for the password: give --password-file (- is "
        "standard input) or set ODRADEK_USER_PASSWORD.\n"
    )
    assert "GetPassWarning" not in done.stderr


def test_a_password_is_no_argument() -> None:
    for command in ("create", "hash"):
        result = odradek("user", command, "alice", "--password", "secret")
        assert result.exit_code == 2
        assert "No such option" in result.output


def test_a_hash_is_a_line_of_the_file_of_plain(tmp_path: Path) -> None:
    line = odradek("user", "hash", "al:ice", password=PASSWORD).output
    name, _, hashed = line.strip().partition(":$")
    assert name == "al:ice"
    assert parse_hash(f"${hashed}").is_of(PASSWORD)
    (facts,) = lines(odradek("user", "hash", "bob", "--json", password="b").output)
    assert facts["user"] == "bob"
    file = tmp_path / "users"
    file.write_text(f"{line}{facts['line']}\n")
    config = {"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.users.file": str(file)}
    with run_broker(config=config, kind=SaslBroker) as broker:
        for user, password in (("al:ice", PASSWORD), ("bob", "b")):
            with Admin(broker.address, **options(user, password, "PLAIN")) as admin:
                assert admin.list_topics() == []


class SaslService(SaslBroker):
    """One without a terminal: SIGHUP has it read its files anew."""

    command = Service.command


def test_sighup_and_a_change_of_the_setting_take_the_users_of_plain_anew(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(odradek("user", "hash", "alice", password="a").output)
    config = {"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.users.file": str(file)}
    with run_broker(config=config, kind=SaslService) as broker:
        file.write_text(odradek("user", "hash", "bob", password="b").output)
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "1 users of PLAIN in its file: 1 are new" in broker.log)
        with (
            pytest.raises(AuthenticationFailed),
            Admin(broker.address, **options("alice", "a", "PLAIN")) as admin,
        ):
            admin.list_topics()
        file.write_text("carol:secret")
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: f"keeps its 1 users of PLAIN of before: {file}, line 1: " in broker.log)
        name = "listener.name.sasl_plaintext.sasl.plain.users.file"
        with Admin(broker.address, **options("bob", "b", "PLAIN")) as admin:
            with pytest.raises(Refused, match=r"Nothing was changed: .*, line 1: it is not NAME:H"):
                admin.alter_broker_configs(1, {name: str(file)})
            file.write_text(odradek("user", "hash", "carol", password="c").output)
            admin.alter_broker_configs(1, {name: str(file)})
        with Admin(broker.address, **options("carol", "c", "PLAIN")) as admin:
            assert admin.list_topics() == []
        assert "Traceback" not in broker.log, broker.log


def test_a_refused_user_raises_with_its_reason(odradek_address: str) -> None:
    with Admin(odradek_address) as admin:
        with pytest.raises(Refused, match="Too few iterations") as caught:
            admin.set_password("u", "secret", iterations=100)
        assert caught.value.code == ErrorCode.UNACCEPTABLE_CREDENTIAL
        with pytest.raises(ValueError, match="a password is not empty"):
            admin.set_password("u", "")
        with pytest.raises(ValueError, match="the mechanisms of SCRAM are"):
            admin.set_password("u", "secret", mechanisms=["PLAIN"])


async def test_the_trio_client_makes_and_deletes_users(odradek_address: str) -> None:
    name = name_of("user")
    async with TrioAdmin(odradek_address) as admin:
        await admin.set_password(name, PASSWORD, mechanisms=["SCRAM-SHA-512"])
        assert await admin.describe_users(name) == [ScramUser(name, {"SCRAM-SHA-512": 4096})]
        await admin.delete_user(name)
        assert await admin.describe_users(name) == []


def test_the_asyncio_client_makes_and_deletes_users(odradek_address: str) -> None:
    name = name_of("user")

    async def change() -> None:
        async with AioAdmin(odradek_address) as admin:
            await admin.set_password(name, PASSWORD)
            assert await admin.describe_users(name) == [ScramUser(name, BOTH)]
            await admin.delete_user(name)

    asyncio.run(change())
