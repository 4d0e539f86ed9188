"""The connections of transactional producers: `transaction.abort.on.disconnect`.

KIP-98 proposed that a transaction ends when its producer's connection does. Kafka waits for the
time-out instead, and so does this broker, unless the setting is on. With the setting, the open
transaction of a producer is aborted when the last connection on which it was seen is closed.

The rules:

- A producer is *seen* on a connection that carried a request of it which was not refused:
  InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, a transactional Produce,
  TxnOffsetCommit. The requests of a fenced producer are refused, so it is not seen.
- InitProducerId starts anew: the connections of the instance before do not count any more, open or
  closed. That is safe, because an open transaction was begun by a later request.
- A connection is *closed* if the client has closed it or its process has ended (end of the stream,
  a reset), while the broker is not stopping. A connection that the broker closes, because it was
  idle, too slow, or sent nonsense, shows nothing about the producer: it is not counted any more,
  and if it was the last one, the time-out remains.
- Therefore the end of an idle connection does not harm a producer that uses another connection to
  this broker. Each broker counts its own connections.
- There is no grace. A producer that loses its last connection inside a transaction and reconnects
  at once may find the transaction aborted, as after a time-out. If it sends InitProducerId before
  the abort is decided, it gets a new epoch and the abort does nothing; afterwards it waits for the
  abort, as any new instance does.
- A producer that commits in two phases (KIP-939) may be disconnected for any time. So may a member
  of a transaction group: others decide for it.
- After a restart of the broker no producer has been seen, so the time-out remains for those that do
  not reconnect. When the setting is turned on while the broker runs, a producer is seen with its
  next request; when it is turned off, all are forgotten.

The memory is one entry for each transactional id and each connection on which it was seen.
"""

from collections.abc import Callable

from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.broker.values.client_identity import ClientIdentity


class Seat:
    """One connection. The connection's task calls `leave` once, at its end."""

    def __init__(self, presence: "Presence") -> None:
        self._presence = presence
        self._seen: dict[str, None] = {}
        self._has_left = False

    def note_served(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        client: ClientIdentity,
        *,
        begins: bool = False,
    ) -> None:
        """Record that a request of `producer` was served. `begins`: it was InitProducerId."""
        if self._has_left:
            return
        self._presence._note_served(self, transactional_id, producer, client, begins)

    def leave(self, *, is_gone: bool) -> None:
        """Record the end of the connection. `is_gone`: the client ended it, not the broker."""
        self._has_left = True
        for transactional_id in list(self._seen):
            self._presence._note_left(self, transactional_id, is_gone)
        self._seen.clear()


class _Producer:
    __slots__ = ("client", "identity", "seats")

    def __init__(self, identity: ProducerIdAndEpoch, client: ClientIdentity) -> None:
        self.identity = identity
        self.client = client
        self.seats: dict[Seat, None] = {}


Gone = Callable[[str, ProducerIdAndEpoch, ClientIdentity], None]


class Presence:
    """Call `gone` with each producer whose last connection is closed. It must not raise."""

    def __init__(self, gone: Gone, *, is_on: bool = True) -> None:
        self._gone = gone
        self._is_on = is_on
        self._producers: dict[str, _Producer] = {}

    def __len__(self) -> int:
        """Return the number of transactional ids that have a connection."""
        return len(self._producers)

    def turn(self, is_on: bool) -> None:
        """Watch producers from now on, or forget all of them."""
        self._is_on = is_on
        if not is_on:
            for known in self._producers.values():
                for seat in known.seats:
                    # invariant settings 4: A setting that was turned off and on again begins anew.
                    # plant a producer that was seen before the setting was turned off is aborted
                    seat._seen.clear()
            self._producers.clear()

    def seat(self) -> Seat:
        """Return the seat of a new connection."""
        return Seat(self)

    def _note_served(
        self,
        seat: Seat,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        client: ClientIdentity,
        begins: bool,
    ) -> None:
        if not self._is_on:
            return
        known = self._producers.get(transactional_id)
        if known is not None and _is_older(identity, known.identity):
            return  # its answer came after that of a later request, or of a new instance
        if known is None or begins:
            for former in known.seats if known else ():
                former._seen.pop(transactional_id, None)
            known = self._producers[transactional_id] = _Producer(identity, client)
        known.identity = identity
        known.seats[seat] = None
        seat._seen[transactional_id] = None

    def _note_left(self, seat: Seat, transactional_id: str, is_gone: bool) -> None:
        known = self._producers[transactional_id]
        del known.seats[seat]
        if known.seats:
            return
        del self._producers[transactional_id]
        if is_gone:
            self._gone(transactional_id, known.identity, known.client)


def _is_older(identity: ProducerIdAndEpoch, other: ProducerIdAndEpoch) -> bool:
    """Return True if a transactional id had `identity` before `other`: both of its numbers grow."""
    return (identity.producer_id, identity.producer_epoch) < (
        other.producer_id,
        other.producer_epoch,
    )
