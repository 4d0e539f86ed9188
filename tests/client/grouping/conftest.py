"""The coordinator that the tests of a member direct."""

import pytest
import trio

from tests.client.fake_group import FakeGroup
from tests.client.grouping.joining import three_in_each


@pytest.fixture
def group(request: pytest.FixtureRequest, nursery: trio.Nursery) -> FakeGroup:
    """A coordinator of the classic protocol, unless a test asks for others."""
    group: FakeGroup = getattr(request, "param", FakeGroup)(nursery)
    group.read = three_in_each
    return group
