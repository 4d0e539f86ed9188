"""The rights of the client of a connection, as handlers ask for them.

`Access` belongs to a principal at a host. It remembers decisions as long as the entries are the
same ones, so that a request that repeats a question pays for a look into a dictionary. Whatever
holds an `Access` (a deferred answer, a long poll, a fetch session) asks by the entries of the
moment at which it asks.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final
from weakref import WeakValueDictionary

from odradek.broker.security.acl_table import NO_ACLS, AclDecision, AclTable
from odradek.broker.security.acls import CLUSTER_NAME, OPERATIONS_OF, ResourceKind
from odradek.broker.security.principal import Principal
from odradek.broker.security.rights import CLUSTER_ACTION, DESCRIBE_CLUSTER, Right
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.text import printable, shortened

LOGGER: Final = logging.getLogger("odradek.authorizer")

DECISIONS_MAX: Final = 1_000
"""The most decisions that are remembered for a principal at a host."""
REMEMBERED_CHARACTERS: Final = 249
"""The length of the longest name, which a topic may have, whose decisions are remembered."""
REFUSALS: Final = {
    ResourceKind.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceKind.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceKind.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceKind.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}
"""The code and the sentence of a refusal, which names nothing."""

Question = tuple[Right, str]


def refusal(kind: ResourceKind) -> KafkaError:
    """Return the error for an operation on a resource of a type that is not allowed."""
    return KafkaError(*REFUSALS[kind])


class Access:
    """All rights: the access where no authoriser is switched on, and that of brokers.

    `LimitedAccess` is that of a client. Each of its answers may be a ProtocolError, which closes
    the connection: this broker cannot know now what the client may do.
    """

    __slots__ = ()

    @property
    def rights(self) -> object:
        """Is another object whenever the decisions may be other ones."""
        return None

    def shows(self, right: Right, name: str = CLUSTER_NAME) -> bool:
        """Return True if the client has a right on a resource.

        For what is filtered, and for a right that another one may stand for: nothing is logged.
        """
        return True

    def allows(self, right: Right, name: str) -> bool:
        """Return True if the client has a right on a resource; otherwise log it."""
        return True

    def check(self, right: Right, name: str) -> None:
        """Raise the KafkaError of the resource's type unless the client has a right on it."""

    def check_cluster(self, *rights: Right) -> None:
        """Raise CLUSTER_AUTHORIZATION_FAILED unless the client has one of these rights."""

    def allows_some(self, right: Right) -> bool:
        """Return True if the client has a right on some resource of the type."""
        return True

    def operations(self, kind: ResourceKind, name: str) -> int:
        """Return what is allowed of a resource, each operation as the bit of its number."""
        every = OPERATIONS_OF[kind]
        return sum(1 << each for each in every if self.shows(Right(each, kind), name))

    def cluster_operations(self) -> int:
        """Return what is allowed of the cluster; nothing without DESCRIBE, as in Kafka."""
        if not self.shows(DESCRIBE_CLUSTER):
            return 0
        return self.operations(ResourceKind.CLUSTER, CLUSTER_NAME)


EVERYTHING: Final = Access()


class LimitedAccess(Access):
    """The access of one principal at one host, as the entries say."""

    __slots__ = ("__weakref__", "_authorizer", "_decisions", "_table", "host", "principal")

    def __init__(self, authorizer: "Authorizer", principal: Principal, host: str) -> None:
        self.principal = principal
        self.host = host
        self._authorizer = authorizer
        self._table = NO_ACLS
        self._decisions: dict[Question | Right, bool] = {}

    # invariant authorization 4: A decision counts as long as the entries that it follows from: a
    # session, a long poll and a deferred answer ask again.
    # plant a session keeps a permission that was taken away
    def _current_decisions(self) -> dict[Question | Right, bool]:
        """Return what is remembered of the entries of now. Raises ProtocolError."""
        authorizer = self._authorizer
        authorizer.check_current()
        table = authorizer.table
        if table is not self._table or len(self._decisions) >= DECISIONS_MAX:
            self._table = table
            self._decisions = {}
        return self._decisions

    @property
    def rights(self) -> object:
        # What is idle (a fetch session, a group) keeps this, and should not keep an old table.
        return self._authorizer.table.identity

    def shows(self, right: Right, name: str = CLUSTER_NAME) -> bool:
        decisions = self._current_decisions()
        question = right, name
        known = decisions.get(question)
        if known is None:
            decision = self._authorizer.decide(self.principal, self.host, right, name)
            known = decision.is_allowed
            # A client may send any number of long names, of which none is that of a topic.
            if len(name) <= REMEMBERED_CHARACTERS:
                decisions[question] = known
        return known

    def allows(self, right: Right, name: str) -> bool:
        if self.shows(right, name):
            return True
        self._log_refused(right, name)
        return False

    def check(self, right: Right, name: str) -> None:
        if not self.allows(right, name):
            raise refusal(right.kind)

    def check_cluster(self, *rights: Right) -> None:
        if not any(self.shows(right) for right in rights):
            self._log_refused(rights[0], CLUSTER_NAME)
            raise refusal(ResourceKind.CLUSTER)

    def allows_some(self, right: Right) -> bool:
        decisions = self._current_decisions()
        known = decisions.get(right)
        if known is None:
            known = self._authorizer.allows_some(self.principal, self.host, right)
            decisions[right] = known
        return known

    def _log_refused(self, right: Right, name: str) -> None:
        self._authorizer.denied_count += 1
        LOGGER.info(
            "denied: %s at %s may not %s %s",
            printable(shortened(str(self.principal))),
            self.host,
            right,
            printable(shortened(name)),
            extra={
                "principal": shortened(str(self.principal)),
                "host": self.host,
                "operation": right.operation.name,
                "resource_type": right.kind.name,
                "resource": shortened(name),
            },
        )


class Authorizer:
    """Decides for all connections of a broker."""

    def __init__(
        self,
        *,
        is_on: bool,
        super_users: Iterable[Principal] = (),
        allows_unknown: bool = False,
        table: Callable[[], AclTable],
        is_current: Callable[[], bool],
    ) -> None:
        """`allows_unknown`: everybody may use a resource that no entry is about.

        `table` returns the entries of the moment. `is_current` returns False while they may be
        older than those of other brokers.
        """
        self.is_on = is_on
        self.super_users = frozenset(super_users)
        self.allows_unknown = allows_unknown
        self._table = table
        self._is_current = is_current
        self.denied_count = 0
        """The refusals that were logged."""
        self._accesses: WeakValueDictionary[tuple[Principal, str], LimitedAccess] = (
            WeakValueDictionary()
        )

    @property
    def table(self) -> AclTable:
        return self._table()

    def access_of(self, principal: Principal, host: str) -> Access:
        """Return what a principal may do. The connections of one at one host share it."""
        if not self.is_on:
            return EVERYTHING
        found = self._accesses.get((principal, host))
        if found is None:
            found = self._accesses[principal, host] = LimitedAccess(self, principal, host)
        return found

    # invariant authorization 5: A broker that may have old entries allows nothing.
    # plant a broker that may have old entries goes on granting
    # plant a lapse that ends with the answer of the store is no lapse
    # tests/broker/security/test_access.py
    def check_current(self) -> None:
        """Raise ProtocolError, which closes the connection, while the entries may be old.

        The client then goes to another broker, or comes again. A refusal would be final for it.
        """
        if not self._is_current():
            raise ProtocolError(
                "this broker has no connection to the metadata store, so that it cannot know what "
                "its clients may do now"
            )

    def decide(self, principal: Principal, host: str, right: Right, name: str) -> AclDecision:
        """Decide if a principal at a host has a right on a resource."""
        if principal in self.super_users:
            return AclDecision(True)
        return self.table.decide(
            str(principal),
            host,
            right.operation,
            right.kind,
            name,
            allows_unknown=self.allows_unknown,
        )

    # invariant authorization 8: On the port for brokers a principal decides, and not the port.
    # plant a peer is trusted for its port
    def is_broker(self, principal: Principal, host: str, own: Principal | None) -> bool:
        """Return True if a principal at a host is that of a broker of this cluster.

        `own` is the principal that this broker has itself on the listener of brokers; on one
        without authentication all have the same. Otherwise a broker is a super user, or an entry
        allows it CLUSTER_ACTION. That no entry is about the cluster allows nothing here. A
        principal without a name is that of every certificate without a subject, so it is no broker.
        """
        if not principal.name:
            return False
        if principal == own or principal in self.super_users:
            return True
        if not self.is_on or not self._is_current():
            return False
        operation, kind = CLUSTER_ACTION
        decision = self.table.decide(str(principal), host, operation, kind, CLUSTER_NAME)
        return decision.is_allowed

    def allows_some(self, principal: Principal, host: str, right: Right) -> bool:
        """Return True if a principal at a host has a right on some resource of the type.

        Kafka asks for a resource of this name first. So a super user, everybody where nothing is
        known, and who may use every resource need no other entry.
        """
        if self.decide(principal, host, right, "hardcode").is_allowed:
            return True
        return self.table.allows_some(str(principal), host, right.operation, right.kind)


OFF: Final = Authorizer(is_on=False, table=lambda: NO_ACLS, is_current=lambda: True)
"""The authoriser of a broker without one."""
