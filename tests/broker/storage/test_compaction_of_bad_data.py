"""Compaction of data that is damaged, too large or without keys, and on a full disk."""

import pytest

from odradek.broker.partitions.maintenance import inline
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.validation import check_keys
from odradek.broker.turns import Turns
from odradek.protocol.batch import (
    Codec,
    read_header,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.keyed import (
    bomb,
    keyed,
)
from tests.broker.storage.samples import batch


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_record_without_a_key_is_refused(codec: Codec) -> None:
    async def check(data: memoryview) -> None:
        await check_keys(read_header(data), data, Decompressor(inline), Turns())

    with pytest.raises(KafkaError, match="record 0 has no key") as refused:
        await check(batch("x", codec=codec))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    await check(keyed(("", "an empty key is a key"), codec=codec))
    with pytest.raises(KafkaError, match=r"cannot be read: .*more than") as refused:
        await check(bomb())
    assert refused.value.code is ErrorCode.INVALID_RECORD
