"""All stories: those of the modules in `stories/`."""

import importlib
from functools import cache
from pathlib import Path
from typing import Final

from tests.judge.story import Story, stories_of

STORIES: Final = Path(__file__).parent / "stories"


@cache
def catalogue() -> dict[str, Story]:
    """Return the stories by id, in the order in which they are run."""
    modules = [
        importlib.import_module(f"tests.judge.stories.{path.stem}")
        for path in sorted(STORIES.glob("*.py"))
    ]
    return {story.id: story for module in modules for story in stories_of(module)}
