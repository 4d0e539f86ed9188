"""The handlers, one for each API, which translate between the wire and the core.

The module of a handler says what it serves (`SERVED`). `MODULES` names the modules. `scripts/fix`
makes `index.py` of them, which has what is known of an API before its module is imported.
"""

import logging
from importlib import import_module
from typing import Any, Final

from odradek.broker.api.context import Handler
from odradek.broker.api.index import ROWS
from odradek.broker.api.late_table import ApiRow, Apis, LateTable
from odradek.broker.api.listeners import Listeners
from odradek.broker.api.served_api import ServedApi
from odradek.broker.config.broker import BrokerConfig
from odradek.protocol.api import Api
from odradek.protocol.apis.txn import INIT_PRODUCER_ID_2PC
from odradek.protocol.errors import ProtocolError

LOGGER: Final = logging.getLogger(__name__)

MODULES: Final = (
    "acls",
    "add_to_txn",
    "alter_configs",
    "alter_quotas",
    "config_resources",
    "configs",
    "consumer_group_describe",
    "coordinator",
    "create_partitions",
    "delete_records",
    "describe_acls",
    "describe_cluster",
    "elections",
    "features",
    "fetch",
    "group_administration",
    "group_consumer",
    "group_members",
    "known_brokers",
    "log_dirs",
    "markers",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offsets",
    "produce",
    "producers",
    "quorum",
    "quotas",
    "reassignments",
    "replica_fetch",
    "sasl",
    "scram_credentials",
    "security",
    "topic_partitions",
    "topics",
    "transactions",
    "txn",
    "txn_offsets",
    "versions",
)
"""The modules of this package that serve APIs."""


def declarations_of(module: str) -> tuple[ServedApi[Any, Any], ...]:
    """Return what a module of `MODULES` serves. It is imported if it is not yet.

    Raises OSError if that may succeed later, and whatever else the import of a broken file raises.
    """
    served: tuple[ServedApi[Any, Any], ...] = import_module(f"{__name__}.{module}").SERVED
    return served


def _find_served(row: ApiRow) -> ServedApi[Any, Any]:
    """Return what is served. Raises ProtocolError, which closes the connection of the request."""
    try:
        (found,) = (each for each in declarations_of(row.module) if each.api.key == row.key)
    except OSError as error:  # no file descriptor is left: the client tries again
        raise ProtocolError(f"{row.name} cannot be imported now: {error}") from error
    except Exception as error:  # the file is not the one of this version, for example
        LOGGER.exception("%s cannot be imported, and is not served", row.name)
        raise ProtocolError(f"{row.name} cannot be imported: {error!r}") from error
    return found


def _find_api(row: ApiRow) -> Api[Any, Any]:
    unstable = INIT_PRODUCER_ID_2PC
    if (row.key, row.max_version) == (unstable.key, unstable.max_version):
        return unstable
    return _find_served(row).api


def _find_handler(row: ApiRow) -> Handler:
    return _find_served(row).handler


def _with_2pc(row: ApiRow) -> ApiRow:
    if row.key != INIT_PRODUCER_ID_2PC.key:
        return row
    return row._replace(max_version=INIT_PRODUCER_ID_2PC.max_version)


_OF_CLIENTS: Final = tuple(row for row in ROWS if Listeners.CLIENTS in row.on)
_OF_BROKERS: Final = tuple(row for row in ROWS if Listeners.BROKERS in row.on)

APIS: Final = LateTable(_OF_CLIENTS, _find_api)
"""The APIs that clients are served, by key."""

APIS_WITH_2PC: Final = LateTable(tuple(map(_with_2pc, _OF_CLIENTS)), _find_api)
"""The same APIs with the unstable version 6 of InitProducerId (KIP-939)."""

HANDLERS: Final = LateTable(_OF_CLIENTS, _find_handler)
"""The handler of each API, by its key."""

PEER_HANDLERS: Final = LateTable(_OF_BROKERS, _find_handler)
"""The handler of each API that brokers use among each other, on a listener of their own."""


def apis_of(config: BrokerConfig) -> Apis:
    """Return the APIs that are served, by key; an unstable version only where its setting is on."""
    return APIS_WITH_2PC if config.transaction_two_phase_commit_enable else APIS
