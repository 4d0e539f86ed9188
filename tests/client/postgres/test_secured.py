"""One commit with PostgreSQL at a broker with TLS, passwords and the rights that it needs."""

import pytest
import trio

from odradek.broker.testing import run_secured_broker
from odradek.client.blocking import Acl, Admin, Consumer
from odradek.client.postgres import PostgresProducer
from odradek.client.postgres.blocking import PostgresProducer as BlockingPostgresProducer
from tests.client.postgres.conftest import SETTINGS, Both
from tests.peers.postgres import RunningPostgres

pytestmark = pytest.mark.slow


def test_both_producers_commit_with_a_user_that_may_no_more(postgres: RunningPostgres) -> None:
    postgres.ask("CREATE TABLE secured (value text, at serial)")
    users = {"admin": "word of admin", "ledger": "word of ledger"}
    with run_secured_broker(users, super_users=["admin"], config=SETTINGS) as broker:
        with Admin(broker.address, **broker.options("admin")) as admin:
            admin.create_topic("secured", partitions=1)
            admin.create_acls(
                [
                    Acl("topic", "secured", "User:ledger", "write"),
                    Acl("transactional_id", "secured", "User:ledger", "write"),
                    Acl("transactional_id", "secured", "User:ledger", "two_phase_commit"),
                ]
            )
        both = Both(postgres, broker, "secured")
        given = {"transactional_id": "secured", **broker.options("ledger")}
        with (
            both.connect() as connection,
            BlockingPostgresProducer(broker.address, postgres.conninfo, **given) as producer,
        ):
            both.write("one", connection, producer)

        async def write_by_trio() -> None:
            connection = await trio.to_thread.run_sync(both.connect)
            with connection:
                async with (
                    PostgresProducer(broker.address, postgres.conninfo, **given) as producer,
                    producer.transaction(connection) as txn,
                ):
                    await txn.execute(both.insert, ["two"])
                    await txn.send("secured", b"two")

        trio.run(write_by_trio)
        assert both.rows() == ["one", "two"]
        found: list[bytes | None] = []
        with Consumer(broker.address, **broker.options("admin")) as consumer:
            consumer.assign([("secured", 0)])
            while len(found) < 2:
                found += [record.value for record in consumer.poll(1_000)]
        assert found == [b"one", b"two"]
