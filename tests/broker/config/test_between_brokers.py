"""What brokers log in with at each other: the settings, and the sentences about wrong ones."""

import pytest

from odradek.broker.config.addresses import Listener, listeners_of
from odradek.broker.config.properties import Given
from odradek.broker.config.sasl_listeners import (
    Login,
    SaslOfListener,
    check_between_brokers,
    sasl_of,
)
from odradek.broker.config.settings import ConfigError
from odradek.broker.config.settling import settle

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MECHANISM = "sasl.mechanism.inter.broker.protocol"
JAAS = "listener.name.inside.scram-sha-512.sasl.jaas.config"
GOOD = {
    MECHANISM: "SCRAM-SHA-512",
    JAAS: f'{SCRAM} username="broker" password="of, \\"brokers\\"";',
}


def checked(
    properties: dict[str, str], protocol: str = "SASL_PLAINTEXT"
) -> tuple[Listener, SaslOfListener | None]:
    """Return the listener of the brokers and its SASL. Each property has a line of its own."""
    given = {
        "listeners": "INSIDE://127.0.0.1:9092",
        "listener.security.protocol.map": f"INSIDE:{protocol}",
        **properties,
    }
    config = settle(
        [
            Given(name=name, text=text, source="f", line=number)
            for number, (name, text) in enumerate(given.items(), 1)
        ]
    ).config
    (listener,) = listeners_of(config)

    def no_file(path: str) -> str:
        raise FileNotFoundError(path)

    sasl = sasl_of(config, listener.name, no_file) if listener.has_sasl else None
    check_between_brokers(config, listener, sasl)
    return listener, sasl


def test_name_and_password_are_in_the_line_of_the_mechanism() -> None:
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        _, sasl = checked(GOOD, protocol)
        assert sasl is not None
        assert sasl.login == Login(
            mechanism="SCRAM-SHA-512", username="broker", password='of, "brokers"'
        )
        assert str(sasl.login.principal) == "User:broker"
        assert "brokers" not in repr(sasl)


def test_with_plain_the_line_has_the_users_too() -> None:
    _, sasl = checked(
        {
            "sasl.enabled.mechanisms": "PLAIN",
            MECHANISM: "PLAIN",
            "listener.name.inside.plain.sasl.jaas.config": (
                f"{PLAIN} username=broker password=secret user_broker=secret user_alice=other;"
            ),
        }
    )
    assert sasl is not None
    assert sasl.login == Login(mechanism="PLAIN", username="broker", password="secret")
    assert sasl.passwords == {"broker": "secret", "alice": "other"}


def test_without_a_mechanism_brokers_show_certificates_where_there_is_tls() -> None:
    _, sasl = checked({JAAS: GOOD[JAAS]}, "SASL_SSL")
    assert sasl is not None
    assert sasl.login is None


def test_on_a_listener_without_sasl_nobody_logs_in() -> None:
    """The mechanism may be set before the listener is that of the brokers."""
    assert checked({MECHANISM: "SCRAM-SHA-512"}, "SSL")[1] is None
    assert checked({MECHANISM: "SCRAM-SHA-512"}, "PLAINTEXT")[1] is None


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (
            {},
            "Brokers use listener INSIDE among each other, which has SASL and no TLS: set "
            f"{MECHANISM}, to SCRAM-SHA-512 for example, and {JAAS} with the username and the "
            "password by which this broker logs in at the others.",
        ),
        (
            {MECHANISM: "GSSAPI"},
            f"f, line 3: {MECHANISM} is PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512, not 'GSSAPI': a "
            "broker logs in at the others by a name and a password.",
        ),
        (
            {MECHANISM: "SCRAM-SHA-512"},
            f"f, line 3: {MECHANISM} is SCRAM-SHA-512, and {JAAS} does not say by which name this "
            f'broker logs in at the others: it is {SCRAM} username="NAME" password="PASSWORD";',
        ),
        (
            {**GOOD, JAAS: f'{SCRAM} username="broker";'},
            f"f, line 4: {JAAS} has no password: a broker logs in at the others with username and "
            "password.",
        ),
        (
            {**GOOD, JAAS: f'{SCRAM} username="" password="secret";'},
            f"f, line 4: {JAAS} has no username: a broker logs in at the others with username and "
            "password.",
        ),
        (
            {**GOOD, JAAS: f'{SCRAM} username="broker" password="a\0b";'},
            f"f, line 4: {JAAS} has a character NUL in username or password.",
        ),
        (
            {**GOOD, JAAS: f"{SCRAM};"},
            f"f, line 4: {MECHANISM} is SCRAM-SHA-512, and {JAAS} does not say by which name this "
            f'broker logs in at the others: it is {SCRAM} username="NAME" password="PASSWORD";',
        ),
        (
            {**GOOD, "sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            f"f, line 3: {MECHANISM} is SCRAM-SHA-512, which listener INSIDE does not have for the "
            "other brokers: sasl.enabled.mechanisms is SCRAM-SHA-256.",
        ),
        (
            {**GOOD, JAAS: GOOD[JAAS].replace("scram.Scram", "plain.Plain")},
            f"f, line 4: {JAAS} has the module "
            "org.apache.kafka.common.security.plain.PlainLoginModule, and nothing is loaded here: "
            "the module of SCRAM-SHA-512 is org.apache.kafka.common.security.scram."
            "ScramLoginModule.",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_setting_and_line(
    properties: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        checked(properties)
    assert str(refused.value) == said
