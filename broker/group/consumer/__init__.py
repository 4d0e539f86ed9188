"""Consumer groups of the new protocol (KIP-848), as values and pure functions.

In the new protocol the coordinator assigns the partitions. A member sends heartbeats, and each
answer may change what it owns. Three numbers order everything:

- the *group epoch* is raised when the members or what they subscribe to change;
- the *assignment epoch* is the group epoch for which the target assignment was computed;
- a *member epoch* is the assignment epoch that the member has reached.

A member that has to give up partitions keeps its epoch until it has reported that it has revoked
them. A partition is given to its next owner once the previous one has revoked it. So no partition
has two owners, and a member that is late holds up only the partitions that it owns.

`heartbeat.py` is one heartbeat: group and request in, next group and answer out. It uses
`target.py` (who should own what; `assignors.py`) and `reconcile.py` (how one member gets there).
`consumer_group_records.py` writes the difference of two groups, and reads it back. `state.py` is
the table. `broker/group/live_consumer_group.py` is the shell: it appends the records, and keeps the
time.
"""
