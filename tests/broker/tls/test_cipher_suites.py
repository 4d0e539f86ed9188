"""Cipher suites have other names at IANA, which Java and Kafka use, than in OpenSSL."""

import ssl

import pytest

from odradek.broker.config.settings import ConfigError
from odradek.broker.tls.cipher_suites import choose


def context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES128-SHA"),
    ],
)
def test_both_names_of_a_suite_choose_it_alone(iana: str, openssl: str) -> None:
    chosen = context()
    choose(chosen, [iana])
    names = [each["name"] for each in chosen.get_ciphers()]
    assert [name for name in names if not name.startswith("TLS_")] == [openssl]
    assert chosen.maximum_version is ssl.TLSVersion.TLSv1_2, "no suite of TLS 1.3 is named"


def test_a_suite_of_tls_1_3_alone_switches_tls_1_2_off() -> None:
    chosen = context()
    choose(chosen, ["TLS_AES_128_GCM_SHA256"])
    assert chosen.minimum_version is ssl.TLSVersion.TLSv1_3


def test_suites_of_both_versions_leave_both_on() -> None:
    chosen, default = context(), context()
    choose(chosen, ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])
    assert chosen.minimum_version == default.minimum_version
    assert chosen.maximum_version == default.maximum_version


def test_an_unknown_suite_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"ssl.cipher.suites has TLS_NO_WITH_NONE, which OpenSSL"):
        choose(context(), ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_NO_WITH_NONE"])
