"""The schemas that stand in `tests/protocol/group_schemas.py`, compared with Kafka's own jars."""

import json
import re
import zipfile
from typing import Any

import pytest

from tests.peers.jars import kafka_jars
from tests.protocol import group_schemas
from tests.protocol.published import published_shapes

pytestmark = pytest.mark.peers


def in_jar(jar: str, name: str) -> dict[str, Any]:
    with zipfile.ZipFile(kafka_jars() / f"{jar}-4.3.1.jar") as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    schema: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    put_structs(schema["fields"], structs)
    return schema


def put_structs(declared: list[dict[str, Any]], structs: dict[str, Any]) -> None:
    for field in declared:
        common = structs.get(field["type"].removeprefix("[]"))
        if common is not None:
            field["fields"] = common
        if field.get("default", "") is None:
            del field["default"]  # Kafka's generator takes only the text "null" for null
        put_structs(field.get("fields", []), structs)


@pytest.mark.parametrize("name", group_schemas.APIS)
def test_an_api_is_written_down_as_kafka_has_it(name: str) -> None:
    theirs, ours = in_jar("kafka-clients", name), group_schemas.APIS[name]
    for key in ("apiKey", "name", "validVersions", "flexibleVersions"):
        assert theirs[key] == ours[key]
    for version in range(4):
        shapes = list(published_shapes(ours["fields"], version))
        assert list(published_shapes(theirs["fields"], version)) == shapes


@pytest.mark.parametrize("name", group_schemas.RECORDS)
def test_a_record_is_written_down_as_kafka_has_it(name: str) -> None:
    theirs = in_jar("kafka-group-coordinator", name)
    assert theirs["validVersions"] == "0"
    shapes = list(published_shapes(group_schemas.RECORDS[name], 0))
    assert list(published_shapes(theirs["fields"], 0)) == shapes
