"""Counters equal what clients and the logs say, to the record, over kills of the broker.

Counters begin at 0 with each process, and a kill under load takes what was counted since the last
scrape. So each life of the broker is read before its kill, with the clients at rest. Every second
kill strikes at rest: the next life is compared with what the clients have counted. The others
strike under load: clients go on in the next life with what they have begun, and cannot say which
life has counted it. The logs can: batches have the time of their append, and the log of the
coordinator that of each change.
"""

import contextlib
import logging
import random
import time
from collections import Counter
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Admin, Producer
from odradek.client.errors import OdradekError
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.asks import produce
from tests.broker.metrics import clerks
from tests.broker.metrics.auditor import Audit, Auditor
from tests.broker.metrics.clerks import (
    Clerk,
    OurReader,
    OurWriter,
    Reader,
    TheirReader,
    TheirWriter,
    Undone,
    Writer,
    wait_until,
)
from tests.broker.metrics.scraping import Page, Scrape, observed
from tests.broker.raw import RawClient

pytestmark = pytest.mark.slow

LOGGER: Final = logging.getLogger(__name__)
TRAFFIC: Final = "kafka_server_brokertopicmetrics_"
OURS, THEIRS = "ours", "theirs"
PARTITIONS: Final = 3
STATE_PARTITIONS: Final = 4
LOAD_SECONDS: Final = 2.0
"""The time that clients work in a life before it is read."""
SLOW: Final = "slow"
NEW_INSTANCE: Final = "new instance"
LIFE_AT_REST, LIFE_UNDER_LOAD = "lives that began at rest", "lives that began under load"


class Run:
    """A broker with its clients, and what was compared."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        self.broker = broker
        self.random = random.Random(seed)
        address = broker.address
        self.writers: list[Writer] = [
            *(OurWriter(address, OURS, number) for number in range(2)),
            *(TheirWriter(address, THEIRS, number) for number in range(2)),
        ]
        self.readers: list[Reader] = [OurReader(address, OURS, 0), TheirReader(address, THEIRS, 0)]
        self.auditor = Auditor((OURS, THEIRS), PARTITIONS, STATE_PARTITIONS)
        self.began_at_rest = True
        self.compared: Counter[str] = Counter()

    @property
    def clerks(self) -> list[Clerk]:
        return [*self.writers, *self.readers]

    def live(self) -> None:
        """Work for a while, come to rest, and compare."""
        with (
            contextlib.suppress(OdradekError),
            Producer(self.broker.address, transactional_id=SLOW) as slow,
            slow.transaction(),
        ):
            for clerk in self.clerks:
                clerk.work()
            pause(LOAD_SECONDS * self.random.uniform(0.5, 1))
            slow.send(OURS, b"slow", partition=0).result()
            rest(self.readers)
            pause(LOAD_SECONDS / 4)  # so that the readers are behind
            rest(self.writers)
            for clerk in self.clerks:
                clerk.is_under_fire = False
            with RawClient(self.broker) as client:
                assert produce(client, OURS, b"no batch").error_code != 0  # which counts as refused
            self.compare(Page(self.broker), clerks.counted_by(slow))
            with (  # which fences the first, whose transaction is aborted
                contextlib.suppress(Undone),
                Producer(self.broker.address, transactional_id=SLOW) as second,
                second.transaction(),
            ):
                second.send(OURS, b"second", partition=0).result()
                raise Undone
        self.compare_ends(Page(self.broker).scrape())

    def kill(self) -> None:
        """Kill the broker, under load after a life that began at rest, and start it again."""
        is_under_load = self.began_at_rest
        if is_under_load:
            for clerk in self.clerks:
                clerk.is_under_fire = True
                clerk.work()
            pause(self.random.uniform(0.1, 1))
        self.broker.kill()
        if not is_under_load:
            for clerk in self.clerks:
                clerk.begin()
        self.auditor.begin(wall_ms() + 1)
        self.began_at_rest = not is_under_load
        self.broker.start()

    def compare(self, page: Page, slow: Counter[str]) -> None:
        """Compare the page with the clients, the logs and the coordinator.

        `slow` is what the producer of the slow transaction has counted, which is open.
        """
        wait_until(
            lambda: page.value("odradek_txn_markers_owed") == 0, "markers are owed without end"
        )
        before = time.time()
        scrape = page.scrape()
        after = time.time()
        self.audit(scrape)
        self.compare_records(scrape, self.auditor.audit, slow)
        oldest = min(self.auditor.open_starts_ms) / 1000
        age = scrape.value("odradek_txn_oldest_open_seconds")
        assert before - oldest - 0.002 <= age <= after - oldest + 0.002
        assert scrape.value("odradek_txn_open", state="Ongoing") == 1
        assert scrape.value("odradek_txn_ids") == len(self.auditor.transactions)
        self.compare_lags(scrape, page)
        self.compared["scrapes"] += 1
        self.compared[LIFE_AT_REST if self.began_at_rest else LIFE_UNDER_LOAD] += 1

    def audit(self, scrape: Scrape) -> None:
        """Read the logs to the ends that the page shows: high watermarks may be a moment behind."""
        topics = (OURS, THEIRS, TRANSACTION_STATE_TOPIC)
        ends = [scrape.total("kafka_log_log_logendoffset", topic=topic) for topic in topics]

        def is_read() -> bool:
            self.auditor.read(self.broker)
            return [self.auditor.log_end(topic) for topic in topics] == ends

        wait_until(is_read, f"the logs do not end at {ends}")

    def compare_records(self, scrape: Scrape, audit: Audit, slow: Counter[str]) -> None:
        for topic in (OURS, THEIRS):
            records = scrape.value(f"{TRAFFIC}messagesin_total", topic=topic)
            assert records == audit.records[topic]
            size_bytes = scrape.value(f"{TRAFFIC}bytesin_total", topic=topic)
            assert size_bytes == audit.size_bytes[topic]
            self.compared["records"] += int(records)
        if self.began_at_rest:
            refused = self.counted(clerks.REFUSED, OURS) + slow[clerks.REFUSED] + 1
            assert scrape.value(f"{TRAFFIC}failedproducerequests_total", topic=OURS) == refused
            assert audit.records[OURS] == self.counted(clerks.RECORD, OURS) + 1  # the slow one
            assert audit.records[THEIRS] == self.counted(clerks.RECORD, THEIRS)
            sent_bytes = self.counted(clerks.BYTES_SENT, OURS) + slow[clerks.BYTES_SENT]
            assert audit.size_bytes[OURS] == sent_bytes
        for how in (clerks.COMMIT, clerks.ABORT):
            ended = scrape.value("odradek_txn_ended_total", how=how)
            assert ended == audit.ended[how]
            if self.began_at_rest:
                assert ended == self.counted(how, OURS) + self.counted(how, THEIRS)
            self.compared[how] += int(ended)

    def counted(self, what: str, topic: str) -> int:
        """Return what the writers of a topic have counted."""
        return sum(writer.counts[what] for writer in self.writers if writer.topic == topic)

    def compare_lags(self, scrape: Scrape, page: Page) -> None:
        """Compare the lags with how far the readers then get, and the bytes that were read."""
        for reader in self.readers:
            labels = {"consumergroup": reader.name, "topic": reader.topic}
            lag = scrape.value("kafka_consumergroup_lag_sum", **labels)
            reader.read_on(lag)
            rest([reader])
            assert reader.last_progress == lag
            assert page.value("kafka_consumergroup_lag_sum", **labels) == 0
            self.compared["offsets of lag"] += int(lag)
        if self.began_at_rest:
            reader = self.readers[0]
            read_bytes = reader.counts[clerks.BYTES_READ] + self.auditor.audit.read_bytes[OURS]
            assert page.value(f"{TRAFFIC}bytesout_total", topic=OURS) == read_bytes
            self.compared["bytes read"] += read_bytes

    def compare_ends(self, scrape: Scrape) -> None:
        """Compare what the fence has ended."""
        ended = scrape.value("odradek_txn_ended_total", how=NEW_INSTANCE)
        fences = scrape.value("odradek_txn_fences_total", cause=NEW_INSTANCE)
        assert ended == 1
        assert fences == 1 or not self.began_at_rest
        self.compared["fences"] += int(fences)


def pause(seconds: float) -> None:
    """Let the clients work."""
    time.sleep(seconds)


def rest(of: list[Clerk] | list[Writer] | list[Reader]) -> None:
    for clerk in of:
        clerk.stop_soon()
    for clerk in of:
        clerk.wait_at_rest()


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seconds", [1, pytest.param(600, marks=pytest.mark.minutes)])
def test_counters_are_what_clients_and_logs_say_over_kills(seconds: float) -> None:
    settings = {
        "metrics_partitions": "true",
        "log_message_timestamp_type": "LogAppendTime",
        "transaction_state_log_num_partitions": str(STATE_PARTITIONS),
    }
    with observed(**settings) as (broker, _):
        with Admin(broker.address) as admin:
            for topic in (OURS, THEIRS):
                admin.create_topic(topic, partitions=PARTITIONS)
        run = Run(broker, seed=1)
        until = time.monotonic() + seconds
        for clerk in run.clerks:
            clerk.start()
        try:
            rest(run.clerks)  # one that works before it has come to rest would look as if it did
            run.live()
            while time.monotonic() < until or not run.compared[LIFE_UNDER_LOAD]:
                run.kill()
                run.live()
        finally:
            for clerk in run.clerks:
                clerk.is_under_fire = True
                clerk.end()
    assert all(run.compared.values())
    LOGGER.info("compared: %s", dict(run.compared))
