"""`odradek ping`: the health check of a container or a service manager.

It runs every few seconds, so it starts quickly: it imports neither the client nor the protocol,
and its one request, ApiVersions in version 0, is written here by hand. A broker opens its ports
when it leads what it is elected for, so one that answers is ready.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final

import click

DEFAULT: Final = "127.0.0.1:9092"
PORT: Final = 9092
API_VERSIONS: Final = 18
CLIENT_ID: Final = b"odradek ping"
HEAD: Final = struct.Struct(">hhih")
"""API key, version, correlation id, the length of the client id."""
ANSWERED: Final = struct.Struct(">iihi")
"""Size, correlation id, error code, the number of APIs."""
CORRELATION_ID: Final = 1
TLS_ALERT: Final = b"\x15\x03"
"""How a server that has TLS answers a plain request."""
Secure = Callable[[socket.socket, str], socket.socket]
"""Agrees on TLS over a connection to a host. Raises OSError."""


class NoAnswer(Exception):
    """The place does not answer as a broker does: the end of a sentence for a person."""


class Patience(click.FloatRange):
    """A number of seconds, or a duration such as 500ms."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, str) and not value[-1:].isdigit():
            from odradek.protocol import quantities  # not for a plain number

            try:
                value = quantities.seconds(value)
            except ValueError as error:
                self.fail(f"{error}.", param, ctx)
            if value is None:
                self.fail("it is no number of seconds, nor a duration such as 500ms.", param, ctx)
        return super().convert(value, param, ctx)


@click.command()
@click.option(
    "--bootstrap",
    "-b",
    metavar="HOST:PORT",
    envvar="ODRADEK_BOOTSTRAP",
    default=DEFAULT,
    show_default=True,
    show_envvar=True,
    help="The broker, or several separated by commas: each must answer.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Patience(0.001, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a broker may take.",
)
@click.option(
    "--command-config",
    metavar="FILE",
    envvar="ODRADEK_COMMAND_CONFIG",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A file of Kafka's client settings: security.protocol, ssl.*, bootstrap.servers.",
)
@click.option(
    "--profile",
    metavar="NAME",
    envvar="ODRADEK_PROFILE",
    show_envvar=True,
    help="The same from ~/.config/odradek/NAME.properties.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each broker.")
def ping(
    bootstrap: str,
    timeout_s: float,
    command_config: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Check that a broker answers. For health checks: it starts in a tenth of a second.

    The exit status is 0 if each broker accepts a connection and answers ApiVersions, and 1
    otherwise. A broker of Odradek that has just started answers when it leads its partitions.

    \b
    Keys of --json: address, answers (true or false), milliseconds, error.
    """
    is_well = True
    secure = None
    if command_config is not None or profile is not None:
        of_file, secure = _of_file(command_config, profile)
        source = click.get_current_context().get_parameter_source("bootstrap")
        if of_file is not None and source is click.core.ParameterSource.DEFAULT:
            bootstrap = of_file
    for address in bootstrap.split(","):
        began = time.monotonic()
        error = None
        try:
            _ask(*_address(address.strip()), began + timeout_s, secure)
        except NoAnswer as refusal:
            error = str(refusal)
        took_ms = round((time.monotonic() - began) * 1000, 1)
        is_well = is_well and error is None
        _show(address.strip(), took_ms, error, as_json)
    if not is_well:
        raise click.exceptions.Exit(1)


def _show(address: str, took_ms: float, error: str | None, as_json: bool) -> None:
    if as_json:
        facts = {"address": address, "answers": error is None, "milliseconds": took_ms}
        click.echo(json.dumps({**facts, "error": error}))
    elif error is None:
        click.echo(f"{address} answers, in {took_ms:.1f} ms.")
    else:
        click.echo(f"Error: {address} {error}.", err=True)


def _address(text: str) -> tuple[str, int]:
    """Return host and port. An IPv6 address is in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 2**16 or not host:
        raise click.BadParameter(f"{text!r} is not HOST:PORT.", param_hint="--bootstrap")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _of_file(command_config: str | None, profile: str | None) -> tuple[str | None, Secure | None]:
    """Return the address of a file of settings, and what gives a connection its TLS, if any."""
    from pathlib import Path

    from odradek.client.cli.client_properties import (
        gives_way,
        profile_file,
        read_client_properties,
        warnings_of,
    )
    from odradek.client.config import ClientConfig

    are_both = command_config is not None and profile is not None
    if are_both and gives_way(click.get_current_context(), "command_config"):
        command_config = None
    try:
        file = Path(command_config) if command_config is not None else profile_file(profile or "")
        found = read_client_properties(file)
        context = ClientConfig(**found.options).tls_context()
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{str(error).rstrip('.')}.") from None
    for warning in warnings_of(file, found):
        click.echo(warning, err=True)
    if context is None:
        return found.bootstrap, None
    return found.bootstrap, lambda plain, host: context.wrap_socket(plain, server_hostname=host)


def _ask(host: str, port: int, deadline: float, secure: Secure | None) -> None:
    """Send a request, and read the answer. Raises `NoAnswer`."""
    request = HEAD.pack(API_VERSIONS, 0, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID
    try:
        with socket.create_connection((host, port), timeout=_left(deadline)) as plain:
            plain.settimeout(_left(deadline))
            with plain if secure is None else secure(plain, host) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                _check(_received(connection, ANSWERED.size, deadline))
    except TimeoutError:
        raise NoAnswer("does not answer in time") from None
    except socket.gaierror as error:
        raise NoAnswer(f"has no address: {error.strerror}") from None
    except UnicodeError:  # of the codec for names: a..b, or 64 characters without a dot
        raise NoAnswer("has no address: it is not the name of a machine") from None
    except OSError as error:
        why = str(error)
        if secure is not None and not isinstance(error, ConnectionRefusedError):
            from odradek.client.tls.failures import why_not_connected

            why = why_not_connected(error, f"{host}:{port}", host)
            raise NoAnswer(f"cannot be reached: {why}") from None
        if error.errno:
            why = os.strerror(error.errno)
        raise NoAnswer(f"cannot be reached: {why}") from None


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _received(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Return as many bytes as the front of an answer has."""
    received = b""
    while len(received) < size:
        connection.settimeout(_left(deadline))
        some = connection.recv(size - len(received))
        if not some:
            raise NoAnswer(_other(received) if received else "closed the connection unanswered")
        received += some
    return received


def _check(answer: bytes) -> None:
    size, correlation_id, error_code, api_count = ANSWERED.unpack(answer)
    if size < ANSWERED.size - 4 or correlation_id != CORRELATION_ID:
        raise NoAnswer(_other(answer))
    if error_code or api_count < 1:
        from odradek.protocol.errors import name_of  # not for one that is well

        raise NoAnswer(f"answered with {name_of(error_code)}")


def _other(answer: bytes) -> str:
    if answer.startswith(TLS_ALERT):
        return "is a TLS server: give --command-config a file with security.protocol=SSL"
    return f"is no Kafka broker: it answered {answer[:10]!r}"
