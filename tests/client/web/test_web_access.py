"""What the page shows of users and rights, and what it says where a right is missing."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.testing import SecuredBroker, run_broker, run_secured_broker
from odradek.client.blocking import Acl, Admin, Producer
from tests.client.web.pages import ServedPage, served_page

pytestmark = pytest.mark.slow

Rows = dict[tuple[str, str], Any]
ENOUGH = (
    Acl("cluster", "kafka-cluster", "User:page", "describe"),
    Acl("cluster", "kafka-cluster", "User:page", "describe_configs"),
    Acl("transactional_id", "*", "User:page", "describe"),
    Acl("topic", "*", "User:page", "read"),
    Acl("group", "*", "User:page", "describe"),
)
"""The rights of docs/web.md."""


def ask_why(page: ServedPage, **query: str) -> dict[str, Any]:
    address = f"{page.link}why?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        found = json.load(error)
    return found


def test_without_access_control_the_page_says_so() -> None:
    with run_broker() as broker, served_page(broker.address) as page:
        refused = page.rows_until(lambda rows: rows.get(("refused", "acl")))
    assert refused["is_off"]
    assert "authorizer.class.name" in refused["text"]


@contextmanager
def page_of_a_user(tmp_path: Path) -> Iterator[tuple[ServedPage, SecuredBroker]]:
    """Serve the page of a broker to which the page is a user without rights."""
    users = {"admin": "secret", "page": "secret, too"}
    scram = ("SCRAM-SHA-256",)
    with run_secured_broker(users, super_users=["admin"], mechanisms=scram) as broker:
        properties = tmp_path / "page.properties"
        lines = [f"{name}={value}" for name, value in broker.properties("page").items()]
        properties.write_text("\n".join(lines))
        properties.chmod(0o600)
        with served_page(broker.address, "--command-config", str(properties)) as page:
            yield page, broker


def test_ids_that_a_change_of_rights_hides_are_not_called_expired_and_come_back(
    tmp_path: Path,
) -> None:
    with (
        page_of_a_user(tmp_path) as (page, broker),
        Admin(broker.address, **broker.options("admin")) as admin,
        Producer(broker.address, transactional_id="teller", **broker.options("admin")),
    ):
        for _ in range(2):
            admin.create_acls(ENOUGH)
            page.rows_until(lambda rows: rows.get(("lane", "teller")))
            admin.delete_acls(principal="User:page", resource="transactional_id")
            page.rows_until(lambda rows: rows and ("lane", "teller") not in rows)
        said = page.rows_until(
            lambda rows: [
                row["text"]
                for (section, _), row in rows.items()
                if section == "event" and row["kind"] == "gone"
            ]
        )
    assert said == 2 * ["is not listed any more: it expired, or this client may not see it"]


def test_a_right_that_is_missing_is_a_sentence_and_the_rights_of_the_documentation_are_enough(
    tmp_path: Path,
) -> None:
    with (
        page_of_a_user(tmp_path) as (page, broker),
        Admin(broker.address, **broker.options("admin")) as admin,
    ):
        admin.create_topic("ledger", partitions=1)
        refused = page.rows_until(lambda rows: rows.get(("refused", "acl")))
        assert (refused["is_off"], refused["text"].endswith(".")) == (False, True)
        admin.create_acls(ENOUGH)
        entries = page.rows_until(
            lambda rows: (
                ("refused", "acl") not in rows
                and [row for (section, _), row in rows.items() if section == "acl" and row]
            )
        )
        assert len(entries) == len(ENOUGH)
        page.rows_until(
            lambda rows: all(
                rows.get(("status", section), {}).get("is_well")
                for section in ("transactions", "pins", "cluster", "groups", "access")
            )
        )
        user = page.rows_until(lambda rows: rows.get(("user", "page")))
        assert list(user["mechanisms"]) == ["SCRAM-SHA-256"]
        asked = {"principal": "User:page", "operation": "read", "resource": "topic"}
        answer = ask_why(page, **asked, name="ledger")
        assert answer["is_allowed"]
        assert "The entry allow User:page at * read on topic * decides" in answer["text"]
        assert "name" in ask_why(page, **asked)["error"]
        assert "operation" in ask_why(page, **{**asked, "operation": "eat"}, name="x")["error"]
        assert "User:NAME" in ask_why(page, **{**asked, "principal": "page"}, name="x")["error"]
