"""What tests of schemas share: a registry in memory, of each test's own."""

from collections.abc import Iterator

import pytest

from odradek.client.schemas import SchemaRegistry
from tests.fakes.schema_registry import FakeSchemaRegistry, run_schema_registry


@pytest.fixture
def fake() -> Iterator[FakeSchemaRegistry]:
    with run_schema_registry() as fake:
        yield fake


@pytest.fixture
def registry(fake: FakeSchemaRegistry) -> SchemaRegistry:
    return SchemaRegistry(fake.url, retry_backoff_ms=1)
