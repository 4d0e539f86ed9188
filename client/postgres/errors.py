"""The errors of a commit that PostgreSQL decides."""

from odradek.client.errors import Fatal


class CommittedInPostgres(Fatal):
    """PostgreSQL has committed, and the broker has not confirmed it. Do not do the work again.

    The next producer with this transactional id commits the records when it is entered.
    """


class CommitUnknown(Fatal):
    """PostgreSQL could not be asked whether it has committed.

    The records stay invisible. The next producer with this transactional id finds out when it is
    entered, and commits or aborts them. Its `recovered` has what it did.
    """
