"""The spans that a broker has written to its standard output (`otel.traces.exporter=console`)."""

import json
from typing import Any

from odradek.broker.testing import RunningBroker
from odradek.client import TransactionDescription
from odradek.client.blocking import Admin
from tests.broker.api.producing import until


def wait_marked(broker: RunningBroker, *transactional_ids: str) -> None:
    """Wait until the transactions have all their markers: their spans end then."""

    def is_complete(found: dict[str, Any]) -> bool:
        return all(
            isinstance(each, TransactionDescription) and each.state.startswith("Complete")
            for each in found.values()
        )

    with Admin(broker.address) as admin:
        until(lambda: admin.describe_transactions(*transactional_ids), is_complete)


def console_spans(broker: RunningBroker, *transactional_ids: str) -> list[dict[str, Any]]:
    """Stop a broker when these transactions are complete. Return the attributes of its spans."""
    wait_marked(broker, *transactional_ids)
    assert broker.process.stdout is not None
    broker.process.terminate()
    lines = broker.process.stdout.read().decode().splitlines()
    return [json.loads(line)["attributes"] for line in lines]
