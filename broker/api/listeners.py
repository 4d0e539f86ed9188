"""The listeners on which a broker serves APIs."""

from enum import Flag, auto


class Listeners(Flag):
    """The listeners on which an API is served."""

    CLIENTS = auto()
    BROKERS = auto()
    """The listener that brokers use among each other."""
    ALL = CLIENTS | BROKERS
