"""`python -m tests.judge record`: run all stories on a real Kafka, and record its answers.
`python -m tests.judge compare STORY`: compare our broker's answers in a story with Kafka's."""

import contextlib
import sys
from collections.abc import Iterator

import click

from tests.judge.catalogue import catalogue
from tests.judge.differences import DIFFERENCES
from tests.judge.judging import RECORDED, disagreements, file_of, record, recorded, transcript_of
from tests.judge.setups import Open, kafka_setup, our_setup
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
def compare(stories: tuple[str, ...], live: bool, whole: bool) -> None:
    """Run STORIES (ids, or beginnings of ids) on our broker, and show the differences."""
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
    return _transcripts(stories, kafka_setup)


def _ours(stories: list[Story]) -> Iterator[tuple[Story, list[str]]]:
    return _transcripts(stories, our_setup)


def _transcripts(stories: list[Story], open_house: Open) -> Iterator[tuple[Story, list[str]]]:
    """Run stories in groups of the same setup, so that each setup is started once at most."""
    left = list(stories)
    while left:
        with open_house(left[0].setup, catalogue().values()) as setup:
            for story in left:
                if story.setup in setup.serves:
                    with _naming(story):
                        yield story, transcript_of(setup.broker, story)
            left = [story for story in left if story.setup not in setup.serves]


@contextlib.contextmanager
def _naming(story: Story) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the story {story.id}")
        raise


if __name__ == "__main__":
    main(prog_name="python -m tests.judge")
