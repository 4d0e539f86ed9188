"""Principals and what they may do. Pure: nothing here knows of connections or of the store."""
