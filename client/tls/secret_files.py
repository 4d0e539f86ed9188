"""Files with secrets that every user of this machine may read: a warning, as ssh has one.

It is no error. A container may mount its secrets so, where no other user is.
"""

import os
import stat
from typing import Final

KEY: Final = b"PRIVATE KEY-----"
"""A part of the first line of a private key in PEM."""
ENCRYPTED: Final = (b"ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")


def warning_about(path: str | os.PathLike[str]) -> str | None:
    """Return a sentence about a file with a secret that every user may read; otherwise None."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # it has gone meanwhile
        return None
    if not stat.S_ISREG(mode) or not mode & stat.S_IROTH:
        return None
    return (
        f"{os.fspath(path)} has a secret, and its mode lets every user of this machine read it: "
        f"chmod 600 {os.fspath(path)}"
    )


def has_open_key(content: bytes) -> bool:
    """Return True if a file has a private key, in PEM and without a password."""
    return KEY in content and not any(mark in content for mark in ENCRYPTED)
