"""Bugs of the metadata store: lost answers, leases, and what an error says about a write."""

from typing import Final

from tests.planted.bug import Planted

STORES: Final = "tests/broker/cluster/meta_stores"
CONFORMING: Final = f"{STORES}/test_conformance.py::test_"
IN_ETCD: Final = f"{STORES}/test_store_etcd.py::test_"
WATCHES: Final = f"{STORES}/test_etcd_watches.py::test_"
IN_FILES: Final = "tests/broker/cluster/test_store_embedded.py::test_"
WRITING: Final = f"{STORES}/test_guarded_write.py::test_"

CONFIGS: Final = "tests/broker/cluster/test_broker_configs.py::test_"
IN_LOGS: Final = "tests/broker/cluster/test_topic_settings.py::test_"

METADATA_BUGS: Final = (
    Planted(
        bug="a deleted topic comes back as the answer of its creation was lost",
        where="TopicWriter.create",
        old="[before, alive]",
        new="[before]",
        tests=(
            "tests/broker/cluster/test_topic_writer.py::"
            "test_a_deleted_topic_does_not_come_back_as_the_answer_of_its_creation_was_lost",
        ),
    ),
    Planted(
        bug="a change of settings overwrites another broker's",
        where="BrokerConfigs._write",
        old="{} if stored is None else read_configs(key, stored)",
        new="dict(self.image.broker_configs.get(broker, {}))",
        tests=(f"{CONFIGS}two_brokers_that_change_at_once_lose_neither_change",),
    ),
    Planted(
        bug="a topic that was made anew gets the settings of the one before",
        where="TopicWriter.alter_configs",
        old="mod_revision=stored.mod_revision",
        new="create_revision=stored.create_revision",
        tests=(f"{CONFIGS}a_change_of_a_topic_is_made_again_on_what_another_has_written",),
    ),
    Planted(
        bug="a changed setting of the broker reaches only new logs",
        where="Roles.apply",
        old="for topic in new.topics.values():\n    self._logs.configure(topic)",
        tests=(f"{IN_LOGS}changed_settings_reach_the_logs_and_outlive_the_broker",),
    ),
    Planted(
        bug="a changed setting of a topic reaches its log after a restart only",
        where="Roles._apply_topic",
        old="_settings_of(before) != _settings_of(topic)",
        new="False",
        tests=(f"{IN_LOGS}a_changed_setting_of_a_topic_counts_at_once",),
    ),
    Planted(
        bug="a state topic falls back to the settings of other topics",
        where="ClusterTopics._min_isr",
        old="if topic.is_state_topic and MIN_ISR not in configs:",
        new="if False:",
        tests=(f"{IN_LOGS}state_topics_keep_their_own_defaults",),
    ),
    Planted(
        bug="a topic that a client marks as internal does not count",
        where="image._count",
        old="not topic.is_state_topic",
        new="not topic.is_internal",
        tests=(
            "tests/broker/cluster/test_topics.py::"
            "test_a_topic_that_is_marked_as_internal_is_one_for_clients_only",
        ),
    ),
    Planted(
        bug="a lost answer is taken for a refusal when the write is repeated",
        where="guarded_write.guarded_write",
        old="(True, revision) if applied else await _read_outcome(meta, puts)",
        new="applied, revision",
        tests=(f"{WRITING}a_write_whose_answer_was_lost_has_succeeded",),
    ),
    Planted(
        bug="a topic whose answer was lost is taken for another one after an election",
        where="TopicWriter._write_replicas",
        old="not await self._has_replicas(topic, indexes)",
        new="True",
        tests=(
            "tests/broker/cluster/test_topics.py::"
            "test_a_topic_is_made_although_its_answer_is_lost_and_its_in_sync_set_changes",
        ),
    ),
    Planted(
        bug="after a lost answer the store is only read, and the write comes later",
        where="guarded_write.guarded_write",
        old=(
            "applied, revision = await meta.txn(compares, puts, lease=lease)\n"
            "return (True, revision) if applied else await _read_outcome(meta, puts)"
        ),
        new="return await _read_outcome(meta, puts)",
        tests=(f"{WRITING}a_write_that_arrives_late_is_not_made_twice",),
    ),
    Planted(
        bug="another writer's value is taken for one's own after a lost answer",
        where="_read_outcome",
        old="if (stored.value if stored else None) != value:",
        new="if False:",
        tests=(f"{WRITING}a_lost_answer_does_not_make_another_writers_value_ours",),
    ),
    Planted(
        bug="a time-out within etcd is taken for a refusal",
        where="EtcdGateway._post",
        old="answer.status in PUT_BACK",
        new="True",
        tests=(f"{IN_ETCD}a_write_without_a_clear_answer_has_an_unknown_outcome",),
    ),
    Planted(
        bug="a write whose connection broke is sent to the next endpoint, and made twice",
        where="EtcdGateway.call",
        old="if writes and not failed.is_certain:",
        new="if False:",
        tests=(f"{IN_ETCD}a_write_without_a_clear_answer_has_an_unknown_outcome",),
    ),
    Planted(
        bug="a watch is set back by a member of etcd that lags",
        where="EtcdStore.changes_of",
        old="from_revision - 1",
        new="_revision(result)",
        tests=(f"{WATCHES}a_member_that_lags_does_not_set_a_watch_back",),
    ),
    Planted(
        bug="the registration of a broker outlives the broker",
        where="EmbeddedStore._without_leased",
        old="if lease is None:",
        new="if True:",
        tests=(f"{IN_FILES}the_keys_of_a_lease_end_with_the_process",),
    ),
    Planted(
        bug="a topic with a damaged key is taken for a deleted one",
        where="ImageBuilder.image",
        old="continue",
        new="topic = None",
        tests=(
            "tests/broker/cluster/test_foreign_values.py::test_"
            "a_topic_whose_key_of_a_partition_is_gone_is_not_taken_for_a_deleted_one",
        ),
    ),
    Planted(
        bug="a copy of a data directory takes the place of the original",
        where="Session._has_ended",
        old="_address(other) == _address(self._broker)",
        new="True",
        tests=(
            "tests/broker/cluster/test_session.py::test_"
            "a_copy_of_a_data_directory_does_not_take_the_place_of_a_live_broker",
        ),
    ),
    Planted(
        bug="a key that was written anew goes with the lease that it had before",
        where="KeysInMemory.apply",
        old="self._lease_of.pop(key, None)",
        tests=(f"{CONFORMING}a_key_belongs_to_the_lease_of_its_last_write",),
    ),
    Planted(
        bug="a watch skips what was forgotten before it could return it",
        where="KeysInMemory.changes_at",
        old="if revision < oldest:",
        new="if False:",
        tests=(f"{CONFORMING}a_watch_from_a_revision_that_is_compacted_is_refused",),
    ),
    Planted(
        bug="a topic grows by more partitions than a transaction of etcd takes",
        where="TopicWriter.growth_steps",
        old="None if limit is None else limit - 1",
        new="None",
        tests=(
            "tests/broker/cluster/test_topics.py::test_"
            "what_a_topic_has_grown_by_keeps_its_logs_when_the_store_goes_away",
        ),
    ),
    Planted(
        bug="a topic that is half deleted can be changed",
        where="TopicWriter._stored",
        old='not fields.get("unfinished")',
        new="True",
        tests=(
            "tests/broker/cluster/test_topic_writer.py::test_"
            "a_topic_that_is_being_deleted_is_not_changed_by_a_broker_with_an_older_image",
        ),
    ),
)
