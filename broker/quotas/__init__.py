"""Quotas of clients: what may be used, what is used, and the time for which a client must wait."""
