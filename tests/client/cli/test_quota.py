"""`odradek quota`, and the calls of `Admin` behind it."""

import json
from typing import Any

import pytest

from odradek.client import Admin as TrioAdmin
from odradek.client.aio import Admin as AioAdmin
from odradek.client.blocking import Admin, Quotas, Refused
from odradek.protocol.errors import ErrorCode
from tests.client.live import Run, name_of


@pytest.fixture
def run(odradek_address: str) -> Run:
    return Run(odradek_address)


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_quotas_are_set_listed_and_removed(run: Run) -> None:
    user = name_of("user")
    whose = ("--user", user)
    said = run.said("quota", "set", *whose, "producer_byte_rate=1MiB", "--json")
    expected = {"user": user, "client_id": None, "ip": None}
    assert lines(said) == [{**expected, "quotas": {"producer_byte_rate": 2**20}}]
    run.said("quota", "set", *whose, "request_percentage=12.5")
    run.said("quota", "set", *whose, "--default-client-id", "consumer_byte_rate=5000")
    both = [
        {**expected, "quotas": {"producer_byte_rate": 2**20, "request_percentage": 12.5}},
        {**expected, "client_id": "", "quotas": {"consumer_byte_rate": 5000}},
    ]
    assert lines(run.said("quota", "list", *whose, "--json")) == both
    table = run.said("quota", "list", *whose).splitlines()
    assert [line.split() for line in table] == [
        ["user", "client", "id", "ip", "quota", "in", "a", "second"],
        [user, "producer_byte_rate", "1048576"],
        [user, "request_percentage", "12.5"],
        [user, "(default)", "consumer_byte_rate", "5000"],
    ]
    left = run.said("quota", "remove", *whose, "producer_byte_rate", "--json")
    assert lines(left) == [{**expected, "quotas": {"request_percentage": 12.5}}]
    assert run.said("quota", "remove", *whose) == "no quotas\n"
    assert lines(run.said("quota", "list", *whose, "--json")) == both[1:]
    run.said("quota", "remove", *whose, "--default-client-id")
    assert run.said("quota", "list", *whose) == "no quotas\n"


def test_the_quota_of_an_address_is_checked_and_not_set_by_a_dry_run(run: Run) -> None:
    whose = ("--ip", "203.0.113.77")
    said = run.said("quota", "set", *whose, "connection_creation_rate=10", "--dry-run")
    assert said == "possible; nothing was changed\n"
    assert run.said("quota", "list", *whose) == "no quotas\n"
    refused = run("quota", "set", "--ip", "no.address", "connection_creation_rate=10", "--dry-run")
    assert refused.exit_code == 1
    assert "no.address is not a valid IP" in refused.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "producer_byte_rate=1"), "Say whose quotas"),
        (("remove",), "Say whose quotas"),
        (("set", "--user", "u", "producer_byte_rate"), "is no NAME=VALUE"),
        (("set", "--user", "u", "byte_rate=1"), "is no NAME=VALUE"),
        (
            ("set", "--user", "u", "producer_byte_rate=fast"),
            "producer_byte_rate takes a number or a size such as 1MiB, not 'fast'.",
        ),
        (
            ("set", "--user", "u", "request_percentage=1%"),
            "request_percentage takes a number, not '1%'.",
        ),
        (("set", "--user", "u", "producer_byte_rate=1XB"), "producer_byte_rate: '1XB' is no size"),
        (("set", "--user", "u", "--default-user", "producer_byte_rate=1"), "--default-user"),
        (("list", "--user", ""), "A name is not empty."),
    ],
)
def test_a_slip_of_the_command_line_is_named(
    run: Run, words: tuple[str, ...], message: str
) -> None:
    result = run("quota", *words)
    assert result.exit_code == 2
    assert message in result.output


def test_what_is_not_there_cannot_be_removed(run: Run) -> None:
    user = name_of("user")
    result = run("quota", "remove", "--user", user)
    assert result.exit_code == 1
    assert "There is no such quota." in result.output
    run.said("quota", "set", "--user", user, "producer_byte_rate=9000000")
    result = run("quota", "remove", "--user", user, "request_percentage")
    assert result.exit_code == 1
    assert "There is no such quota: request_percentage" in result.output
    run.said("quota", "remove", "--user", user)


def test_a_refused_quota_raises_with_its_reason(odradek_address: str) -> None:
    with (
        Admin(odradek_address) as admin,
        pytest.raises(Refused, match="must be greater than 0") as caught,
    ):
        admin.alter_quotas({"producer_byte_rate": 0.0}, user="u")
    assert caught.value.code == ErrorCode.INVALID_REQUEST


async def test_the_trio_client_sets_and_describes_quotas(odradek_address: str) -> None:
    client_id = name_of("id")
    async with TrioAdmin(odradek_address) as admin:
        await admin.alter_quotas({"request_percentage": 900.0}, client_id=client_id)
        expected = [Quotas(None, client_id, None, {"request_percentage": 900.0})]
        assert await admin.describe_quotas(client_id=client_id) == expected
        await admin.alter_quotas({"request_percentage": None}, client_id=client_id)
        assert await admin.describe_quotas(client_id=client_id) == []


def test_the_asyncio_client_sets_and_describes_quotas(odradek_address: str) -> None:
    import asyncio

    client_id = name_of("id")

    async def change() -> None:
        async with AioAdmin(odradek_address) as admin:
            await admin.alter_quotas({"request_percentage": 900.0}, client_id=client_id)
            expected = [Quotas(None, client_id, None, {"request_percentage": 900.0})]
            assert await admin.describe_quotas(client_id=client_id) == expected
            await admin.alter_quotas({"request_percentage": None}, client_id=client_id)

    asyncio.run(change())
