"""The configuration reference says what the declarations say."""

from pathlib import Path

import pytest

from odradek.broker.config.broker import broker_settings
from odradek.broker.config.topic import TOPIC_SETTINGS, about_topic
from odradek.broker.reference.configuration import page

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def is_sentence(text: str) -> bool:
    return text[:1] in "`ABCDEFGHIJKLMNOPQRSTUVWXYZ" and text.endswith(".") and len(text) > 15


def test_the_page_is_the_one_that_the_declarations_make() -> None:
    assert PAGE.read_text() == page(), "run scripts/fix"


@pytest.mark.parametrize("name", broker_settings())
def test_a_setting_of_the_broker_has_a_sentence(name: str) -> None:
    assert is_sentence(broker_settings()[name].about)


@pytest.mark.parametrize("name", TOPIC_SETTINGS)
def test_a_setting_of_a_topic_has_a_sentence(name: str) -> None:
    assert is_sentence(about_topic(name))
