"""`python -m odradek.broker` is the command `odradek`."""

import gc

# What modules are made of stays: the collector need not look at it, neither now nor later.
gc.disable()
try:
    from odradek.broker.cli import main
finally:
    gc.freeze()
    gc.enable()

if __name__ == "__main__":
    main(prog_name="odradek")
