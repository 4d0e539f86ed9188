"""The samples for Spark in the pages run, and errors are shown as the page says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from odradek.client.blocking import Producer
from tests.spark.conftest import CreateTopic, ReadTopic
from tests.test_pages import ADDRESS, PYTHON, ROOT

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

NAMES: Final = ("greetings", "loud-greetings", "orders", "totals", "totals-of-orders")
CHECKPOINTS: Final = ("checkpoint", "totals-checkpoint")
UNTRIED: Final = 'format("delta")'
"""In a sample that needs a package which there is not for every version of Spark."""


@pytest.fixture
def samples_of(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> Callable[[str], tuple[list[str], dict[str, str]]]:
    """Return a page's samples for this broker, with new names of topics, and these names."""

    def read(page: str) -> tuple[list[str], dict[str, str]]:
        names = {name: unique(name) for name in NAMES}
        new = names | {name: str(tmp_path / name) for name in CHECKPOINTS} | {ADDRESS: bootstrap}
        samples = [one for one in PYTHON.findall((ROOT / page).read_text()) if UNTRIED not in one]
        for given, wanted in new.items():
            samples = [one.replace(f'"{given}"', f'"{wanted}"') for one in samples]
        return samples, names

    return read


def test_the_sample_of_the_readme_reads_and_writes(
    spark: SparkSession,
    samples_of: Callable[[str], tuple[list[str], dict[str, str]]],
    producer: Producer,
    read_topic: ReadTopic,
    capsys: pytest.CaptureFixture[str],
) -> None:
    samples, names = samples_of("README.md")
    (sample,) = [one for one in samples if "pyspark" in one]
    producer.send(names["greetings"], b"guten Tag", key=b"de").result()
    exec(sample, {})
    assert "|guten Tag|" in capsys.readouterr().out
    assert [record.value for record in read_topic(names["loud-greetings"])] == [b"GUTEN TAG"]


def test_the_samples_of_the_page_run_in_their_order(
    spark: SparkSession,
    samples_of: Callable[[str], tuple[list[str], dict[str, str]]],
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    capsys: pytest.CaptureFixture[str],
) -> None:
    samples, names = samples_of("docs/coming-from-spark.md")
    register, progress, avro, in_batches = samples
    shared: dict[str, Any] = {"spark": spark.newSession()}
    exec(register, shared)
    exec(avro, shared)
    assert "|thread|  2.5|" in capsys.readouterr().out
    exec(in_batches, shared)
    totals = {record.value for record in read_topic(names["totals"])}
    assert totals == {b"1"}
    exec(progress, shared)
    assert capsys.readouterr().out == f"['{names['orders']}'] 0\n"


def test_the_sentence_of_an_error_stands_before_the_frames_of_spark(
    spark: SparkSession, bootstrap: str, create_topic: CreateTopic, tmp_path: Path
) -> None:
    def stream(**options: str) -> StreamingQueryException:
        reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        writer = reader.options(**options).load().writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / options["subscribe"])).start()
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
        error = query.exception()
        assert error is not None
        return error

    topic = create_topic()
    for options, sentence in (
        ({"subscribe": topic, "startingOffsets": "erliest"}, "did you mean earliest?"),
        ({"subscribe": f"{topic}s"}, f"(did you mean {topic}?)"),
    ):
        shown = str(stream(**options))
        assert sentence in shown.splitlines()[0], shown
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(AnalysisException) as caught:
        reader.options(subscribe=topic, startingOffset="earliest").load().count()
    shown = str(caught.value)
    assert "The option startingOffset is not served here: did you mean startingOffsets?" in shown
    assert not re.search(r'File "[^"]*/pyspark/', shown), shown
    assert shown.count("  File ") <= 2, shown
