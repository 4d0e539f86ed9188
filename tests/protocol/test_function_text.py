import traceback

import pytest

from odradek.protocol.function_text import FunctionText


def test_lines_become_a_function() -> None:
    code = FunctionText("sign", ["number"], objects={"none": 0})
    with code.block("if number < none:"):
        code.line("return -1")
    code.line("return 1")
    assert code.source == (
        "def sign(number):\n    if number < none:\n        return -1\n    return 1\n"
    )
    assert [code.compile()(number) for number in (-5, 5)] == [-1, 1]


def test_no_two_things_have_one_name() -> None:
    code = FunctionText("f", ["data"], objects={"read": 1}, locals=frozenset({"at"}))
    wishes = ["f", "data", "read", "at", "len", "item", "item", "item"]
    given = ["f_2", "data_2", "read_2", "at_2", "len_2", "item", "item_2", "item_3"]
    assert [code.local(wish) for wish in wishes] == given


def test_an_object_keeps_its_name_and_another_gets_its_own() -> None:
    code = FunctionText("f", [], objects={})
    first, second = object(), object()
    assert [code.object("it", it) for it in (first, second, first)] == ["it", "it_2", "it"]
    code.line("return it, it_2")
    assert code.compile()() == (first, second)


def test_a_traceback_shows_the_line_that_failed() -> None:
    code = FunctionText("broken", ["value"], objects={})
    code.line("return value.missing")
    with pytest.raises(AttributeError) as raised:
        code.compile()(None)
    assert "return value.missing" in "".join(traceback.format_exception(raised.value))
