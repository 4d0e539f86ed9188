"""Transaction groups: one decision for the transactions of many producers.

Each member is a producer, in any process on any machine, whose transactional id has the group's
name in braces. It writes its part and detaches its transaction:

    group = TransactionGroup(address, "orders")
    async with Producer(address, transactional_id=group.transactional_id("task-7")) as producer:
        async with producer.transaction() as txn:
            await txn.send("orders", ...)
            detached = await txn.detach()

What `detach` returns is small, and can be pickled. Whoever has those of all members decides:

    async with TransactionGroup(address, "orders") as group:
        await group.commit([detached, ...])

Either all of the transactions are committed or none is. A reader of a partition sees the records of
all members at the same moment, or none. Readers of several partitions may see one earlier.

The first transaction of the list is the leader's: whoever starts a producer with its transactional
id fences everybody else who would decide with it. A program that may run twice therefore has a
transaction of its own, with an id that stays the same, and puts it first.

The members of a group time out together: when none of them was heard for its
`transaction_timeout_ms`. A producer lets itself be heard while it is open, also after `detach`.

Only Odradek has transaction groups.
"""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self, Unpack
from uuid import UUID

from odradek.client.cluster.cluster import COORDINATOR_MOVED, TRANSACTION, Cluster
from odradek.client.cluster.connection import (
    GROUPS_FEATURE,
    TRANSACTION_FEATURE,
    BrokerConnection,
)
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.cluster.served import Served
from odradek.client.config import ClientConfig, ClientOptions, read_options
from odradek.client.errors import (
    FENCED,
    Aborted,
    Disconnected,
    OdradekError,
    Refused,
    Retriable,
    TimedOut,
    code_of,
    explain,
)
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.types import GroupBounds
from odradek.protocol.apis.txn import END_TXN, EndTxnMember, EndTxnRequest, EndTxnResponse
from odradek.protocol.errors import RETRIABLE, ErrorCode

NO_PRODUCER: Final = -1
NO_GROUPS: Final = (
    "the broker has no transaction groups: use Odradek, with a __transaction_state that was made "
    "by a version that has them"
)
MEMBER_ENDED: Final = frozenset(
    {*FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""The codes for a member whose transaction is not open any more."""


@ends_where_it_waits
class TransactionGroup(Served):
    """A transaction group: it ends the detached transactions of its members together."""

    def __init__(
        self, bootstrap: str | Sequence[str], name: str, **options: Unpack[ClientOptions]
    ) -> None:
        """Make the group called `name` at the brokers at `bootstrap`; entering it connects.

        `name` has at least one character, and no braces. The options are those of `Admin`. Raises
        ValueError for a wrong option or name.
        """
        if not isinstance(name, str) or not name or "{" in name or "}" in name:
            raise ValueError(
                f"the name of a transaction group is a str of at least one character, without "
                f"braces, and not {name!r}"
            )
        self.name: Final = name
        self._config = read_options(ClientConfig, type(self).__name__, options)
        self._cluster = Cluster(bootstrap, self._config)

    def __repr__(self) -> str:
        return f"<TransactionGroup {self.name!r}>"

    async def __aenter__(self) -> Self:
        await self._cluster.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._cluster.__aexit__(exc_type, exc, traceback)

    def transactional_id(self, member: str) -> str:
        """Return the transactional id of the member called `member`."""
        return f"{{{self.name}}}.{member}"

    async def bounds(self) -> GroupBounds:
        """Return how many members and partitions a group may have, and bytes its decision.

        `commit` and `abort` check them before they send. Raises `Refused` if the broker has no
        transaction groups, `TimedOut`, `Disconnected`.
        """
        doing = f"asking for the bounds of the group {self.name!r}"

        async def attempt() -> GroupBounds:
            connection = await self._coordinator(self.transactional_id(""), doing)
            bounds = connection.group_bounds
            if bounds is None:
                message = f"{doing}: the broker {connection.peer} does not announce them"
                raise Refused(message, code=ErrorCode.UNSUPPORTED_VERSION)
            return bounds

        return await self._cluster.retrying(doing, attempt)

    async def commit(
        self, members: Iterable[DetachedTransaction], *, decision_id: UUID | None = None
    ) -> None:
        """Commit the transactions of all members. The first is the leader's.

        Raises `Aborted` if one of them cannot be committed (it has timed out, say, or was ended);
        then none is, and they should be aborted. Raises `TimedOut` if there was no answer within
        `max_block_ms`: they are committed or not. The same call with the same `decision_id` finds
        out, and does it if it was not done; without one, each call has its own. Raises `Refused`
        for members that are no group or over its bounds, `Disconnected`.
        """
        await self._end(members, decision_id, committed=True)

    async def abort(
        self, members: Iterable[DetachedTransaction], *, decision_id: UUID | None = None
    ) -> None:
        """Abort the transactions of all members. Raises as `commit`."""
        await self._end(members, decision_id, committed=False)

    async def is_served(self) -> bool:
        """Return True if the brokers have transaction groups. Raises `TimedOut`, `Disconnected`."""

        async def attempt() -> bool:
            connection = await self._cluster.connection(None)
            features = connection.features
            return (
                features.get(GROUPS_FEATURE, 0) >= 1
                and features.get(TRANSACTION_FEATURE, 0) >= 2
                and END_TXN.key in connection.versions
                and connection.versions[END_TXN.key].max_version >= GROUPS_FROM
            )

        return await self._cluster.retrying("asking for transaction groups", attempt)

    async def _end(
        self, members: Iterable[DetachedTransaction], decision_id: UUID | None, *, committed: bool
    ) -> None:
        listed = list(members)
        for each in listed:
            if not isinstance(each, DetachedTransaction):
                raise Refused(f"a member is what detach returned, and not {each!r}")
        written = [each for each in listed if not each.is_empty]
        if not written:
            return
        if decision_id is None:
            decision_id = UUID(int=self._config.rng.getrandbits(128), version=4)
        request = EndTxnRequest(
            transactional_id=written[0].transactional_id,
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER,
            committed=committed,
            members=tuple(
                EndTxnMember(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                )
                for each in written
            ),
            decision_id=decision_id,
        )
        word = "committing" if committed else "aborting"
        doing = f"{word} {len(written)} transactions of the group {self.name!r}"

        async def attempt() -> None:
            connection = await self._coordinator(request.transactional_id, doing)
            if connection.group_bounds is not None:
                _check_bounds(connection.group_bounds, written)
            await self._attempt(connection, request, doing)

        await self._cluster.retrying(doing, attempt)
        self._cluster.journal.group_ended(self.name, len(written), committed=committed)

    async def _coordinator(self, transactional_id: str, doing: str) -> BrokerConnection:
        """Connect to the coordinator of the group. Raises `Refused` if it has no groups."""
        try:
            node_id = await self._cluster.coordinator(TRANSACTION, transactional_id)
            connection = await self._cluster.connection(node_id, "coordinator")
        except (Disconnected, TimedOut):
            self._cluster.forget_coordinator(TRANSACTION, transactional_id)
            raise
        has_groups = connection.features.get(GROUPS_FEATURE, 0) >= 1
        if not has_groups or connection.version_of(END_TXN) < GROUPS_FROM:
            raise Refused(f"{doing}: {NO_GROUPS}", code=ErrorCode.UNSUPPORTED_VERSION)
        return connection

    async def _attempt(
        self, connection: BrokerConnection, request: EndTxnRequest, doing: str
    ) -> None:
        leader = request.transactional_id
        try:
            answer = await connection.request(END_TXN, connection.version_of(END_TXN), request)
        except (Disconnected, TimedOut):
            self._cluster.forget_coordinator(TRANSACTION, leader)
            raise
        if answer.error_code == ErrorCode.NONE:
            return
        code = code_of(answer.error_code)
        if code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(TRANSACTION, leader)
        raise _error_for(code, doing, answer)


GROUPS_FROM: Final = 5
"""The first version of EndTxn with members."""


def _check_bounds(bounds: GroupBounds, members: Sequence[DetachedTransaction]) -> None:
    """Raise `Refused` if the members are certainly over a bound."""
    for count, limit, unit in (
        (len(members), bounds.members, "members"),
        (sum(each.partitions for each in members), bounds.partitions, "partitions"),
        (sum(each.size_bytes for each in members), bounds.bytes, "bytes"),
    ):
        if count > limit:
            message = f"the group has {count} {unit}, and the broker takes at most {limit}"
            raise Refused(message, code=ErrorCode.INVALID_REQUEST)


def _error_for(code: ErrorCode, doing: str, answer: EndTxnResponse) -> OdradekError:
    why = answer.error_message
    if code in RETRIABLE:
        return Retriable(explain(code, doing, why), code=code)
    if code in MEMBER_ENDED:
        about = f" ({why})" if why else ""
        message = (
            f"{doing}: the broker answered {code.name}{about}; nothing of the group was decided: "
            f"abort the others, and do the work again"
        )
        return Aborted(message, code=code)
    return Refused(explain(code, doing, why), code=code)
