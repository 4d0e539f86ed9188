"""The module `broker/api/index.py`, made from the declarations of the APIs that are served.

`scripts/fix` writes it. A test fails if it is another one.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from odradek.broker.api import MODULES, declarations_of
from odradek.broker.api.late_table import ApiRow
from odradek.broker.api.served_api import ServedApi

TEMPLATE: Final = '''\
"""The APIs that the broker serves, in the order of their keys: made by scripts/fix.

`late_table.py` says what it is for. A row has the key, the name, the module, the versions that
ApiVersions lists, and the listeners.
"""

from typing import Final

from odradek.broker.api.late_table import ApiRow
from odradek.broker.api.listeners import Listeners

ROWS: Final = (
{rows}
)
'''


def page() -> str:
    """Return the text of the module. Raises ValueError if two declarations are of one API."""
    rows = sorted(_rows(), key=lambda row: (row.key, row.on.value))
    _check_keys(rows)
    lines = (
        f'    ApiRow({row.key}, "{row.name}", "{row.module}", '
        f"{row.min_version}, {row.max_version}, Listeners.{row.on.name}),"
        for row in rows
    )
    return TEMPLATE.format(rows="\n".join(lines))


def _check_keys(rows: Sequence[ApiRow]) -> None:
    """Raise ValueError if an API has two handlers on a listener, or in a module."""
    for one, other in pairwise(rows):
        if one.key == other.key and (one.on & other.on or one.module == other.module):
            raise ValueError(
                f"{one.name} (key {one.key}) is declared twice: "
                f"in broker/api/{one.module}.py and broker/api/{other.module}.py"
            )


def _rows() -> Iterator[ApiRow]:
    for module in MODULES:
        for served in declarations_of(module):
            yield _row(module, served)


def _row(module: str, served: ServedApi[Any, Any]) -> ApiRow:
    api = served.api
    return ApiRow(
        key=api.key,
        name=api.name,
        module=module,
        min_version=api.min_version if api.advertised_min is None else api.advertised_min,
        max_version=api.max_version,
        on=served.on,
    )
