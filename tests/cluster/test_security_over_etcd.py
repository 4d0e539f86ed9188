"""`odradek user` and `odradek security` over a real etcd, beside a broker that runs."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from odradek.broker.cli import main
from odradek.broker.cluster.store_embedded import NAMES
from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import (
    Acl,
    Admin,
    AuthenticationFailed,
    NewTopic,
    OdradekError,
    Producer,
    ScramUser,
)
from tests.cluster.test_network import wait_until
from tests.peers.etcd_server import RealEtcd
from tests.peers.kafka import free_ports
from tests.secured_broker import AUTHORIZER

pytestmark = [pytest.mark.peers, pytest.mark.slow]

BOTH: Final = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
TOPIC: Final = "flights"
ALICE: Final = Acl("topic", TOPIC, "User:alice", "write")
CLOSED: Final = "everything is denied to everybody but super users"


class TwoListeners(RunningBroker):
    """A broker of a cluster: other brokers reach it without, and clients with passwords."""

    @property
    def listening(self) -> Sequence[str]:
        return ()


def settings(etcd: RealEtcd, prefix: str) -> dict[str, str]:
    inside, clients, peers = free_ports(3)
    return {
        "listeners": f"CLIENTS://127.0.0.1:{clients},INSIDE://127.0.0.1:{inside}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "inter.broker.listener.port": str(peers),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "etcd.endpoints": ",".join(etcd.endpoints),
        "etcd.key.prefix": prefix,
    }


@contextmanager
def broker(config: dict[str, str], data_dir: Path) -> Iterator[str]:
    """Run the broker. Return the address for clients."""
    with run_broker(data_dir=data_dir, config=config, kind=TwoListeners) as running:
        yield config["listeners"].partition(",")[0].removeprefix("CLIENTS://")
        assert "Traceback" not in running.log, running.log


def at(etcd: RealEtcd, prefix: str) -> tuple[str, ...]:
    """Return the options that name the metadata of a cluster."""
    return "--etcd", ",".join(etcd.endpoints), "--set", f"etcd.key.prefix={prefix}"


def odradek(*words: object, password: str = "") -> Result:
    environment = {"ODRADEK_USER_PASSWORD": password} if password else {}
    return CliRunner().invoke(main, [str(word) for word in words], env=environment)


def done(*words: object, password: str = "") -> str:
    result = odradek(*words, password=password)
    assert result.exit_code == 0, result.output
    return result.stdout


def options(user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": password,
    }


def may_write(address: str, user: str, password: str) -> bool:
    try:
        with Producer(address, **options(user, password)) as producer:
            producer.send(TOPIC, b"1").result()
    except OdradekError:
        return False
    return True


def may_enter(address: str, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    try:
        with Admin(address, **options(user, password, mechanism)) as admin:
            admin.list_topics()
    except AuthenticationFailed:
        return False
    return True


def test_the_first_user_of_a_cluster_is_made_in_etcd_and_changed_while_its_broker_runs(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    prefix = "/users"
    create = ("user", "create", "admin", *at(real_etcd, prefix))
    made = json.loads(done(*create, "--json", password="first"))
    assert made == {"user": "admin", "mechanisms": BOTH}
    again = odradek(*create, password="second")
    assert again.exit_code == 1
    assert "--replace" in again.output
    with broker(settings(real_etcd, prefix), tmp_path / "data") as address:
        for mechanism in BOTH:
            with Admin(address, **options("admin", "first", mechanism)) as admin:
                assert admin.describe_users() == [ScramUser("admin", BOTH)]
        done(*create, "--replace", "--mechanism", "scram-sha-512", password="second")
        wait_until(lambda: may_enter(address, "admin", "second"))
        assert not may_enter(address, "admin", "first")
        assert not may_enter(address, "admin", "first", "SCRAM-SHA-256"), "no mechanism keeps it"
        file = tmp_path / "admin.properties"
        file.write_text(
            f"bootstrap.servers={address}\nsecurity.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=org.apache.kafka.common.security."
            'scram.ScramLoginModule required username="admin" password="second";\n'
        )
        file.chmod(0o600)
        asked = ("--command-config", file)
        done("user", "create", "alice", *asked, password="of alice")
        assert may_enter(address, "alice", "of alice")
        listed = [json.loads(each) for each in done("user", "list", "--json", *asked).splitlines()]
        assert listed == [
            {"user": "admin", "mechanisms": {"SCRAM-SHA-512": 4096}},
            {"user": "alice", "mechanisms": BOTH},
        ]
        done("user", "delete", "alice", *asked)
        assert not may_enter(address, "alice", "of alice")


def make_admin(etcd: RealEtcd, prefix: str, address: str) -> None:
    done("user", "create", "admin", *at(etcd, prefix), password="of admin")
    wait_until(lambda: may_enter(address, "admin", "of admin"))


def fill(address: str) -> None:
    """Make a topic, and the user alice, who may write to it, with a quota."""
    with Admin(address, **options("admin", "of admin")) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
        admin.set_password("alice", "of alice")
        admin.create_acls([ALICE])
        admin.alter_quotas({"producer_byte_rate": 1e9}, user="alice")


def check_filled(address: str) -> None:
    assert may_write(address, "alice", "of alice")
    with Admin(address, **options("admin", "of admin")) as admin:
        assert admin.describe_acls() == [ALICE]
        (quota,) = admin.describe_quotas()
        assert (quota.user, quota.values) == ("alice", {"producer_byte_rate": 1e9})


def keys_of(file: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(file.read_text())["keys"]
    return found


def test_what_was_exported_from_one_etcd_comes_back_into_another(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    before, after, file = "/exported", "/imported", tmp_path / "security.json"
    with broker(settings(real_etcd, before), tmp_path / "before") as address:
        make_admin(real_etcd, before, address)
        fill(address)
        check_filled(address)
        done("security", "export", file, *at(real_etcd, before))
        assert {key.split("/")[1] for key in keys_of(file)} == {
            "acls",
            "users",
            "quotas",
            "secrets",
        }
        # In the same cluster nothing changes; what was made since goes with --replace only.
        back = ("security", "import", file, *at(real_etcd, before), "--json")
        assert json.loads(done(*back))["changed"] == 0
        with Admin(address, **options("admin", "of admin")) as admin:
            admin.set_password("eve", "of eve")
        refused = odradek(*back)
        assert refused.exit_code == 1
        assert "--replace" in refused.output
        assert may_enter(address, "eve", "of eve")
        assert json.loads(done(*back, "--replace"))["changed"] == 1
        wait_until(lambda: not may_enter(address, "eve", "of eve"))
        check_filled(address)
    # The etcd is lost: another one, with another cluster, has the users, entries and quotas again.
    with broker(settings(real_etcd, after), tmp_path / "after") as address:
        make_admin(real_etcd, after, address)
        with Admin(address, **options("admin", "of admin")) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        assert not may_enter(address, "alice", "of alice")
        back = ("security", "import", file, *at(real_etcd, after), "--replace")
        refused = odradek(*back)
        assert refused.exit_code == 1
        assert "--other-cluster" in refused.output
        done(*back, "--other-cluster")
        wait_until(lambda: may_write(address, "alice", "of alice"))
        check_filled(address)
        again = tmp_path / "again.json"
        done("security", "export", again, *at(real_etcd, after))
        assert keys_of(again) == keys_of(file)


def test_a_rebuilt_broker_that_was_adopted_is_closed_until_an_import_over_etcd(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    prefix, data_dir, file = "/rebuilt", tmp_path / "data", tmp_path / "security.json"
    config = settings(real_etcd, prefix)
    alone = {
        name: value
        for name, value in config.items()
        if not name.startswith(("etcd.", "inter.broker."))
    }
    done("user", "create", "admin", "--data-dir", data_dir, password="of admin")
    with broker(alone, data_dir) as address:
        fill(address)
        check_filled(address)
    done("security", "export", file, "--data-dir", data_dir)
    for name in NAMES:
        (data_dir / name).unlink()
    done("storage", "rebuild", data_dir)
    done("cluster", "adopt", "--data-dir", data_dir, *at(real_etcd, prefix))
    with broker(config, data_dir) as address:
        assert not may_enter(address, "admin", "of admin"), "there are no users"
        assert done("security", "import", file, *at(real_etcd, prefix)).startswith("Done: ")
        wait_until(lambda: may_write(address, "alice", "of alice"))
        check_filled(address)


def test_without_an_import_a_rebuilt_broker_that_was_adopted_lets_nobody_write(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    prefix, data_dir = "/closed", tmp_path / "data"
    config = settings(real_etcd, prefix)
    config["allow.everyone.if.no.acl.found"] = "true"
    alone = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with run_broker(data_dir=data_dir, config=alone) as running, Admin(running.address) as admin:
        admin.create_topic(TOPIC, partitions=1)
    for name in NAMES:
        (data_dir / name).unlink()
    done("storage", "rebuild", data_dir)
    done("cluster", "adopt", "--data-dir", data_dir, *at(real_etcd, prefix))
    done("user", "create", "alice", *at(real_etcd, prefix), password="of alice")
    with run_broker(data_dir=data_dir, config=config, kind=TwoListeners) as running:
        assert CLOSED in running.log
        address = config["listeners"].partition(",")[0].removeprefix("CLIENTS://")
        assert may_enter(address, "alice", "of alice")
        assert not may_write(address, "alice", "of alice")
