"""`python -m odradek.broker` is the command `odradek`."""

import gc

# The collector finds nothing while modules are imported, and takes a twentieth of a start.
gc.disable()
try:
    from odradek.broker.cli import main
finally:
    gc.enable()

if __name__ == "__main__":
    main(prog_name="odradek")
