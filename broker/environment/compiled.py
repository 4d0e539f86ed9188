"""The parts that are compiled, where the package was built with a C compiler.

Of these, the steps of `plain_produce.py` are chosen here, `ready_sockets.py` receives, `fsyncs.py`
has the threads of fsyncs, and in `giving_way.py` a thread yields its processor.

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
from odradek.protocol.plain_produce import PlainProduce, PlainSteps

OFF: Final = "ODRADEK_WITHOUT_C"
"""The environment variable with which nothing that is compiled is used."""


def is_wanted() -> bool:
    """Return True if what is compiled may be used."""
    return not os.environ.get(OFF)


def steps_in_c(module: ModuleType | None = None) -> PlainSteps | None:
    """Return what is written in C, of the module that is installed or another one.

    None where it is not.
    """
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
    return PlainSteps(in_c.scan, in_c.join)


def fastest_steps() -> PlainSteps:
    """Return the steps in C if they are there and wanted, otherwise those in Python."""
    return (is_wanted() and steps_in_c()) or plain_produce.IN_PYTHON
