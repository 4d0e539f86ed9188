"""Declarations of what is served: an API, its handler, and the listeners."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from odradek.broker.api.context import Deferred, RequestContext
from odradek.broker.api.listeners import Listeners as Listeners
from odradek.broker.api.needs import Needs
from odradek.late import dataclass
from odradek.protocol.api import Api

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class ServedApi(Generic[Request, Response]):
    """One API, the function that answers it (`context.py:Handler`), and the rights it needs."""

    api: Api[Request, Response]
    handler: Callable[[RequestContext, Request], Awaitable[Response | Deferred | None]]
    needs: Needs
    on: Listeners = Listeners.CLIENTS
