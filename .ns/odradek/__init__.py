"""Odradek: a broker that speaks the Kafka protocol, with exactly-once, and its clients.

The client has the same names in three packages. Choose by how your program waits:

    odradek.client.blocking    plain programs and threads: no event loop
    odradek.client.aio         asyncio: FastAPI, notebooks
    odradek.client             trio

    from odradek.client.blocking import Producer

    with Producer("127.0.0.1:9092") as producer:
        producer.send("greetings", b"guten Tag")

`help(odradek.client.blocking)` goes on from there. More packages:

    odradek.client.spark       format("odradek") for PySpark; Spark finds it by itself
    odradek.client.postgres    one commit with PostgreSQL
    odradek.client.schemas     Avro, JSON Schema and Protobuf with a schema registry
    odradek.broker.testing     a broker for your tests

The command `odradek`, or `python -m odradek`, has the broker and its tools.
"""

import sys
from typing import TYPE_CHECKING, Final

__version__: Final = "0.2.0"

if not TYPE_CHECKING:  # a type checker reports such names by itself

    def __getattr__(name: str) -> object:
        """Raise an error that says where the name is."""
        if not name[:1].isupper():
            raise AttributeError(f"module 'odradek' has no attribute {name!r}")
        sentence = (
            f"odradek has no name {name}: the client's names are in odradek.client.blocking for "
            "plain programs, in odradek.client.aio for asyncio, and in odradek.client for trio"
        )
        # Of an AttributeError, `from odradek import Producer` would show nothing.
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":
            raise ImportError(sentence, name=__name__)
        raise AttributeError(sentence)
