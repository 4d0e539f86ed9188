"""The page of our broker and of a real Kafka: it shows what each returns, and leaves out the rest.

Every test with `bootstrap` runs on ours, and with `--peers` on a real Kafka.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from odradek.client.blocking import Acl, Admin, Consumer, OdradekError, Producer
from tests.client.hanging import WITHOUT_VERIFICATION, leave_hanging
from tests.client.live import name_of
from tests.client.web.browser import chromium, window
from tests.client.web.pages import ServedPage, served_page
from tests.client.web.test_web_live import SECTIONS, run_command
from tests.peers.kafka import RealKafka
from tests.peers.secured import AUTHORIZER

pytestmark = pytest.mark.slow

Rows = dict[tuple[str, str], Any]
VIEWS = ("transactions", "groups", "replicas", "access")
UNFIT = re.compile(r"\b(undefined|null|NaN|Infinity)\b|\[object")
"""Words of a program that has shown what it does not have."""


@pytest.fixture
def page(bootstrap: str) -> Iterator[ServedPage]:
    with served_page(bootstrap) as served:
        yield served


def test_a_stalled_transaction_is_named_with_its_end_and_the_command_that_is_shown_ends_it(
    bootstrap: str, page: ServedPage
) -> None:
    topic, name = name_of("topic"), name_of("id")
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=2)
    with (
        suppress(OdradekError),  # its own commit comes too late
        Producer(bootstrap, transactional_id=name) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, b"x", partition=1).result()
        pin = page.rows_until(lambda rows: rows.get(("pin", f"{topic}-1")))
        assert pin["name"] == name
        assert (pin["last_stable_offset"], pin["high_watermark"]) == (0, 1)
        assert pin["deadline_ms"] == pin["since_ms"] + 60_000
        run_command(pin["command"])
        page.rows_until(lambda rows: ("pin", f"{topic}-1") not in rows)
    page.rows_until(
        lambda rows: any(
            row["id"] == name and row["how"] in ("aborted", "fenced")
            for (section, _), row in rows.items()
            if section == "span"
        )
    )


def test_the_lag_of_a_group_has_the_part_that_waits_behind_a_transaction(
    bootstrap: str, page: ServedPage
) -> None:
    topic, name = name_of("topic"), name_of("id")
    group = "0" + name_of("group")  # the page follows a hundred groups, in the order of their names
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
    with (
        Producer(bootstrap, transactional_id=name) as producer,
        Consumer(bootstrap, group_id=group, client_id="reader") as consumer,
        producer.transaction() as transaction,
    ):
        for _ in range(3):
            transaction.send(topic, b"x", partition=0).result()
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(200)
        consumer.seek_to_beginning()
        consumer.position(next(iter(consumer.assignment())))
        consumer.commit()
        found = page.rows_until(
            lambda rows: (
                ("group", group) in rows
                and rows["group", group]["member_count"] == 1
                and rows["group", group]["partitions"]
                and rows
            )
        )
        assert found["group", group]["partitions"] == [[topic, 0, 0, 0, 3, 3]]
        (samples,) = [row for (of, key), row in found.items() if of == "lag" and group in key]
        assert samples[-1][1:] == [3, 3]


def test_every_view_is_drawn_without_a_complaint_or_an_empty_value(
    bootstrap: str, page: ServedPage
) -> None:
    topic, name = name_of("topic"), name_of("id")
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
    with (
        chromium() as browser,
        window(browser) as opened,
        Producer(bootstrap, transactional_id=name) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, b"x").result()
        opened.show(page.link)
        opened.wait_text(".pin", name)
        opened.page.locator(".lane-name").filter(has_text=name).click()
        opened.wait_text(".lane-detail", "aborted in")
        page.rows_until(lambda rows: all(("status", each) in rows for each in SECTIONS))
        for view in VIEWS:
            opened.page.goto(f"{page.link}#{view}")
            opened.page.wait_for_selector("#state.well")
            said = opened.page.locator("body").inner_text()
            assert UNFIT.search(said) is None, said


@pytest.fixture(scope="module")
def open_kafka() -> Iterator[RealKafka]:
    """A real Kafka with access control, in which a transaction can be left hanging."""
    settings = {
        **WITHOUT_VERIFICATION,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    with RealKafka(settings=settings) as kafka:
        yield kafka


@pytest.mark.peers
async def test_a_transaction_that_hangs_in_a_real_kafka_is_ended_by_the_command_that_is_shown(
    open_kafka: RealKafka,
) -> None:
    with served_page(open_kafka.address) as page:
        place, _ = await leave_hanging(open_kafka.address)
        pin = page.rows_until(lambda rows: rows.get(("pin", str(place))))
        assert (pin["is_hanging"], pin["deadline_ms"]) == (True, None)
        run_command(pin["command"])
        page.rows_until(lambda rows: ("pin", str(place)) not in rows)


@pytest.mark.peers
def test_what_a_real_kafka_does_not_answer_is_left_out_with_a_sentence(
    open_kafka: RealKafka,
) -> None:
    entry = Acl("topic", "ledger", "User:alice", "read")
    with Admin(open_kafka.address) as admin:
        admin.create_acls([entry])
    with (
        served_page(open_kafka.address) as page,
        chromium() as browser,
        window(browser, may_complain=True) as opened,  # of the answer to the question
    ):
        page.rows_until(
            lambda rows: all(rows.get(("status", each), {}).get("is_well") for each in SECTIONS)
        )
        opened.show(page.link, "access")
        opened.wait_text("tbody tr", "User:alice")
        opened.page.get_by_label("May").fill("User:alice")
        opened.page.get_by_label("called").fill("ledger")
        opened.page.get_by_role("button", name="Ask").click()
        opened.wait_text(".answer", "Only Odradek explains what its ACL entries decide.")
