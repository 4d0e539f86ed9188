"""The parts that are compiled, where the package was built with a C compiler.

Of these, `scan` of `plain_produce.py` is chosen here, and `fsyncs.py` has the threads of fsyncs.

The functions in Python are the reference, and serve where there is no compiler, on other processors
than x86-64, and in simulations. `odradek --version` says which of the two a broker uses.
"""

import importlib
import os
from types import ModuleType
from typing import Final

from odradek.protocol import plain_produce
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.batch import BatchHeader
from odradek.protocol.plain_produce import PlainProduce, Scan

OFF: Final = "ODRADEK_WITHOUT_C"
"""The environment variable with which nothing that is compiled is used."""


def is_wanted() -> bool:
    """Return True if what is compiled may be used."""
    return not os.environ.get(OFF)


def scan_in_c(module: ModuleType | None = None) -> Scan | None:
    """Return `scan` in C, of the module that is installed or another one; None where it is not."""
    try:
        in_c = module or importlib.import_module("odradek.protocol._bytes")
    except ImportError:
        return None
    limits = (
        PRODUCE.min_version,
        PRODUCE.max_version,
        plain_produce.FLEXIBLE_FROM,
        plain_produce.TOPIC_IDS_FROM,
        plain_produce.PARTS_MAX,
        plain_produce.CLIENT_ID_MAX_BYTES,
        plain_produce.VARINT_BYTES,
        plain_produce.CODEC_MAX,
    )
    in_c.configure(PlainProduce, BatchHeader, limits)
    scan: Scan = in_c.scan
    return scan


def fastest_scan() -> Scan:
    """Return `scan` in C if it is there and wanted, otherwise the one in Python."""
    return (is_wanted() and scan_in_c()) or plain_produce.scan
