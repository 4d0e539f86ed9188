"""A real Spark at a broker with TLS, passwords and access control: no plan shows a secret."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek.broker.testing import SecuredBroker, run_secured_broker
from odradek.client.blocking import Acl, Admin
from odradek.client.types import SPARK_PREFIX_DEFAULT

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

PASSWORD: Final = "wordofspark"
USER: Final = "User:spark"
OF_SPARK: Final = SPARK_PREFIX_DEFAULT
"""How the names begin that the sink chooses: of its topic, its group and its transactional ids."""


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    """A broker at which the user spark has the rights of this job, and no more."""
    users = {"admin": "word-of-admin", "spark": PASSWORD}
    with run_secured_broker(users, super_users=["admin"]) as broker:
        with Admin(broker.address, **broker.options("admin")) as admin:
            for topic in ("source", "target"):
                admin.create_topic(topic, partitions=2)
            admin.create_acls(
                [
                    Acl("topic", "source", USER, "read"),
                    Acl("topic", "source", USER, "write"),
                    Acl("topic", "target", USER, "read"),
                    Acl("topic", "target", USER, "write"),
                    Acl("topic", OF_SPARK, USER, "all", pattern="prefixed"),
                    Acl("group", OF_SPARK, USER, "all", pattern="prefixed"),
                    Acl("transactional_id", OF_SPARK, USER, "all", pattern="prefixed"),
                    Acl("transactional_id", "{" + OF_SPARK, USER, "all", pattern="prefixed"),
                ]
            )
        yield broker


def options(broker: SecuredBroker, **given: str) -> dict[str, Any]:
    """The options of Spark's connector for the user of the job."""
    return {f"kafka.{name}": value for name, value in broker.properties("spark").items()} | given


def plans(spark: SparkSession) -> str:
    """Everything that the page of Spark's queries shows."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    return "".join(
        f"{executions.apply(number).physicalPlanDescription()}"
        f"{executions.apply(number).modifiedConfigs()}"
        for number in range(executions.size())
    )


def test_a_job_writes_and_reads_with_a_password_that_no_plan_shows(
    spark: SparkSession, secured: SecuredBroker, tmp_path: Path
) -> None:
    rows = spark.range(1_000).selectExpr("cast(string(id) AS binary) AS value")
    rows.write.format("odradek").mode("append").options(**options(secured, topic="source")).save()
    stream = (
        spark.readStream.format("odradek")
        .options(**options(secured, subscribe="source", startingOffsets="earliest"))
        .load()
        .select("value")
        .writeStream.format("odradek")
        .options(**options(secured, topic="target", checkpointLocation=str(tmp_path)))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    found = spark.read.format("odradek").options(**options(secured, subscribe="target")).load()
    assert found.selectExpr("string(value)").distinct().count() == 1_000
    shown = plans(spark)
    assert "odradek" in shown
    assert PASSWORD not in shown
    assert PASSWORD not in str(stream.lastProgress)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(PASSWORD.encode() in path.read_bytes() for path in files)


def test_a_wrong_password_is_one_sentence_without_it(
    spark: SparkSession, secured: SecuredBroker
) -> None:
    given = options(secured, subscribe="source")
    given["kafka.sasl.jaas.config"] = given["kafka.sasl.jaas.config"].replace(PASSWORD, "wrongword")
    with pytest.raises(PySparkException) as refused:
        spark.read.format("odradek").options(**given).load().count()
    assert "by PLAIN: the broker answered SASL_AUTHENTICATION_FAILED" in str(refused.value)
    assert "wrongword" not in str(refused.value)
