"""The conditions of a request, and the headers of each answer that protect the page. Pure.

The names of transactions, groups and clients are any text that a stranger has chosen. So the page
runs no script but its own files, is shown in no frame, and talks to nobody but this server. A page
of somebody else must not read this one: a name that is made to point here later (DNS rebinding) is
refused by the header Host, and there is no answer that permits another origin. It could still ask
without reading the answers, and so take places of streams and questions: that is refused, too.
"""

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "object-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
HEADERS: Final = (
    ("cache-control", "no-store"),
    ("content-security-policy", POLICY),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
)
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
NO_PASSWORDS: Final[Mapping[str, str]] = MappingProxyType({})
CHALLENGE: Final = ("www-authenticate", 'Basic realm="odradek", charset="UTF-8"')


class Proxy(NamedTuple):
    """A reverse proxy that serves the page by TLS, and may know its visitors."""

    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    """The addresses that it asks from."""
    user_header: str | None = None
    """The header, in lower case, in which it says who the visitor is; None: it does not know."""

    def has(self, address: str) -> bool:
        """Return True if a connection from the address is one of the proxy."""
        found = plain_address(address)
        return found is not None and any(found in network for network in self.networks)


class Visitors(NamedTuple):
    """The visitors that the page is shown to."""

    names: tuple[str, ...]
    """The names that a header Host may have."""
    passwords: Mapping[str, str] = NO_PASSWORDS
    """Without one, nobody is asked."""
    proxy: Proxy | None = None
    """With one, other machines reach the page only through it."""


def plain_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address, that of IPv4 also if a socket of IPv6 has it; None if it is none."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_of_this_machine(host: str) -> bool:
    """Return True if only programs of this machine reach the host."""
    if host == "localhost":
        return True
    found = plain_address(host.strip("[]"))
    return found is not None and found.is_loopback


def host_of(authority: str) -> str:
    """Return the host of `host:port`, in lower case; that of IPv6 in its brackets."""
    if authority.startswith("["):
        return authority.partition("]")[0].lower() + "]"
    return authority.partition(":")[0].lower()


def is_named(authority: str, names: Iterable[str]) -> bool:
    """Return True if a header Host has one of the names, with any port."""
    return host_of(authority) in {name.lower() for name in names}


def is_asked_by_another_page(site: str, destination: str) -> bool:
    """Return True if a page of somebody else asks. A link to this page may be anywhere.

    `site` and `destination` are the headers Sec-Fetch-Site and Sec-Fetch-Dest, which scripts cannot
    set. A frame navigates as a window does, and a page may have any number of them.
    """
    return site in ("cross-site", "same-site") and destination != "document"


def passwords_of(text: str) -> dict[str, str]:
    """Return the passwords by name, from lines NAME:PASSWORD. Raises ValueError."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not colon or not name or not password:
            raise ValueError(f"line {number} is not NAME:PASSWORD")
        found[name] = password
    if not found:
        raise ValueError("it has no line NAME:PASSWORD")
    return found


def is_permitted(authorization: str, passwords: Mapping[str, str]) -> bool:
    """Return True if a header Authorization has the password of one of the names."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        name, _, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return False
    is_right = False
    for known, right in passwords.items():  # all of them: the time shows no name
        is_name = hmac.compare_digest(known.encode(), name)
        is_right |= is_name & hmac.compare_digest(right.encode(), password)
    return is_right
