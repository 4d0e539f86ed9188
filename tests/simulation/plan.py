"""What happens to the brokers of one seed: settings, and a list of faults that is drawn up front.

A seed does not have every kind of fault: it draws which kinds it has, and how often. So some seeds
have one fault many times, which a mixture of everything would hide. The list is numbered. A run
without some of its faults has the others at the same times, so a failing list can be cut down.
With a `Fixed` the kinds are given, and the seed draws when each strikes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.simulation.faults import ALONE, BY_HAND, CLUSTER, FOR_GOOD, Fault, StaysCut
from tests.simulation.fixed import Fixed
from tests.simulation.load import ACLS, ANEW, CROWD, GROUPS, SHARERS
from tests.simulation.staged import STAGED
from tests.simulation.users import SECURED

BROKERS = (1, 1, 1, 3, 3, 5)
"""The numbers of brokers that are drawn."""
SEGMENTS = (16_384, 16_384, 65_536, 1_048_576)
ROLL_MS = (150, 1000, 86_400_000)
"""The ages at which a segment is closed: the first make tiny segments."""
LOAD_SECONDS = 12.0
FIRST_FAULT_SECONDS = 0.5
FIXED_STRIKES = (12, 25)
"""The fewest and the most faults of a plan whose kinds of fault are given."""
OLD_PROBABILITY = 0.2
GROUPS_PROBABILITY = 0.5
CROWD_PROBABILITY = 0.5
SHARERS_PROBABILITY = 0.5
ANEW_PROBABILITY = 0.3
ACLS_PROBABILITY = 0.3
AT_ONCE = 3
"""So many of them strike at the beginning."""
LONG_PROBABILITY = 0.15
LONGER = 6
"""A fault is so many times longer now and then, and outlasts leases and time-outs."""
FOR_GOOD_PROBABILITY = 0.15
"""The probability that a fault stays when all others have ended."""
KINDS: Final = {kind.__name__: kind for kind in (*ALONE, *CLUSTER, *FOR_GOOD, *BY_HAND, *STAGED)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settings and the faults of one seed."""

    seed: int
    brokers: int
    properties: dict[str, str]
    stall_probability: float
    """The probability that an fsync takes long."""
    transaction_timeout_ms: int
    faults: tuple[Fault, ...]
    seconds: float = LOAD_SECONDS
    """The time of the load."""
    has_old_producers: bool = False
    """The producers' epochs are near the last one."""
    rare: tuple[str, ...] = ()
    """The names of clients that not every run has."""
    without: tuple[int, ...] = ()
    """The numbers of the faults that are left out."""

    def chosen(self) -> list[tuple[int, Fault]]:
        """Return the faults that happen, with their numbers."""
        return [(n, fault) for n, fault in enumerate(self.faults) if n not in self.without]

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.properties.items())
        head = (
            f"seed {self.seed}: {self.brokers} broker(s), transactions of at most "
            f"{self.transaction_timeout_ms} ms, {self.stall_probability:.0%} of fsyncs stall; "
            f"{'producers with few epochs left; ' if self.has_old_producers else ''}"
            f"{''.join(f'{name} as a client; ' for name in self.rare)}{settings}"
        )
        return "\n".join([head, *(f"  [{n}] {fault}" for n, fault in self.chosen())])


def draw(
    seed: int,
    *,
    brokers: int | None = None,
    without: Sequence[int] = (),
    fixed: Fixed | None = None,
) -> Plan:
    """Draw the plan of a seed."""
    rng = Random(seed)
    brokers = rng.choice(BROKERS) if brokers is None else brokers
    if fixed is not None:
        return _draw_the_rest(rng, seed, brokers, without, fixed)
    segment = rng.choice(SEGMENTS)
    flush = rng.choice(("journal", "journal", "ack", "os" if brokers > 1 else "ack"))
    plan = Plan(
        seed=seed,
        brokers=brokers,
        properties={
            **_properties(rng, segment, flush),
            "log.roll.ms": str(rng.choice(ROLL_MS)),
            "log.scrub.interval.ms": str(rng.choice((500, 2000, 8000))),
        },
        stall_probability=rng.choice((0.0, 0.02, 0.02, 0.1)),
        transaction_timeout_ms=rng.choice((1000, 2000, 5000)),
        faults=_faults(rng, brokers),
        has_old_producers=rng.random() < OLD_PROBABILITY,
        rare=_rare(rng),
        without=tuple(without),
    )
    if ACLS in plan.rare:
        plan = replace(plan, properties={**plan.properties, **SECURED})
    if any(isinstance(fault, StaysCut) for fault in plan.faults):
        # Markers may not come over the cut, and then the input of the sharers has no end.
        return replace(plan, rare=tuple(name for name in plan.rare if name != SHARERS))
    return plan


def _rare(rng: Random) -> tuple[str, ...]:
    probabilities = (
        (GROUPS, GROUPS_PROBABILITY),
        (CROWD, CROWD_PROBABILITY),
        (SHARERS, SHARERS_PROBABILITY),
        (ANEW, ANEW_PROBABILITY),
        (ACLS, ACLS_PROBABILITY),  # the last one: what is drawn before it stays as it was
    )
    return tuple(name for name, probability in probabilities if rng.random() < probability)


def _draw_the_rest(
    rng: Random, seed: int, brokers: int, without: Sequence[int], fixed: Fixed
) -> Plan:
    """Draw what is not fixed. Nothing here may depend on the kinds of fault that there are."""
    properties = _properties(rng, rng.choice(SEGMENTS), "ack")
    kinds = [KINDS[name] for name in fixed.faults]
    count = rng.randint(*FIXED_STRIKES) if kinds else 0
    # The first ones strike at once, while the clients begin.
    later = (rng.uniform(FIRST_FAULT_SECONDS, fixed.seconds) for _ in range(count - AT_ONCE))
    times = (*AT_ONCE * (0.0,), *sorted(round(at, 3) for at in later)) if kinds else ()
    return Plan(
        seed=seed,
        brokers=brokers,
        properties={**properties, **(SECURED if ACLS in fixed.clients else {}), **fixed.settings},
        stall_probability=rng.choice((0.0, 0.02, 0.1)),
        transaction_timeout_ms=rng.choice((1000, 2000)),
        faults=tuple(rng.choice(kinds).draw(rng, at, brokers) for at in times),
        seconds=fixed.seconds,
        rare=fixed.clients,
        without=tuple(without),
    )


def _properties(rng: Random, segment: int, flush: str) -> dict[str, str]:
    return {
        "log.segment.bytes": str(segment),
        "transaction.state.log.segment.bytes": str(max(segment, 16_384)),
        "offsets.topic.segment.bytes": str(max(segment, 16_384)),
        "log.index.interval.bytes": "512",
        "log.reserve.bytes": "65536",
        "log.flush": flush,
        "log.cleaner.backoff.ms": str(rng.choice((200, 1000, 15_000))),
        "log.cleaner.min.compaction.lag.ms": "0",
        "transaction.abort.on.disconnect": rng.choice(("true", "false")),
    }


def _faults(rng: Random, brokers: int) -> tuple[Fault, ...]:
    kinds = (*ALONE, *CLUSTER) if brokers > 1 else ALONE
    chosen = [kind for kind in kinds if rng.random() < 0.5] or [rng.choice(kinds)]
    every_seconds = rng.choice((0.3, 1.0, 2.5))
    faults: list[Fault] = []
    at = FIRST_FAULT_SECONDS
    while (at := at + rng.expovariate(1 / every_seconds)) < LOAD_SECONDS:
        fault = rng.choice(chosen).draw(rng, round(at, 3), brokers)
        if rng.random() < LONG_PROBABILITY:
            fault = replace(fault, seconds=min(LONGER * fault.seconds, fault.longest()))
        faults.append(fault)
    if brokers > 1 and rng.random() < FOR_GOOD_PROBABILITY:
        at = rng.uniform(LOAD_SECONDS / 2, LOAD_SECONDS)
        faults.append(rng.choice(FOR_GOOD).draw(rng, round(at, 3), brokers))
    return tuple(sorted(faults, key=lambda fault: fault.at))
