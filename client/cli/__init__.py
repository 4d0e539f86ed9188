"""The client's commands of `odradek`, a module each, imported when it is named.

What a person can get wrong ends in one sentence on standard error and status 1 (2 for a wrong
option). A reader that goes away (`odradek consume t | head`) ends the command quietly.
"""
