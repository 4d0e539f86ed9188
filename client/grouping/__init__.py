"""GroupMembership of consumer groups: who reads which partition, and how that changes.

`state.py` is the table of a member's states, `assignors.py` and `sticky.py` divide partitions; all
three are pure. `member.py` and `kip848_member.py` are the shells around it, for the classic
and for the new protocol (KIP-848): they join, send heartbeats and leave. `undecided.py` stands for
the member until the coordinator has said which protocols it has.
`membership.py` does what a poll has to do: it calls the program's callbacks, stores offsets before
partitions go, and changes what the consumer reads. `commits.py` stores offsets as a member.

`membership.py` uses them only through `GroupMember`.
"""
