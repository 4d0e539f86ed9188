"""A rebuild surveys a log with gaps from compaction."""

from pathlib import Path
from random import Random

from odradek.broker.cluster.topic_logs import log_config
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.inspect.rebuild import Salvaged, Wishes, plan_rebuild
from odradek.broker.inspect.survey import survey_partition
from odradek.broker.storage.checkpoint import CHECKPOINT
from odradek.broker.values.topic_partition import TopicPartition
from tests.broker.storage.keyed import KeyedClient, compact, compacted_machine, consume
from tests.broker.storage.samples import PARTITION_DIRECTORY, TOPIC, TOPIC_ID


async def test_a_compacted_log_of_unknown_settings_keeps_all_behind_its_gaps(
    tmp_path: Path,
) -> None:
    """Opened without a checkpoint, as a log that is not compacted, it would end at a gap."""
    machine = compacted_machine(segment_bytes=400)
    client = KeyedClient(await machine.start())
    for number in range(24):
        client.send((f"key {number % 5}", f"{number}"))
    await compact(client.partition)
    before = [record.value for record in await consume(client.partition)]
    await machine.stop()
    machine.disk.remove(f"{PARTITION_DIRECTORY}/{CHECKPOINT}")
    for name in machine.disk.listdir(PARTITION_DIRECTORY):
        (tmp_path / name).write_bytes(machine.disk.bytes_of(f"{PARTITION_DIRECTORY}/{name}"))
    found = survey_partition(str(tmp_path), TopicPartition(TOPIC, 0))
    assert found.is_compacted
    assert found.topic_id is None
    made = plan_rebuild([found], Salvaged(), Wishes(), Random(1))
    machine.config = log_config(made.topics[0].topic, BrokerConfig())
    partition = await machine.start(topic_id=TOPIC_ID)
    assert [record.value for record in await consume(partition)] == before
    assert await compact(partition) is None
    assert [record.value for record in await consume(partition)] == before
