"""A broker process with access control.

There is no authentication yet: every client is User:ANONYMOUS. So entries tell clients apart by
their addresses. The tests are 127.0.0.1, which may do everything, and strangers are others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Acl, Admin

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANONYMOUS: Final = "User:ANONYMOUS"
HERE: Final = "127.0.0.1"
KINDS: Final[tuple[Literal["topic", "group", "transactional_id", "cluster"], ...]] = (
    "topic",
    "group",
    "transactional_id",
    "cluster",
)


@contextmanager
def secured_broker(data_dir: Path, **config: str) -> Iterator[RunningBroker]:
    """Run a broker on which only the clients at 127.0.0.1 may do something, and that everything.

    The first entries are made by a super user: everybody is one until the broker starts again.
    """
    settings = {"authorizer.class.name": AUTHORIZER, **config}
    with run_broker(data_dir=data_dir, config={**settings, "super.users": ANONYMOUS}) as broker:
        with Admin(broker.address) as admin:
            admin.create_acls(
                [
                    Acl(
                        kind,
                        "kafka-cluster" if kind == "cluster" else "*",
                        ANONYMOUS,
                        "all",
                        host=HERE,
                    )
                    for kind in KINDS
                ]
            )
        broker.config = settings
        broker.restart()
        yield broker
