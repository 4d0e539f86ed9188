"""Contexts of TLS from certificates and keys, however they are kept."""

import errno
import os
import ssl
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odradek.protocol.keystores import (
    CertifiedKey,
    KeystoreError,
    Stores,
    authorities_from,
    identity_from,
    is_pem,
)

FILE_MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest file that a broker reads again while it serves."""


def read_file(path: str) -> bytes:
    """Return the content of a file. Raises OSError."""
    return Path(path).read_bytes()


def read_regular_file(path: str) -> bytes:
    """Return the content of a file that may have been named while a broker serves. Raises OSError.

    The read of a pipe or of a terminal may never end, and the broker with it.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
    if status.st_size > FILE_MAX_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {FILE_MAX_BYTES} bytes", path)
    return read_file(path)


Place = str | os.PathLike[str] | None
"""A file, or a PEM text itself."""


def client_stores(
    *,
    authorities: Place,
    authorities_password: str | None,
    certificates: Place,
    key: Place,
    key_password: str | None,
) -> Stores:
    """Return what the options of a client say. A key may also be in the file of certificates."""
    trusted, shown, secret = (os.fspath(it or "") for it in (authorities, certificates, key))
    if is_pem(shown) != is_pem(secret) and secret:
        raise KeystoreError(
            "ssl_certificate_location and ssl_key_location are both files, or both PEM texts."
        )
    has_texts = is_pem(shown)
    return Stores(
        keystore_location="" if has_texts else shown,
        keystore_password=key_password or "",
        key_location="" if has_texts else secret,
        key_password=key_password or "",
        key=(secret or shown) if has_texts else "",
        certificates=shown if has_texts else "",
        truststore_location="" if is_pem(trusted) else trusted,
        truststore_password=authorities_password or "",
        authorities=trusted if is_pem(trusted) else "",
    )


def client_context(stores: Stores, *, checks_host: bool) -> ssl.SSLContext:
    """Return the context of a side that connects. Raises `KeystoreError`.

    Without authorities, those that the machine trusts count.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host
    context.options |= ssl.OP_NO_RENEGOTIATION
    authorities = authorities_from(stores, read_file)
    if authorities is None:
        context.load_default_certs()
    else:
        trust(context, authorities, stores)
    identity = identity_from(stores, read_file)
    if identity is not None:
        load_identity(context, identity)
    return context


def trust(context: ssl.SSLContext, authorities: str, stores: Stores) -> None:
    """Trust certificates that are signed by `authorities`. Raises `KeystoreError`."""
    try:
        context.load_verify_locations(cadata=authorities)
    except (ssl.SSLError, ValueError) as error:
        place = stores.truststore_location or "ssl.truststore.certificates"
        raise KeystoreError(f"{place} cannot be used: {error}.") from None


def load_identity(context: ssl.SSLContext, identity: CertifiedKey) -> None:
    """Show the certificate of `identity` to the other side. Raises `KeystoreError`."""
    try:
        with _as_file(identity.key + identity.chain) as path:
            context.load_cert_chain(path)
    except (ssl.SSLError, OSError) as error:
        raise KeystoreError(f"{identity.place} cannot be used: {error}.") from None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Name a file with this content, which is no file of a disk where the system can do that.

    OpenSSL takes keys from files only, by way of the standard library.
    """
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # only this user may read it
        file.write(content)
        file.flush()
        yield file.name
