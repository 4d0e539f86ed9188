"""A registry that is away, that refuses, that has several servers; what is asked once."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from odradek.client import Retriable
from odradek.client.schemas import (
    Reference,
    RegistryAway,
    Schema,
    SchemaRefused,
    SchemaRegistry,
)
from tests.fakes.schema_registry import FakeSchemaRegistry

TEXT = Schema('"string"')
ORDER = Schema('{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}')
WIDER = Schema(ORDER.text.replace("]}", ', {"name": "m", "type": "int", "default": 0}]}'))
BROKEN = Schema(ORDER.text.replace("]}", ', {"name": "m", "type": "int"}]}'))
NOBODY = "http://127.0.0.1:1"


async def test_a_schema_has_an_id_and_each_subject_has_versions(registry: SchemaRegistry) -> None:
    assert await registry.register("a", ORDER) == 1
    assert await registry.register("a", WIDER) == 2
    assert await registry.register("b/c d", ORDER) == 1
    assert (await registry.lookup("a", WIDER)).version == 2
    assert (await registry.latest("a")).schema == WIDER
    assert (await registry.version("b/c d", 1)).id == 1
    assert await registry.schema(2) == WIDER
    assert (await registry.subjects(), await registry.versions("a")) == (["a", "b/c d"], [1, 2])


async def test_what_cannot_change_is_asked_once(
    fake: FakeSchemaRegistry, registry: SchemaRegistry
) -> None:
    for _ in range(3):
        await registry.register("a", TEXT)
        await registry.schema(1)
        await registry.version("a", 1)
        await registry.latest("a")
    assert fake.requests == {
        "POST subjects/a/versions": 1,
        "GET schemas/ids/1": 1,
        "GET subjects/a/versions/1": 1,
        "GET subjects/a/versions/latest": 3,
    }


async def test_references_are_read_with_theirs_the_innermost_first(
    registry: SchemaRegistry,
) -> None:
    await registry.register("inner", TEXT)
    middle = Schema('"bytes"', references=(Reference("Inner", "inner", 1),))
    await registry.register("middle", middle)
    both = (Reference("Middle", "middle", 1), Reference("Inner", "inner", 1))
    found = await registry.references(Schema('"int"', references=both))
    assert list(found.items()) == [("Inner", TEXT), ("Middle", middle)]


async def test_compatibility_is_asked_and_set(registry: SchemaRegistry) -> None:
    assert await registry.is_compatible("a", BROKEN), "there is no version yet"
    await registry.register("a", ORDER)
    assert await registry.is_compatible("a", WIDER)
    assert not await registry.is_compatible("a", BROKEN, version=1)
    assert await registry.compatibility("a") == "BACKWARD"
    with pytest.raises(
        SchemaRefused, match=r"registering a schema under 'a': .* at http://127.* incompatible"
    ) as got:
        await registry.register("a", BROKEN)
    assert got.value.registry_code == 409
    assert got.value.copy().registry_code == 409
    await registry.set_compatibility("NONE", "a")
    assert await registry.compatibility("a") == "NONE"
    assert await registry.register("a", BROKEN) == 2


async def test_a_server_that_is_busy_is_asked_again(
    fake: FakeSchemaRegistry, registry: SchemaRegistry
) -> None:
    fake.fails = 3
    assert await registry.register("a", TEXT) == 1
    assert fake.requests["POST subjects/a/versions"] == 4


async def test_another_server_is_asked_and_stays_the_first(fake: FakeSchemaRegistry) -> None:
    registry = SchemaRegistry(f"{NOBODY}, {fake.url}/", retries=0)
    await registry.register("a", TEXT)
    assert registry.urls[registry._first] == fake.url
    await registry.schema(1)


async def test_a_registry_that_is_away_may_be_there_later(fake: FakeSchemaRegistry) -> None:
    registry = SchemaRegistry("http://user:secret@127.0.0.1:1", retries=1, retry_backoff_ms=1)
    with pytest.raises(
        RegistryAway,
        match=r"reading schema 7: no server of the schema registry at http://127\.0\.0\.1:1 could",
    ) as got:
        await registry.schema(7)
    assert isinstance(got.value, Retriable)
    assert "secret" not in str(got.value) + repr(registry)
    busy = SchemaRegistry(fake.url, retries=0)
    fake.fails = 1
    with pytest.raises(RegistryAway, match="the leader is not known"):
        await busy.schema(7)


async def test_user_and_password_are_an_option_or_in_the_url(fake: FakeSchemaRegistry) -> None:
    fake.auth = ("ada", "secret")
    await SchemaRegistry(fake.url, auth=fake.auth).subjects()
    await SchemaRegistry(fake.url.replace("//", "//ada:secret@")).subjects()
    with pytest.raises(SchemaRefused, match=r"answered 401: give auth=\(user, password\)"):
        await SchemaRegistry(fake.url, auth=("ada", "wrong")).subjects()


@pytest.fixture
def web_page() -> Iterator[str]:
    """The address of a server that is no registry."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


async def test_a_server_that_is_no_registry_is_recognised(web_page: str) -> None:
    with pytest.raises(SchemaRefused, match="is the URL that of a registry"):
        await SchemaRegistry(web_page).subjects()


async def test_an_unknown_id_names_itself_and_the_registry(registry: SchemaRegistry) -> None:
    with pytest.raises(
        SchemaRefused, match=r"reading schema 9: .* at http://127.* Schema 9 not found"
    ):
        await registry.schema(9)


def test_asyncio_programs_use_the_same_object(registry: SchemaRegistry) -> None:
    assert asyncio.run(registry.register("a", TEXT)) == 1
    assert asyncio.run(registry.latest("a")).schema == TEXT


@pytest.mark.parametrize("wrong", ["127.0.0.1:8081", "kafka://a:1", "", []])
def test_an_address_that_is_no_url_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        SchemaRegistry(wrong)
