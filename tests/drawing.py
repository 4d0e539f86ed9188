"""hypothesis, as every test uses it: with the same examples in every run.

Tests import `given`, `settings` and `st` from here, and never from hypothesis itself. So its
profile is set before a test is made, and a start of pytest that draws nothing does not import it.
"""

from typing import Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

__all__ = ["MANY", "HealthCheck", "Phase", "given", "settings", "st"]

EVERYWHERE: Final = "the same everywhere"
MANY: Final = "many"
"""The profile with `--all`."""
FEW: Final = "few"
"""The profile of `scripts/test --quick`."""

# Every run has the same examples, and none is judged by its time: a machine may be slow.
settings.register_profile(
    EVERYWHERE,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # of a machine that stalls
    max_examples=60,
)
settings.register_profile(MANY, settings.get_profile(EVERYWHERE), max_examples=300)
settings.register_profile(FEW, settings.get_profile(EVERYWHERE), max_examples=10)
settings.load_profile(EVERYWHERE)
