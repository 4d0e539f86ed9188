"""Administration without an event loop."""

from collections.abc import Sequence
from typing import Unpack

from odradek.client.administration.admin import Admin as AsyncAdmin
from odradek.client.blocking.hosted import Blocking, Hosted, blocking
from odradek.client.config import ClientConfig, ClientOptions, parse_bootstrap, read_options


class Admin(Blocking[AsyncAdmin]):
    """`odradek.client.Admin` with plain `with` and without `await`."""

    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ClientOptions]) -> None:
        read_options(
            ClientConfig, type(self).__name__, options
        )  # raises here for a wrong option, not at the first use
        parse_bootstrap(bootstrap)
        self._hosted = Hosted(lambda: AsyncAdmin(bootstrap, **options))

    __init__.__doc__ = AsyncAdmin.__init__.__doc__

    create_acls = blocking(AsyncAdmin.create_acls)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    explain_access = blocking(AsyncAdmin.explain_access)
    alter_quotas = blocking(AsyncAdmin.alter_quotas)
    describe_quotas = blocking(AsyncAdmin.describe_quotas)
    set_password = blocking(AsyncAdmin.set_password)
    delete_user = blocking(AsyncAdmin.delete_user)
    describe_users = blocking(AsyncAdmin.describe_users)

    create_topic = blocking(AsyncAdmin.create_topic)
    create_topics = blocking(AsyncAdmin.create_topics)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    elect_leader = blocking(AsyncAdmin.elect_leader)
    log_ends = blocking(AsyncAdmin.log_ends)
    delete_records = blocking(AsyncAdmin.delete_records)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    move_partitions = blocking(AsyncAdmin.move_partitions)
    list_moves = blocking(AsyncAdmin.list_moves)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    committed = blocking(AsyncAdmin.committed)
    describe_topic_configs = blocking(AsyncAdmin.describe_topic_configs)
    describe_group_configs = blocking(AsyncAdmin.describe_group_configs)
    describe_broker_configs = blocking(AsyncAdmin.describe_broker_configs)
    describe_cluster_configs = blocking(AsyncAdmin.describe_cluster_configs)
    alter_topic_configs = blocking(AsyncAdmin.alter_topic_configs)
    alter_group_configs = blocking(AsyncAdmin.alter_group_configs)
    alter_broker_configs = blocking(AsyncAdmin.alter_broker_configs)
    alter_cluster_configs = blocking(AsyncAdmin.alter_cluster_configs)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    unregister_broker = blocking(AsyncAdmin.unregister_broker)

    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    describe_group = blocking(AsyncAdmin.describe_group)
    group_lag = blocking(AsyncAdmin.group_lag)
    reset_group = blocking(AsyncAdmin.reset_group)
    set_group_offsets = blocking(AsyncAdmin.set_group_offsets)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)

    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    describe_transaction = blocking(AsyncAdmin.describe_transaction)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    force_terminate_transaction = blocking(AsyncAdmin.force_terminate_transaction)
    who_pins = blocking(AsyncAdmin.who_pins)
    find_pins = blocking(AsyncAdmin.find_pins)
    find_hanging = blocking(AsyncAdmin.find_hanging)
