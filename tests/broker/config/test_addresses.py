"""Listeners: what the settings say, and what is refused."""

import pytest

from odradek.broker.config.addresses import Listener, listeners_of
from odradek.broker.config.settings import ConfigError
from tests.broker.config.configured import from_properties

TWO = "INSIDE://:9092,OUTSIDE://10.0.0.1:9094"
BOTH_PLAIN = "INSIDE:PLAINTEXT,outside:plaintext"


def listeners(*, listen: str = "", advertise: str = "", **properties: str) -> tuple[Listener, ...]:
    config = from_properties({name.replace("_", "."): text for name, text in properties.items()})
    return listeners_of(config, listen=listen, advertise=advertise)


def test_without_settings_a_broker_listens_on_loopback_only() -> None:
    assert listeners() == (Listener(name="PLAINTEXT", host="127.0.0.1", port=9092),)


def test_a_listener_without_a_host_serves_both_families() -> None:
    for text in ("PLAINTEXT://:9092", ":9092", "PLAINTEXT://[::]:9092"):
        assert listeners(listeners=text) == (Listener(host="::", port=9092),)


def test_each_listener_has_its_own_advertised_address() -> None:
    inside, outside = listeners(
        listeners=TWO,
        listener_security_protocol_map=BOTH_PLAIN,
        advertised_listeners="inside://broker1:9092,OUTSIDE://kafka.example.org:443",
    )
    assert inside == Listener(
        name="INSIDE", host="::", port=9092, advertised_host="broker1", advertised_port=9092
    )
    assert outside == Listener(
        name="OUTSIDE",
        host="10.0.0.1",
        port=9094,
        advertised_host="kafka.example.org",
        advertised_port=443,
    )


def test_the_listener_of_the_brokers_comes_first() -> None:
    names = [
        each.name
        for each in listeners(
            listeners=TWO,
            listener_security_protocol_map=BOTH_PLAIN,
            inter_broker_listener_name="outside",
        )
    ]
    assert names == ["OUTSIDE", "INSIDE"]


def test_a_listener_that_is_not_advertised_has_the_address_that_it_listens_on() -> None:
    _, outside = listeners(
        listeners=TWO,
        listener_security_protocol_map=BOTH_PLAIN,
        advertised_listeners="INSIDE://broker1:9092",
    )
    assert (outside.advertised_host, outside.advertised_port) == ("", 0)


def test_the_command_line_overrules_the_settings() -> None:
    assert listeners(
        listen="127.0.0.1:1",
        advertise="there:2",
        listeners=TWO,
        listener_security_protocol_map=BOTH_PLAIN,
        inter_broker_listener_name="OUTSIDE",
    ) == (Listener(host="127.0.0.1", port=1, advertised_host="there", advertised_port=2),)


def test_a_setting_of_a_mechanism_of_a_listener_is_taken() -> None:
    (only,) = listeners(**{"listener.name.plaintext.plain.connections.max.reauth.ms": "1"})
    assert only.name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"listeners": "INSIDE://:1"}, "No security protocol defined for listener INSIDE: add"),
        ({"listeners": "A://:1,A://:2"}, "listeners has A twice; each listener has its own name."),
        ({"listener_security_protocol_map": "A"}, "is NAME:PROTOCOL, with a protocol of PLAINTEXT"),
        ({"listener_security_protocol_map": "A:TLS"}, "SASL_SSL, not 'A:TLS'."),
        (
            {
                "listeners": "A://:1,B://:1",
                "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
            },
            "Listeners A and B have the same address; give each one.",
        ),
        ({"advertised_listeners": "B://x:1"}, "has B, and the broker listens on PLAINTEXT."),
        ({"advertised_listeners": ":1"}, "clients cannot connect to '::'; name the address"),
        ({"advertised_listeners": "0.0.0.0:1"}, "clients cannot connect to '0.0.0.0'"),
        (
            {"listener.name.PLAINTEXT.ssl.client.auth": "none"},
            "the listener is in small letters here: listener.name.plaintext.ssl.client.auth.",
        ),
        (
            {"listener.name.PLAINTEXT.plain.connections.max.reauth.ms": "1"},
            "small letters here: listener.name.plaintext.plain.connections.max.reauth.ms.",
        ),
        ({"inter_broker_listener_name": "B"}, "is B, which is not a name in listeners."),
        (
            {
                "listeners": TWO,
                "listener_security_protocol_map": BOTH_PLAIN,
                "advertise": "x:1",
            },
            "--advertise is the address of one listener; give advertised.listeners",
        ),
    ],
)
def test_a_mistake_is_one_sentence(properties: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        listeners(**properties)
    assert sentence in str(refused.value)
