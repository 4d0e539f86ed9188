"""Bugs of serializers and deserializers that are awaited, and of records that are sent on."""

from typing import Final

from tests.planted.bug import Planted

WRITING: Final = "tests/client/producing/test_serializing.py::test_"
READING: Final = "tests/client/consuming/test_deserializing.py::test_"
FORWARDING: Final = "tests/client/producing/test_forwarding.py::test_"

SERIALIZER_BUGS: Final = (
    Planted(
        bug="a record whose serializer outlasts its transaction is sent in the next one",
        where="producing.producer.Producer.send",
        old=(
            "sent_key, sent_value, headers = await self._serializers.encode(\n"
            "    topic, key, value, headers\n"
            ")\n"
            "self._check_still_sending(transaction)"
        ),
        new=(
            "sent_key, sent_value, headers = await self._serializers.encode(topic, key, "
            "value, headers)"
        ),
        tests=(
            f"{WRITING}a_record_whose_serializer_outlasts_its_transaction_is_not_in_the_next_one",
        ),
    ),
    Planted(
        bug="what a deserializer was awaited for becomes the value of another record",
        where="Deserializers._converted",
        old="outcomes.offset == record.offset",
        new="True",
        tests=(f"{READING}a_deserializer_is_awaited_while_another_task_seeks",),
    ),
    Planted(
        bug="a good record is poison while the schema registry is away",
        where="Deserializers._deserialized",
        old="except (MustWait, Retriable):",
        new="except MustWait:",
        tests=(f"{READING}a_record_is_no_poison_while_the_service_of_its_deserializer_is_away",),
    ),
    Planted(
        bug="a dead letter that came through a retry topic has that as its origin",
        where="forwarded_headers",
        old="if origin[0][0] in dict(record.headers):",
        new="if False:",
        tests=(f"{FORWARDING}the_origin_is_read_back_and_stays_that_of_the_first_topic[spring]",),
    ),
)
