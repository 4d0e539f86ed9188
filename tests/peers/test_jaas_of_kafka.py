"""A line of JAAS is the same password here and in Kafka, whose own parser is asked."""

import base64
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from odradek.protocol.jaas import JaasError, parse_jaas
from tests.peers import jars
from tests.protocol.test_jaas import LINES

AGENT: Final = Path(__file__).parent / "JaasAgent.java"
DRAWN: Final = 3_000
SEED: Final = 26
INSIDE: Final = "ab1-_.$=;/*nt0147 @äß\\\\\\"
BARE: Final = "aaabbc19-_.$ä/@"
NAMES: Final = ("a", "user_b", '"user c"', "'d'", "e.f", "g-h", "1", "-i", '"j\\x"')
EQUALS: Final = ("=", " = ", "=", "=/**/", "")
BETWEEN: Final = (" ", " ", "\n", "\t", " /* = */ ", " // ;\n", "", ";")

Options = dict[str, str] | None


def drawn_lines() -> list[str]:
    return [_drawn(random.Random(f"{SEED}/{number}")) for number in range(DRAWN)]


def _drawn(rng: random.Random) -> str:
    options = (
        f"{rng.choice(BETWEEN)}{rng.choice(NAMES)}{rng.choice(EQUALS)}{_value(rng)}"
        for _ in range(rng.randint(0, 3))
    )
    return f"M required{''.join(options)}{rng.choice([';', ' ;', '; // end', ''])}"


def _value(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return "".join(rng.choices(BARE, k=rng.randint(0, 5)))
    quote, other = rng.sample("\"'", 2)
    text = "".join(rng.choices([*INSIDE, other, f"\\{quote}", "\\\n"], k=rng.randint(0, 12)))
    return f"{quote}{text}{quote}"


def ours(line: str) -> Options:
    try:
        return parse_jaas(line).options
    except JaasError:
        return None


def kafkas(lines: Sequence[str]) -> list[Options]:
    asked = "\n".join(base64.b64encode(line.encode()).decode() for line in lines)
    ran = subprocess.run(
        [*jars.QUICK_JAVA, "-Xmx256m", "-cp", f"{jars.kafka_jars()}/*", str(AGENT)],
        input=asked,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = ran.stdout.splitlines()
    assert len(answers) == len(lines), ran.stderr
    return [_options(answer) for answer in answers]


def _options(answer: str) -> Options:
    words = answer.split(" ")
    if words[0] in {"refused", "nameless"}:
        return None
    assert words[0] == "options", answer
    return {_decoded(n): _decoded(v) for n, _, v in (word.partition("=") for word in words[1:])}


def _decoded(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


@pytest.mark.peers
def test_each_line_of_our_table_is_read_so_by_kafka() -> None:
    found = kafkas([line for line, _ in LINES])
    assert [
        (line, dict(options or {})) for (line, _), options in zip(LINES, found, strict=True)
    ] == [(line, options or {}) for line, options in LINES]


@pytest.mark.peers
def test_what_is_read_of_random_lines_is_what_kafka_reads() -> None:
    """We refuse more: an option that stands twice, and a text without its closing quote."""
    lines = drawn_lines()
    read = [(line, options) for line in lines if (options := ours(line)) is not None]
    assert len(read) > DRAWN // 4
    found = kafkas([line for line, _ in read])
    wrong = [(line, o, k) for (line, o), k in zip(read, found, strict=True) if o != k]
    assert wrong == []


@pytest.mark.peers
def test_what_is_refused_of_random_lines_is_refused_by_kafka_or_has_a_reason() -> None:
    refused = [line for line in drawn_lines() if ours(line) is None]
    found = kafkas(refused)
    unexplained = []
    for line, options in zip(refused, found, strict=True):
        with pytest.raises(JaasError) as error:
            parse_jaas(line)
        is_stricter = "twice" in str(error.value) or "no closing quote" in str(error.value)
        if options is not None and not is_stricter:
            unexplained.append((line, options, str(error.value)))
    assert unexplained == []
