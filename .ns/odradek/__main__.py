"""`python -m odradek` is the command `odradek`."""

from odradek.broker.__main__ import main

if __name__ == "__main__":
    main(prog_name="odradek")
