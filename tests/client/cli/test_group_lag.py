"""The lags of groups, as far as no broker is needed."""

from typing import Any

import pytest

from odradek.client.cli.group_lag import Lags
from odradek.client.errors import TimedOut


class SlowAdmin:
    def group_lag(self, _group_id: str) -> Any:
        raise TimedOut("the coordinator does not answer")


def test_an_alert_that_cannot_look_does_not_stay_silent() -> None:
    """`group list --fail-above` ended with status 0 if a broker was too slow to answer."""
    slow: Any = SlowAdmin()
    assert Lags(slow, must_be_known=False).of("g") is None
    with pytest.raises(TimedOut):
        Lags(slow, must_be_known=True).of("g")
