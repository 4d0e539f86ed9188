"""Servers that are no Kafka brokers, recognised by the first bytes that they send.

A broker's first bytes are the length of its first answer, which is short: the first of them is 0.
So no broker is taken for one of these.
"""

from typing import Final

SNIFFED_BYTES: Final = 16
"""The first bytes that are looked at."""
TLS_ALERT: Final = 0x15
TLS_HANDSHAKE: Final = 0x16
TLS_MAJOR: Final = 3
MYSQL_PROTOCOL: Final = 10
BEGINNINGS: Final = (
    (b"HTTP/", "an HTTP server"),
    (b"<", "an HTTP server"),
    (b"SSH-", "an SSH server"),
    (b"AMQP", "an AMQP broker, such as RabbitMQ"),
    (b"-ERR ", "a Redis server"),
    (b"-NOAUTH", "a Redis server"),
    (b"-DENIED", "a Redis server"),
    (b"ERROR\r\n", "a Memcached server"),
    (b"220", "a mail or FTP server"),
)


def stranger(first: bytes) -> str | None:
    """Return what sends these bytes first, with an article; None if it may be a broker."""
    if len(first) > 2 and first[0] in (TLS_ALERT, TLS_HANDSHAKE) and first[1] == TLS_MAJOR:
        return (
            "a TLS server: set security.protocol=SSL or SASL_SSL (security_protocol), or take a "
            "plain listener"
        )
    if first[:2] in (b"E\0", b"N\0") and first[5:6] in (b"S", b"C"):
        return "a PostgreSQL server"
    if len(first) > 4 and first[0] and first[3:5] == bytes((0, MYSQL_PROTOCOL)):
        return "a MySQL server"
    return next((name for bytes_, name in BEGINNINGS if first.startswith(bytes_)), None)
