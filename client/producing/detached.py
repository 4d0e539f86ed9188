"""The value that a detached transaction leaves for its transaction group."""

from odradek.late import dataclass


@dataclass(frozen=True, slots=True)
class DetachedTransaction:
    """An open transaction that its transaction group ends. It can be pickled, and compared.

    If `is_empty`, nothing was written, and there is nothing to end. `partitions` is the number of
    partitions in it, and `size_bytes` what it adds to the decision at least.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_empty: bool = False
    partitions: int = 0
    size_bytes: int = 0
