"""The samples of docs/services.md run as they are printed."""

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker.testing import run_broker
from odradek.client import (
    ConsumerStatistics,
    LatencyStatistics,
    PartitionStatistics,
    ProducerStatistics,
)
from odradek.client.blocking import Consumer
from tests.fakes.web import FastAPI, HTTPException, as_fastapi

PAGE: Final = (Path(__file__).parents[1] / "docs" / "services.md").read_text()
ADDRESS: Final = "127.0.0.1:9092"
NOBODY: Final = "127.0.0.1:1"
RUN_SECONDS: Final = 120.0
PATH: Final = "/greetings/{language}"
TRANSACTION_VERSION: Final = "odradek.transaction_version"


def samples(part: str) -> list[str]:
    """Return the samples below a heading."""
    (text,) = [one for one in re.split(r"^##+ ", PAGE, flags=re.MULTILINE) if one.startswith(part)]
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker() as broker:
        yield broker.address


def run(sample: str, address: str) -> str:
    assert ADDRESS in sample
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", sample.replace(ADDRESS, address)],
        check=True,
        timeout=RUN_SECONDS,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def application(sample: str, address: str, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    monkeypatch.setitem(sys.modules, "fastapi", as_fastapi())
    names: dict[str, Any] = {"__name__": "application"}
    exec(sample.replace(ADDRESS, address), names)
    app: FastAPI = names["app"]
    return app


def test_the_web_application_stores_what_its_requests_send(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sample,) = samples("A web application")
    app = application(sample, address, monkeypatch)
    texts = [f"text {number}" for number in range(20)]
    answers = app.serve(PATH, [{"language": "en", "text": text} for text in texts])
    places = {(answer["partition"], answer["offset"]) for answer in answers}
    assert len(places) == len(texts)
    ((partition, _),) = {(place[0], 0) for place in places}
    with Consumer(address) as consumer:
        consumer.assign([("greetings", partition)])
        found: set[bytes | None] = set()
        while len(found) < len(texts):
            found |= {record.value for record in consumer.poll(timeout_ms=10_000)}
    assert found == {text.encode() for text in texts}


def test_without_a_broker_a_request_is_answered_with_503(monkeypatch: pytest.MonkeyPatch) -> None:
    (sample,) = samples("A web application")
    hurried = sample.replace("linger_ms=5", "linger_ms=5, first_connect_ms=100")
    assert hurried != sample
    app = application(hurried, NOBODY, monkeypatch)
    (error,) = app.serve(PATH, [{"language": "en", "text": "x"}])
    assert isinstance(error, HTTPException)
    assert error.status_code == 503
    assert NOBODY in str(error)


def test_the_cells_of_the_notebook_run_one_after_the_other(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """IPython compiles a cell with await at its top level, and runs it on one event loop."""
    event_loop = asyncio.new_event_loop()
    names: dict[str, Any] = {}
    for cell in samples("A notebook"):
        compiled = compile(
            cell.replace(ADDRESS, address), "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        result = eval(compiled, names)
        if inspect.iscoroutine(result):
            event_loop.run_until_complete(result)
    event_loop.close()
    assert "god kveld" in capsys.readouterr().out


def test_the_samples_under_trio_run(address: str) -> None:
    for sample in samples("Under trio"):
        run(sample, address)


def test_the_pool_of_the_page_serves_its_requests(address: str) -> None:
    (sample,) = samples("Several transactions at once")
    assert run(sample, address).count("201 created") == 10


def test_the_statistics_of_the_page_are_counted_and_named(address: str) -> None:
    (sample,) = samples("Statistics")
    assert run(sample, address) == "1\n"
    named = set(
        re.findall(r"`([a-z0-9_]+)`", PAGE.partition("## Statistics")[2].partition("\n## ")[0])
    )
    for kind in (ProducerStatistics, ConsumerStatistics, PartitionStatistics, LatencyStatistics):
        own = {each.name for each in fields(kind)} - {"client_id", "transactional_id", "group_id"}
        assert own - {"time_ms"} <= named, kind


def test_the_traces_of_the_page_have_a_span_below_that_of_the_program(address: str) -> None:
    (sample,) = samples("Traces")
    written = run(sample, address)
    assert '"name": "kafka transaction"' in written
    assert '"odradek.end": "commit"' in written
    names = set(re.findall(r"`(odradek\.[a-z_]+)`", PAGE.partition("## Traces")[2]))
    assert set(re.findall(r'"(odradek\.[a-z_]+)": ', written)) - {TRANSACTION_VERSION} <= names
