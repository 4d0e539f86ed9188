"""The faults, the settings and the clients that reach the planted bugs of several brokers."""

from typing import Final

from tests.simulation.fixed import Fixed

QUICK: Final = {"replica.lag.time.max.ms": "600", "broker.session.timeout.ms": "1000"}
"""So that much happens in a short load."""

ELECTIONS: Final = Fixed(faults=("Elected", "Elected", "LinkCut", "Kill"), settings=QUICK)
KILLS: Final = Fixed(faults=("Kill",), settings=QUICK)
ALONE: Final = Fixed(faults=("Isolation", "LinkCut", "StoreCut", "Pause"), settings=QUICK)
POWER: Final = Fixed(
    faults=("PowerLoss", "PowerLoss", "LinkCut"), settings={**QUICK, "log.flush": "os"}
)
IDLE: Final = Fixed(
    faults=("Kill", "LinkCut"),
    settings={**QUICK, "log.retention.check.interval.ms": "200"},
    clients=("trim",),
)
STALLS: Final = Fixed(faults=("Stall", "Stall", "LinkCut"), settings=QUICK)
LATE_IMAGES: Final = Fixed(faults=("Elected", "Elected", "Elected", "SlowWatches"), settings=QUICK)
RESTARTS: Final = Fixed(faults=("Kill", "Stop", "SlowWatches"), settings=QUICK)
HELD_LEASE: Final = {**QUICK, "broker.session.timeout.ms": "9000"}
"""A broker that is deaf to the metadata store keeps its lease meanwhile."""
ELECTED_BACK: Final = Fixed(faults=("ElectedBack",), settings=QUICK, seconds=4.0)
OVERLOOKED: Final = Fixed(
    faults=("Overlooked",), settings={**QUICK, "broker.session.timeout.ms": "20000"}, seconds=12.0
)
DEPOSED: Final = Fixed(faults=("Deposed",), settings=HELD_LEASE, seconds=6.0, clients=("late",))
GROUPS: Final = Fixed(
    faults=("PowerLoss", "Kill", "Resets", "Stall"), settings=QUICK, clients=("group",)
)
MEMBERS: Final = Fixed(
    faults=("Kill", "Kill", "LinkCut", "Elected"),
    settings=QUICK,
    seconds=8.0,
    clients=("members",),
)
MEMBERS_CUT_OFF: Final = Fixed(
    faults=("LinkCut", "LinkCut", "Isolation", "Stall", "Kill", "Elected"),
    settings=QUICK,
    seconds=8.0,
    clients=("members",),
)
ANEW: Final = Fixed(faults=("LinkCut",), seconds=10.0, clients=("anew",))
SHARERS: Final = Fixed(
    faults=("ClientCut", "Resets"), settings=QUICK, seconds=10.0, clients=("sharers",)
)
CLOCKS: Final = Fixed(
    faults=("ClockJump", "ClockJump", "Kill"), settings=QUICK, seconds=6.0, clients=("members",)
)
ID_BLOCKS: Final = Fixed(faults=("LostClaims",), seconds=8.0, clients=("ids",))
TWICE_CREATED: Final = Fixed(faults=("DiesCreating",), settings=QUICK, clients=("twice",))
ROT_AND_POWER: Final = Fixed(
    faults=("BitFlip", "BitFlip", "PowerLoss"),
    settings={**QUICK, "log.roll.ms": "150", "log.scrub.interval.ms": "60000"},
)
LOST_LOGS: Final = Fixed(faults=("LostDirectory", "LostDirectory", "Kill"), settings=QUICK)
SCRUBBED: Final = {**QUICK, "log.roll.ms": "150", "log.scrub.interval.ms": "500"}
"""Damage is found soon."""
BIT_ROT: Final = Fixed(faults=("BitFlip", "BitFlip", "Kill", "LinkCut"), settings=SCRUBBED)
MUCH_BIT_ROT: Final = Fixed(
    faults=("BitFlip", "BitFlip", "BitFlip", "LinkCut"), settings=SCRUBBED, seconds=8.0
)
ROT_AND_ELECTIONS: Final = Fixed(
    faults=("BitFlip", "BitFlip", "BitFlip", "Elected", "LinkCut"), settings=SCRUBBED, seconds=8.0
)
REVOKED: Final = Fixed(
    faults=("Kill", "LinkCut", "ClientCut"), settings=QUICK, seconds=10.0, clients=("acls",)
)
REVOKED_WHILE_CUT_OFF: Final = Fixed(
    faults=("StoreCutForLong",),
    settings=QUICK,
    seconds=20.0,
    clients=("acls",),
)
