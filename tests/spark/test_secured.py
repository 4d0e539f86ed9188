"""A real Spark at a broker with SCRAM over TLS, with the entries of docs/secured-clients.md.

They are just enough: without each of them a job says which it lacks. No plan, log, event or
checkpoint shows a secret.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from odradek.broker.testing import SecuredBroker, run_secured_broker
from odradek.client.blocking import Acl, Admin, Consumer, Producer, TopicPartition
from tests.entries_of_page import entries_of
from tests.peers.jars import spark_connector_jars
from tests.spark.conftest import spark_environment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

ENTRIES: Final = entries_of("Spark", "User:spark")
OF_CONNECTOR: Final = entries_of("Spark's own connector", "User:connector")
SOURCE: Final = "flights"
TARGET: Final = "refunds"
DECISIONS: Final = "odradek-spark-decisions"
VALUES: Final = {b"%d" % number for number in range(1_000)}
PASSWORD: Final = "wordofspark"
JOB_SECONDS: Final = 280.0


def named(entry: Acl) -> str:
    return f"{entry.operation.upper()} {entry.resource} {entry.name}"


NEEDED: Final = {named(entry): entry for entry in ENTRIES if entry.operation != "create"}
"""The entries that a job needs all the time. CREATE is for the first one."""
USUAL: Final = ("READ topic flights", "WRITE transactional_id {odradek-spark.")
"""The entries that are taken away in every run; the others at night."""
LACKING: Final = {name: f"lacking-{number}" for number, name in enumerate(NEEDED)}
"""Users, by the entry that they do not have."""


def for_user(entries: list[Acl], user: str, prefix: str = "odradek-spark") -> list[Acl]:
    """Return the entries for another user, and for another `transactionalIdPrefix`."""
    return [
        each._replace(principal=f"User:{user}", name=each.name.replace("odradek-spark", prefix))
        for each in entries
    ]


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    """A broker with records to read, and users who have what a job needs, or all of it but one."""
    users = dict.fromkeys(("admin", "spark", "connector", "first", *LACKING.values()), PASSWORD)
    mechanisms = ["SCRAM-SHA-512"]
    with run_secured_broker(users, super_users=["admin"], mechanisms=mechanisms) as broker:
        with Admin(broker.address, **broker.options("admin")) as admin:
            for topic in (SOURCE, TARGET):
                admin.create_topic(topic, partitions=2)
            admin.create_topic(DECISIONS, partitions=8, configs={"cleanup.policy": "compact"})
            admin.create_acls([*ENTRIES, *OF_CONNECTOR])
            for name, user in LACKING.items():
                kept = [each for each in ENTRIES if named(each) not in (name, "CREATE topic")]
                admin.create_acls(for_user(kept, user))
        with Producer(broker.address, **broker.options("admin")) as producer:
            for value in VALUES:
                producer.send(SOURCE, value)
            producer.flush()
        yield broker
        assert "Traceback" not in broker.log, broker.log


def options(broker: SecuredBroker, user: str, **given: str) -> dict[str, Any]:
    """The options of Spark's connector for a user."""
    return {f"kafka.{name}": value for name, value in broker.properties(user).items()} | given


def copy(
    spark: SparkSession, broker: SecuredBroker, user: str, checkpoint: Path, **more: str
) -> StreamingQuery:
    """Copy what there is, each task in a transaction of its own."""
    rows = (
        spark.readStream.format("odradek")
        .options(**options(broker, user, subscribe=SOURCE, startingOffsets="earliest"))
        .load()
        .select("value")
    )
    more = {"topic": TARGET, "inline.max.bytes": "0", "checkpointLocation": f"{checkpoint}", **more}
    written = rows.writeStream.format("odradek").options(**options(broker, user, **more))
    query = written.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def copied(broker: SecuredBroker) -> list[bytes]:
    """Return the committed values of the target, sorted."""
    places = [TopicPartition(TARGET, number) for number in range(2)]
    found: list[bytes] = []
    with Consumer(broker.address, **broker.options("admin")) as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [record.value or b"" for record in consumer.poll(500)]
    return sorted(found)


def plans(spark: SparkSession) -> str:
    """Everything that the page of Spark's queries shows."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    return "".join(
        f"{executions.apply(number).physicalPlanDescription()}"
        f"{executions.apply(number).modifiedConfigs()}"
        for number in range(executions.size())
    )


def test_a_job_copies_with_a_password_that_no_plan_shows(
    spark: SparkSession, secured: SecuredBroker, tmp_path: Path
) -> None:
    before = copied(secured)
    query = copy(spark, secured, "spark", tmp_path)
    assert copied(secured) == sorted([*before, *VALUES])
    shown = plans(spark)
    assert "MicroBatchScan" in shown
    assert PASSWORD not in shown
    assert PASSWORD not in str(query.lastProgress)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(PASSWORD.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    "entry",
    [pytest.param(name, marks=() if name in USUAL else pytest.mark.minutes) for name in NEEDED],
)
def test_without_an_entry_a_job_names_what_it_lacks(
    spark: SparkSession, secured: SecuredBroker, tmp_path: Path, entry: str
) -> None:
    before = copied(secured)
    with pytest.raises(PySparkException) as refused:
        copy(spark, secured, LACKING[entry], tmp_path)
    assert f"{NEEDED[entry].resource.upper()}_AUTHORIZATION_FAILED" in str(refused.value)
    assert PASSWORD not in str(refused.value)
    assert copied(secured) == before


def test_the_topic_of_decisions_may_be_made_by_an_administrator(
    spark: SparkSession, secured: SecuredBroker, tmp_path: Path
) -> None:
    """Then the job needs no CREATE, which it needs otherwise."""
    prefix = {"transactionalIdPrefix": "mine"}
    with Admin(secured.address, **secured.options("admin")) as admin:
        kept = [each for each in ENTRIES if each.operation != "create"]
        admin.create_acls(for_user(kept, "first", "mine"))
        with pytest.raises(PySparkException, match="TOPIC_AUTHORIZATION_FAILED"):
            copy(spark, secured, "first", tmp_path, **prefix)
        admin.create_topic("mine-decisions", partitions=8, configs={"cleanup.policy": "compact"})
    before = copied(secured)
    copy(spark, secured, "first", tmp_path, **prefix)
    assert copied(secured) == sorted([*before, *VALUES])


def test_a_wrong_password_is_one_sentence_without_it(
    spark: SparkSession, secured: SecuredBroker
) -> None:
    given = options(secured, "spark", subscribe=SOURCE)
    given["kafka.sasl.jaas.config"] = given["kafka.sasl.jaas.config"].replace(PASSWORD, "wrongword")
    with pytest.raises(PySparkException) as refused:
        spark.read.format("odradek").options(**given).load().count()
    assert "by SCRAM-SHA-512: the broker answered SASL_AUTHENTICATION_FAILED" in str(refused.value)
    assert "wrongword" not in str(refused.value)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["kafka", "odradek"])
def test_neither_connector_shows_the_password_in_a_plan_log_or_event(
    secured: SecuredBroker, tmp_path: Path, name: str
) -> None:
    user = "connector" if name == "kafka" else "spark"
    file = tmp_path / "options.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(options(secured, user)))
    jars = [str(jar) for jar in spark_connector_jars()] if name == "kafka" else []
    words = [name, str(file), SOURCE, TARGET, str(tmp_path), *jars]
    finished = subprocess.run(
        [sys.executable, "-m", "tests.spark.secured_job", *words],
        env=os.environ | spark_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
    )
    said = finished.stdout + finished.stderr
    assert finished.returncode == 0, said[-8000:]
    assert f"rows {len(VALUES)}" in finished.stdout
    assert "INFO" in finished.stderr
    assert PASSWORD not in said
    file.unlink()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.parent.name == "events" or "events" in path.parts for path in files)
    assert not any(PASSWORD.encode() in path.read_bytes() for path in files)
