"""The size of an answer, before it is built."""

from typing import Final

ANSWER_ITEM_BYTES: Final = 200
"""The size of an item of an answer, as an object and on the wire."""
