"""Files with secrets, as a broker reads them at its start and again while it serves."""

import logging
from typing import Final

from odradek.client.tls.contexts import read_regular_file
from odradek.client.tls.secret_files import warning_about

LOGGER: Final = logging.getLogger(__name__)


def read_secret_text(path: str) -> str:
    """Return the text of a file with secrets. Raises OSError and UnicodeDecodeError.

    A line of the log warns of a file that every user of this machine may read.
    """
    text = read_regular_file(path).decode()
    if warning := warning_about(path):
        LOGGER.warning("%s", warning)
    return text
