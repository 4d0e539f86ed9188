"""`python -m tests.judge record`: ask a real Kafka everything again and keep its answers.
`python -m tests.judge tell STORY`: what ours and a real Kafka say to one story, side by side."""

import contextlib
import sys
from collections.abc import Iterator

import click

from tests.judge.catalogue import catalogue
from tests.judge.differences import DIFFERENCES
from tests.judge.houses import Open, kafka_house, our_house
from tests.judge.judging import RECORDED, disagreements, file_of, record, recorded, told_to
from tests.judge.story import Story


@click.group()
def main() -> None:
    """Our broker, judged by a real Kafka."""


@main.command("record")
@click.argument("modules", nargs=-1)
def record_again(modules: tuple[str, ...]) -> None:
    """Record the stories of these MODULES, or all."""
    chosen = [s for s in catalogue().values() if not modules or s.module in modules]
    found: dict[str, dict[str, list[str]]] = {}
    for story, transcript in _kafkas(chosen):
        found.setdefault(file_of(story), {})[story.id] = transcript
    RECORDED.mkdir(exist_ok=True)
    record(found)
    if not modules:
        for path in RECORDED.iterdir():
            if path.name not in found:
                path.unlink()
    click.echo(f"{len(chosen)} stories recorded in {len(found)} files.")


@main.command()
@click.argument("stories", nargs=-1)
@click.option("--live", is_flag=True, help="Ask a real Kafka, too, not just its recording.")
@click.option("--all", "whole", is_flag=True, help="Show what they agree on as well.")
def tell(stories: tuple[str, ...], live: bool, whole: bool) -> None:
    """Tell STORIES (ids, or how they begin) to our broker and show where it disagrees."""
    chosen = _chosen(stories)
    theirs = {s.id: lines for s, lines in _kafkas(chosen)} if live else recorded()
    bad = 0
    for story, mine in _ours(chosen):
        kafka = theirs.get(story.id, [])
        diff, met = disagreements(story.id, kafka, mine)
        bad += bool(diff)
        if diff or whole:
            click.echo(f"== {story.id}")
            click.echo("\n".join(diff if diff else kafka))
        for difference in met:
            click.echo(f"   {story.id} meets: {difference.name}")
    click.echo(f"{len(chosen)} stories, {bad} disagree; {len(DIFFERENCES)} known differences.")
    sys.exit(bad > 0)


def _chosen(starts: tuple[str, ...]) -> list[Story]:
    return [s for s in catalogue().values() if not starts or s.id.startswith(starts)]


def _kafkas(stories: list[Story]) -> Iterator[tuple[Story, list[str]]]:
    return _told(stories, kafka_house)


def _ours(stories: list[Story]) -> Iterator[tuple[Story, list[str]]]:
    return _told(stories, our_house)


def _told(stories: list[Story], open_house: Open) -> Iterator[tuple[Story, list[str]]]:
    """House by house: each is opened once, if it is needed."""
    left = list(stories)
    while left:
        with open_house(left[0].house, catalogue().values()) as house:
            for story in left:
                if story.house in house.serves:
                    with _naming(story):
                        yield story, told_to(house.broker, story)
            left = [story for story in left if story.house not in house.serves]


@contextlib.contextmanager
def _naming(story: Story) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the story {story.id}")
        raise


if __name__ == "__main__":
    main(prog_name="python -m tests.judge")
