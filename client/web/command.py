"""`odradek web`: serve the page until it is stopped."""

import logging
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Final

import click
import trio

from odradek.client.administration.admin import Admin
from odradek.client.cli.common import (
    CommandError,
    connection_options,
    limits,
    reports_errors,
    sentence,
    show_log,
)
from odradek.client.cluster.nursery import ClientNursery
from odradek.client.config import ClientOptions
from odradek.client.tls.secret_files import warning_about
from odradek.client.web.access import AccessSource, WhyQuestion
from odradek.client.web.board import Board
from odradek.client.web.cluster import ClusterSource
from odradek.client.web.entrance import (
    DEFAULT_PORT,
    Listener,
    UnsafePage,
    address_of,
    adopt,
    check_safe,
    listen,
    port_of,
    proxy_of,
    tls_of,
    visitors_of,
)
from odradek.client.web.groups import GroupSource
from odradek.client.web.guard import Visitors
from odradek.client.web.page_server import PageFile, PageServer
from odradek.client.web.poller import Poller
from odradek.client.web.transactions import PinSource, TransactionSource
from odradek.protocol.log_formats import JSON, TEXT, JsonLine, start_line

LOGGER: Final = logging.getLogger(__name__)
CLIENT_ID: Final = "odradek web"
DEFAULT: Final = f"127.0.0.1:{DEFAULT_PORT}"
LOOK_MS: Final = 3_000
"""A look gives up after this time, so a broker that is down is shown soon."""
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX: Final = "index.html"
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""One that is ignored, as SIGHUP under nohup, stays so."""


@click.command()
@click.option(
    "--listen",
    "listen_on",
    metavar="HOST:PORT",
    default=DEFAULT,
    show_default=True,
    help="Where to serve the page; port 0 picks a free one.",
)
@click.option(
    "--name",
    "names",
    metavar="HOST",
    multiple=True,
    help="A further name by which browsers may ask for the page. Repeatable.",
)
@click.option(
    "--tls-certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Serve by https, with this certificate and its chain, as PEM.",
)
@click.option(
    "--tls-key",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The key of the certificate, unless its file has it.",
)
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show the page only to those who know a password: lines NAME:PASSWORD.",
)
@click.option(
    "--proxy",
    "proxies",
    metavar="ADDRESS",
    multiple=True,
    help="The address, or the network, of a reverse proxy that serves the page by https. Other "
    "machines reach the page only through it. Repeatable.",
)
@click.option(
    "--user-header",
    metavar="HEADER",
    help="The header in which the proxy says who the visitor is; then no password is needed.",
)
@click.option(
    "--log-format",
    type=click.Choice([TEXT, JSON]),
    default=TEXT,
    show_default=True,
    help="The form of its log and of the line with the link: json is one object a line.",
)
@click.option("--until-stdin-ends", is_flag=True, hidden=True)
@click.option("--inherited-socket", type=int, hidden=True)
@connection_options
@reports_errors
def web(
    listen_on: str,
    names: tuple[str, ...],
    tls_certificate: Path | None,
    tls_key: Path | None,
    password_file: Path | None,
    proxies: tuple[str, ...],
    user_header: str | None,
    log_format: str,
    until_stdin_ends: bool,
    inherited_socket: int | None,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Serve a page that shows transactions, and whom they keep waiting.

    It is a client of its own, which changes nothing. With access control it
    shows what its user may describe. Beyond this machine it is served only with
    TLS and passwords, or through a proxy that has both.
    """
    if log_format == JSON:
        show_json()
    else:
        show_log()
    try:
        host, port = address_of(listen_on)
        tls = tls_of(tls_certificate, tls_key)
        proxy = proxy_of(proxies, user_header)
        visitors = visitors_of(host, names, password_file, proxy)
        has_passwords = bool(visitors.passwords)
        check_safe(host, has_tls=tls is not None, has_passwords=has_passwords, proxy=proxy)
    except UnsafePage as error:
        raise _refused(error, log_format) from None
    for secret in (password_file, tls_key):
        warning = None if secret is None else warning_about(secret)
        if warning is not None:
            _warn(warning, log_format)
    options = limits(timeout_s)
    options["max_block_ms"] = min(options["max_block_ms"], LOOK_MS)
    options["first_connect_ms"] = options["max_block_ms"]
    options.setdefault("client_id", CLIENT_ID)
    scheme = "http" if tls is None else "https"

    def started(listeners: Sequence[Listener]) -> None:
        link = f"{scheme}://{visitors.names[0]}:{port_of(listeners[0])}/"
        whom = "" if proxy is None else " to its proxy"
        said = f"odradek web shows the brokers of {bootstrap}{whom} at {link}"
        click.echo(start_line(said, log_format))
        sys.stdout.flush()

    async def bound() -> Sequence[Listener]:
        if inherited_socket is not None:
            return adopt(inherited_socket)
        return await listen(host, port, tls)

    ends = [_wait_signal, _wait_stdin_end] if until_stdin_ends else [_wait_signal]
    try:
        trio.run(
            partial(
                _serve,
                bootstrap,
                options,
                visitors,
                bound=bound,
                started=started,
                ends=ends,
            )
        )
    except* UnsafePage as group:
        raise _refused(group.exceptions[0], log_format) from None


async def _serve(
    bootstrap: str,
    options: ClientOptions,
    visitors: Visitors,
    *,
    bound: Callable[[], Awaitable[Sequence[Listener]]],
    started: Callable[[Sequence[Listener]], None],
    ends: Sequence[Callable[[], Awaitable[None]]],
) -> None:
    """Serve the page until one of `ends` returns."""
    board = Board()
    board.put("about", "", {"bootstrap": bootstrap})
    transactions, cluster = TransactionSource(), ClusterSource()
    sources = [
        *(transactions, cluster, PinSource(transactions, cluster, bootstrap)),
        *(GroupSource(), AccessSource()),
    ]
    listeners = await bound()
    admin = Admin(bootstrap, **options)
    questions = {"/why": WhyQuestion(admin)}
    server = PageServer(board, page_files(), questions, visitors, secrets.token_hex(8))
    poller = Poller(board, sources, server.on_changed)

    async def end_after(end: Callable[[], Awaitable[None]]) -> None:
        await end()
        nursery.cancel_scope.cancel()

    async def serve_on(listener: Listener) -> None:
        await trio.serve_listeners(server.serve_one, [listener])

    async with admin, ClientNursery() as nursery:
        for end in ends:
            nursery.start_soon(end_after, end)
        nursery.start_soon(poller.run, admin)
        for listener in listeners:
            nursery.start_soon(serve_on, listener)
        started(listeners)


def page_files() -> dict[str, PageFile]:
    """Return the files of the page by their paths; the first page also as `/`."""
    found = {}
    for file in resources.files("odradek.client.web").joinpath("page").iterdir():
        content_type = TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            found[f"/{file.name}"] = PageFile(file.read_bytes(), content_type)
    found["/"] = found[f"/{INDEX}"]
    return found


def _warn(text: str, log_format: str) -> None:
    if log_format == JSON:
        LOGGER.warning("%s", text, extra={"cause": "readable by others"})
    else:
        click.echo(f"Warning: {text}", err=True)


def _refused(error: Exception, log_format: str) -> Exception:
    """Return what ends the command when the page cannot be served. JSON has it logged."""
    said = sentence(str(error))
    if log_format != JSON:
        return CommandError(said, None, False)
    LOGGER.critical("%s", said, extra={"cause": "cannot serve"})
    return click.exceptions.Exit(1)


def show_json() -> None:
    """Write the log as JSON, and an error that ends the process, too."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    sys.excepthook = _log_end


def _log_end(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Log the exception that ends the process: Python would print it in lines that are no JSON."""
    LOGGER.critical("odradek web ends with an error", exc_info=(kind, error, traceback))


async def _wait_signal() -> None:
    wanted = [each for each in STOP_SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*wanted) as signals:
        async for _ in signals:
            return


async def _wait_stdin_end() -> None:
    """Wait until the process that holds the other end of standard input has ended."""
    number = sys.stdin.fileno()
    while True:
        await trio.lowlevel.wait_readable(number)
        if not os.read(number, 1024):
            return
