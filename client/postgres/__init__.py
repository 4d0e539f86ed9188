"""One commit with PostgreSQL: a database transaction and records of a topic, both or neither.

    from odradek.client.postgres import PostgresProducer

    async with PostgresProducer(
        "127.0.0.1:9092", "dbname=shop", transactional_id="orders-1"
    ) as producer:
        async with producer.transaction(connection) as txn:
            await txn.execute("UPDATE accounts SET balance = balance - 5 WHERE name = 'ada'")
            await txn.send("payments", b"ada pays 5")

`odradek.client.postgres.blocking` has the same names for programs without an event loop. This needs
psycopg 3 (`pip install '.[postgres]'` in a clone), and a broker with
`transaction.two.phase.commit.enable` (KIP-939).

Theory of operation
-------------------

PostgreSQL decides. A table has one row for each transactional id: the number of the running
instance, and the identity of the broker's transaction that was committed last.

- Leaving the block prepares the broker's transaction, writes its identity into the row in the
  user's database transaction, and commits that. This COMMIT is the decision. Then the broker's
  transaction is committed.
- Entering a producer raises the instance number and commits that. Then it takes over the
  transactional id at the broker, keeps what is prepared there, and reads the row. If the row has
  the identity of the prepared transaction, that was committed in PostgreSQL, and it is committed at
  the broker, too. Otherwise it is aborted.
- The identity is written only if the instance number is unchanged. The new instance waits for the
  row's lock, so an earlier instance has either committed before, or cannot commit any more.
- If the outcome of a COMMIT is not known, because the connection was lost, the row is locked and
  then read. A COMMIT that is still under way holds the lock.
"""

from odradek.extras import imports_of

with imports_of("postgres", "odradek.client.postgres"):
    from odradek.client.postgres.errors import CommittedInPostgres, CommitUnknown
    from odradek.client.postgres.producer import PostgresProducer, PostgresTransaction
    from odradek.client.postgres.table import Step

__all__ = [
    "CommitUnknown",
    "CommittedInPostgres",
    "PostgresProducer",
    "PostgresTransaction",
    "Step",
]
