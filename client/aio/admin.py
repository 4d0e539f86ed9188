"""Administration for asyncio programs."""

from collections.abc import Sequence
from typing import Unpack

from odradek.client.administration.admin import Admin as TrioAdmin
from odradek.client.aio.crossing import Caller
from odradek.client.aio.hosted import Aio, aio
from odradek.client.blocking.hosted import Hosted
from odradek.client.config import ClientConfig, ClientOptions, parse_bootstrap, read_options


class Admin(Aio[TrioAdmin]):
    """`odradek.client.Admin` for asyncio programs."""

    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ClientOptions]) -> None:
        read_options(
            ClientConfig, type(self).__name__, options
        )  # raises here for a wrong option, not on entering
        parse_bootstrap(bootstrap)
        self._caller = Caller()
        self._hosted = Hosted(lambda: TrioAdmin(bootstrap, **options))

    __init__.__doc__ = TrioAdmin.__init__.__doc__

    create_acls = aio(TrioAdmin.create_acls)
    describe_acls = aio(TrioAdmin.describe_acls)
    delete_acls = aio(TrioAdmin.delete_acls)
    explain_access = aio(TrioAdmin.explain_access)
    alter_quotas = aio(TrioAdmin.alter_quotas)
    describe_quotas = aio(TrioAdmin.describe_quotas)
    set_password = aio(TrioAdmin.set_password)
    delete_user = aio(TrioAdmin.delete_user)
    describe_users = aio(TrioAdmin.describe_users)

    create_topic = aio(TrioAdmin.create_topic)
    create_topics = aio(TrioAdmin.create_topics)
    delete_topics = aio(TrioAdmin.delete_topics)
    create_partitions = aio(TrioAdmin.create_partitions)
    list_topics = aio(TrioAdmin.list_topics)
    describe_topics = aio(TrioAdmin.describe_topics)
    elect_leader = aio(TrioAdmin.elect_leader)
    log_ends = aio(TrioAdmin.log_ends)
    delete_records = aio(TrioAdmin.delete_records)
    describe_log_dirs = aio(TrioAdmin.describe_log_dirs)
    move_partitions = aio(TrioAdmin.move_partitions)
    list_moves = aio(TrioAdmin.list_moves)
    list_offsets = aio(TrioAdmin.list_offsets)
    committed = aio(TrioAdmin.committed)
    describe_topic_configs = aio(TrioAdmin.describe_topic_configs)
    describe_group_configs = aio(TrioAdmin.describe_group_configs)
    describe_broker_configs = aio(TrioAdmin.describe_broker_configs)
    describe_cluster_configs = aio(TrioAdmin.describe_cluster_configs)
    alter_topic_configs = aio(TrioAdmin.alter_topic_configs)
    alter_group_configs = aio(TrioAdmin.alter_group_configs)
    alter_broker_configs = aio(TrioAdmin.alter_broker_configs)
    alter_cluster_configs = aio(TrioAdmin.alter_cluster_configs)
    describe_cluster = aio(TrioAdmin.describe_cluster)
    unregister_broker = aio(TrioAdmin.unregister_broker)

    list_groups = aio(TrioAdmin.list_groups)
    describe_groups = aio(TrioAdmin.describe_groups)
    describe_group = aio(TrioAdmin.describe_group)
    group_lag = aio(TrioAdmin.group_lag)
    reset_group = aio(TrioAdmin.reset_group)
    set_group_offsets = aio(TrioAdmin.set_group_offsets)
    delete_groups = aio(TrioAdmin.delete_groups)
    delete_group_offsets = aio(TrioAdmin.delete_group_offsets)

    list_transactions = aio(TrioAdmin.list_transactions)
    describe_transactions = aio(TrioAdmin.describe_transactions)
    describe_transaction = aio(TrioAdmin.describe_transaction)
    describe_producers = aio(TrioAdmin.describe_producers)
    abort_transaction = aio(TrioAdmin.abort_transaction)
    fence_producers = aio(TrioAdmin.fence_producers)
    force_terminate_transaction = aio(TrioAdmin.force_terminate_transaction)
    who_pins = aio(TrioAdmin.who_pins)
    find_pins = aio(TrioAdmin.find_pins)
    find_hanging = aio(TrioAdmin.find_hanging)
