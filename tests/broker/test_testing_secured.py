"""What users test with: a broker with passwords, TLS and access control in one line."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest

from odradek.broker.testing import SecuredBroker, run_secured_broker
from odradek.client import AuthenticationFailed, Refused
from odradek.client.blocking import Acl, Admin, Producer

USERS: Final = {"admin": "of ad;min", "alice": 'of "al\\ice" é'}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    with run_secured_broker(USERS, super_users=["admin"]) as broker:
        with Admin(broker.address, **broker.options("admin")) as admin:
            admin.create_topic("t", partitions=1)
            admin.create_acls([Acl("topic", "t", "User:alice", "write")])
        yield broker


def test_a_user_may_do_what_a_super_user_has_allowed(secured: SecuredBroker) -> None:
    with Producer(secured.address, **secured.options("alice")) as producer:
        producer.send("t", b"x").result()
    with Admin(secured.address, **secured.options("alice")) as admin, pytest.raises(Refused):
        admin.create_topic("another", partitions=1)


def test_other_clients_take_the_settings_that_they_know(secured: SecuredBroker) -> None:
    producer = confluent_kafka.Producer(secured.librdkafka("alice"))
    failed: list[object] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]


def test_commands_take_them_from_a_file(secured: SecuredBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    lines = [f"{name}={value}" for name, value in secured.properties("alice").items()]
    file.write_text("\n".join(lines).replace("\\", "\\\\"))
    command = [sys.executable, "-m", "odradek.broker", "topic", "list"]
    ran = subprocess.run(
        [*command, "--command-config", str(file)], capture_output=True, text=True, timeout=120
    )
    assert "t" in ran.stdout.split(), ran.stderr


def test_a_wrong_password_is_refused(secured: SecuredBroker) -> None:
    given = {**secured.options("alice"), "sasl_password": "another"}
    with Admin(secured.address, **given) as admin, pytest.raises(AuthenticationFailed):
        admin.list_topics()


def test_users_of_scram_have_their_passwords_from_the_start(tmp_path: Path) -> None:
    both = ("SCRAM-SHA-512", "SCRAM-SHA-256")
    with run_secured_broker(
        USERS, super_users=["admin"], mechanisms=both, data_dir=tmp_path
    ) as broker:
        assert broker.options("admin")["sasl_mechanism"] == "SCRAM-SHA-512"
        for mechanism in both:
            with Admin(broker.address, **broker.options("admin", mechanism)) as admin:
                admin.create_topic(mechanism, partitions=1)
            librdkafka = confluent_kafka.Consumer(
                {**broker.librdkafka("admin", mechanism), "group.id": "g"}
            )
            assert mechanism in librdkafka.list_topics(timeout=60).topics
            librdkafka.close()
        with (
            Admin(broker.address, **broker.options("alice")) as admin,
            pytest.raises(Refused, match=r"(?i)authoriz"),
        ):
            admin.create_topic("another", partitions=1)
        # The user that has made them has no way in.
        with (
            Admin(broker.address, **broker.options("admin", "PLAIN")) as admin,
            pytest.raises(AuthenticationFailed, match="has no SASL mechanism PLAIN"),
        ):
            admin.list_topics()


def test_a_mechanism_that_it_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="mechanisms are some of PLAIN, SCRAM-SHA-256, SCRAM-SHA"):
        run_secured_broker(USERS, mechanisms=["GSSAPI"]).__enter__()


def test_no_argument_of_its_process_has_a_password(secured: SecuredBroker) -> None:
    arguments = Path(f"/proc/{secured.process.pid}/cmdline").read_bytes().decode()
    assert not any(password in arguments for password in USERS.values())


def test_its_secrets_go_away_with_the_block() -> None:
    with run_secured_broker({"alice": "secret"}) as broker:
        file = broker.certificate
        assert file.exists()
    assert not file.parent.exists()
