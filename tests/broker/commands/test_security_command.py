"""`odradek security`: what is in no log is written to a file, and comes back after a loss."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.broker.cli import main
from odradek.broker.cluster.store_embedded import NAMES
from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Acl, Admin, AuthenticationFailed, OdradekError, Producer
from tests.secured_broker import ANONYMOUS, AUTHORIZER

pytestmark = pytest.mark.slow
TOPIC = "flights"


class SaslBroker(RunningBroker):
    """A broker whose only listener has SASL."""

    listener = "SASL_PLAINTEXT"


def odradek(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def exported(file: Path, data_dir: Path) -> dict[str, object]:
    done = odradek("security", "export", file, "--data-dir", data_dir)
    assert done.exit_code == 0, done.output
    keys: dict[str, object] = json.loads(file.read_text())["keys"]
    return keys


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The directory of a broker that was stopped, with entries and a topic that has a record."""
    directory = tmp_path / "data"
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": ANONYMOUS}
    with run_broker(data_dir=directory, config=settings) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic(TOPIC, partitions=1)
            admin.create_acls(
                [
                    Acl("topic", TOPIC, ANONYMOUS, "write"),
                    Acl("topic", "ä/ü", "User:CN=bob,O=x", "read", permission="deny"),
                ]
            )
            admin.set_password("bob/ä", "secret", mechanisms=["SCRAM-SHA-512"])
        with Producer(broker.address) as producer:
            producer.send(TOPIC, b"1")
    return directory


def test_an_export_is_for_its_owner_only_and_replaces_no_file(
    data_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "security.json"
    keys = exported(file, data_dir)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    acls = sorted(key for key in keys if key.startswith("/acls/"))
    users = {key: value for key, value in keys.items() if key.startswith("/users/")}
    assert len(acls) == 2
    assert list(users) == ["/users/bob%2F%C3%A4/"]
    (credential,) = users.values()
    assert isinstance(credential, dict)
    assert credential["SCRAM-SHA-512"].keys() == {"salt", "stored", "server", "iterations"}
    other = tmp_path / "other.json"
    done = odradek("security", "export", other, "--data-dir", data_dir, "--json")
    assert json.loads(done.output) == {"file": str(other), "keys": len(keys)}
    done = odradek("security", "import", other, "--data-dir", data_dir, "--json")
    assert json.loads(done.output) == {"file": str(other), "keys": len(keys), "changed": 0}
    again = odradek("security", "export", file, "--data-dir", data_dir)
    assert again.exit_code == 1
    assert again.output == f"Error: {file}: File exists.\n"


def test_an_export_that_fails_leaves_no_file(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of an export would be taken for a whole one, and stand in the way of the next."""
    flush = os.fsync

    def full(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    file = tmp_path / "security.json"
    failed = odradek("security", "export", file, "--data-dir", data_dir)
    assert failed.exit_code == 1
    assert "No space left on device" in failed.output
    assert not file.exists()


def test_an_import_of_another_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """It showed Python's words for bytes that are not UTF-8."""
    file = tmp_path / "security.json"
    for content, why in ((b"\xff", "it is not UTF-8"), (b"[]", "list indices")):
        file.write_bytes(content)
        refused = odradek("security", "import", file, "--data-dir", tmp_path)
        assert refused.exit_code == 1
        said = f"Error: {file}: It is no document of odradek security export ({why}"
        assert refused.output.startswith(said)
        assert refused.output.endswith(").\n")


def test_an_import_from_another_cluster_is_an_option(data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "security.json"
    exported(file, data_dir)
    file.write_text(json.dumps({**json.loads(file.read_text()), "cluster": "another"}))
    refused = odradek("security", "import", file, "--data-dir", data_dir)
    assert refused.exit_code == 1
    assert "--other-cluster takes it all the same." in refused.output
    taken = odradek("security", "import", file, "--data-dir", data_dir, "--other-cluster")
    assert taken.exit_code == 0, taken.output


def test_after_a_rebuild_a_broker_is_closed_until_the_import(
    data_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "security.json"
    before = exported(file, data_dir)
    for name in NAMES:
        (data_dir / name).unlink()
    rebuilt = odradek("storage", "rebuild", data_dir)
    assert rebuilt.exit_code == 0, rebuilt.output
    assert "odradek security import" in rebuilt.output
    config = {"authorizer.class.name": AUTHORIZER}
    with run_broker(data_dir=data_dir, config=config) as broker:
        assert "everything is denied to everybody but super users" in broker.log
        with pytest.raises(OdradekError), Producer(broker.address) as producer:
            producer.send(TOPIC, b"2")
    done = odradek("security", "import", file, "--data-dir", data_dir)
    assert done.exit_code == 0, done.output
    with run_broker(data_dir=data_dir, config=config) as broker:
        assert "everything is denied" not in broker.log
        with Producer(broker.address) as producer:
            producer.send(TOPIC, b"2")
    assert exported(tmp_path / "after.json", data_dir) == before


def test_users_authenticate_again_after_a_rebuild_and_an_import(
    data_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "security.json"
    with run_broker(data_dir=data_dir, kind=SaslBroker):
        pass  # it has made the secret of the cluster
    assert "/secrets/cluster" in exported(file, data_dir)
    for name in NAMES:
        (data_dir / name).unlink()
    rebuilt = odradek("storage", "rebuild", data_dir)
    assert "Users, ACL entries and quotas are in no log." in rebuilt.output
    with run_broker(data_dir=data_dir, kind=SaslBroker) as broker:  # it makes another one
        options: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "bob/ä",
            "sasl_password": "secret",
        }
        with pytest.raises(AuthenticationFailed), Admin(broker.address, **options) as admin:
            admin.list_topics()
        broker.stop()
        done = odradek("security", "import", file, "--data-dir", data_dir)
        assert done.exit_code == 0, done.output
        broker.start()
        with Admin(broker.address, **options) as admin:
            assert TOPIC in admin.list_topics()


def test_an_import_removes_nothing_that_it_was_not_told_to(data_dir: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    before = exported(old, data_dir)
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": ANONYMOUS}
    with run_broker(data_dir=data_dir, config=settings) as broker, Admin(broker.address) as admin:
        admin.create_acls([Acl("group", "new", ANONYMOUS, "read")])
    refused = odradek("security", "import", old, "--data-dir", data_dir)
    assert refused.exit_code == 1
    assert "such as /acls/group/literal/new/. --replace removes them." in refused.output
    assert len(exported(tmp_path / "kept.json", data_dir)) == len(before) + 1
    done = odradek("security", "import", old, "--data-dir", data_dir, "--replace")
    assert done.exit_code == 0, done.output
    assert exported(tmp_path / "new.json", data_dir) == before


def test_what_is_no_export_is_one_sentence(data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    good = {"odradek": "security", "version": 1, "cluster": "c"}
    for document, sentence in (
        ("[1", "It is no document of odradek security export"),
        ([], "It is no document of odradek security export"),
        ({**good, "version": 2, "keys": {}}, "It is a document of version 2"),
        ({**good, "keys": {"/topics/x": {}}}, "has the key '/topics/x', which is no part"),
        ({**good, "keys": {"/acls/x": {}}}, "It is no document of odradek security export"),
    ):
        file.write_text(document if isinstance(document, str) else json.dumps(document))
        refused = odradek("security", "import", file, "--data-dir", data_dir)
        assert refused.exit_code == 1
        assert sentence in refused.output
        assert refused.exception is None or isinstance(refused.exception, SystemExit)
