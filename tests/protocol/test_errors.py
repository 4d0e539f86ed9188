"""Error codes, compared with kafka-python's."""

from typing import Any, Final

import kafka.errors
import pytest

from odradek.protocol.errors import RETRIABLE, ErrorCode, KafkaError

CLASSES: Final[list[Any]] = [cls for cls in vars(kafka.errors).values() if isinstance(cls, type)]
THEIRS: Final[dict[int, Any]] = {
    cls.errno: cls
    for cls in CLASSES
    if issubclass(cls, kafka.errors.BrokerResponseError) and getattr(cls, "errno", None) is not None
}
RENAMED: Final = {  # renamed by Kafka, but not by kafka-python
    ErrorCode.UNKNOWN_SERVER_ERROR: "UNKNOWN",
    ErrorCode.NONE: "NO_ERROR",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_FOR_PARTITION",
    ErrorCode.MESSAGE_TOO_LARGE: "MESSAGE_SIZE_TOO_LARGE",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "INVALID_TOPIC",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "INVALID_REPLICATION_ASSIGNMENT",
}


@pytest.mark.parametrize("number", sorted(THEIRS))
def test_a_code_is_called_as_in_kafka(number: int) -> None:
    code = ErrorCode(number)
    assert THEIRS[number].message == RENAMED.get(code, code.name)


@pytest.mark.parametrize("number", sorted(THEIRS))
def test_the_same_errors_are_retriable(number: int) -> None:
    code = ErrorCode(number)
    is_retriable = code in RETRIABLE
    if code is ErrorCode.CORRUPT_MESSAGE:  # retriable in Kafka, but not in kafka-python
        assert is_retriable
    else:
        assert is_retriable is THEIRS[number].retriable


def test_codes_have_no_gaps() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))


def test_an_error_says_its_name_and_what_happened() -> None:
    error = KafkaError(ErrorCode.PRODUCER_FENCED, "epoch 3 was fenced by epoch 4")
    assert str(error) == "PRODUCER_FENCED: epoch 3 was fenced by epoch 4"
    assert not error.is_retriable
    assert str(KafkaError(ErrorCode.NOT_COORDINATOR)) == "NOT_COORDINATOR"
    assert KafkaError(ErrorCode.NOT_COORDINATOR).is_retriable


def test_a_sentence_that_quotes_a_long_name_fits_into_every_answer() -> None:
    error = KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"There is no topic {'é' * 32_000}, sorry."
    )
    assert len(error.message.encode()) < 4096
    assert error.message.startswith("There is no topic éé")
    assert error.message.endswith("éé, sorry.")
