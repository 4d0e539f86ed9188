"""Count the committed and aborted transactions in the transaction log."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from odradek.protocol.state_topics import (
    TRANSACTION_STATE_TOPIC,
    TransactionLogKey,
    TransactionLogValue,
    decode_transaction_state_key,
    decode_value,
)
from scripts.refunds.load import NO_OPTIONS
from scripts.refunds.verify import ALL, read_all

DECISIONS: Final = {2: "transactions committed", 3: "transactions aborted"}
"""The decisions, by the stored state PrepareCommit or PrepareAbort."""


def transactions_of(
    bootstrap: str, prefix: str, options: Mapping[str, Any] = NO_OPTIONS
) -> Counter[str]:
    """Count the decisions of the transactional ids that start with `prefix`."""
    counts: Counter[str] = Counter()
    for record in read_all(bootstrap, TRANSACTION_STATE_TOPIC, ALL, options):
        key = decode_transaction_state_key(record.key)
        if not isinstance(key, TransactionLogKey) or record.value is None:
            continue
        status = decode_value(TransactionLogValue, record.value).transaction_status
        if key.transactional_id.startswith(prefix) and status in DECISIONS:
            counts[DECISIONS[status]] += 1
    return counts
