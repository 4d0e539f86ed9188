"""The laws of the text: docstrings, names, and how long things get.

Each finding says the place, the law, and what to do.
"""

import ast

import pytest

from tests.laws.methods import METHODS_MAX, large_classes, too_many_methods
from tests.laws.participles import REMAINING, is_participle, participles
from tests.laws.source import ROOT, modules, require_none
from tests.laws.wording import (
    FUNCTION_LINES_MAX,
    HANDLER_LINES_MAX,
    MODULE_LINES_MAX,
    bare_codes,
    namesakes,
    too_long,
    without_full_stop,
    wrong_docstrings,
)

# public classes that two modules may define, and why a reader is not led astray
NAMESAKES = {
    **dict.fromkeys(
        (
            *("Admin", "Consumer", "Delivery", "PooledTransaction", "Producer", "Transaction"),
            *("TransactionGroup", "TransactionPool"),
        ),
        "the public client and its counterparts in `client/blocking/` and `client/aio/`",
    ),
    "Subscriber": "a member as an assignor sees it: those of the client, and those of the broker",
    **dict.fromkeys(
        ("PostgresProducer", "PostgresTransaction"),
        "the trio classes and their blocking counterparts have the same names",
    ),
    **dict.fromkeys(
        ("EpochEndOffset", "LeaderIdAndEpoch", "NodeEndpoint"),
        "Kafka's schemas of two APIs name parts of their messages alike",
    ),
    **dict.fromkeys(
        ("ProducerIdAndEpoch", "TopicPartition"),
        "the same value in broker and client, which share nothing but the protocol",
    ),
}


def test_the_first_line_of_a_docstring_is_a_plain_sentence() -> None:
    require_none(wrong for module, tree in modules() for wrong in wrong_docstrings(module, tree))


@pytest.mark.parametrize(
    "line",
    [
        "Whether the log is due.",
        "How many logs were compacted.",
        "This function returns the log.",
        "Return the log",
        "Return the log, which is closed\nwhen the broker stops.",
        "",
    ],
)
def test_a_docstring_of_another_form_is_seen(line: str) -> None:
    function = f'def f() -> None:\n    """{line}"""'
    assert list(wrong_docstrings("broker/broker.py", ast.parse(function))) != []


def test_a_class_name_stands_for_one_concept() -> None:
    found = namesakes(modules())
    require_none(
        f"{' and '.join(where)} define {name}: a class name stands for one concept. Give one of "
        "them another name, or NAMESAKES the reason why both may have it."
        for name, where in found.items()
        if name not in NAMESAKES
    )
    require_none(
        f"{name} in NAMESAKES: a name that is defined once needs no reason. Delete its line."
        for name in sorted(NAMESAKES.keys() - found.keys())
    )


def test_a_class_with_the_name_of_another_is_seen() -> None:
    trees = [
        ("broker/txn/events.py", ast.parse("class Event: ...\nclass _Entry: ...")),
        ("broker/group/state.py", ast.parse("class Event: ...\nclass _Entry: ...")),
    ]
    assert list(namesakes(trees)) == ["Event"]


def test_a_new_function_is_not_named_by_a_participle_alone() -> None:
    require_none(
        finding
        for module, tree in modules()
        for name, finding in participles(module, tree)
        if name not in REMAINING
    )


def test_each_participle_that_may_remain_is_the_name_of_a_function() -> None:
    there = {name for module, tree in modules() for name, _ in participles(module, tree)}
    require_none(
        f"tests/laws/participles.py: {name!r} is the name of no function any more: take it out "
        "of REMAINING."
        for name in sorted(REMAINING - there)
    )


def test_a_participle_is_told_from_an_adjective_and_from_a_verb() -> None:
    assert all(map(is_participle, ("heard", "_taken", "given_up", "made_anew", "settled")))
    assert not any(map(is_participle, ("on_closed", "wait_flushed", "flushed_offset", "feed")))
    assert list(participles("broker/broker.py", ast.parse("class A:\n    def woken(self): ...")))


def test_an_error_of_a_command_ends_with_a_full_stop() -> None:
    require_none(found for module, tree in modules() for found in without_full_stop(module, tree))


@pytest.mark.parametrize(
    "words", ['"no number"', 'f"{text!r} is no number"', 'f"give one of {names}"']
)
def test_an_error_of_a_command_without_a_full_stop_is_seen(words: str) -> None:
    tree = ast.parse(f"raise click.BadParameter({words}, param_hint=option)")
    assert len(list(without_full_stop("client/cli/topics.py", tree))) == 1


def test_nothing_grows_too_long() -> None:
    require_none(
        found
        for module, tree in modules()
        for found in too_long(module, (ROOT / module).read_text(), tree)
    )


def test_what_is_too_long_is_seen() -> None:
    function = "def f():\n" + FUNCTION_LINES_MAX * "    pass\n"
    module = MODULE_LINES_MAX * "\n" + function
    assert len(list(too_long("broker/broker.py", function, ast.parse(function)))) == 1
    assert len(list(too_long("broker/broker.py", module, ast.parse(module)))) == 2
    handler = HANDLER_LINES_MAX * "\n" + "x = 1\n"
    assert list(too_long("broker/broker.py", handler, ast.parse(handler))) == []
    assert len(list(too_long("broker/api/produce.py", handler, ast.parse(handler)))) == 1


def test_a_class_has_few_enough_methods_to_be_one_thing() -> None:
    require_none(too_many_methods(large_classes(modules())))


def test_a_class_of_too_many_methods_is_seen() -> None:
    methods = [f"    def m{number}(self): ..." for number in range(METHODS_MAX)]
    text = "\n".join(["class A:", *methods, "    @m0.setter", methods[0]])
    assert large_classes([("a.py", ast.parse(text))]) == {}
    more = ast.parse(f"{text}\n    def more(self): ...")
    assert large_classes([("a.py", more)]) == {"a.py:A": METHODS_MAX + 1}


def test_a_person_reads_the_names_of_error_codes_and_not_their_numbers() -> None:
    in_names = {"protocol/errors.py", "protocol/kinds.py"}  # name_of itself; a type of construct's
    require_none(
        found
        for module, tree in modules()
        if module not in in_names
        for found in bare_codes(module, tree)
    )


def test_a_bare_error_code_is_seen() -> None:
    for line in ('LOGGER.info("%s", answer.error_code)', 'f"error {refused.code}"'):
        assert list(bare_codes("broker/membership/peers.py", ast.parse(line))) != []
