"""`odradek config get --all-brokers` of settings that were not changed for all of them."""

from typing import Any, cast

import pytest

from odradek.client.blocking import Admin, BrokerDescription, ConfigEntry, Refused
from odradek.client.cli.config import _of_brokers

DEFAULT = ConfigEntry("60000", True, False, False, "default")


class TwoBrokers:
    """An administrator's client of two brokers, of which one has its own `a`."""

    def describe_cluster(self) -> Any:
        class Described:
            brokers = tuple(BrokerDescription(n, "h", 9092, None) for n in (2, 1))

        return Described

    def describe_broker_configs(self, *node_ids: int) -> dict[int, dict[str, ConfigEntry]]:
        assert node_ids == (1, 2)
        own = ConfigEntry("7", False, False, False, "file")
        return {1: {"a": DEFAULT, "b": DEFAULT}, 2: {"a": own, "b": DEFAULT}}


def test_brokers_that_agree_have_one_value_and_others_are_named() -> None:
    admin = cast(Admin, TwoBrokers())
    assert _of_brokers(admin, ["b", "nosuch"]) == {"b": DEFAULT}
    with pytest.raises(Refused, match=r"differ: broker 1: 60000 \(default\), broker 2: 7 \(file\)"):
        _of_brokers(admin, ["b", "a"])
