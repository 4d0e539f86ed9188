"""Every API that a module in `protocol/apis/` declares, by key."""

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from odradek.protocol import apis
from odradek.protocol.api import Api
from odradek.protocol.apis.txn import INIT_PRODUCER_ID_2PC


def _declared() -> Iterator[Api[Any, Any]]:
    for module in pkgutil.iter_modules(apis.__path__):
        for value in vars(import_module(f"{apis.__name__}.{module.name}")).values():
            if isinstance(value, Api) and value is not INIT_PRODUCER_ID_2PC:
                yield value


APIS: Final[Mapping[int, Api[Any, Any]]] = {
    api.key: api for api in sorted(_declared(), key=lambda api: api.key)
}
APIS_WITH_2PC: Final[Mapping[int, Api[Any, Any]]] = {
    **APIS,
    INIT_PRODUCER_ID_2PC.key: INIT_PRODUCER_ID_2PC,
}
"""The same APIs with the unstable version 6 of InitProducerId (KIP-939)."""
