"""What the tests of partitions share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from odradek.broker.partitions.partition import Partition
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.samples import Machine


@asynccontextmanager
async def running(machine: Machine) -> AsyncIterator[Partition]:
    """A partition with everything going on in the background."""
    partition = await machine.start()
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        yield partition
        nursery.cancel_scope.cancel()


def code_of(caught: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return caught.value.code
