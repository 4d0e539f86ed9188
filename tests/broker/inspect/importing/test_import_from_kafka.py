"""The import beside a real Kafka: a directory that is made now, and the schemas of its records."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.testing import run_broker
from odradek.protocol.kraft_records import KINDS, OTHER_KINDS
from tests.broker.inspect.importing import kafka_contents as c
from tests.broker.inspect.importing import make
from tests.peers.jars import kafka_jars
from tests.protocol.published import differences

pytestmark = pytest.mark.peers


@pytest.mark.minutes
def test_a_kafka_of_now_that_was_killed_is_imported(tmp_path: Path) -> None:
    logs, facts = make.make_directory(tmp_path / "kafka")
    target = tmp_path / "data"
    words = ["storage", "import", str(logs), "--data-dir", str(target), "--yes"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    config = {"node.id": str(c.NODE_ID), "transaction.two.phase.commit.enable": "true"}
    with run_broker(data_dir=target, config=config) as broker:
        found = trio.run(make.facts_of, make.Clients(broker.address))
        for what in ("partitions", "ids", "groups", "transactions"):
            assert found[what] == facts[what]
    assert CliRunner().invoke(main, ["log", "repair", str(target)]).exit_code == 0


def published() -> dict[int, dict[str, Any]]:
    """Return the schemas of the records of Kafka's metadata log, by the numbers of their kinds."""
    found = {}
    with zipfile.ZipFile(kafka_jars() / "kafka-metadata-4.3.1.jar") as archive:
        for name in archive.namelist():
            if name.startswith("common/metadata/") and name.endswith(".json"):
                schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", archive.read(name).decode()))
                found[schema["apiKey"]] = schema
    return found


def test_the_records_of_the_metadata_log_are_declared_as_published() -> None:
    schemas = published()
    assert set(schemas) == {*KINDS, *OTHER_KINDS}
    for kind, (declared, last) in KINDS.items():
        schema = schemas[kind]
        assert declared.__name__ == schema["name"]
        assert schema["validVersions"] == (f"0-{last}" if last else "0")
        assert schema["flexibleVersions"] == "0+"
        assert differences(schema, declared, range(last + 1)) == []
