"""Transaction groups for asyncio programs."""

from collections.abc import Sequence
from typing import Final, Unpack

from odradek.client.aio.crossing import Caller
from odradek.client.aio.hosted import Aio, aio
from odradek.client.blocking.hosted import Hosted
from odradek.client.config import ClientOptions, parse_bootstrap
from odradek.client.producing.transaction_group import TransactionGroup as TrioGroup


class TransactionGroup(Aio[TrioGroup]):
    """`odradek.client.TransactionGroup` for asyncio programs."""

    def __init__(
        self, bootstrap: str | Sequence[str], name: str, **options: Unpack[ClientOptions]
    ) -> None:
        parse_bootstrap(bootstrap)
        self.name: Final = TrioGroup(bootstrap, name, **options).name  # raises here, not later
        self._caller = Caller()
        self._hosted = Hosted(lambda: TrioGroup(bootstrap, name, **options))

    __init__.__doc__ = TrioGroup.__init__.__doc__

    def transactional_id(self, member: str) -> str:
        """Return the transactional id of the member called `member`."""
        return f"{{{self.name}}}.{member}"

    bounds = aio(TrioGroup.bounds)
    commit = aio(TrioGroup.commit)
    abort = aio(TrioGroup.abort)
    is_served = aio(TrioGroup.is_served)
