"""GroupMembership of consumer groups: who reads which partition, and how that changes.

`state.py` is the table of a member's states, `assignors.py` and `sticky.py` divide partitions; all
three are pure. `member.py` is the shell around the table: it joins, sends heartbeats and leaves.
`membership.py` does what a poll has to do: it calls the program's callbacks, stores offsets before
partitions go, and changes what the consumer reads. `commits.py` stores offsets as a member.

The member of `member.py` speaks the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).
`membership.py` uses it only through `GroupMember`, so that another protocol (KIP-848)
takes its place.
"""
