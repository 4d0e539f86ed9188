"""`python -m odradek.broker` is the command `odradek`."""

from odradek.broker.environment import collector

with collector.paused():
    from odradek.broker.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main(prog_name="odradek")
