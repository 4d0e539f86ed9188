"""`scripts/cluster --secure`: certificates by the commands of docs/security.md, and their use."""

import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.cluster.compose import Service

SHOWN: Final = "IP:127.0.0.1"
"""The address that the page's certificates of brokers have."""
PLAIN: Final = "INSIDE:PLAINTEXT,HOST:PLAINTEXT"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USER: Final = "User:CN=alice,O=Flights"
CLIENT: Final = "client.properties"
TIMEOUT_SECONDS: Final = 60


def make_certificates(directory: Path, addresses: Mapping[str, str]) -> None:
    """Make an authority, certificates of the brokers and of `alice`, and settings of a client.

    `addresses` has the hosts by which clients reach the brokers, by their names.
    """
    from tests.test_security_page import MUTUAL, TLS, blocks

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    directory.chmod(0o700)
    of_brokers = blocks("Three brokers", "sh")[0]
    assert SHOWN in of_brokers, of_brokers
    hosts = [_alternative_name(addresses[name]) for name in sorted(addresses)]
    commands = [
        blocks(TLS, "sh")[0],
        blocks(MUTUAL, "sh")[0],
        f"hosts=({shlex.join(['', *hosts])})",
        of_brokers.replace(SHOWN, "${hosts[$id]}"),
        "cat alice.key alice.crt > alice.pem",
        "chmod 600 alice.key alice.pem",
    ]
    subprocess.run(
        ["bash", "-e", "-c", "\n".join(commands)],
        cwd=directory,
        check=True,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
    )
    (directory / CLIENT).write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.location={directory}/ca.crt\n"
        f"ssl.keystore.location={directory}/alice.pem\n"
    )


def _alternative_name(host: str) -> str:
    return f"IP:{host}" if host[0].isdigit() else f"DNS:{host}"


def with_tls(found: Iterable[Service], directory: Path) -> list[Service]:
    """Return the services with TLS on all listeners of the brokers, and access control."""
    return [_with_tls(each, directory) if each.is_broker else each for each in found]


def _with_tls(service: Service, directory: Path) -> Service:
    words = [word.replace(PLAIN, PLAIN.replace("PLAINTEXT", "SSL")) for word in service.command]
    assert tuple(words) != service.command, service.command
    settings = {
        "ssl.keystore.location": f"{directory}/{service.name}.pem",
        "ssl.truststore.location": f"{directory}/ca.crt",
        "ssl.client.auth": "required",
        "authorizer.class.name": AUTHORIZER,
        "super.users": SUPER_USER,
    }
    for item in settings.items():
        words += ["--set", "=".join(item)]
    return replace(service, command=tuple(words))
