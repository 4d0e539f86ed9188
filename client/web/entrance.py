"""The address of the page, and the conditions for visitors from other machines."""

import ipaddress
import re
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from odradek.client.web.guard import (
    LOCAL_NAMES,
    Proxy,
    Visitors,
    host_of,
    is_of_this_machine,
    passwords_of,
)

DEFAULT_PORT: Final = 8080
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9-]+")
OF_BROWSERS: Final = re.compile(
    r"(accept|content|if|sec)-.*|accept|authorization|cache-control|connection|cookie|dnt|forwarded"
    r"|host|origin|pragma|priority|range|referer|te|upgrade.*|user-agent|via|x-forwarded-proto"
    r"|x-requested-with",
    re.IGNORECASE,
)
"""Headers that say nothing of the visitor, and that are there when nobody has named one."""
WILDCARDS: Final = ("0.0.0.0", "[::]")

Listener = trio.SocketListener | trio.SSLListener[trio.SocketStream]


class UnsafePage(ValueError):
    """The page cannot be served as it is wanted: a sentence for a person."""


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT. Raises `UnsafePage`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) >= 2**16:
        raise UnsafePage(f"--listen is HOST:PORT, as in 127.0.0.1:{DEFAULT_PORT}, not {text!r}")
    if ":" in host and not host.startswith("["):
        raise UnsafePage(f"--listen has an IPv6 address in brackets, as in [::1]:{DEFAULT_PORT}")
    return host, int(port)


def check_safe(
    host: str, *, has_tls: bool, has_passwords: bool, proxy: Proxy | None = None
) -> None:
    """Raise `UnsafePage` if other machines would reach a page without TLS and passwords."""
    has_tls = has_tls or proxy is not None
    has_passwords = has_passwords or (proxy is not None and proxy.user_header is not None)
    if is_of_this_machine(host) or (has_tls and has_passwords):
        return
    lacking = [] if has_tls else ["--tls-certificate and --tls-key"]
    if not has_passwords:
        lacking.append("--password-file" if proxy is None else "--password-file or --user-header")
    raise UnsafePage(
        f"other machines reach {host}, and the page shows names, addresses and rights: give "
        f"{' and '.join(lacking)}, or listen on 127.0.0.1"
    )


def proxy_of(addresses: Sequence[str], user_header: str | None) -> Proxy | None:
    """Return the proxy before the page; None without. Raises `UnsafePage`."""
    if not addresses:
        if user_header is not None:
            raise UnsafePage("--user-header needs --proxy: anybody else could send the header")
        return None
    if user_header is not None and HEADER_NAME.fullmatch(user_header) is None:
        raise UnsafePage(
            f"--user-header is the name of a header, as in X-Forwarded-User, not {user_header!r}"
        )
    if user_header is not None and OF_BROWSERS.fullmatch(user_header) is not None:
        raise UnsafePage(
            f"--user-header is a header that the proxy sets for a visitor whom it knows, and "
            f"{user_header} comes from everybody"
        )
    try:
        networks = tuple(map(ipaddress.ip_network, addresses))
    except ValueError as error:
        raise UnsafePage(
            f"--proxy is an address or a network, as in 10.1.0.0/16: {error}"
        ) from None
    return Proxy(networks, None if user_header is None else user_header.lower())


def visitors_of(
    host: str, names: Sequence[str], password_file: Path | None, proxy: Proxy | None = None
) -> Visitors:
    """Return who may see the page. The first name is for its link. Raises `UnsafePage`."""
    for name in names:
        if not name or host_of(name) != name.lower():
            raise UnsafePage(f"--name is a host, as in odradek.example.org, not {name!r}")
    own = () if host in WILDCARDS else (host,)
    every = tuple(dict.fromkeys((*own, *names, *LOCAL_NAMES)))
    if password_file is None:
        return Visitors(every, proxy=proxy)
    try:
        passwords = passwords_of(password_file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise UnsafePage(f"{password_file} cannot be used: it is no text in UTF-8") from None
    except OSError as error:
        raise UnsafePage(f"{password_file} cannot be used: {error.strerror}") from None
    except ValueError as error:
        raise UnsafePage(f"{password_file} cannot be used: {error}") from None
    return Visitors(every, passwords, proxy)


def tls_of(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return the TLS of the page; None without. Raises `UnsafePage`."""
    if certificate is None:
        if key is not None:
            raise UnsafePage("--tls-key needs --tls-certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except OSError as error:
        why = _why_unusable(error, key) if isinstance(error, ssl.SSLError) else error.strerror
        raise UnsafePage(
            f"the certificate {certificate} and its key cannot be used: {why}"
        ) from None
    return context


def _why_unusable(error: ssl.SSLError, key: Path | None) -> str:
    """Return what OpenSSL names by the function that has failed: PEM lib."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key is that of another certificate"
    if key is None:
        return "it is no PEM file that has both; --tls-key names the file of the key"
    return "one of them is not the PEM file of what it is given for"


def _refuse_password() -> str:
    """Raise `UnsafePage` for a key that has a password: OpenSSL would ask the terminal for it."""
    raise UnsafePage("the key of the page has a password: give --tls-key one without")


async def listen(host: str, port: int, tls: ssl.SSLContext | None) -> Sequence[Listener]:
    """Return the listeners. Raises `UnsafePage`."""
    plain = host.strip("[]")
    try:
        if tls is None:
            return await trio.open_tcp_listeners(port, host=plain)
        # Without https_compatible, closing a connection finishes its handshake first: it waits
        # for a stranger without a limit, or raises what the stranger has done wrong.
        return await trio.open_ssl_over_tcp_listeners(port, tls, host=plain, https_compatible=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise UnsafePage(f"{host}:{port} cannot be listened on: {why}") from None


def adopt(number: int) -> Sequence[Listener]:
    """Return the listener of a socket that the parent process has opened."""
    return [trio.SocketListener(trio.socket.from_stdlib_socket(socket.socket(fileno=number)))]


def port_of(listener: Listener) -> int:
    """Return the port of a listener, which may have been picked."""
    inner = listener.transport_listener if isinstance(listener, trio.SSLListener) else listener
    assert isinstance(inner, trio.SocketListener), inner
    port: int = inner.socket.getsockname()[1]
    return port


def peer_of(stream: trio.abc.Stream) -> str:
    """Return the address of the other end of a connection; "" if it has gone."""
    inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    if not isinstance(inner, trio.SocketStream):
        return ""
    try:
        return str(inner.socket.getpeername()[0])
    except OSError:
        return ""
