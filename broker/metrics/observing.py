"""The listener of metrics: what is served there, and when it says that the broker is ready."""

import logging
from collections.abc import Callable
from typing import Final

import trio

from odradek.broker.config.addresses import parse_address, printed
from odradek.broker.environment.env import Env
from odradek.broker.metrics.health import Health
from odradek.broker.metrics.http_server import HttpServer
from odradek.broker.metrics.inside import Inside
from odradek.broker.metrics.page import MetricsPage
from odradek.broker.server.ports import CannotServe

LOGGER: Final = logging.getLogger(__name__)
SETTING: Final = "metrics.listen"


async def observe(
    env: Env,
    listen: str,
    inside: Inside,
    *,
    task_status: trio.TaskStatus[Health] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `/metrics`, `/live`, `/ready` and `/health` until cancelled.

    `listen` is HOST:PORT. Raises `CannotServe`, `ConfigError`.
    """
    host, port = parse_address(listen, SETTING)
    health = Health(inside)
    server = HttpServer(
        env.net,
        {
            "/metrics": MetricsPage(inside, env.offload).get,
            "/live": health.live,
            "/ready": health.ready,
            "/health": health.health,
        },
    )

    def started(host: str, port: int, open_port: Callable[[], None]) -> None:
        open_port()
        LOGGER.info("metrics are at http://%s/metrics", printed(host, port))
        task_status.started(health)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(inside.loop_lag.run)
        nursery.start_soon(inside.probes.loop_busy.run)
        try:
            await server.serve(host, port, started=started)
        except* OSError as group:
            raise CannotServe(
                f"{SETTING}: {printed(host, port)} cannot be listened on: {_first(group)}."
            ) from None


def _first(group: BaseExceptionGroup[OSError]) -> str:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return getattr(first, "strerror", None) or str(first)
