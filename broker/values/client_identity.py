"""The identity of a client, as the broker knows it."""

from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """The sender of InitProducerId: its client id and its host."""

    client_id: str
    host: str
