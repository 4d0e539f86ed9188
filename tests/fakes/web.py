"""A web framework of a few lines: what the sample of an application needs of FastAPI.

It calls the functions of an application as FastAPI does: the lifespan around all requests, and a
request as a coroutine of one event loop.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import Any

Handler = Callable[..., Awaitable[Any]]


class HTTPException(Exception):
    """An answer with an error code."""

    def __init__(self, status_code: int, detail: str) -> None:
        super().__init__(detail)
        self.status_code = status_code


class FastAPI:
    """An application: its lifespan, and its functions by path."""

    def __init__(
        self, *, lifespan: Callable[["FastAPI"], AbstractAsyncContextManager[None]]
    ) -> None:
        self.lifespan = lifespan
        self.handlers: dict[str, Handler] = {}

    def post(self, path: str) -> Callable[[Handler], Handler]:
        def keep(handler: Handler) -> Handler:
            assert set(inspect.signature(handler).parameters) >= {
                part[1:-1] for part in path.split("/") if part.startswith("{")
            }
            self.handlers[path] = handler
            return handler

        return keep

    def serve(self, path: str, requests: list[dict[str, Any]]) -> list[Any]:
        """Run the application for these requests, all at once. Return answers and errors."""

        async def run() -> list[Any]:
            async with self.lifespan(self):
                return await asyncio.gather(
                    *(self.handlers[path](**request) for request in requests),
                    return_exceptions=True,
                )

        return asyncio.run(run())


def as_fastapi() -> ModuleType:
    """Return a module `fastapi` with these classes, which a test puts into `sys.modules`."""
    module = ModuleType("fastapi")
    module.__dict__.update(FastAPI=FastAPI, HTTPException=HTTPException)
    return module
