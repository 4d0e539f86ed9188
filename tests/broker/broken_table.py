"""A broker whose transaction table has a hole: EVENT STATE, then what `odradek` takes.

The cell says that what happens cannot happen, as it would if the code around the table were wrong.
"""

import sys

from odradek.broker.cli import main
from odradek.broker.txn.events import Event
from odradek.broker.txn.state import TABLE
from odradek.broker.txn.transaction import State
from odradek.protocol.transition_table import NEVER

if __name__ == "__main__":
    event, state = Event[sys.argv.pop(1)], State[sys.argv.pop(1)]
    for table in TABLE.values():
        table[state, event] = NEVER
    main()
