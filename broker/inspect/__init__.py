"""Inspecting and repairing a stopped broker's files: `odradek log` and `odradek storage`."""
