"""`python -m odradek.broker` is the command `odradek`."""

from odradek.broker.cli import main

main(prog_name="odradek")
