"""MirrorMaker 2 over SCRAM and TLS, as docs/secured-clients.md has its settings and entries."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.client.blocking import Acl, Admin, Consumer, Producer
from tests.compat.test_mirror_maker import (
    GROUP,
    MIRROR_MAKER,
    PAGE,
    PLACES,
    PRINTED,
    VALUES,
    wait_until,
)
from tests.entries_of_page import entries_of, section
from tests.peers.jars import QUICK_JAVA, connect_jars
from tests.peers.secured import ADMIN, SecuredAddress, run_kafka, run_ours
from tests.programs import running

pytestmark = [pytest.mark.peers, pytest.mark.minutes]

TITLE: Final = "MirrorMaker 2"
READER, WRITER = "mirror-reader", "mirror-writer"
AT_SOURCE: Final = entries_of(TITLE, f"User:{READER}")
AT_TARGET: Final = entries_of(TITLE, f"User:{WRITER}")
SIDES: Final = {"kafka": READER, "odradek": WRITER}
"""The names of the clusters on the pages, and the user at each."""
SECURITY: Final = re.compile(r"^(kafka|odradek)\.(\S+) = .*$", re.MULTILINE)
USERS: Final = {ADMIN: "word-of-admin", READER: "word-of-reader", WRITER: "word-of-writer"}


def named(entry: Acl) -> str:
    return f"{entry.operation.upper()} {entry.resource} {entry.name}"


def settings(addresses: dict[str, SecuredAddress]) -> str:
    """Return the file of migrating.md and what secured-clients.md adds, for these brokers."""
    (printed,) = PRINTED.findall(PAGE.read_text())
    (more,) = re.findall(r"^```properties\n(.*?)^```", section(TITLE), re.MULTILINE | re.DOTALL)
    given = {side: addresses[side].properties(user) for side, user in SIDES.items()}
    for side, broker in addresses.items():
        printed = printed.replace(f"{side}:9092", broker.address)

    def setting(match: re.Match[str]) -> str:
        side, name = match.groups()
        return f"{side}.{name} = {given[side][name]}"

    said = {(side, name) for side, name in SECURITY.findall(more)}
    asked = {(side, name) for side, names in given.items() for name in names}
    assert said == {each for each in asked if each[1] != "bootstrap.servers"}
    return f"{printed}\n{SECURITY.sub(setting, more)}"


def fill(broker: SecuredAddress) -> None:
    """Write records, and the offsets of a group at the end."""
    options = broker.options(ADMIN)
    with Admin(broker.address, **options) as admin:
        admin.create_topic("orders", partitions=len(PLACES), replication_factor=1)
        admin.create_acls(AT_SOURCE)
    with Producer(broker.address, **options) as producer:
        for number, value in enumerate(VALUES):
            producer.send("orders", value, partition=number % len(PLACES))
        producer.flush()
    with Consumer(broker.address, group_id=GROUP, **options) as consumer:
        consumer.commit(consumer.end_offsets(PLACES))


def values_of(broker: SecuredAddress) -> list[bytes | None]:
    """Return the committed values, sorted; [] before the topic is there."""
    with Consumer(broker.address, **broker.options(ADMIN)) as consumer:
        if "orders" not in consumer.topics():
            return []
        consumer.assign(PLACES)
        consumer.seek_to_beginning(*PLACES)
        ends = consumer.end_offsets(PLACES)
        found: list[bytes | None] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [record.value for record in consumer.poll(500)]
    return sorted(found, key=lambda value: value or b"")


def committed(broker: SecuredAddress) -> set[Any]:
    with Admin(broker.address, **broker.options(ADMIN)) as admin:
        return set(admin.committed(GROUP))


@contextmanager
def mirroring(
    source: SecuredAddress, target: SecuredAddress, place: Path, lacking: str = ""
) -> Iterator[Path]:
    """Run MirrorMaker while the block runs, without one entry at the target. Yield its log."""
    fill(source)
    kept = [each for each in AT_TARGET if named(each) != lacking]
    assert len(kept) == len(AT_TARGET) - bool(lacking)
    with Admin(target.address, **target.options(ADMIN)) as admin:
        admin.create_acls(kept)
    log, file = place / "said", place / "mirror.properties"
    file.touch(mode=0o600)
    file.write_text(settings({"kafka": source, "odradek": target}))
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    command = [*QUICK_JAVA, "-Xmx512m", level, "-cp", f"{connect_jars()}/*", MIRROR_MAKER]
    with (
        log.open("wb") as output,
        running([*command, str(file)], stdout=output, stderr=subprocess.STDOUT),
    ):
        yield log


@pytest.mark.timeout(900)
@pytest.mark.parametrize("run_source", [run_ours, run_kafka], ids=["odradek", "kafka"])
def test_records_and_offsets_are_copied_with_rights_that_are_just_enough(
    tmp_path: Path, run_source: Callable[..., AbstractContextManager[SecuredAddress]]
) -> None:
    with (
        run_source(USERS, tmp_path) as source,
        run_ours(USERS, tmp_path) as target,
    ):
        with mirroring(source, target, tmp_path) as log:
            wait_until(lambda: values_of(target), sorted(VALUES), log)
            wait_until(lambda: committed(target), set(PLACES), log)
        assert not any(password in log.read_text() for password in USERS.values())


@pytest.mark.timeout(900)
def test_without_read_of_the_topic_at_the_target_no_offsets_are_stored(tmp_path: Path) -> None:
    error = "TopicAuthorizationException: Failed altering group offsets"
    with (
        run_ours(USERS, tmp_path) as source,
        run_ours(USERS, tmp_path) as target,
        mirroring(source, target, tmp_path, lacking="READ topic orders") as log,
    ):
        wait_until(lambda: values_of(target), sorted(VALUES), log)
        wait_until(lambda: error in log.read_text(), True, log)
        assert committed(target) == set()
