"""How those come in whom a secured broker knows by their certificates, or by their passwords."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.certificates import Authority
from tests.judge.line import HERE, Line

GUEST: Final = "guest"
CHIEF: Final = "chief"
"""A super user."""
PRINCIPAL: Final = "User:CN={},O=Test"


class TlsLine(Line):
    """A connection that shows a certificate, from an address of this machine."""

    def __init__(self, context: ssl.SSLContext, port: int, source: str) -> None:
        self._context = context
        super().__init__(HERE, port, source=source)

    def _connect(self) -> None:
        super()._connect()
        self._socket = self._context.wrap_socket(self._socket)


@dataclass(frozen=True, slots=True)
class Doors:
    """The ports of further listeners, by their names, and where certificates are."""

    ports: Mapping[str, int]
    directory: Path

    def line(self, who: str, source: str = HERE) -> Line:
        return TlsLine(_context(self.directory, who), self.ports["SSL"], source)


@cache
def _context(directory: Path, who: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(directory / "ca.crt")
    context.load_cert_chain(directory / f"{who}.pem")
    return context


def make_certificates(directory: Path) -> None:
    """Write the files that brokers and `Doors` need."""
    authority = Authority(directory)
    for who in ("broker", CHIEF, GUEST):
        assert authority.signed(who).both_file == str(directory / f"{who}.pem")
