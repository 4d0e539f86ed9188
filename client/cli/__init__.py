"""The client's commands of `odradek`. Each module is imported when its command is used.

A user's mistake ends in one sentence on standard error and status 1 (2 for a wrong option). If the
reader of a pipe ends (`odradek consume t | head`), the command ends without a message.
"""
