"""docker-compose.yml, read as far as `scripts/cluster` needs it: services and their commands."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

FILE: Final = Path(__file__).parents[2] / "docker-compose.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service: its name, the words of its command, and where its volume is mounted."""

    name: str
    command: tuple[str, ...]
    volume: str

    @property
    def is_broker(self) -> bool:
        return self.command[0] == "odradek"

    def command_on(self, programs: dict[str, Path], directory: Path) -> list[str]:
        """Return the command for this machine: its programs, and a directory as the volume."""
        program, *words = self.command
        return [
            str(programs[program]),
            *(word.replace(self.volume, str(directory)) for word in words),
        ]


def parsed() -> dict[str, Any]:
    """Return the file as it stands, with merged keys."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def services() -> list[Service]:
    """Return the services without a profile, in the order of the file."""
    found = []
    for name, service in parsed()["services"].items():
        if "profiles" in service:
            continue
        (volume,) = service["volumes"]
        found.append(
            Service(
                name=name,
                command=tuple(words(service["command"])),
                volume=volume.partition(":")[2],
            )
        )
    return found


def with_settings(found: Iterable[Service], settings: Mapping[str, str]) -> list[Service]:
    """Return the services with settings of the brokers."""
    words = [word for item in settings.items() for word in ("--set", "=".join(item))]
    return [
        replace(service, command=(*service.command, *words)) if service.is_broker else service
        for service in found
    ]


def with_etcd_nodes(found: Iterable[Service], count: int) -> list[Service]:
    """Return the services with several nodes of etcd, etcd1 and so on, in place of the only one."""
    names = [f"etcd{1 + index}" for index in range(count)]
    endpoints = ",".join(f"http://{name}:2379" for name in names)
    made: list[Service] = []
    for service in found:
        if service.is_broker:
            words = (word.replace("http://etcd:2379", endpoints) for word in service.command)
            made.append(replace(service, command=tuple(words)))
        else:
            made.extend(_etcd_node(service, name, names) for name in names)
    return made


def _etcd_node(only: Service, name: str, names: list[str]) -> Service:
    words = [
        word.replace("--name=etcd", f"--name={name}").replace("//etcd:", f"//{name}:")
        for word in only.command
        if not word.startswith("--listen-peer-urls=")
    ]
    cluster = ",".join(f"{other}=http://{other}:2380" for other in names)
    peers = ["--listen-peer-urls=http://0.0.0.0:2380", f"--initial-cluster={cluster}"]
    peers.append(f"--initial-advertise-peer-urls=http://{name}:2380")
    return Service(name=name, command=(*words, *peers), volume=only.volume)


def words(command: str | list[str]) -> list[str]:
    """Return a command as words: compose allows a string and a list."""
    return shlex.split(command) if isinstance(command, str) else command
