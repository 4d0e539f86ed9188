"""The number of connections that each address has, and may have (`max.connections.per.ip`).

All of its connections count, authenticated or not.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from odradek.broker.config.addresses import connections_by_address
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.security.acl_table import canonical_host

LOGGER: Final = logging.getLogger(__name__)


class PlacesOfAddresses:
    """Counts the connections of one server by their addresses."""

    def __init__(self, config: BrokerConfig) -> None:
        self._counts: Counter[str] = Counter()
        self._most = config.max_connections_per_ip
        self._overrides = connections_by_address(config.max_connections_per_ip_overrides)

    @contextmanager
    def place(self, peer: str) -> Iterator[bool]:
        """Count a connection inside. Enter with False, after a line in the log, if it has no place.

        `peer` is its address with the port.
        """
        address = canonical_host(peer.rpartition(":")[0])
        most = self._overrides.get(address, self._most)
        if self._counts[address] >= most:
            LOGGER.warning(
                "connection of %s refused: its address has %d, which is the limit "
                "(max.connections.per.ip, or max.connections.per.ip.overrides)",
                peer,
                self._counts[address],
            )
            yield False
            return
        self._counts[address] += 1
        try:
            yield True
        finally:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]
