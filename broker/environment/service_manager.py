"""The service manager that started this process: systemd, or what speaks its protocol.

Its environment names a datagram socket (`NOTIFY_SOCKET`), to which a service writes lines such as
`READY=1`: see sd_notify(3). An address that begins with `@` is abstract: it is no file.

    STATUS=       a sentence, which `systemctl status` shows
    EXTEND_TIMEOUT_USEC=  while the broker starts: a long recovery is no reason to kill it
    READY=1       clients are served
    RELOADING=1   files are read anew, after SIGHUP; READY=1 follows
    STOPPING=1    the broker stops
    WATCHDOG=1    the event loop turns. It is sent twice in the time that `WATCHDOG_USEC` gives

All of it is sent by tasks of the event loop. So a loop that stands sends nothing, and the manager
kills the process, and starts it again.
"""

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Final

import trio

LOGGER: Final = logging.getLogger(__name__)

EXTEND_EVERY_SECONDS: Final = 10.0
SEND_SECONDS: Final = 5.0
"""The time for which a manager may have no room for a datagram, which is left out then."""
EXTENSION_SECONDS: Final = 60.0
"""The time that a start may take from now on: a loop that stands for so long is killed."""
MICROSECONDS: Final = 1_000_000


class ServiceManager:
    """Notifies the manager. Without one, every method does nothing."""

    def __init__(self, address: str | None, *, watchdog_seconds: float | None = None) -> None:
        """`address` is that of `NOTIFY_SOCKET`; without it there is no manager."""
        self._address = address
        self._watchdog_seconds = watchdog_seconds if address else None
        self._status = ""
        self._is_ready = False

    @classmethod
    def of_environment(cls, environment: Mapping[str, str], process_id: int) -> "ServiceManager":
        """Return the manager that a process finds in its environment."""
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            if address:
                LOGGER.warning(
                    "NOTIFY_SOCKET=%s is no path and no abstract address: the service manager is "
                    "not notified",
                    address,
                )
            return cls(None)
        return cls(address, watchdog_seconds=_watchdog_seconds(environment, process_id))

    async def run(
        self, has_started: trio.Event, stop: trio.Event, *, status: str = "starting"
    ) -> None:
        """Notify the manager of the life of the broker, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._feed_watchdog)
            await self._notify(f"STATUS={status}")
            while not has_started.is_set():
                await self._notify(f"EXTEND_TIMEOUT_USEC={int(EXTENSION_SECONDS * MICROSECONDS)}")
                with trio.move_on_after(EXTEND_EVERY_SECONDS):
                    await has_started.wait()
            self._is_ready = True
            await self._notify("READY=1", f"STATUS={self._status}")
            await stop.wait()
            self._is_ready = False
            await self._notify("STOPPING=1", "STATUS=stopping: logs are flushed")

    def set_status(self, sentence: str) -> None:
        """Set the status of a broker that serves."""
        self._status = sentence

    @contextlib.asynccontextmanager
    async def reloading(self) -> AsyncIterator[None]:
        """Notify the manager that the block reads files anew, and of its end.

        It is not notified before the broker serves, as the end of the block would be `READY=1`.
        """
        if not self._is_ready:
            yield
            return
        now = time.monotonic_ns() // 1_000
        await self._notify("RELOADING=1", f"MONOTONIC_USEC={now}", "STATUS=reading files anew")
        try:
            yield
        finally:
            if self._is_ready:
                await self._notify("READY=1", f"STATUS={self._status}")

    async def _feed_watchdog(self) -> None:
        if self._watchdog_seconds is None:
            return
        while True:
            await self._notify("WATCHDOG=1")
            await trio.sleep(self._watchdog_seconds / 2)

    async def _notify(self, *lines: str) -> None:
        """Send a datagram, for which the manager gets some seconds: it may be busy."""
        if self._address is None:
            return
        # The first byte of an abstract address is zero.
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        try:
            with (
                trio.fail_after(SEND_SECONDS),
                trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM) as connection,
            ):
                # Without `connect` the socket counts as writable while the manager has no room, and
                # each turn of the loop would try again.
                await connection.connect(address)
                await connection.send("\n".join(lines).encode(errors="replace"))
        except trio.TooSlowError:
            LOGGER.warning(
                "the service manager at %s has had no room for a message for %.0f s",
                self._address,
                SEND_SECONDS,
            )
        except OSError as error:
            LOGGER.warning("the service manager at %s cannot be notified: %s", self._address, error)


def _watchdog_seconds(environment: Mapping[str, str], process_id: int) -> float | None:
    """Return the time within which the manager wants `WATCHDOG=1`; None if it does not want it."""
    if environment.get("WATCHDOG_PID", str(process_id)) != str(process_id):
        return None  # the watchdog is for another process, which has started this one
    try:
        microseconds = int(environment.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return microseconds / MICROSECONDS if microseconds > 0 else None
