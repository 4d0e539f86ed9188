"""Whether a transactional producer is still there: `transaction.abort.on.disconnect`.

The protocol's first proposal wished that a transaction ends when its producer's connection does.
Kafka waits for the time-out instead, and so do we, unless this setting is on. Then the open
transaction of a producer is aborted when the last connection on which it was seen is closed.

What counts:

- *Seen* is a connection that carried a request of the producer which was not refused:
  InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, a transactional Produce,
  TxnOffsetCommit. A zombie, which is refused, is not seen.
- InitProducerId begins anew: what an instance before was seen on does not matter any more, be it
  closed or not. That is safe, as an open transaction was begun by a request later than that.
- *Closed* is a connection that the client has closed or whose process has gone (end of the stream,
  a reset), as long as the broker is not stopping. One that the broker closes, because it was idle,
  or too slow, or sent nonsense, says nothing about the producer: it only is not counted any more,
  and if it was the last one the time-out remains.
- So an idle connection that is closed, by whichever side, does no harm to a producer that is
  busy on another connection to this broker. Each broker counts its own connections.
- The grace is zero: a producer that loses its last connection in the middle of a transaction and
  comes back at once may find it aborted, as after a time-out. If it comes back with InitProducerId
  before the abort is decided, it has a new epoch and the abort is void; if after, it waits for the
  abort as any new instance does. Both ways it is fenced or served correctly, and never half.
- A producer that commits in two phases (KIP-939) may go away for as long as it likes.
- After a restart of the broker nobody has been seen, so for whoever does not come back the time-out
  remains.

What is remembered is an entry for each transactional id and each connection on which it was seen.
"""

from collections.abc import Callable

from odradek.broker.client_identity import ClientIdentity
from odradek.broker.txn.transaction import ProducerIdAndEpoch


class Seat:
    """One connection. Its owner calls `leave` once, when the connection has ended."""

    def __init__(self, presence: "Presence") -> None:
        self._presence = presence
        self._seen: dict[str, None] = {}
        self._has_left = False

    def saw(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        client: ClientIdentity,
        *,
        begins: bool = False,
    ) -> None:
        """A request of `producer` was served here. `begins`: it was InitProducerId."""
        if self._has_left:
            return
        self._presence._saw(self, transactional_id, producer, client, begins)

    def leave(self, *, is_gone: bool) -> None:
        """The connection has ended; `is_gone`: by the client, not by the broker."""
        self._has_left = True
        for transactional_id in list(self._seen):
            self._presence._left(self, transactional_id, is_gone)
        self._seen.clear()


class _Producer:
    __slots__ = ("client", "identity", "seats")

    def __init__(self, identity: ProducerIdAndEpoch, client: ClientIdentity) -> None:
        self.identity = identity
        self.client = client
        self.seats: dict[Seat, None] = {}


Gone = Callable[[str, ProducerIdAndEpoch, ClientIdentity], None]


class Presence:
    """`gone` is told which producer has left, and who it was. It may not raise."""

    def __init__(self, gone: Gone) -> None:
        self._gone = gone
        self._producers: dict[str, _Producer] = {}

    def __len__(self) -> int:
        """How many transactional ids have a connection."""
        return len(self._producers)

    def seat(self) -> Seat:
        """A place for a new connection."""
        return Seat(self)

    def _saw(
        self,
        seat: Seat,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        client: ClientIdentity,
        begins: bool,
    ) -> None:
        known = self._producers.get(transactional_id)
        if known is not None and _is_older(identity, known.identity):
            return  # answered later than a request after it, or than a new instance
        if known is None or begins:
            for former in known.seats if known else ():
                former._seen.pop(transactional_id, None)
            known = self._producers[transactional_id] = _Producer(identity, client)
        known.identity = identity
        known.seats[seat] = None
        seat._seen[transactional_id] = None

    def _left(self, seat: Seat, transactional_id: str, is_gone: bool) -> None:
        known = self._producers[transactional_id]
        del known.seats[seat]
        if known.seats:
            return
        del self._producers[transactional_id]
        if is_gone:
            self._gone(transactional_id, known.identity, known.client)


def _is_older(one: ProducerIdAndEpoch, other: ProducerIdAndEpoch) -> bool:
    """Producer ids of one transactional id grow, as epochs do."""
    return (one.producer_id, one.producer_epoch) < (other.producer_id, other.producer_epoch)
