"""The faults, the settings and the clients that reach the planted bugs of several brokers."""

from typing import Final

from tests.simulation.fixed import Fixed

QUICK: Final = {"replica.lag.time.max.ms": "600", "broker.session.timeout.ms": "1000"}
"""So that much happens in a short load."""

ELECTIONS: Final = Fixed(faults=("Elected", "Elected", "LinkCut", "Kill"), settings=QUICK)
KILLS: Final = Fixed(faults=("Kill",), settings=QUICK)
CUTS: Final = Fixed(faults=("LinkCut", "LinkCut", "LinkCut", "Kill"), settings=QUICK)
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
