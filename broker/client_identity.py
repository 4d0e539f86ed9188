"""What a broker knows of a client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """Who sent InitProducerId: what the client calls itself, and from where."""

    client_id: str
    host: str
