"""Our broker with a coordinator that stops, as Kafka's does, when a partition knows a higher
coordinator epoch: the transaction stays PrepareCommit or PrepareAbort."""

import trio

from odradek.broker.cli import main
from odradek.broker.txn.ledger import Ledger
from odradek.broker.txn.tenure import Entry


async def give_up(ledger: Ledger, entry: Entry) -> None:
    """Replace `Ledger.confirm`, by which our coordinator checks for a newer coordinator."""
    await trio.sleep_forever()


if __name__ == "__main__":
    Ledger.confirm = give_up  # type: ignore[assignment]
    main()
