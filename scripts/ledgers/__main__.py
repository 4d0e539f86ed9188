"""Money moves in PostgreSQL and in a topic, in one commit, under kill -9 of every side."""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Final

from odradek.broker.testing import run_broker
from odradek.client.postgres import Step
from scripts.ledgers.sides import CLIENTS, SETTINGS, Ledger, Program, Unlike, run_to_the_end
from tests.peers.postgres import run_postgres

PROGRAM: Final = "the program"
SERVERS: Final = ("the broker", "PostgreSQL")
NAMES: Final = tuple(CLIENTS)
MANY: Final = 1_000_000
AT_ENTRY: Final = (Step.INSTANCE_RAISED, Step.PRODUCER_ENTERED, Step.RECOVERED, Step.CLEARED)


def cases(*, is_quick: bool) -> Iterator[tuple[Step, tuple[str, ...]]]:
    """Yield each step with each set of sides that are killed there."""
    sides = (PROGRAM, *SERVERS)
    sizes = (1, 3) if is_quick else (1, 2, 3)
    for step in Step:
        for size in sizes:
            yield from ((step, killed) for killed in itertools.combinations(sides, size))


def at_a_step(ledger: Ledger, step: Step, killed: tuple[str, ...], seed: str) -> None:
    """Kill some sides when a program is at a step, and let another one go on."""
    name = Random(seed).choice(NAMES)
    if step in AT_ENTRY:  # there is something to recover
        before = Program(ledger, name, MANY, seed, f"{Step.DECIDED}:1")
        before.is_at.wait()
        before.kill()
        before.ended()
    program = Program(ledger, name, 3, seed, f"{step}:{1 if step in AT_ENTRY else 2}")
    program.is_at.wait()
    if PROGRAM in killed:
        program.kill()
    for side in killed:
        if side != PROGRAM:
            ledger.kill(side)
    program.go_on()
    program.ended()
    run_to_the_end(ledger, name, 1, f"{seed}, afterwards")
    ledger.judge()


def at_random(ledger: Ledger, kills: int, seed: int) -> None:
    """Kill what the dice say while two programs move money."""
    dice = Random(seed)
    programs = {name: Program(ledger, name, MANY, f"{seed}") for name in NAMES}
    for number in range(kills):
        time.sleep(dice.uniform(0.05, 1.0))
        for name, program in programs.items():
            if program.process.poll() is not None:
                program.ended()
                programs[name] = Program(ledger, name, MANY, f"{seed} {number}")
        side = dice.choice((*NAMES, *SERVERS))
        if side in NAMES:
            programs[side].kill()
        else:
            ledger.kill(side)
    for name, program in programs.items():
        program.kill()
        program.ended()
        run_to_the_end(ledger, name, 3, f"{seed}, afterwards")
    ledger.judge()


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/ledger", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer kills at steps and at random")
    parser.add_argument("--seed", type=int, default=1, help="draws the moves and the random kills")
    parser.add_argument("--kills", type=int, help="the number of kills at random")
    options = parser.parse_args()
    kills = options.kills if options.kills is not None else (5 if options.quick else 100)
    started = time.monotonic()
    with run_postgres() as postgres, run_broker(config=SETTINGS) as broker:
        ledger = Ledger(broker, postgres)
        try:
            for step, killed in cases(is_quick=options.quick):
                what = f"kill -9 of {', '.join(killed)} at {step}"
                print(what, flush=True)
                at_a_step(ledger, step, killed, f"{options.seed} {what}")
                ledger.counts["steps"] += 1
            print(f"{kills} kills at random, seed {options.seed}", flush=True)
            at_random(ledger, kills, options.seed)
        except Unlike as unlike:
            sys.exit(f"ledger: {unlike}")
    for what, count in sorted(ledger.counts.items()):
        print(f"{count:8,} {what}")
    seconds = time.monotonic() - started
    print(f"ledger: sums and records agree, after every kill ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
