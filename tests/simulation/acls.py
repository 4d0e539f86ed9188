"""Users whose rights are given and taken away while they use them, and while brokers fail.

`users.py` has their listener, `permits.py` the judge. Each kind of use has a task of its own, and a
task that changes its entries:

- `ann` writes to a topic, in transactions and without; `bob` reads one with fetch sessions and long
  polls, while somebody else writes to it;
- `carol` uses a transactional id, `dave` a group;
- users of the names `eve-N` are made and deleted.

An entry may be prefixed, for one host, for everybody, or for all operations. What is taken away is
removed, or denied on top. Entries that must not count are beside it: those of another user, and of
the same one at another host.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import trio

from odradek.broker.security.acls import (
    ANY_USER,
    WILDCARD,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
)
from odradek.broker.security.rights import READ_GROUP, READ_TOPIC, WRITE_ID, WRITE_TOPIC, Right
from odradek.protocol.api import Api
from odradek.protocol.apis.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
)
from odradek.protocol.apis.credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.apis.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from odradek.protocol.errors import ErrorCode
from odradek.protocol.scram import ITERATIONS_MIN
from tests.simulation.permits import Deed, Permit
from tests.simulation.raw import RawClient
from tests.simulation.user_clients import (
    PAUSE_SECONDS,
    USED,
    Feeder,
    Use,
    log_in_again,
    read,
    store_offsets,
    use_id,
    write,
)
from tests.simulation.users import OF_SCRAM, SALT, salted_password
from tests.simulation.world import World

SPANS: Final = ((0.1, 0.6), (0.5, 2.0), (0.5, 2.0), (5.5, 8.0))
"""How long a change stays. The longest is longer than any broker may go by old entries."""
CHANGE_SECONDS: Final = 5.0
SHA_256: Final = 1
LOGIN: Final = "eve"

Change = tuple[Api[Any, Any], int, Any]
"""A request of an administrator, with its API and version."""


class Entry(NamedTuple):
    """An entry of access control, with its resource."""

    kind: ResourceKind
    pattern: PatternType
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: Permission = Permission.ALLOW

    def to_creation(self) -> AclCreation:
        return AclCreation(
            resource_type=self.kind,
            resource_name=self.name,
            resource_pattern_type=self.pattern,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )

    def to_filter(self) -> DeleteAclsFilter:
        return DeleteAclsFilter(
            resource_type_filter=self.kind,
            resource_name_filter=self.name,
            pattern_type_filter=self.pattern,
            principal_filter=self.principal,
            host_filter=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )


RIGHTS: Final = {
    "ann": WRITE_TOPIC,
    "bob": READ_TOPIC,
    "carol": WRITE_ID,
    "dave": READ_GROUP,
}
"""The right of each user that is given and taken away."""
ALWAYS: Final = (
    ("ann", ResourceKind.TRANSACTIONAL_ID, AclOperation.ALL),
    ("carol", ResourceKind.TOPIC, AclOperation.ALL),
    ("dave", ResourceKind.TOPIC, AclOperation.READ),
)
"""What users may do all the time, to all resources of a type."""


def created(*entries: Entry) -> Change:
    return (
        CREATE_ACLS,
        3,
        CreateAclsRequest(creations=tuple(each.to_creation() for each in entries)),
    )


def deleted(entry: Entry) -> Change:
    return DELETE_ACLS, 3, DeleteAclsRequest(filters=(entry.to_filter(),))


def topic_made(name: str) -> Change:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=-1, assignments=(), configs=()
    )
    return CREATE_TOPICS, 5, CreateTopicsRequest(topics=(topic,), timeout_ms=2000)


def user_made(name: str) -> Change:
    user = ScramCredentialUpsertion(
        name=name,
        mechanism=SHA_256,
        iterations=ITERATIONS_MIN,
        salt=SALT,
        salted_password=salted_password(),
    )
    request = AlterUserScramCredentialsRequest(deletions=(), upsertions=(user,))
    return ALTER_USER_SCRAM_CREDENTIALS, 0, request


def user_deleted(name: str) -> Change:
    user = ScramCredentialDeletion(name=name, mechanism=SHA_256)
    request = AlterUserScramCredentialsRequest(deletions=(user,), upsertions=())
    return ALTER_USER_SCRAM_CREDENTIALS, 0, request


def codes_in(answer: Any) -> Iterator[int]:
    """Yield the error codes of an answer to a change. What was to be deleted must be there."""
    for name in ("results", "topics", "filter_results"):
        for each in getattr(answer, name, ()):
            yield each.error_code
            matching = getattr(each, "matching_acls", (each,))
            assert len(matching) == 1, f"an entry that was acknowledged is gone: {answer}"


class Rights:
    """The users, their permits, and the changes of these."""

    def __init__(self, world: World, stop: trio.Event) -> None:
        self.world = world
        self.violations: list[str] = []
        self._stop = stop
        self._current: dict[str, Permit] = {}
        """By user, or `LOGIN`."""

    async def live(self, process: str, rng: Random) -> None:
        """Change rights, and use them, until the load stops."""
        async with self._admin(process, rng) as admin:
            await self._make_users(admin, rng)
        feeder = Feeder(self.world)
        uses: dict[str, Use] = {
            "ann": write,
            "bob": partial(read, feeder=feeder),
            "carol": use_id,
            "dave": store_offsets,
            LOGIN: log_in_again,
        }
        async with trio.open_nursery() as nursery:
            for user, use in uses.items():
                nursery.start_soon(self._vary, user, Random(rng.getrandbits(64)))
                nursery.start_soon(self._use, user, use, Random(rng.getrandbits(64)))
            nursery.start_soon(self._use, "bob", feeder.run, Random(rng.getrandbits(64)))

    def judge_at_rest(self) -> None:
        for permit in self._current.values():
            self.violations += permit.judge_at_rest()

    async def _use(self, user: str, use: Use, rng: Random) -> None:
        """Use the latest permit of a user again and again."""
        while not self._stop.is_set():
            permit = self._current.get(user)
            if permit is not None:
                await use(permit, partial(self._is_over, user, permit), rng)
            await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))

    def _is_over(self, user: str, permit: Permit) -> bool:
        """Return True if a user has nothing more to do with a permit."""
        return self._stop.is_set() or self._current.get(user) is not permit

    # changes

    @asynccontextmanager
    async def _admin(self, process: str, rng: Random) -> AsyncIterator[RawClient]:
        admin = RawClient(self.world, process, rng)
        try:
            yield admin
        finally:
            with trio.CancelScope(shield=True):
                await admin.close()

    async def _make_users(self, admin: RawClient, rng: Random) -> None:
        """Make the users of SCRAM, and what stays: a topic, and entries."""
        entries = [
            Entry(kind, PatternType.LITERAL, WILDCARD, f"User:{user}", WILDCARD, operation)
            for user, kind, operation in ALWAYS
        ]
        changes = (*map(user_made, OF_SCRAM), topic_made(USED), created(*entries))
        for change in changes:
            while not await self._make(admin, change, rng):
                with trio.move_on_after(PAUSE_SECONDS):
                    await self._stop.wait()
                    return

    async def _make(self, admin: RawClient, change: Change, rng: Random) -> bool:
        """Return True if a change is made, now or by an earlier attempt."""
        _, code = await self._ask(admin, change, rng)
        return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _ask(self, admin: RawClient, change: Change, rng: Random) -> tuple[int, int]:
        """Ask some broker for a change. Return the broker, and the first error code."""
        node = rng.choice(list(self.world.machines))
        api, version, request = change
        try:
            answer = await admin.ask(node, api, version, request, seconds=CHANGE_SECONDS)
        except OSError:
            return node, ErrorCode.REQUEST_TIMED_OUT
        return node, next((code for code in codes_in(answer) if code), ErrorCode.NONE)

    async def _vary(self, user: str, rng: Random) -> None:
        """Give and take away a right. After a change that may still be made, take a new name."""
        async with self._admin(f"{user}-admin", rng) as admin:
            while not self._stop.is_set():
                name = f"{user}-{rng.getrandbits(32):08x}"
                if user == LOGIN:
                    await self._vary_one(admin, user, Login(name), rng)
                else:
                    access = Access(f"{name}.x", user, RIGHTS[user])
                    needs = [created(*access.beside())]
                    if access.right.kind is ResourceKind.TOPIC:
                        needs.append(topic_made(access.name))
                    if all([await self._make(admin, each, rng) for each in needs]):
                        await self._vary_one(admin, user, access, rng)
                await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))

    async def _vary_one(
        self, admin: RawClient, key: str, varied: "Access | Login", rng: Random
    ) -> None:
        permit = Permit(
            world=self.world,
            violations=self.violations,
            name=varied.name,
            user=varied.user,
            right=varied.right,
        )
        self._current[key] = permit
        while not self._stop.is_set():
            change, allowed = varied.vary(rng)
            phase = permit.change(allowed)
            node, code = await self._ask(admin, change, rng)
            if code:
                return
            phase.acknowledge(node)
            self.world.trace("access", varied.user, varied.name, varied, node)
            with trio.move_on_after(rng.uniform(*rng.choice(SPANS))):
                await self._stop.wait()


class Access:
    """The entries about one use of a resource by one user."""

    def __init__(self, name: str, user: str, right: Right) -> None:
        self.name = name
        self.user = user
        self.right = right
        self._allowing: Entry | None = None
        self._denying: Entry | None = None

    def __str__(self) -> str:
        return f"{self._allowing and self._allowing[1:]} {self._denying and self._denying[1:]}"

    def beside(self) -> tuple[Entry, ...]:
        """Return entries that must make no difference."""
        operation, kind = self.right
        literal = kind, PatternType.LITERAL, self.name
        other = Entry(kind, PatternType.PREFIXED, f"{self.name}x", ANY_USER, WILDCARD, operation)
        return (
            Entry(*literal, "User:mallory", WILDCARD, AclOperation.ALL),
            Entry(*literal, f"User:{self.user}", "elsewhere", AclOperation.ALL),
            Entry(*literal, ANY_USER, "elsewhere", operation, Permission.DENY),
            other,
        )

    def vary(self, rng: Random) -> tuple[Change, frozenset[Deed]]:
        """Return the next change, and what is allowed after it."""
        if self._denying is not None:
            entry, self._denying = self._denying, None
            return deleted(entry), frozenset(Deed)
        if self._allowing is None:
            self._allowing = self._entry(Permission.ALLOW, rng)
            return created(self._allowing), frozenset(Deed)
        if rng.random() < 0.5:
            entry, self._allowing = self._allowing, None
            return deleted(entry), frozenset()
        self._denying = self._entry(Permission.DENY, rng)
        is_all = self._denying.operation is AclOperation.ALL
        return created(self._denying), frozenset() if is_all else frozenset({Deed.LOOK})

    def _entry(self, permission: Permission, rng: Random) -> Entry:
        operation, kind = self.right
        pattern = rng.choice((PatternType.LITERAL, PatternType.PREFIXED))
        return Entry(
            kind,
            pattern,
            self.name if pattern is PatternType.LITERAL else self.name[:-1],
            rng.choice((f"User:{self.user}", f"User:{self.user}", ANY_USER)),
            rng.choice((WILDCARD, self.user)),
            rng.choice((operation, operation, AclOperation.ALL)),
            permission,
        )


class Login:
    """A user that is made and deleted."""

    right = None

    def __init__(self, name: str) -> None:
        self.name = self.user = name
        self._is_there = False

    def __str__(self) -> str:
        return "is there" if self._is_there else "is deleted"

    def vary(self, rng: Random) -> tuple[Change, frozenset[Deed]]:
        """Return the next change, and what is allowed after it."""
        self._is_there = not self._is_there
        if self._is_there:
            return user_made(self.name), frozenset(Deed)
        return user_deleted(self.name), frozenset()
