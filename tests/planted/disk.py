"""Bugs of what is lost from a data directory, or is not what this version writes."""

from typing import Final

from tests.planted.bug import Planted

FORMATS: Final = "tests/broker/test_data_format.py::test_"

DISK_BUGS: Final = (
    Planted(
        bug="a data directory of a newer format is opened",
        file="broker/storage/data_format.py",
        old="    if number > FORMAT:\n",
        new="    if number < 0:\n",
        tests=(f"{FORMATS}a_directory_of_a_newer_format_is_refused_and_nothing_in_it_changes",),
    ),
)
