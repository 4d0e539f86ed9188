"""`odradek acl`, and the calls of `Admin` behind it, on a broker with access control."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import Admin as TrioAdmin
from odradek.client.aio import Admin as AioAdmin
from odradek.client.blocking import AccessDecision, Acl, Admin, Refused
from odradek.protocol.errors import ErrorCode
from tests.client.live import Run, name_of
from tests.secured_broker import ANONYMOUS, HERE, secured_broker

ALICE = "User:alice"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker
        assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def run(broker: RunningBroker) -> Run:
    return Run(broker.address)


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_an_entry_is_added_listed_and_removed(run: Run) -> None:
    topic = name_of("topic")
    added = run.said(
        *("acl", "add", "--topic", topic, "--principal", ALICE, "--json"),
        *("--operation", "read", "--operation", "WRITE"),
    )
    expected = [
        {
            "resource": "topic",
            "name": topic,
            "pattern": "literal",
            "principal": ALICE,
            "host": "*",
            "operation": operation,
            "permission": "allow",
            "never_counts": None,
        }
        for operation in ("read", "write")
    ]
    assert lines(added) == expected
    again = run.said(*("acl", "add", "--topic", topic, "--principal", ALICE, "--operation", "read"))
    assert topic in again
    assert lines(run.said("acl", "list", "--topic", topic, "--json")) == expected
    removed = run.said(
        *("acl", "remove", "--topic", topic, "--operation", "write", "--yes", "--json")
    )
    assert lines(removed) == expected[1:]
    assert lines(run.said("acl", "list", "--topic", topic, "--json")) == expected[:1]
    asked = run("acl", "remove", "--topic", topic, given="n\n")
    assert asked.exit_code == 1
    assert "nothing was done" in asked.output.lower()
    assert run("acl", "remove", "--topic", topic, given="y\n").exit_code == 0
    assert run.said("acl", "list", "--topic", topic) == "no entries\n"
    nothing = run("acl", "remove", "--topic", topic, "--yes")
    assert nothing.exit_code == 1
    assert "There is no such entry." in nothing.output


def test_why_names_the_entry_that_decides(run: Run) -> None:
    topic = name_of("topic")

    def why(*more: str) -> str:
        return run.said(
            *("acl", "why", "--principal", ALICE, "--operation", "read", "--topic", topic), *more
        )

    assert why() == "denied: there are entries about the resource, and none of them allows it\n"
    run.said(
        *("acl", "add", "--topic", topic[:-1], "--prefixed", "--principal", ALICE),
        *("--operation", "read"),
    )
    allowing = f"allow {ALICE} at * read on topics beginning with {topic[:-1]}"
    assert why() == f"allowed: the entry {allowing} decides\n"
    run.said(
        *("acl", "add", "--topic", topic, "--principal", "User:*", "--operation", "all"),
        *("--host", "10.0.0.7", "--deny"),
    )
    assert why() == f"allowed: the entry {allowing} decides\n"
    denying = f"deny User:* at 10.0.0.7 all on topic {topic}"
    assert why("--host", "10.0.0.7") == f"denied: the entry {denying} decides\n"
    [decision] = lines(why("--host", "10.0.0.7", "--json"))
    assert decision["allowed"] is False
    assert decision["reason"] == "entry"
    assert decision["entry"]["permission"] == "deny"


def test_an_entry_that_can_never_count_is_marked(run: Run) -> None:
    group = name_of("group")
    for principal, host in ((ALICE, "localhost"), ("Group:admins", "*")):
        run.said(
            *("acl", "add", "--group", group, "--principal", principal, "--host", host),
            *("--operation", "read"),
        )
    listed = run.said("acl", "list", "--group", group)
    assert "never counts: the host is no address" in listed
    assert "never counts: principals are User:NAME" in listed


def test_a_host_chooses_the_entries_that_name_it(run: Run) -> None:
    """The help said that an address chooses the entries for every host, too."""
    topic = name_of("topic")
    for host in ("10.0.0.8", "*"):
        run.said(
            *("acl", "add", "--topic", topic, "--principal", ALICE, "--operation", "read"),
            *("--host", host),
        )
    for host in ("10.0.0.8", "*"):
        listed = lines(run.said("acl", "list", "--topic", topic, "--host", host, "--json"))
        assert [each["host"] for each in listed] == [host]
    shown = " ".join(run.said("acl", "list", "--help").split())
    assert "Only entries whose host is exactly this; * for those of every host." in shown


def test_what_a_command_lacks_is_said(run: Run) -> None:
    add = ("acl", "add", "--principal", ALICE, "--operation", "read")
    assert "Name one of --topic and --group" in run(*add).output
    assert "Name one of" in run(*add, "--topic", "t", "--group", "g").output
    assert "Choose entries by" in run("acl", "remove", "--yes").output
    for pattern in ("any", "match", "literal", "prefixed"):
        refused = run("acl", "remove", "--pattern", pattern, "--yes")
        assert refused.exit_code == 2
        assert "Choose entries by" in refused.output
    wrong = run("acl", "add", "--topic", "t", "--principal", "alice", "--operation", "read")
    assert "has the form User:NAME" in wrong.output


async def test_the_calls_are_the_same_in_all_clients(broker: RunningBroker) -> None:
    name = f"{name_of('topic')}-own"
    acl = Acl("topic", name, ALICE, "write", "deny", "10.0.0.7", "prefixed")
    async with TrioAdmin(broker.address) as admin:
        await admin.create_acls([acl])
        assert await admin.describe_acls(principal=ALICE, host="10.0.0.7") == [acl]
        assert await admin.describe_acls(resource="topic", name=f"{name}-x") == []
        found = await admin.describe_acls(
            resource="topic", name=f"{name}-x", pattern="match", host="10.0.0.7"
        )
        assert found == [acl]
        decision = await admin.explain_access(ALICE, "write", "topic", f"{name}-x", host="10.0.0.7")
        assert decision == AccessDecision(False, "entry", acl)
        assert await admin.delete_acls(name=name, permission="deny") == [acl]
        with pytest.raises(ValueError, match="'reed' is none of"):
            await admin.create_acls([acl._replace(operation="reed")])  # type: ignore[arg-type]


def test_the_blocking_client_explains_access(broker: RunningBroker) -> None:
    with Admin(broker.address) as admin:
        decision = admin.explain_access(ANONYMOUS, "alter", "cluster", host=HERE)
        assert decision.is_allowed
        assert decision.acl == Acl("cluster", "kafka-cluster", ANONYMOUS, "all", host=HERE)
        assert not admin.explain_access(ANONYMOUS, "alter", "cluster", host="127.0.0.2").is_allowed


def test_the_asyncio_client_has_the_calls(broker: RunningBroker) -> None:
    import asyncio

    async def listed() -> list[Acl]:
        async with AioAdmin(broker.address) as admin:
            return await admin.describe_acls(resource="cluster")

    assert asyncio.run(listed()) == [Acl("cluster", "kafka-cluster", ANONYMOUS, "all", host=HERE)]


def test_without_an_authoriser_the_calls_say_so() -> None:
    with run_broker() as broker, Admin(broker.address) as admin:
        with pytest.raises(Refused, match="the broker has no access control") as found:
            admin.describe_acls()
        assert found.value.code is ErrorCode.SECURITY_DISABLED


def test_entries_are_there_again_after_a_restart_and_a_kill(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        acls = [Acl("topic", f"t{n}/% ä", ALICE, "read") for n in range(3)]
        with Admin(broker.address) as admin:
            admin.create_acls(acls)
        broker.kill()
        broker.start()
        with Admin(broker.address) as admin:
            assert admin.describe_acls(principal=ALICE) == acls
            # CVE-2024-27309: of several entries one is removed, and the others count still
            assert admin.delete_acls(name=acls[1].name) == [acls[1]]
        broker.kill()
        broker.start()
        with Admin(broker.address) as admin:
            assert admin.describe_acls(principal=ALICE) == [acls[0], acls[2]]
            for acl in acls:
                decision = admin.explain_access(ALICE, "read", "topic", acl.name)
                assert decision.is_allowed is (acl is not acls[1])
