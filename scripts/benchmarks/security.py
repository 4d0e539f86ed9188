"""The families of `--rows security`, and what they share: cost, and clients with a password.

`authorizer.py` measures what access control costs, `encrypted.py` what TLS with a password costs,
`strangers.py` what a connection costs before and between its requests.

All brokers of a family run at the same time and take turns, run by run. A row that is a part of
another one (*of plain*) is the median of the ratios of the rounds: both runs of a ratio are seconds
apart, so that they meet the same load of the machine.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scripts.benchmarks.figures import Figure, Floor
from scripts.benchmarks.process import processor_seconds
from tests.certificates import Authority

ALL: Final = "security"
FAMILIES: Final = ("authorizer", "encrypted", "strangers")
"""What the name stands for."""
USER: Final = "admin"
PASSWORD: Final = "secret of the admin"
SASL_SSL: Final = "SASL_SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
OF_PLAIN: Final = "of plain"
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def broker_settings(
    listener: str, authority: Authority | None = None, key: Any = None
) -> dict[str, str]:
    """Return the settings of a broker with one user; with TLS if there is an authority.

    `key` is that of the certificate; None: a new one of ECDSA P-256.
    """
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{listener.lower()}.plain.sasl.jaas.config": (
            f'{_LOGIN} user_{USER}="{PASSWORD}";'
        ),
    }
    if authority is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.location"] = authority.signed("broker", key=key).both_file
    return settings


def librdkafka_settings(authority: Authority) -> dict[str, Any]:
    """Return what confluent-kafka needs for SASL_SSL. It asks for an address, not for a name."""
    return {
        "security.protocol": SASL_SSL,
        "ssl.ca.location": authority.file,
        "ssl.endpoint.identification.algorithm": "none",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def java_settings(authority: Authority) -> dict[str, str]:
    return {
        "security.protocol": SASL_SSL,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.file,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_LOGIN} username="{USER}" password="{PASSWORD}";',
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """The rate of one run, and the broker's processor time for each of what the rate counts."""

    per_second: float
    processor_us: float


def measured(pid: int, count: int, move: Callable[[], float]) -> Cost:
    """Move `count` records. `move` returns the records of a second."""
    before = processor_seconds(pid)
    per_second = move()
    return Cost(per_second, 1e6 * (processor_seconds(pid) - before) / count)


Rounds = Mapping[str, Sequence[Cost]]
"""The costs of each round, by what was measured."""


def of_plain(
    family: str, name: str, rounds: Rounds, what: str, plain: str, floor: Floor | None
) -> Iterator[Figure]:
    """Yield the rate of `what` as a part of that of `plain`, and its processor time as a multiple.

    `name` is that of the row.
    """
    pairs = list(zip(rounds[what], rounds[plain], strict=True))
    yield Figure(
        family=family,
        name=f"{name}, {OF_PLAIN}",
        value=statistics.median(mine.per_second / its.per_second for mine, its in pairs),
        unit="times",
        floor=floor,
    )
    yield Figure(
        family=family,
        name=f"CPU per record, {name}, {OF_PLAIN}",
        value=statistics.median(mine.processor_us / its.processor_us for mine, its in pairs),
        unit="times",
    )


def absolute(
    family: str,
    name: str,
    costs: Sequence[Cost],
    record_bytes: int,
    floor: Floor | None = None,
) -> Iterator[Figure]:
    """Yield the rate in MB/s, and the broker's processor time for a record."""
    yield Figure(
        family=family,
        name=name,
        value=statistics.median(cost.per_second for cost in costs) * record_bytes / 1e6,
        unit="MB/s",
        floor=floor,
    )
    yield Figure(
        family=family,
        name=f"CPU per record, {name}",
        value=statistics.median(cost.processor_us for cost in costs),
        unit="us",
    )
