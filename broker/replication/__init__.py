"""Replication: followers copy their leaders' batches, and leaders keep the in-sync sets."""
