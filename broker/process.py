"""A broker as an operating system process: directory, lock, signals, log, and the start-up line."""

import contextlib
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from odradek.broker.api import MODULES, declarations_of
from odradek.broker.broker import Address, CannotServe, Started, serve
from odradek.broker.cluster.node_identity import WrongDirectory, check_alone
from odradek.broker.cluster.session import NodeIdTaken
from odradek.broker.cluster.store_embedded import DamagedStore, EmbeddedStore, check_not_kafkas
from odradek.broker.config.addresses import Listener, printed
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.sasl import OAUTHBEARER, PLAIN
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.together import check_one_broker
from odradek.broker.environment import allocator, collector
from odradek.broker.environment.env import MetaStore
from odradek.broker.environment.log_lines import LimitedHandler
from odradek.broker.environment.service_manager import ServiceManager
from odradek.broker.environment.system import (
    has_terminal,
    host_name,
    is_address,
    is_loopback,
    is_wildcard,
    raise_file_limit,
    system_env,
)
from odradek.broker.storage.data_format import FILE as FORMAT_FILE
from odradek.broker.storage.data_format import UnknownFormat, claim_format
from odradek.broker.storage.disk import SystemDisk
from odradek.broker.storage.reserve import ReservedDisk
from odradek.broker.txn.tenure import OnChanged
from odradek.extras import ExtraMissing, imports_of
from odradek.protocol.log_formats import JSON, formatter_of, start_line

if TYPE_CHECKING:
    from odradek.broker.config.sasl_listeners import SaslOfListener
    from odradek.broker.oauth.listener_oauth import ListenerOAuth
    from odradek.broker.page_process import PageProcess
    from odradek.broker.tls.listener_tls import ListenerTls

LOGGER: Final = logging.getLogger(__name__)

E = TypeVar("E", bound=BaseException)

LOCK_FILE: Final = ".lock"
FILES_OF_A_CONNECTION: Final = 2
"""The part of the open files of a process that may be connections: a half."""
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
IMPORT_EVERY_SECONDS: Final = 0.1
"""The time between two modules of APIs that are imported after the start: each takes a few ms."""
IMPORT_AGAIN_SECONDS: Final = 5.0
"""The time until modules whose files could not be opened are imported again."""
ATTEMPTS_PER_SESSION: Final = 3
"""Endpoints of etcd that may be tried in vain before the registration of a broker ends."""


def run(
    config: BrokerConfig,
    directory: Path | None,
    listeners: tuple[Listener, ...],
    page_at: str | None = None,
) -> None:
    """Run a broker until a signal stops it. Without a directory it uses a temporary one.

    `page_at` is HOST:PORT of its page, None without.
    Raises `CannotServe`.
    """
    handler = LimitedHandler()
    handler.setFormatter(formatter_of(config.log_format))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if config.log_format == JSON:
        sys.excepthook = _log_end
    try:
        if not config.etcd_endpoints:
            check_one_broker(config)
        sasl = _sasl_of(listeners, config)
        tls = _tls_of(listeners, config, sasl)
        oauth = _oauth_of(sasl, config)
        page = _page_of(page_at, listeners) if page_at is not None else None
    except (ConfigError, ExtraMissing) as error:
        raise CannotServe(str(error)) from None
    address = Address(
        listeners=tuple(
            replace(each, advertised_host=each.advertised_host or _reachable(each.host))
            for each in listeners
        ),
        peer_port=config.inter_broker_listener_port if config.etcd_endpoints else None,
        tls=tls,
        sasl=sasl,
        oauth=oauth,
    )
    connections_max = raise_file_limit() // FILES_OF_A_CONNECTION
    with _data_directory(directory) as data, _lock(data):
        try:
            is_ephemeral = directory is None
            trio.run(_main, config, data, is_ephemeral, address, connections_max, handler, page)
        except trio.TrioInternalError as error:
            # The end of a flush is a callback of trio's own queue, so `_main` is only cancelled.
            cause = error.__cause__
            if isinstance(cause, BaseExceptionGroup):
                broken = cause.subgroup(AssertionError)
                if broken is not None:
                    _log_broken(broken)
            raise


def _tls_of(
    listeners: Sequence[Listener], config: BrokerConfig, sasl: "dict[str, SaslOfListener]"
) -> "dict[str, ListenerTls]":
    """Return the TLS of each listener that has it. Raises `ConfigError`."""
    with_tls = [each for each in listeners if each.has_tls]
    if not with_tls:
        return {}
    from odradek.broker.tls.listener_tls import ListenerTls

    between = listeners[0].name if config.etcd_endpoints else None
    return {
        each.name: ListenerTls(
            each.name,
            config,
            is_for_brokers=each.name == between,
            has_sasl=each.has_sasl,
            has_login=each.has_sasl and sasl[each.name].login is not None,
        )
        for each in with_tls
    }


def _sasl_of(listeners: Sequence[Listener], config: BrokerConfig) -> "dict[str, SaslOfListener]":
    """Return the SASL of each listener that has it. Raises `ConfigError`."""
    with_sasl = [each.name for each in listeners if each.has_sasl]
    if not with_sasl:
        return {}
    from odradek.broker.config.sasl_listeners import check_between_brokers, sasl_of
    from odradek.broker.tls.secret_text import read_secret_text

    found = {name: sasl_of(config, name, read_secret_text) for name in with_sasl}
    if config.etcd_endpoints:
        check_between_brokers(config, listeners[0], found.get(listeners[0].name))
    return found


def _oauth_of(
    sasl: "dict[str, SaslOfListener]", config: BrokerConfig
) -> "dict[str, ListenerOAuth]":
    """Return the OAUTHBEARER of each listener that has it. Raises `ConfigError`, `ExtraMissing`."""
    with_oauth = [name for name, each in sasl.items() if OAUTHBEARER in each.mechanisms]
    if not with_oauth:
        return {}
    from odradek.broker.oauth.listener_oauth import ListenerOAuth

    return {name: ListenerOAuth(name, config) for name in with_oauth}


def _page_of(page_at: str, listeners: Sequence[Listener]) -> "PageProcess":
    """Open the port of the page. Raises `ConfigError`."""
    from odradek.broker.page_process import PageProcess

    return PageProcess.bind(page_at, listeners)


def _reachable(host: str) -> str:
    """Return the host to advertise; "" for the very address that is listened on."""
    if is_wildcard(host):
        return host_name()
    return "" if is_address(host) else host


@contextlib.contextmanager
def _data_directory(directory: Path | None) -> Iterator[Path]:
    if directory is None:
        made = Path(tempfile.mkdtemp(prefix="odradek-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise CannotServe(
            f"{directory} cannot be the data directory: it, or what it is in, is a file."
        ) from None
    except OSError as error:
        raise CannotServe(
            f"The data directory {directory} cannot be made: {error.strerror}."
        ) from None
    yield directory


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    try:
        lock = SystemDisk().lock(f"{directory}/{LOCK_FILE}")
    except BlockingIOError:
        raise CannotServe(
            f"Another broker uses {directory}; stop it, or choose another --data-dir."
        ) from None
    except OSError as error:
        raise CannotServe(
            f"The data directory {directory} cannot be written: {error.strerror}."
        ) from None
    try:
        yield
    finally:
        lock.release()


async def _main(
    config: BrokerConfig,
    directory: Path,
    is_ephemeral: bool,
    address: Address,
    connections: int,
    log_lines: LimitedHandler,
    page: "PageProcess | None",
) -> None:
    disk = ReservedDisk(SystemDisk(), str(directory), config.log_reserve_bytes)
    stop = trio.Event()
    starting = trio.CancelScope()
    has_started = trio.Event()
    manager = ServiceManager.of_environment(os.environ, os.getpid())

    def started(what: Started) -> None:
        link = page.link if page is not None else None
        sentence = _say_started(what, config, directory, is_ephemeral, link)
        manager.set_status(sentence)
        has_started.set()
        if page is not None:
            nursery.start_soon(page.run, what.listeners)

    try:
        if not disk.exists(f"{directory}/{FORMAT_FILE}"):  # before anything is written there
            check_not_kafkas(str(directory), disk.listdir(str(directory)))
        await claim_format(disk, str(directory))
        disk.prepare()
        async with trio.open_nursery() as nursery:
            renewals: list[Callable[[], object]] = [each.reload for each in address.tls.values()]
            for tls in address.tls.values():
                nursery.start_soon(tls.watch)
            for oauth in address.oauth.values():
                nursery.start_soon(oauth.run)
                renewals.append(oauth.renew)
            with_plain = [each for each in address.sasl.values() if PLAIN in each.mechanisms]
            renewals.extend(each.users_file.reload for each in with_plain)
            signals = partial(_wait_for_signal, stop, has_started, starting, renewals, manager)
            await nursery.start(signals)
            nursery.start_soon(manager.run, has_started, stop)
            nursery.start_soon(log_lines.run)
            nursery.start_soon(_import_the_rest, has_started)
            nursery.start_soon(_keep_freed_memory, has_started)
            with starting:
                async with (
                    _metadata_store(config, disk, directory) as meta,
                    _spans(config) as transaction_changed,
                ):
                    await serve(
                        system_env(disk, meta),
                        config,
                        directory=str(directory),
                        address=address,
                        started=started,
                        stop=stop,
                        connections_max=connections,
                        loaded=collector.resume,
                        transaction_changed=transaction_changed,
                    )
            nursery.cancel_scope.cancel()
    except* (CannotServe, ConfigError, UnknownFormat, WrongDirectory, NodeIdTaken) as group:
        raise CannotServe(str(_first(group))) from None
    except* (DamagedStore, OSError) as group:
        raise CannotServe(
            f"The data directory {directory} cannot be used: {_first(group)}"
        ) from None
    except* AssertionError as group:
        _log_broken(group)
        raise


@contextlib.asynccontextmanager
async def _metadata_store(
    config: BrokerConfig, disk: ReservedDisk, directory: Path
) -> AsyncIterator[MetaStore]:
    """Open the metadata store: in the data directory, or that of a cluster.

    Raises CannotServe, ConfigError, WrongDirectory, DamagedStore, OSError.
    """
    if not config.etcd_endpoints:
        check_alone(disk, str(directory))
        embedded = await EmbeddedStore.open(disk, str(directory))
        try:
            yield embedded
        finally:
            embedded.close()
        return
    try:
        with imports_of("cluster", "etcd.endpoints"):
            from odradek.broker.cluster.store_etcd import EtcdStore
    except ExtraMissing as missing:
        raise CannotServe(str(missing)) from None
    seconds = config.broker_session_timeout_ms / 1000 / ATTEMPTS_PER_SESSION
    rng = random.SystemRandom()
    async with EtcdStore.open(config, timeout_s=seconds, rng=rng) as store:
        yield store


@contextlib.asynccontextmanager
async def _spans(config: BrokerConfig) -> AsyncIterator[OnChanged | None]:
    """Trace transactions in the block, if the settings say so. Raises `CannotServe`."""
    if not config.otel_traces_exporter:
        yield None
        return
    from odradek.broker.environment.otel import SETTING, open_tracer
    from odradek.broker.txn.spans import TransactionSpans

    async with contextlib.AsyncExitStack() as stack:
        try:
            opened = open_tracer(config.otel_traces_exporter, config.node_id)
            tracer = await stack.enter_async_context(opened)
        except ExtraMissing as missing:
            raise CannotServe(str(missing)) from None
        except ValueError as error:
            raise CannotServe(
                f"{SETTING}: OpenTelemetry refuses a variable of the environment: {error}"
            ) from error
        yield TransactionSpans(tracer, config.node_id).note_change


async def _keep_freed_memory(has_started: trio.Event) -> None:
    await has_started.wait()
    with contextlib.suppress(OSError):  # there is no /proc: the memory is kept
        await allocator.keep_freed_memory()


async def _import_the_rest(has_started: trio.Event) -> None:
    """Import the APIs that no request has asked for yet, one by one, after the start."""
    await has_started.wait()
    left = [*MODULES]
    while left:
        failed: dict[str, OSError] = {}
        for module in left:
            await trio.sleep(IMPORT_EVERY_SECONDS)
            try:
                declarations_of(module)
            except OSError as error:
                failed[module] = error
            except Exception:  # its requests try again, and close their connections
                LOGGER.exception("odradek.broker.api.%s cannot be imported", module)
        left = [*failed]
        if left:
            LOGGER.warning(
                "%d modules of APIs are not imported yet, and are tried again in %g s: %s",
                len(left),
                IMPORT_AGAIN_SECONDS,
                failed[left[0]],
            )
            await trio.sleep(IMPORT_AGAIN_SECONDS)


async def _wait_for_signal(
    stop: trio.Event,
    has_started: trio.Event,
    starting: trio.CancelScope,
    renewals: Sequence[Callable[[], object]],
    manager: ServiceManager,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    # SIGHUP: the terminal is closed. To a service it means that it may read its settings anew. It
    # is ignored from the start under nohup, and stays so.
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    hangups = () if is_ignored else (signal.SIGHUP,)
    in_terminal = has_terminal()
    with trio.open_signal_receiver(*STOP_SIGNALS, *hangups) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP and not in_terminal:
                if not renewals:
                    LOGGER.info("SIGHUP changes nothing: settings are read at the start only")
                async with manager.reloading():
                    for renew in renewals:
                        renew()  # in the loop, as other changes of its settings are made
                continue
            LOGGER.info("stopping, as %s asks for it", signal.Signals(number).name)
            stop.set()
            if not has_started.is_set():
                starting.cancel()  # it may wait for etcd, or for the node id of another broker


def _say_started(
    what: Started, config: BrokerConfig, directory: Path, is_ephemeral: bool, link: str | None
) -> str:
    """Print and return the sentence of the start, and warn of what it opens to everybody."""
    first, *others = what.listeners
    shown = ", ".join(
        [
            printed(first.host, first.port),
            *(f"{each.name} {printed(each.host, each.port)}" for each in others),
        ]
    )
    data = f"{directory} (goes away)" if is_ephemeral else str(directory)
    sentence = (
        f"odradek serves {shown}, data in {data}, log.flush={config.log_flush}, "
        f"{what.recovered} in {what.seconds:.2f} s{'' if link is None else f'; page at {link}'}"
    )
    print(start_line(sentence, config.log_format), flush=True)
    for each in what.listeners:
        asks_for_certificates = (
            each.has_tls and config.of_listener(each.name, "ssl.client.auth") == "required"
        )
        if not is_loopback(each.host) and not (asks_for_certificates or each.has_sasl):
            LOGGER.warning(
                "there is no authentication: any client of %s may read and write everything; "
                "Metadata sends clients to %s:%d (--advertise changes that)",
                printed(each.host, each.port),
                each.advertised_host,
                each.advertised_port,
            )
    return sentence


def _log_end(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Log the exception that ends the process: Python would print it in lines that are no JSON."""
    LOGGER.critical("the broker ends with an error", exc_info=(kind, error, traceback))


def _log_broken(group: BaseExceptionGroup[AssertionError]) -> None:
    LOGGER.critical("the broker stops, as an invariant is broken: %s", _first(group))


def _first(group: BaseExceptionGroup[E]) -> E:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
