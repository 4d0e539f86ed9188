"""Transaction groups without an event loop."""

from collections.abc import Sequence
from typing import Unpack

from odradek.client.blocking.hosted import Blocking, Hosted, blocking
from odradek.client.config import ClientOptions, parse_bootstrap
from odradek.client.producing.transaction_group import TransactionGroup as AsyncGroup


class TransactionGroup(Blocking[AsyncGroup]):
    """`odradek.client.TransactionGroup` with plain `with` and without `await`."""

    def __init__(
        self, bootstrap: str | Sequence[str], name: str, **options: Unpack[ClientOptions]
    ) -> None:
        parse_bootstrap(bootstrap)
        self.name = AsyncGroup(bootstrap, name, **options).name  # raises here, not at the first use
        self._hosted = Hosted(lambda: AsyncGroup(bootstrap, name, **options))

    __init__.__doc__ = AsyncGroup.__init__.__doc__

    def transactional_id(self, member: str) -> str:
        """Return the transactional id of the member called `member`."""
        return f"{{{self.name}}}.{member}"

    bounds = blocking(AsyncGroup.bounds)
    commit = blocking(AsyncGroup.commit)
    abort = blocking(AsyncGroup.abort)
    is_served = blocking(AsyncGroup.is_served)
