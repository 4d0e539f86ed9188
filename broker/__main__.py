"""`python -m odradek.broker` is the command `odradek`."""

from odradek.broker import collector

with collector.paused():
    from odradek.broker.cli import main

if __name__ == "__main__":
    main(prog_name="odradek")
