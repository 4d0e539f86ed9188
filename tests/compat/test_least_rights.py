"""Foreign clients over SASL_SSL, with exactly the rights that an exactly-once application needs.

Each right is taken away in turn, and the client must say which one it lacks: its library's own name
of the error, at the call where that library asks for the right.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

import pytest

from tests.compat.agents import Agent, Refused
from tests.compat.least_rights import (
    RIGHTS,
    VALUES,
    Application,
    Secured,
    deployed,
    password_of,
    run_secured,
    take_away,
)
from tests.compat.libraries import LIBRARIES, Library

NO_INSTANCE: Final = ("kafkajs",)
"""Libraries without members that have an instance."""

NO_COORDINATOR: Final = "KafkaJSGroupCoordinatorNotFound"
"""What KafkaJS says whenever a broker does not name a coordinator. It drops the reason."""

SILENCE: Final = ""
"""What kafka-python says without READ of its topic: its polls return no records, and no error."""
SILENT_SECONDS: Final = 2.0


class Learnt(NamedTuple):
    """What a client says, and at which step."""

    step: str
    kind: str
    words: str = ""
    """A part of the message, where the kind does not name the error."""


ERRORS: Final[Mapping[str, Mapping[str, Learnt]]] = {
    "confluent": {
        "WRITE id": Learnt("open", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        "WRITE target": Learnt("send", "TOPIC_AUTHORIZATION_FAILED"),
        "READ source": Learnt("offsets", "TOPIC_AUTHORIZATION_FAILED"),
        "READ group": Learnt("offsets", "GROUP_AUTHORIZATION_FAILED"),
    },
    "kafka_python": {
        "WRITE id": Learnt("open", "TransactionalIdAuthorizationFailedError"),
        "WRITE target": Learnt("send", "TopicAuthorizationFailedError"),
        "READ source": Learnt("offsets", "KafkaError", "TopicAuthorizationFailedError"),
        "READ group": Learnt("offsets", "GroupAuthorizationFailedError"),
    },
    "aiokafka": {
        "WRITE id": Learnt("open", "TransactionalIdAuthorizationFailed"),
        "WRITE target": Learnt("send", "TopicAuthorizationFailedError"),
        # It drops the code of this answer.
        "READ source": Learnt("offsets", "KafkaError", "Unexpected error during batch delivery"),
        "READ group": Learnt("offsets", "GroupAuthorizationFailedError"),
    },
    "java": {
        "WRITE id": Learnt("open", "TransactionalIdAuthorizationException"),
        "WRITE target": Learnt("send", "TopicAuthorizationException"),
        # Its producer expects no such code there, and says it in words only.
        "READ source": Learnt("offsets", "KafkaException", "Topic authorization failed"),
        "READ group": Learnt("offsets", "GroupAuthorizationException"),
    },
    "franz-go": {
        "WRITE id": Learnt("open", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        "WRITE target": Learnt("send", "TOPIC_AUTHORIZATION_FAILED"),
        "READ source": Learnt("offsets", "TOPIC_AUTHORIZATION_FAILED"),
        "READ group": Learnt("offsets", "GROUP_AUTHORIZATION_FAILED"),
    },
    "sarama": {  # it keeps offsets until the transaction is committed
        "WRITE id": Learnt("open", "ErrTransactionalIDAuthorizationFailed"),
        "WRITE target": Learnt("send", "ErrTopicAuthorizationFailed"),
        "READ source": Learnt("commit", "ErrTopicAuthorizationFailed"),
        "READ group": Learnt("commit", "ErrGroupAuthorizationFailed"),
    },
    "kafkajs": {
        "WRITE id": Learnt("begin", NO_COORDINATOR),
        # It also asks for a producer id without a transactional id: that needs WRITE of a topic.
        "WRITE target": Learnt("open", "CLUSTER_AUTHORIZATION_FAILED"),
        "READ source": Learnt("offsets", "TOPIC_AUTHORIZATION_FAILED"),
        "READ group": Learnt("offsets", "GROUP_AUTHORIZATION_FAILED"),
    },
}
"""What a producer learns without a right."""

OF_MEMBERS: Final[Mapping[str, Mapping[str, str]]] = {
    "confluent": {
        "READ source": "TOPIC_AUTHORIZATION_FAILED",
        "READ group": "GROUP_AUTHORIZATION_FAILED",
    },
    "kafka_python": {
        "READ source": SILENCE,
        "READ group": "GroupAuthorizationFailedError",
    },
    "aiokafka": {
        "READ source": "TopicAuthorizationFailedError",
        "READ group": "GroupAuthorizationFailedError",
    },
    "java": {
        "READ source": "TopicAuthorizationException",
        "READ group": "GroupAuthorizationException",
    },
    "franz-go": {
        "READ source": "TOPIC_AUTHORIZATION_FAILED",
        "READ group": "GROUP_AUTHORIZATION_FAILED",
    },
    "sarama": {
        "READ source": "ErrTopicAuthorizationFailed",
        "READ group": "ErrGroupAuthorizationFailed",
    },
    "kafkajs": {
        "READ source": "TOPIC_AUTHORIZATION_FAILED",
        "READ group": NO_COORDINATOR,
    },
}
"""What a member of a group learns without a right."""

WRONG_PASSWORD: Final[Mapping[str, Learnt]] = {
    "java": Learnt("open", "SaslAuthenticationException"),
    "franz-go": Learnt("open", "SASL_AUTHENTICATION_FAILED"),
    # It says first that it has run out of brokers, and has the broker's words as text only.
    "sarama": Learnt("open", "error", "SASL Authentication failed"),
    "kafkajs": Learnt("open", "KafkaJSSASLAuthenticationError"),
}
"""What a client says of a wrong password. The others are in `test_passwords.py`."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with run_secured(tmp_path_factory.mktemp("certificates")) as running:
        yield running


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    """A client library: one after the other."""
    return Library.of(request)


@contextmanager
def running(
    secured: Secured, library: Library, application: Application, *, wrong: str = ""
) -> Iterator[Agent]:
    """Run an agent as the application's user while the block runs.

    `wrong` stands in the place of the password, if it is given.
    """
    of_user = library.chosen(
        java=secured.java, python=secured.python, librdkafka=secured.librdkafka
    )
    settings: dict[str, str] = of_user(application.user)
    right = password_of(application.user)
    if wrong:
        settings = {name: value.replace(right, wrong) for name, value in settings.items()}
    with library.running(settings) as agent:
        yield agent


def relay_words(secured: Secured, library: Library, application: Application) -> list[object]:
    instance = "-" if library.name in NO_INSTANCE else "instance"
    names = (application.transactional_id, application.group, instance)
    topics = (application.source, application.target)
    return ["relay", secured.address, *names, *topics, len(VALUES), 1]


def test_with_what_it_needs_an_application_copies_exactly_once(
    secured: Secured, library: Library
) -> None:
    application = deployed(secured)
    with running(secured, library, application) as agent:
        agent.ask(*relay_words(secured, library, application))
    assert secured.values(application.target, len(VALUES)) == [*VALUES]


@pytest.mark.parametrize("right", RIGHTS)
def test_without_a_right_an_application_learns_which(
    secured: Secured, library: Library, right: str
) -> None:
    application = deployed(secured, but=right)
    learnt = ERRORS[library.name][right]
    with running(secured, library, application) as agent:
        step, refused = refused_step(agent, secured, application)
    assert (step, refused.kind) == (learnt.step, learnt.kind), refused
    assert learnt.words in str(refused)
    assert secured.values(application.target, 0) == []


def refused_step(agent: Agent, secured: Secured, application: Application) -> tuple[str, Refused]:
    """Take the steps of a transaction; return the one that is refused, and how."""
    producer = "producer"
    steps: tuple[tuple[object, ...], ...] = (
        ("open", producer, secured.address, application.transactional_id, 60_000),
        ("begin", producer),
        ("send", producer, application.target, 0, "value"),
        ("offsets", producer, application.group, application.source, 0, 1),
        ("commit", producer),
    )
    for step in steps:
        try:
            agent.ask(*step)
        except Refused as refused:
            return str(step[0]), refused
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize("right", ["READ source", "READ group"])
def test_without_a_right_a_member_learns_which(
    secured: Secured, library: Library, right: str
) -> None:
    application = deployed(secured, but=right)
    learnt = OF_MEMBERS[library.name][right]
    with running(secured, library, application) as agent:
        agent.tell(*relay_words(secured, library, application))
        if learnt == SILENCE:
            with pytest.raises(TimeoutError):
                agent.answer(SILENT_SECONDS)
            return
        with pytest.raises(Refused) as refused:
            agent.answer()
    assert refused.value.kind == learnt, refused.value


def test_a_right_that_is_taken_away_ends_a_producer(secured: Secured, library: Library) -> None:
    application = deployed(secured)
    with running(secured, library, application) as agent:
        producer = agent.producer(secured.address, application.transactional_id)
        producer.write(application.target, "before")
        take_away(secured, application, "WRITE target")
        producer.begin()
        with pytest.raises(Refused) as refused:
            producer.send(application.target, "after")
        if library.name == "confluent":  # the record was not sent, and the transaction says why
            assert refused.value.kind == "_PURGE_QUEUE"
            with pytest.raises(Refused) as refused:
                producer.commit()
    named = "Topic" if "_" not in refused.value.kind else "TOPIC"
    assert named in refused.value.kind, refused.value
    assert secured.values(application.target, 1) == [b"before"]


@pytest.mark.peers
@pytest.mark.parametrize("library", WRONG_PASSWORD, indirect=True)
def test_a_wrong_password_is_an_error_of_authentication(secured: Secured, library: Library) -> None:
    application = deployed(secured)
    learnt = WRONG_PASSWORD[library.name]
    with running(secured, library, application, wrong="a guess") as agent:
        step, refused = refused_step(agent, secured, application)
    assert (step, refused.kind) == (learnt.step, learnt.kind), refused
    assert learnt.words in str(refused)
