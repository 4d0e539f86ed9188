"""The metadata that a command works on: of a stopped broker, or of a cluster in etcd."""

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import click
import trio

from odradek.broker.cluster.node_identity import NODE
from odradek.broker.cluster.security_keys import CannotChange
from odradek.broker.cluster.store import CLUSTER, check_metadata_format
from odradek.broker.cluster.store_embedded import NAMES, DamagedStore, EmbeddedStore
from odradek.broker.commands.given_settings import read_sources
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.settling import settle
from odradek.broker.environment.env import MetaStore
from odradek.broker.inspect.directory_locks import errors_of, locked
from odradek.broker.storage.disk import SystemDisk
from odradek.extras import ExtraMissing, imports_of
from odradek.protocol.errors import KafkaError

T = TypeVar("T")

PATIENCE_SECONDS: Final = 20.0
"""The time for the first answer of etcd."""
DIRECTORY_OPTION: Final = click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False),
    help="The directory of a broker that is alone, and stopped.",
)
ETCD_OPTION: Final = click.option(
    "--etcd",
    metavar="URL,...",
    help="The endpoints of a cluster's etcd.  [default: etcd.endpoints of --config or --set]",
)


def config_of(
    etcd: str | None, config_file: Path | None, assignments: tuple[str, ...]
) -> BrokerConfig:
    """Return the settings that a command is given. Raises ClickException."""
    if etcd is not None:
        assignments = (*assignments, f"etcd.endpoints={etcd}")
    try:
        return settle(*read_sources(config_file, assignments), ignore_unknown=True).config
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def with_store(
    data_dir: str | None, config: BrokerConfig, run: Callable[[MetaStore], Awaitable[T]]
) -> T:
    """Call `run` with the metadata store that the options name. Raises ClickException."""
    if (data_dir is None) == (not config.etcd_endpoints):
        raise click.UsageError(
            "Name the metadata: --data-dir of a broker that is alone, or --etcd of a cluster."
        )
    held: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if data_dir is not None:
        _check_directory(data_dir)
        held = locked(data_dir)

    async def main() -> T:
        async with _opened(data_dir, config) as store:
            found, _ = await store.range(CLUSTER)
            if CLUSTER in found:
                check_metadata_format(found[CLUSTER])
            return await run(store)

    try:
        with errors_of(data_dir or "etcd"), held:
            return trio.run(main)
    except* (CannotChange, DamagedStore, ConfigError, ExtraMissing, KafkaError) as group:
        raise click.ClickException(str(_first(group))) from None
    raise AssertionError("unreachable")


def _check_directory(directory: str) -> None:
    disk = SystemDisk()
    if disk.exists(f"{directory}/{NODE}"):
        raise click.ClickException(
            f"{directory} is that of a broker of a cluster, whose metadata is in etcd: give --etcd."
        )
    if not any(disk.exists(f"{directory}/{name}") for name in NAMES):
        raise click.ClickException(f"{directory} has no {NAMES[0]}: no broker has used it.")


@contextlib.asynccontextmanager
async def _opened(data_dir: str | None, config: BrokerConfig) -> AsyncIterator[MetaStore]:
    if data_dir is not None:
        embedded = await EmbeddedStore.open(SystemDisk(), data_dir)
        with contextlib.closing(embedded):
            yield embedded
        return
    with imports_of("cluster", "etcd.endpoints"):
        from odradek.broker.cluster.store_etcd import EtcdStore
    with trio.move_on_after(PATIENCE_SECONDS) as waiting:
        async with EtcdStore.open(config, rng=random.SystemRandom()) as store:
            waiting.deadline = float("inf")
            yield store
            return
    raise CannotChange(
        f"etcd did not answer at {config.etcd_endpoints} in {PATIENCE_SECONDS:.0f} s."
    )


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
