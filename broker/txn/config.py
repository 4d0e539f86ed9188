"""The settings of the transaction coordinator."""

from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Kafka's settings, with underscores for its dots, and four of ours.

    `transaction_concurrent_wait_ms` is the longest that a request waits for what is under way
    before it gets CONCURRENT_TRANSACTIONS. With `transaction_abort_on_disconnect`, the open
    transaction of a producer that has closed its last connection is aborted.
    `transaction_group_id_expiration_ms` is `transactional_id_expiration_ms` for members of a
    transaction group. `transactional_ids_max_bytes` limits the memory for all ids.
    """

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
    transaction_state_log_num_partitions: int = 50
    transaction_concurrent_wait_ms: int = 1_000
    transaction_two_phase_commit_enable: bool = False
    transaction_abort_on_disconnect: bool = False
    transaction_group_id_expiration_ms: int = 3600 * 1000
    transactional_ids_max_bytes: int = 256 * 1024 * 1024
