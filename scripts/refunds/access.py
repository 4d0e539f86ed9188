"""The users of the demo at a broker with passwords, and the rights that are just enough for each.

    loader       writes the flights
    processor    reads them as a member of the group, and writes refunds and audit rows in
                 transactions, with its offsets
    supervisor   sees how far the group is
    spark        reads the flights and writes refunds and audit rows of its own, in the Spark query
    auditor      reads what was written, and which transactions were decided
    page         shows all of it in a browser, and changes nothing

The administrator gives them their rights, and makes the topics. Without passwords (`OPEN`) a client
is nobody in particular, and may do everything.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_urlsafe
from types import MappingProxyType
from typing import Any, Final

from odradek.broker.testing import SecuredBroker, run_secured_broker
from odradek.client.administration.acls import CLUSTER_NAME
from odradek.client.blocking import Acl, Admin
from odradek.client.types import SPARK_PREFIX_DEFAULT
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from scripts.refunds.processor import (
    GROUP,
    TOPIC_AUDIT,
    TOPIC_IN,
    TOPIC_REFUNDS,
    TRANSACTIONAL_IDS,
)
from scripts.refunds.query import TOPIC_AUDIT as SPARK_AUDIT
from scripts.refunds.query import TOPIC_REFUNDS as SPARK_REFUNDS

ADMINISTRATOR: Final = "administrator"
LOADER: Final = "loader"
PROCESSOR: Final = "processor"
SUPERVISOR: Final = "supervisor"
SPARK: Final = "spark"
AUDITOR: Final = "auditor"
PAGE: Final = "page"
USERS: Final = (ADMINISTRATOR, LOADER, PROCESSOR, SUPERVISOR, SPARK, AUDITOR, PAGE)
MECHANISM: Final = "SCRAM-SHA-512"
DECISIONS: Final = f"{SPARK_PREFIX_DEFAULT}-decisions"
"""The topic that the sink of Spark creates."""
RIGHTS: Final = (
    Acl("topic", TOPIC_IN, f"User:{LOADER}", "write"),
    Acl("topic", TOPIC_IN, f"User:{PROCESSOR}", "read"),
    Acl("group", GROUP, f"User:{PROCESSOR}", "read"),
    Acl("topic", TOPIC_REFUNDS, f"User:{PROCESSOR}", "write"),
    Acl("topic", TOPIC_AUDIT, f"User:{PROCESSOR}", "write"),
    Acl("transactional_id", TRANSACTIONAL_IDS, f"User:{PROCESSOR}", "write", pattern="prefixed"),
    Acl("topic", TOPIC_IN, f"User:{SUPERVISOR}", "describe"),
    Acl("group", GROUP, f"User:{SUPERVISOR}", "describe"),
    Acl("topic", TOPIC_IN, f"User:{SPARK}", "read"),
    *(Acl("topic", topic, f"User:{SPARK}", "write") for topic in (SPARK_REFUNDS, SPARK_AUDIT)),
    *(Acl("topic", DECISIONS, f"User:{SPARK}", right) for right in ("create", "read", "write")),
    Acl("group", f"{SPARK_PREFIX_DEFAULT}.", f"User:{SPARK}", "read", pattern="prefixed"),
    Acl(
        "transactional_id",
        f"{{{SPARK_PREFIX_DEFAULT}.",
        f"User:{SPARK}",
        "write",
        pattern="prefixed",
    ),
    Acl("topic", TOPIC_IN, f"User:{AUDITOR}", "describe"),
    Acl("group", GROUP, f"User:{AUDITOR}", "describe"),
    *(
        Acl("topic", topic, f"User:{AUDITOR}", "read")
        for topic in (
            *(TOPIC_REFUNDS, TOPIC_AUDIT, SPARK_REFUNDS, SPARK_AUDIT),
            TRANSACTION_STATE_TOPIC,
        )
    ),
    *(
        Acl("cluster", CLUSTER_NAME, f"User:{PAGE}", right)
        for right in ("describe", "describe_configs")
    ),
    Acl("transactional_id", "*", f"User:{PAGE}", "describe"),
    Acl("topic", "*", f"User:{PAGE}", "read"),
    Acl("group", "*", f"User:{PAGE}", "describe"),
)
"""The entries that the users need. READ and WRITE have DESCRIBE with them."""


class Access:
    """The access of the programs of the demo: each has a user of its own."""

    def options(self, user: str) -> Mapping[str, Any]:
        """Return the options of a client."""
        return MappingProxyType({})

    def words(self, user: str) -> tuple[str, ...]:
        """Return the words of a command that runs as this user."""
        return ()


OPEN: Final = Access()


class SecuredAccess(Access):
    """The users of a secured broker. `folder` has a file of settings for each."""

    def __init__(self, broker: SecuredBroker, folder: Path) -> None:
        self._broker = broker
        self._folder = folder

    def options(self, user: str) -> Mapping[str, Any]:
        return self._broker.options(user)

    def words(self, user: str) -> tuple[str, ...]:
        file = self._folder / f"{user}.properties"
        if not file.exists():
            file.touch(mode=0o600)
            settings = self._broker.properties(user)
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return ("--command-config", str(file))


@contextmanager
def run_secured(
    place: Path, config: Mapping[str, str]
) -> Iterator[tuple[SecuredBroker, SecuredAccess]]:
    """Run a broker with SCRAM over TLS, whose users have no rights yet but the administrator."""
    users = {name: token_urlsafe(16) for name in USERS}
    with run_secured_broker(
        users,
        super_users=[ADMINISTRATOR],
        mechanisms=[MECHANISM],
        config=config,
        data_dir=place / "data",
    ) as broker:
        yield broker, SecuredAccess(broker, place)


def give_rights(address: str, access: Access) -> None:
    """Give each user its rights, as the administrator."""
    with Admin(address, **access.options(ADMINISTRATOR)) as admin:
        admin.create_acls(RIGHTS)
