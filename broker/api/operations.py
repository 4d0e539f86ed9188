"""The authorised operations that answers name."""

from typing import Final

NOT_ASKED: Final = -(2**31)
"""The operations in an answer to a client that did not ask for them."""
