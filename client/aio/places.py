"""The positions of a consumer with asyncio: where it reads its partitions."""

from typing import Generic

from odradek.client.aio.hosted import Aio
from odradek.client.arguments import named
from odradek.client.blocking.consumer import Consumer as BlockingConsumer
from odradek.client.consuming.consumer import Consumer as TrioConsumer
from odradek.client.statistics import ConsumerStatistics
from odradek.client.types import Key, OffsetAndMetadata, TopicPartition, Value


class AioPlaces(Aio[TrioConsumer], Generic[Key, Value]):
    """The part of a consumer that is about places in partitions; `Consumer` adds the rest."""

    _behind: BlockingConsumer[Key, Value]

    @property
    def _open(self) -> BlockingConsumer[Key, Value]:
        """The blocking consumer behind it, open. To open it waits for no broker."""
        self._hosted.enter()
        return self._behind

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._open.assignment()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions (none given: of all) until they are resumed."""
        self._open.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions (none given: of all) again."""
        self._open.resume(*partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset at which reading a partition continues. Raises `Refused`."""
        self._open.seek(partition, offset)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the stored offsets of these partitions, or of all, as after a restart."""
        self._open.seek_to_committed(*partitions)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first offset of these partitions, or of all. Raises `TimedOut`, `Refused`."""
        self._open._give_back_run()
        await self._call(self._behind._async.seek_to_beginning, *partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all (read_committed: last stable offset).

        Raises `TimedOut`, `Refused`.
        """
        self._open._give_back_run()
        await self._call(self._behind._async.seek_to_end, *partitions)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset that is read next. Raises `OffsetOutOfRange`, `TimedOut`, `Refused`."""
        name = named(partition)
        known = self._open.positions().get(name)
        return await self._call(self._behind._async.position, name) if known is None else known

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions of all assigned partitions, if they are known."""
        return self._open.positions()

    def offsets_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what `commit` stores, for `Transaction.send_offsets`.

        See `odradek.client.Consumer`. Raises `Refused`.
        """
        return self._open.offsets_to_commit()

    def lags(self) -> dict[TopicPartition, int]:
        """Return how many offsets the positions are behind the ends; see `odradek.client`."""
        return self._open.lags()

    def statistics(self) -> ConsumerStatistics:
        """Return what was counted since the consumer was opened, and where it is now."""
        return self._open.statistics()
