"""A broker process whose listener has TLS, and what clients need to reach it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.broker.testing import RunningBroker, run_broker
from tests.certificates import Authority, Signed


class TlsBroker(RunningBroker):
    """A broker whose listener is named SSL."""

    listener = "SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """A broker with TLS, its authority, and a certificate for clients."""

    broker: RunningBroker
    authority: Authority
    alice: Signed
    keystore: str
    """The file with the broker's certificate and key."""

    @property
    def address(self) -> str:
        """The broker's address by a name that is in its certificate."""
        return f"localhost:{self.broker.port}"

    @property
    def librdkafka(self) -> dict[str, Any]:
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": self.authority.file,
            "ssl.certificate.location": self.alice.certificate_file,
            "ssl.key.location": self.alice.key_file,
        }

    @property
    def kafka_python(self) -> dict[str, Any]:
        return {
            "security_protocol": "SSL",
            "ssl_cafile": self.authority.file,
            "ssl_certfile": self.alice.certificate_file,
            "ssl_keyfile": self.alice.key_file,
        }


@contextmanager
def run_secured(
    directory: Path, *, client_auth: str = "required", **properties: str
) -> Iterator[Secured]:
    """Run a broker with TLS while the block runs; a client may have to show a certificate."""
    authority = Authority(directory)
    keystore = authority.signed("broker").both_file
    config = {
        "ssl.keystore.location": keystore,
        "ssl.truststore.location": authority.file,
        "ssl.client.auth": client_auth,
        "num.partitions": "1",
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    with run_broker(config=config, kind=TlsBroker) as broker:
        yield Secured(
            broker=broker,
            authority=authority,
            alice=authority.signed("alice", hosts=()),
            keystore=keystore,
        )
